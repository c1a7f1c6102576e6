//! `baton call` by AIDL, `introspect`, `dump` and `ping`, with services that answer as they should,
//! and with services that do not.
//!
//! `tests/rsbinder/call` has services of a third party, which decide about the bytes of each type.
#[path = "../../nucleus/host/tests/support/mod.rs"]
mod support;

use baton::android::{Mark, Reader, Write as _};
use baton::{Errno, Parcel, Process, Request, ServiceManager};
use serde_json::{Value as Json, json};
use std::fs::File;
use std::io::Write as _;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use support::Broker;

const BATON: &str = env!("CARGO_BIN_EXE_baton");
const PING: u32 = u32::from_be_bytes(*b"_PNG");
const INTERFACE: u32 = u32::from_be_bytes(*b"_NTF");
const DUMP: u32 = u32::from_be_bytes(*b"_DMP");
const VERSION: u32 = 0x00ff_ffff;
const HASH: u32 = 0x00ff_fffe;

/// A broker, a manager and a service `thing` of `a.IThing`, and the AIDL files of a test.
struct Stage {
    broker: Broker,
    files: tempfile::TempDir,
    processes: [Process; 2],
}

impl Stage {
    /// The service answers what is its interface's own by `methods`.
    fn start(
        aidl: &str,
        methods: impl Fn(&Request<'_>) -> Result<Parcel, Errno> + Send + Sync + 'static,
    ) -> Stage {
        let broker = Broker::start();
        let manager = support::serve_manager(&broker);
        let service = broker.open();
        let object = service.object(move |request| {
            if request.code() == INTERFACE {
                let mut reply = Parcel::new();
                reply.write_string("a.IThing");
                return Ok(reply);
            }
            methods(request)
        });
        ServiceManager::find(&service).unwrap().publish("thing", object.add()).unwrap();
        let serving = service.clone();
        thread::spawn(move || serving.serve());
        let files = tempfile::tempdir().unwrap();
        std::fs::write(files.path().join("IThing.aidl"), format!("package a;\n{aidl}")).unwrap();
        Stage { broker, files, processes: [service, manager] }
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new(BATON);
        command.arg("--socket").arg(&self.broker.socket);
        command.args(words).current_dir(self.files.path()).output().unwrap()
    }

    /// Calls a method by the AIDL file.
    fn call(&self, words: &[&str]) -> Output {
        self.run(&[&["call", "--aidl", "IThing.aidl", "thing"], words].concat())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.processes.iter().for_each(Process::close);
    }
}

/// Standard output of a command that succeeds.
fn shown(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn json_of(output: &Output) -> Json {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Checks how a command fails, and what it says.
fn fails(output: &Output, status: i32, says: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{said}");
    says.iter().for_each(|says| assert!(said.contains(says), "{says:?} is not in: {said}"));
}

fn words(words: &[i32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Refuses all methods.
fn refuse(_: &Request<'_>) -> Result<Parcel, Errno> {
    Err(Errno::NOSYS)
}

#[test]
fn parameters_have_the_bytes_of_aidl() {
    let (tell, told) = mpsc::channel();
    let tell = Mutex::new(tell);
    let stage = Stage::start(
        "interface IThing {\n\
           @Backing(type=\"byte\") enum Small { A = 1, B }\n\
           @Backing(type=\"long\") enum Large { A = 1, B }\n\
           parcelable P { int x; @nullable String s; byte[] b = {1, 2}; }\n\
           union U { int i; P p; }\n\
           void f(in Small[] small, in Large large, in @nullable P none, in P p, out int[] n,\n\
             out P o, in U u, in boolean[] flags, in char[2] letters, IBinder object) = 6;\n\
         }",
        move |request| {
            let mut reader = Reader::new(request.data());
            assert_eq!(reader.token().as_deref(), Some("a.IThing"));
            tell.lock().unwrap().send((request.code(), reader.rest().to_vec())).unwrap();
            Err(Errno::NOSYS)
        },
    );
    let p = r#"{"x": 7}"#;
    let output = stage.call(&[
        "f",
        r#"["A", "B", 5]"#,
        "B",
        "null",
        p,
        "3",
        r#"{"p": {"x": 7}}"#,
        "[true]",
        r#"["a", "b"]"#,
        "null",
    ]);
    fails(&output, 1, &["the call was refused"]);
    let (code, bytes) = told.recv().unwrap();
    // 1, 20 bytes, x, a null string, two packed bytes.
    let p = [1, 20, 7, -1, 2, 0x0201];
    let parts: [&[i32]; 10] = [
        &[3, 0x0005_0201],
        &[2, 0],
        &[0],
        &p,
        &[3],
        &[1, 1],
        &p,
        &[1, 1],
        &[2, 97, 98],
        &[i32::from_be_bytes(*b"sb*\x85"), 0, 0, 0, 0, 0, 0],
    ];
    assert_eq!((code, bytes), (7, words(&parts.concat())));
}

/// A libbinder that was built for a Linux host answers `BAD_TYPE` to Android's mark.
#[test]
fn requests_have_the_mark_of_the_services_libbinder() {
    let stage = Stage::start("interface IThing { int number(); }", |request| {
        let (mark, _) = Reader::new(request.data()).marked_token().ok_or(Errno::INVAL)?;
        let mut reply = Parcel::new();
        reply.write_i32(0);
        reply.write_i32(Mark::ALL.into_iter().position(|it| it == mark).unwrap() as i32);
        Ok(reply)
    });
    for (options, number) in [
        (&[][..], 0),
        (&["--mark", "system"], 0),
        (&["--mark", "vendor"], 1),
        (&["--mark", "recovery"], 2),
        (&["--mark", "unknown"], 3),
    ] {
        let output = stage.call(&[options, &["number"]].concat());
        assert_eq!(shown(&output), format!("result: {number}\n"), "{options:?}");
    }
    let output = stage.run(&["call", "thing", "1", "--mark", "unknown"]);
    assert_eq!(shown(&output), "Result: Parcel(00000000 00000003 '........')\n");
}

#[test]
fn replies_are_decoded_and_garbled_ones_are_refused() {
    let reply = Arc::new(Mutex::new(Vec::new()));
    let stage = Stage::start(
        "interface IThing {\n\
           parcelable P { int x; int y; P[] inner; }\n\
           union U { int i; String s; }\n\
           int number(); @nullable String text(); P p(); U u(); int[2] two(); void nothing();\n\
           void both(out int[] v, inout String s);\n\
         }",
        {
            let reply = Arc::clone(&reply);
            move |_| Ok(Parcel::from(&reply.lock().unwrap()[..]))
        },
    );
    let deep: Vec<i32> = (0..200).rev().flat_map(|n| [1, 20 + n * 20, 0, 0, 1]).collect();
    for (method, bytes, status, says) in [
        ("number", &[0, 7][..], 0, "result: 7\n"),
        ("text", &[0, -1], 0, "result: null\n"),
        ("text", &[0, 1, 97], 0, "result: \"a\"\n"),
        ("nothing", &[0], 0, ""),
        ("two", &[0, 2, 1, 2], 0, "result: [1,2]\n"),
        ("u", &[0, 1, 1, 1, 97], 0, "result: {\"s\":\"a\"}\n"),
        // A header of strict mode; a newer field; older ones that are absent.
        ("number", &[-128, 8, 0, 7], 0, "result: 7\n"),
        ("p", &[0, 1, 20, 1, 2, 0, 9], 0, "result: {\"inner\":[],\"x\":1,\"y\":2}\n"),
        ("p", &[0, 1, 8, 1], 0, "result: {\"x\":1}\n"),
        ("number", &[], 1, "has no status"),
        ("number", &[0], 1, "the result ends too early"),
        ("number", &[0, 7, 8], 1, "goes on behind its last value"),
        ("nothing", &[0, 7], 1, "goes on behind its last value"),
        ("text", &[0, 1000, 97], 1, "the result ends too early"),
        ("text", &[0, -2], 1, "the result ends too early"),
        ("p", &[0, 0], 1, "the result is null and may not be"),
        ("p", &[0, 2], 1, "a marker that is neither 0 nor 1"),
        ("p", &[0, 1, 400, 1], 1, "the result ends too early"),
        ("p", &[0, 1, 16, 1, 2, 1000], 1, "the result.inner[0] ends too early"),
        ("p", &[&[0], &deep[..], &[0]].concat(), 1, "is nested too deeply"),
        ("u", &[0, 1, 2, 1], 1, "a member that the union has not"),
        ("two", &[0, 3, 1, 2, 3], 1, "another number of elements"),
        ("two", &[0, i32::MAX, 1], 1, "the result[1] ends too early"),
        ("number", &[-1, 1, 97], 1, "it throws EX_SECURITY: a"),
        ("number", &[-3, -1, 0], 1, "it throws EX_ILLEGAL_ARGUMENT: "),
        ("number", &[-8, 1, 97, 0, 42], 1, "it throws EX_SERVICE_SPECIFIC 42: a"),
        ("number", &[-77, 1, 97, 0], 1, "it throws exception -77: a"),
    ] {
        *reply.lock().unwrap() = words(bytes);
        let output = stage.call(&[method]);
        if status == 0 {
            assert_eq!(shown(&output), says, "{method} {bytes:?}");
        } else {
            fails(&output, status, &[says]);
        }
    }
    *reply.lock().unwrap() = words(&[0, 1, 5, 1, 97]);
    let found = json_of(&stage.call(&["both", "1", "b", "--json"]));
    let both = json!({"service": "thing", "interface": "a.IThing", "method": "both", "code": 7,
        "out": {"v": [5], "s": "a"}});
    assert_eq!(found, both);
    *reply.lock().unwrap() = words(&[-5, 1, 97, 0]);
    let output = stage.call(&["number", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let thrown = json!({"name": "EX_ILLEGAL_STATE", "code": -5, "message": "a"});
    assert_eq!(json_of(&output)["exception"], thrown);
}

#[test]
fn one_way_methods_are_sent_one_way() {
    let (tell, told) = mpsc::channel();
    let tell = Mutex::new(tell);
    let stage = Stage::start("oneway interface IThing { void f(int x); }", move |request| {
        // The driver tells a one-way caller's user, and no process.
        tell.lock().unwrap().send((request.code(), request.sender().0)).unwrap();
        Err(Errno::NOSYS)
    });
    assert_eq!(shown(&stage.call(&["f", "7"])), "");
    assert_eq!(told.recv().unwrap(), (1, 0));
}

#[test]
fn what_cannot_be_called_is_named() {
    let stage = Stage::start(
        "interface IThing {\n\
           void setVolume(int volume); void setColour(in Map m); void late(in Missing m);\n\
         }",
        refuse,
    );
    let write = |name: &str, text: &str| {
        std::fs::write(stage.files.path().join(name), text).unwrap();
    };
    write("Bad.aidl", "package a;\ninterface IThing {\n  void f(int);\n}\n");
    write("Other.aidl", "package a; interface IThink { void f(); }");
    write("Mixed.aidl", "package a; interface IThing { void f() = 1; void g(); }");
    let by = |file: &'static str, rest: &[&'static str]| [&["call", "--aidl", file], rest].concat();
    for (words, status, says) in [
        (by("IThing.aidl", &["nobody", "f"]), 1, &["there is no service of this name"][..]),
        (by("IThing.aidl", &["thing", "setVolum", "1"]), 1, &["no method", "setVolume"]),
        (by("IThing.aidl", &["thing", "x"]), 1, &["no method", "introspect"]),
        (by("IThing.aidl", &["thing", "setVolume"]), 2, &["volume is missing", "setVolume(int"]),
        (by("IThing.aidl", &["thing", "setVolume", "1", "2"]), 2, &["\"2\" is one too many"]),
        (by("IThing.aidl", &["thing", "setVolume", "loud"]), 2, &["volume: expected int", "loud"]),
        (by("IThing.aidl", &["thing", "setColour", "{}"]), 1, &["the type Map"]),
        (by("IThing.aidl", &["thing", "late", "{}"]), 1, &["the type Missing", "--aidl"]),
        (by("Bad.aidl", &["thing", "f", "1"]), 1, &["Bad.aidl:3:13: expected ", "a name"]),
        (by("Other.aidl", &["thing", "f"]), 1, &["its interface a.IThing", "a.IThink"]),
        (by("Mixed.aidl", &["thing", "f"]), 1, &["a.IThing", "some of them only"]),
        (by("none", &["thing", "f"]), 1, &["none: No such file"]),
        (vec!["call", "thing", "setVolume", "1"], 2, &["needs the AIDL", "a.IThing", "--aidl"]),
        (vec!["call", "thing", "1", "i33", "1"], 2, &["\"i33\" is no kind of argument"]),
        (vec!["call", "thing", "1"], 1, &["the call was refused"]),
        (vec!["introspect", "nobody"], 1, &["there is no service of this name"]),
        (vec!["introspect", "thing", "--aidl", "Bad.aidl"], 1, &["Bad.aidl:3:13"]),
        (vec!["ping", "nobody"], 1, &["there is no service of this name"]),
        (vec!["ping", "-c", "0", "thing"], 2, &["0 is not in 1.."]),
        (vec!["dump", "nobody"], 1, &["there is no service of this name"]),
        (vec!["dump"], 2, &["NAME"]),
    ] {
        fails(&stage.run(&words), status, says);
    }
    // The whole directory, in which the file that is wrong has another name.
    fails(&stage.run(&by(".", &["thing", "setVolume", "1"])), 1, &["the call was refused"]);
}

#[test]
fn a_ping_tells_how_long_round_trips_take() {
    let n_pings = Arc::new(AtomicU32::new(0));
    let stage = Stage::start("interface IThing { }", {
        let n_pings = Arc::clone(&n_pings);
        move |request| {
            assert_eq!(request.code(), PING);
            n_pings.fetch_add(1, Ordering::Relaxed);
            Ok(Parcel::new())
        }
    });
    assert!(shown(&stage.run(&["ping", "thing"])).starts_with("Service thing: alive ("));
    let five = shown(&stage.run(&["ping", "-c", "5", "thing"]));
    assert!(five.starts_with("Service thing: alive (5 round trips: min "), "{five}");
    // One more each, which opens the connection.
    assert_eq!(n_pings.load(Ordering::Relaxed), 2 + 6);
    let found = json_of(&stage.run(&["ping", "--count", "5", "--json", "thing"]));
    let times = ["min_us", "p50_us", "p99_us", "max_us"].map(|name| found[name].as_f64().unwrap());
    assert!(times.is_sorted() && times[0] > 0.0, "{found}");
    assert_eq!((&found["name"], &found["count"]), (&json!("thing"), &json!(5)));
}

/// The whole path of a service that does not answer: one command tells, another one shows the call.
#[test]
fn a_call_ends_with_its_time_out_and_says_where_to_look() {
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let may_go_on = Mutex::new(may_go_on);
    let stage = Stage::start("interface IThing { int f(); }", move |_| {
        // Until the test ends.
        let _ = may_go_on.lock().unwrap().recv();
        Err(Errno::NOSYS)
    });
    let says = ["no answer came in time", "baton ps --calls", "--timeout"];
    for words in [
        &["ping", "--timeout", "0.01", "thing"][..],
        &["call", "--timeout", "0.01", "thing", "1"],
        &["call", "--timeout", "0.01", "thing", "f", "--aidl", "."],
    ] {
        fails(&stage.run(words), 124, &says);
    }
    for bad in ["soon", "-1"] {
        let limit = format!("--timeout={bad}");
        fails(&stage.run(&["ping", &limit, "thing"]), 2, &["a number of seconds"]);
    }
    drop(go_on);
}

#[test]
fn a_service_is_introspected() {
    let stage = Stage::start(
        "interface IThing { int f(in int[] v, out String s); oneway void g(); }",
        |request| {
            let mut reply = Parcel::new();
            reply.write_i32(0);
            match request.code() {
                PING => return Ok(Parcel::new()),
                VERSION => reply.write_i32(3),
                HASH => reply.write_string("abc"),
                _ => return Err(Errno::NOSYS),
            }
            Ok(reply)
        },
    );
    let program = std::fs::read_to_string("/proc/self/comm").unwrap().trim_end().to_owned();
    let pid = std::process::id();
    let text = shown(&stage.run(&["introspect", "thing", "--aidl", "."]));
    assert_eq!(
        text,
        format!(
            "service: thing\ninterface: a.IThing\nprocess: {pid} ({program})\nping: alive\n\
             version: 3\nhash: abc\n1\tint f(int[] v, out String s)\n2\toneway void g()\n"
        )
    );
    let found = json_of(&stage.run(&["introspect", "thing", "--json"]));
    let process = json!({"pid": pid, "program": program});
    assert_eq!(
        found,
        json!({"name": "thing", "interface": "a.IThing", "answers": true, "process": process,
            "version": 3, "hash": "abc", "methods": null})
    );
    let methods =
        &json_of(&stage.run(&["introspect", "thing", "--json", "--aidl", "."]))["methods"];
    let g = json!({"code": 2, "name": "g", "oneway": true, "signature": "oneway void g()"});
    assert_eq!(methods[1], g);
}

#[test]
fn a_dump_is_what_the_service_writes() {
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let may_go_on = Mutex::new(may_go_on);
    let stage = Stage::start("interface IThing { }", move |request| {
        assert_eq!(request.code(), DUMP);
        let mut file = File::from(request.received.take_fd(0).unwrap());
        let mut reader = Reader::new(request.data());
        assert_eq!(reader.object(), Some(true));
        let arguments = reader.strings().unwrap();
        match arguments.first().map(String::as_str) {
            // More than a pipe holds.
            Some("much") => file.write_all(&[b'x'; 200_000]).unwrap(),
            Some("hang") => _ = may_go_on.lock().unwrap().recv(),
            Some("refuse") => return Err(Errno::PERM),
            _ => writeln!(file, "{}", arguments.join(",")).unwrap(),
        }
        Ok(Parcel::new())
    });
    // Behind the name also options of the command's own are the service's.
    for arguments in [["-a", "--json", "x"], ["-l", "-t", "5"], ["--help", "--", "-h"]] {
        let words = [&["dump", "-t", "20.5", "thing"][..], &arguments].concat();
        assert_eq!(shown(&stage.run(&words)), arguments.join(",") + "\n");
    }
    assert_eq!(shown(&stage.run(&["dumpsys", "thing"])), "\n");
    assert_eq!(shown(&stage.run(&["dump", "thing", "much"])), "x".repeat(200_000));
    fails(&stage.run(&["dump", "thing", "refuse"]), 1, &["the call was refused"]);
    let hung = stage.run(&["dump", "--timeout", "0", "thing", "hang"]);
    fails(&hung, 124, &["no answer came in time", "--timeout"]);
    go_on.send(()).unwrap();
}

#[test]
fn contexts_are_listed_as_json() {
    let stage = Stage::start("interface IThing { }", refuse);
    let names = ["binder", "hwbinder", "vndbinder"].map(|name| json!({ "name": name }));
    assert_eq!(json_of(&stage.run(&["contexts", "--json"])), json!({ "contexts": names }));
}

#[test]
fn contexts_are_added_and_removed() {
    let stage = Stage::start("interface IThing { }", refuse);
    assert_eq!(shown(&stage.run(&["context", "add", "mine"])), "");
    fails(&stage.run(&["context", "add", "mine"]), 1, &["there is one of this name"]);
    assert_eq!(shown(&stage.run(&["contexts"])), "binder\nhwbinder\nmine\nvndbinder\n");
    assert_eq!(shown(&stage.run(&["context", "remove", "mine"])), "");
    fails(&stage.run(&["context", "remove", "mine"]), 1, &["there is none of this name"]);
    fails(&stage.run(&["context", "remove", "binder"]), 2, &["every broker has it"]);
    assert_eq!(shown(&stage.run(&["contexts"])), "binder\nhwbinder\nvndbinder\n");
}
