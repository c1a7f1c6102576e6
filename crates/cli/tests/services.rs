//! `baton list`, `check` and `ping` beside service managers of several releases of Android.
//!
//! The managers are simulated. Each accepts exactly the requests of its release and answers any
//! other with a status, as the real one does: sources as in `src/manager.rs`.
#[path = "../../binder/driver/tests/support/program.rs"]
mod program;
#[path = "../../nucleus/host/tests/support/mod.rs"]
mod support;

use baton::android::Reader;
use baton_abi::uapi::*;
use bytemuck::{Zeroable, bytes_of};
use program::{Commands, Message, Program};
use serde_json::{Value as Json, json};
use std::process::{Command, Output};
use std::thread;
use support::Broker;

const BATON: &str = env!("CARGO_BIN_EXE_baton");
const NAMES: [&str; 2] = ["clock", "weather.IWeather/default"];
const INTERFACE: &str = "android.test.IThing";
const PING: u32 = u32::from_be_bytes(*b"_PNG");
const DESCRIPTOR: u32 = u32::from_be_bytes(*b"_NTF");
/// The node of the service; the manager's is 0.
const SERVICE: u64 = 1;
const TF_STATUS_CODE: u32 = 0x08;
const MARK: i32 = i32::from_be_bytes(*b"SYST");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Release {
    Nine,
    Ten,
    ElevenToFourteen,
    Sixteen,
}

/// The body of a request behind its header. `None` if the header is another release's.
fn body(release: Release, data: &[u8]) -> Option<Reader<'_>> {
    let mut reader = Reader::new(data);
    reader.i32()?;
    if release != Release::Nine {
        reader.i32()?;
    }
    let has_mark = matches!(release, Release::ElevenToFourteen | Release::Sixteen);
    if has_mark && reader.i32()? != MARK {
        return None;
    }
    (reader.string()? == "android.os.IServiceManager").then_some(reader)
}

/// A reply under construction.
#[derive(Default)]
struct Reply {
    data: Vec<u8>,
    objects: Vec<u64>,
}

impl Reply {
    fn number(&mut self, number: i32) {
        self.data.extend_from_slice(&number.to_le_bytes());
    }

    fn string(&mut self, text: &str) {
        self.number(text.encode_utf16().count() as i32);
        self.data.extend(text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes));
        self.data.resize(self.data.len().next_multiple_of(4), 0);
    }

    /// Writes the service, or no object, which does not count as an object of the reply.
    fn object(&mut self, binder: u64) {
        let object = FlatObject { kind: BINDER_TYPE_BINDER, binder, ..FlatObject::zeroed() };
        if binder != 0 {
            self.objects.push(self.data.len() as u64);
        }
        self.data.extend_from_slice(bytes_of(&object));
    }
}

fn manage(release: Release, code: u32, data: &[u8]) -> Option<Reply> {
    let mut reader = body(release, data)?;
    let mut reply = Reply::default();
    let is_aidl = matches!(release, Release::ElevenToFourteen | Release::Sixteen);
    if is_aidl {
        reply.number(0);
    }
    let (list, check) = if release == Release::Sixteen { (6, 4) } else { (4, 2) };
    if code == list && is_aidl {
        assert_eq!(reader.i32()?, 15);
        reply.number(NAMES.len() as i32);
        NAMES.into_iter().for_each(|name| reply.string(name));
    } else if code == list {
        let place = usize::try_from(reader.i32()?).ok()?;
        assert_eq!(reader.i32()?, 15);
        reply.string(NAMES.get(place)?);
    } else if code == check {
        let is_there = NAMES.contains(&&*reader.string()?);
        if release == Release::Sixteen {
            reply.number(1);
            reply.number(0);
        }
        if is_there || is_aidl {
            reply.object(if is_there { SERVICE } else { 0 });
        } else {
            reply.number(0);
        }
        if is_aidl {
            // The service's stability.
            reply.number(if is_there { 0b00_1100 } else { 0 });
        }
    } else {
        return None;
    }
    Some(reply)
}

fn serve(code: u32, data: &[u8]) -> Option<Reply> {
    let mut reply = Reply::default();
    match code {
        PING => {}
        // The status, and the size of the request.
        1 => [0, data.len() as i32].into_iter().for_each(|number| reply.number(number)),
        DESCRIPTOR => reply.string(INTERFACE),
        _ => return None,
    }
    Some(reply)
}

/// Starts a manager and the service that it knows. Without a release the manager knows nothing.
fn start(broker: &Broker, release: Option<Release>) {
    let program = Program::open(&broker.socket);
    program.become_manager();
    thread::spawn(move || {
        let mut next = Commands::default().put(BC_ENTER_LOOPER, &[]);
        while let Ok(returned) = program.exchange(next) {
            next = Commands::default();
            for Message { transaction, data } in &returned.messages {
                let reply = match (transaction.target, release) {
                    (SERVICE, _) => serve(transaction.code, data),
                    (_, Some(release)) => manage(release, transaction.code, data),
                    (_, None) => None,
                };
                let status =
                    |status: i32| Reply { data: status.to_le_bytes().into(), ..Reply::default() };
                let flags = if reply.is_none() { TF_STATUS_CODE } else { 0 };
                let reply = reply.unwrap_or_else(|| status(-1));
                next = next.send_objects(BC_REPLY, 0, flags, &reply.data, &reply.objects);
            }
        }
    });
}

