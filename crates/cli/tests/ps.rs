//! `baton ps` beside a service that hangs: the names of services, and the calls under way.
#[path = "../../nucleus/host/tests/support/mod.rs"]
mod support;

use baton::{Parcel, Process, ServiceManager};
use serde_json::Value;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::channel;
use support::Broker;

const BATON: &str = env!("CARGO_BIN_EXE_baton");

fn command(broker: &Broker, words: &[&str]) -> Command {
    let mut command = Command::new(BATON);
    command.arg("--socket").arg(&broker.socket).args(words).stdin(Stdio::null());
    command
}

fn text(broker: &Broker, words: &[&str]) -> String {
    let output = command(broker, words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(broker: &Broker, words: &[&str]) -> Value {
    serde_json::from_str(&text(broker, words)).unwrap()
}

const SERVICE: &str = "a.ISlow/default";
const AIDL: &str = "package a; interface ISlow { void hang(int time) = 6; }";
const PING: u32 = u32::from_be_bytes(*b"_PNG");

/// A process that is killed at the end.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(broker: &Broker, words: &[&str]) -> Killed {
    Killed(command(broker, words).stdout(Stdio::null()).spawn().unwrap())
}

#[test]
fn a_hung_call_is_shown_with_its_caller_service_method_and_age() {
    let broker = Broker::start();
    let _manager = start(&broker, &["manager"]);
    text(&broker, &["wait", "manager"]);
    let server = Process::open("binder", &broker.socket).unwrap();
    let ((enter, entered), (leave, left)) = (channel(), channel::<()>());
    let left = Mutex::new(left);
    let object = server.object(move |request| {
        if request.code() == 7 {
            enter.send(()).unwrap();
            let _ = left.lock().unwrap().recv();
        }
        Ok(Parcel::new())
    });
    let names = ServiceManager::find(&server).unwrap();
    names.publish(SERVICE, object.add()).unwrap();
    let looper = std::thread::spawn({
        let server = server.clone();
        move || server.serve()
    });
    assert_eq!(text(&broker, &["ps", "--calls"]), "No call is under way.\n");

    let hung = start(&broker, &["call", SERVICE, "7", "i32", "1"]);
    entered.recv().unwrap();
    let waiting = start(&broker, &["ping", SERVICE]);
    let calls = loop {
        // The second caller may not have sent yet.
        let shown = json(&broker, &["ps", "--calls", "--json"]);
        let calls = shown["calls"].as_array().unwrap().clone();
        if calls.iter().any(|call| call["code"] == PING) {
            break calls;
        }
    };
    let own = std::process::id();
    let (first, second) = (&calls[0], &calls[1]);
    for (call, code, caller) in [(first, 7u32, &hung), (second, PING, &waiting)] {
        assert_eq!((&call["service"], &call["code"]), (&SERVICE.into(), &code.into()), "{call}");
        assert_eq!(
            (&call["caller"]["pid"], &call["caller"]["program"]),
            (&caller.0.id().into(), &"baton".into()),
            "{call}"
        );
        assert_eq!(call["target"]["pid"], own, "{call}");
        let priority = call["priority"].as_str().unwrap();
        assert!(priority == "other" || priority.starts_with("nice:"), "{call}");
    }
    assert!(first["age_us"].as_u64() >= second["age_us"].as_u64());
    assert_eq!(first["state"]["is"], "served");
    assert!(first["state"]["tid"].as_u64().is_some());
    assert_eq!(second["state"], serde_json::json!({ "is": "waits", "serving": 1, "loopers": 1 }));
    // The service hangs and does not tell its interface, but its name does.
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ISlow.aidl");
    std::fs::write(&file, AIDL).unwrap();
    let named = json(&broker, &["ps", "--calls", "--json", "--aidl", file.to_str().unwrap()]);
    let named = named["calls"].as_array().unwrap().iter();
    assert!(named.map(|call| &call["method"]).eq([&"hang".into(), &Value::Null]));
    let table = text(&broker, &["ps", "--calls"]);
    assert!(table.trim_start().starts_with("AGE"), "{table}");
    assert!(table.contains("serves it") && table.contains("1 of 1 loopers"), "{table}");

    // The process that hangs has its name, and so has what others hold of it.
    assert!(text(&broker, &["ps"]).lines().any(|line| line.ends_with(SERVICE)));
    let all = json(&broker, &["ps", "--json"]);
    let processes = all["contexts"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|context| context["processes"].as_array().unwrap().clone());
    let ours: Vec<_> = processes.filter(|process| process["pid"] == own).collect();
    assert_eq!(ours.len(), 1);
    assert_eq!(ours[0]["services"], serde_json::json!([SERVICE]));
    assert_eq!(ours[0]["nodes"][0]["service"], SERVICE);

    drop(leave);
    server.close();
    looper.join().unwrap();
}

#[test]
fn a_stopped_process_is_named_as_silent() {
    let broker = Broker::start();
    let manager = start(&broker, &["manager"]);
    text(&broker, &["wait", "manager"]);
    let pid = rustix::process::Pid::from_child(&manager.0);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let shown = json(&broker, &["ps", "--calls", "--json"]);
    assert_eq!(shown["silent"], serde_json::json!([manager.0.id()]));
    assert_eq!(shown["calls"], serde_json::json!([]));
    // Nor do names come from it, but everything else does.
    assert!(text(&broker, &["ps"]).contains("manager"));
}
