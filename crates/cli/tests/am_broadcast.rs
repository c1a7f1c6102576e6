//! `baton am broadcast` and `receivers`, as a user types them.
#[path = "../../nucleus/host/tests/support/mod.rs"]
mod support;

use baton_services::broadcast::BroadcastManager;
use baton_services::broadcast::client::Delivery;
use baton_services::broadcast::level::Outcome;
use baton_services::intent::IntentFilter;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, mpsc};
use support::Broker;

const BATON: &str = env!("CARGO_BIN_EXE_baton");

fn command(socket: &Path, line: &str) -> Command {
    let mut command = Command::new(BATON);
    command.arg("--socket").arg(socket).args(line.split_whitespace()).stdin(Stdio::null());
    command
}

fn run(socket: &Path, line: &str) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command(socket, line).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// A process that runs until the test ends.
struct Running(Child);

impl Running {
    fn start(socket: &Path, line: &str) -> Running {
        let command = &mut command(socket, line);
        Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Its helpers end with it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn broadcasts_are_sent_and_receivers_shown() {
    let broker = Broker::start();
    let socket = &broker.socket;
    let _manager = Running::start(socket, "manager");
    assert_eq!(run(socket, "wait manager").0, Some(0));
    let (status, _, said) = run(socket, "am broadcast -a a");
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("no service \"broadcast\"") && said.contains("am serve"), "{said}");

    let _services = Running::start(socket, "am serve");
    assert_eq!(run(socket, "wait broadcast").0, Some(0));
    let (_, said, _) = run(socket, "am broadcast -a a");
    assert_eq!(said, "Sent to 0 receivers\n");
    let process = broker.open();
    let service = BroadcastManager::find(&process).unwrap();
    let receive = |mut delivery: Delivery| {
        let data = delivery.intent().extras.get("text").map(|text| format!("{text:?}"));
        delivery.set_outcome(Outcome { code: 7, data, extras: None });
    };
    service.register(IntentFilter::new("a"), None, None, receive).unwrap();
    let serving = process.clone();
    let looper = std::thread::spawn(move || serving.serve());
    let (status, said, wrong) = run(socket, "am broadcast -a a --es text hello --ordered --json");
    assert_eq!(status, Some(0), "{wrong}");
    let sent: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&sent["receivers"], &sent["result"]["code"]), (&1.into(), &7.into()), "{said}");
    assert!(sent["result"]["data"].as_str().unwrap().contains("hello"), "{said}");
    let (_, said, _) = run(socket, "am broadcast -a b --sticky --priority 0");
    assert_eq!(said, "Sent to 0 receivers\n");

    let (go_on, may_go_on) = mpsc::channel::<()>();
    let may_go_on = Mutex::new(may_go_on);
    let hang = move |_: Delivery| _ = may_go_on.lock().unwrap().recv();
    service.register(IntentFilter::new("slow"), None, None, hang).unwrap();
    let (status, _, said) = run(socket, "am broadcast -a slow --ordered --timeout 0.1");
    assert!(said.contains("there is no result after 0.1 s"), "{said}");
    assert_eq!(status, Some(124));
    go_on.send(()).unwrap();
    let (status, _, said) = run(socket, "am serve");
    assert!(said.contains("which runs\n  use that one, or give another context"), "{said}");
    assert_eq!(status, Some(1));

    let (_, said, _) = run(socket, "am receivers");
    assert!(said.contains(&format!("of process {}", std::process::id())), "{said}");
    assert!(said.contains("Sticky broadcasts: 1"), "{said}");
    let (_, said, _) = run(socket, "am receivers --stats");
    assert!(said.contains("PRIORITY") && said.contains("ordinary"), "{said}");
    let (_, said, _) = run(socket, "am receivers --json");
    let report: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(report["receivers"][0]["actions"][0], "a", "{said}");
    let (_, said, _) = run(socket, "dump broadcast");
    assert!(said.contains("Receivers: 2") && said.contains("PRIORITY"), "{said}");
    let (_, said, _) = run(socket, "introspect broadcast");
    assert!(said.contains("5\toneway void finishReceiver(long token"), "{said}");
    for (line, status) in [
        ("am broadcast -a a --priority 100", 2),
        ("am broadcast -a a --ei n many", 2),
        ("am broadcast -a a --sticky --receiver-permission p", 2),
    ] {
        assert_eq!(run(socket, line).0, Some(status), "{line}");
    }
    process.close();
    let _ = looper.join();
}

#[test]
fn a_policy_that_cannot_be_read_is_refused_with_its_line() {
    let broker = Broker::start();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "a.A 10001\na.B ten").unwrap();
    let serve = format!("am serve --policy {}", file.path().display());
    let (status, _, said) = run(&broker.socket, &serve);
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("line 2") && said.contains("ten"), "{said}");
    let (status, _, said) = run(&broker.socket, "am serve --policy /nowhere/policy");
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("/nowhere/policy"), "{said}");
}