fn baton(broker: &Broker, words: &[&str]) -> Output {
    Command::new(BATON).arg("--socket").arg(&broker.socket).args(words).output().unwrap()
}

fn text(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8(output.stdout.clone()).unwrap())
}

#[test]
fn managers_of_every_release_are_understood() {
    for release in [Release::Nine, Release::Ten, Release::ElevenToFourteen, Release::Sixteen] {
        let broker = Broker::start();
        start(&broker, Some(release));
        let listed = "Found 2 services:\n0\tclock: [android.test.IThing]\n\
            1\tweather.IWeather/default: [android.test.IThing]\n";
        let nothing = "Result: Parcel()\n";
        let json = "{\n  \"name\": \"clock\",\n  \"found\": true\n}\n";
        for (words, status, said) in [
            (&["list"][..], 0, listed),
            (&["service", "list"], 0, listed),
            (&["check", "clock"], 0, "Service clock: found\n"),
            (&["service", "check", "clock"], 0, "Service clock: found\n"),
            (&["check", "nobody"], 1, "Service nobody: not found\n"),
            (&["check", "--json", "clock"], 0, json),
            (&["call", "clock", "_PNG"], 0, nothing),
            (&["service", "call", "clock", "_PNG"], 0, nothing),
            (
                &["dumpsys", "-l"],
                0,
                "Currently running services:\n  clock\n  weather.IWeather/default\n",
            ),
        ] {
            let output = baton(&broker, words);
            let found = (Some(status), said.to_owned());
            assert_eq!(text(&output), found, "{release:?} {words:?}: {output:?}");
        }
        let (_, services) = text(&baton(&broker, &["list", "--json"]));
        let service = |name| json!({"name": name, "interface": INTERFACE, "accessor": false});
        let listed = json!({"services": NAMES.map(service)});
        assert_eq!(serde_json::from_str::<Json>(&services).unwrap(), listed, "{release:?}");
        let (status, said) = text(&baton(&broker, &["ping", NAMES[1]]));
        assert_eq!(status, Some(0), "{release:?}");
        assert!(said.starts_with("Service weather.IWeather/default: alive"), "{release:?}: {said}");
    }
}

/// Since Android 10 a work source is in the header, and since Android 11 a mark; then a stability
/// follows each object.
#[test]
fn requests_have_the_form_of_the_release() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("IThing.aidl");
    std::fs::write(&file, "package android.test; interface IThing { int size(IBinder b); }")
        .unwrap();
    let file = file.to_str().unwrap();
    for (release, bytes) in [
        (Release::Nine, 72),
        (Release::Ten, 76),
        (Release::ElevenToFourteen, 84),
        (Release::Sixteen, 84),
    ] {
        let broker = Broker::start();
        start(&broker, Some(release));
        for object in ["null", "clock"] {
            let output = baton(&broker, &["call", "clock", "size", object, "--aidl", file]);
            let found = (Some(0), format!("result: {bytes}\n"));
            assert_eq!(text(&output), found, "{release:?}: {output:?}");
        }
    }
}

/// The context's manager is no service manager.
#[test]
fn a_manager_that_only_answers_statuses_is_reported() {
    let broker = Broker::start();
    start(&broker, None);
    let output = baton(&broker, &["list"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("another protocol"), "{said}");
}

#[test]
fn a_service_that_does_not_answer_is_listed_without_an_interface() {
    let broker = Broker::start();
    let manager = support::serve_manager(&broker);
    // No thread serves it.
    let silent = broker.open();
    let object = silent.object(|_| Err(rustix::io::Errno::NOSYS)).add();
    baton_host::manager::add(&silent, "silent", object).unwrap();
    let (code, listed) = text(&baton(&broker, &["list"]));
    assert_eq!((code, &*listed), (Some(0), "Found 1 services:\n0\tsilent: [?]\n"));
    let (_, listed) = text(&baton(&broker, &["list", "--json"]));
    let expected = json!({"services": [{"name": "silent", "interface": null, "accessor": false}]});
    assert_eq!(serde_json::from_str::<Json>(&listed).unwrap(), expected);
    manager.close();
}

#[test]
fn a_manager_that_does_not_answer_is_not_awaited_for_ever() {
    let broker = Broker::start();
    let manager = broker.open();
    manager
        .become_context_manager(manager.object(|_| Err(rustix::io::Errno::NOSYS)).add())
        .unwrap();
    let output = baton(&broker, &["list"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("the service manager does not answer"), "{said}");
    assert_eq!(output.status.code(), Some(124), "{said}");
}
