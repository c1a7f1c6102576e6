//! `baton manager`, `wait`, `run --wait-for` and `demo`, as a user types them.
#[path = "../../nucleus/host/tests/support/mod.rs"]
mod support;

use rustix::process::{Resource, getrlimit, prlimit};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use support::Broker;

const BATON: &str = env!("CARGO_BIN_EXE_baton");

fn command(socket: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(BATON);
    command.arg("--socket").arg(socket).args(words).stdin(Stdio::null());
    command
}

fn run(socket: &Path, words: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command(socket, words).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// A process that runs until the test ends.
struct Running(Child);

impl Running {
    fn start(socket: &Path, words: &[&str]) -> Running {
        Running(command(socket, words).stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Nobody waits for anything but by `baton wait`: the order of the starts does not matter.
#[test]
fn whoever_waits_finds_the_service() {
    let broker = Broker::start();
    let socket = &broker.socket;
    let mut client = command(socket, &["wait", "echo", "clock"]).spawn().unwrap();
    let _host = Running::start(socket, &["host", "echo", "clock"]);
    let _manager = Running::start(socket, &["manager"]);
    assert!(client.wait().unwrap().success());
    let (status, said, _) = run(socket, &["call", "echo", "1", "s16", "hello"]);
    assert_eq!(status, Some(0));
    assert!(said.contains("h.e.l.l."), "{said}");
    // The interfaces of services that come with baton are known.
    // Android's `cmd` takes a reply to a shell command for success, and waits for a result.
    for code in ["_CMD", "_PID", "_EXT"] {
        let (status, _, wrong) = run(socket, &["call", "echo", code]);
        assert!(status == Some(1) && wrong.contains("the call was refused"), "{code}: {wrong}");
    }
    let (status, said, _) = run(socket, &["call", "echo", "echo", "hello"]);
    assert_eq!((status, said.as_str()), (Some(0), "result: \"hello\"\n"));
    let (_, said, _) = run(socket, &["introspect", "clock"]);
    assert!(said.contains("2\tlong monotonicNanos()"), "{said}");
    let (status, said, _) = run(socket, &["list"]);
    assert_eq!(status, Some(0));
    let services = "Found 3 services:\n0\tclock: [baton.IClock]\n1\techo: [baton.IEcho]\n\
         2\tmanager: [android.os.IServiceManager]\n";
    assert_eq!(said, services);
}

/// Clients take descriptors of the manager.
#[test]
fn the_manager_has_as_many_descriptors_as_it_may_have() {
    let broker = Broker::start();
    let socket = &broker.socket;
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -Sn 64; exec \"$@\"", "sh", BATON, "manager", "--socket"]);
    let manager = Running(limited.arg(socket).stdout(Stdio::null()).spawn().unwrap());
    assert_eq!(run(socket, &["wait", "manager"]).0, Some(0));
    let pid = Some(rustix::process::Pid::from_child(&manager.0));
    // The limit that it has had until now.
    let limit = prlimit(pid, Resource::Nofile, getrlimit(Resource::Nofile)).unwrap();
    assert_eq!(limit.current, limit.maximum);
}

#[test]
fn the_manager_dumps_its_services() {
    let broker = Broker::start();
    let socket = &broker.socket;
    let manager = Running::start(socket, &["manager"]);
    let host = Running::start(socket, &["host", "echo"]);
    assert_eq!(run(socket, &["wait", "echo"]).0, Some(0));
    let (status, said, _) = run(socket, &["dump", "manager"]);
    let uid = rustix::process::geteuid().as_raw();
    let (manager, host) = (manager.0.id(), host.0.id());
    let expected = format!(
        "Services: 2\n  echo: pid {host}, uid {uid}, clients 0\n  manager: pid {manager}, uid 0, \
         clients ?\nNotifications: 0\n"
    );
    assert_eq!((status, said), (Some(0), expected));
}

#[test]
fn a_wait_ends_in_time_and_says_what_is_missing() {
    let directory = tempfile::tempdir().unwrap();
    let nowhere = directory.path().join("broker.sock");
    let wait = &["wait", "nobody", "--timeout", "0.01"][..];
    let (status, _, said) = run(&nowhere, wait);
    assert_eq!(status, Some(3), "{said}");
    assert!(said.contains("no broker at") && said.contains("\"nobody\""), "{said}");

    let broker = Broker::start();
    let (status, _, said) = run(&broker.socket, wait);
    assert_eq!(status, Some(4), "{said}");
    assert!(said.contains("no context manager") && said.contains("baton manager"), "{said}");

    let _manager = Running::start(&broker.socket, &["manager"]);
    assert_eq!(run(&broker.socket, &["wait", "manager"]).0, Some(0));
    let (status, _, said) = run(&broker.socket, wait);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("does not know it") && said.contains("baton list"), "{said}");
    let held = ["run", "--wait-for", "nobody", "--wait-timeout", "0.01", "--", "true"];
    assert_eq!(run(&broker.socket, &held).0, Some(1));
    assert_eq!(run(&broker.socket, &["wait", "x", "--timeout", "soon"]).0, Some(2));
}

#[test]
fn a_context_has_one_manager() {
    let broker = Broker::start();
    let _manager = Running::start(&broker.socket, &["manager"]);
    assert_eq!(run(&broker.socket, &["wait", "manager"]).0, Some(0));
    let (status, _, said) = run(&broker.socket, &["manager"]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("has a manager already"), "{said}");
    // Another context has one of its own.
    let other = ["--context", "hwbinder"];
    let _other =
        Running::start(&broker.socket, &[&["manager", "--android", "14"], &other[..]].concat());
    assert_eq!(run(&broker.socket, &[&["wait", "manager"], &other[..]].concat()).0, Some(0));
    assert_eq!(run(&broker.socket, &["manager", "--android", "8"]).0, Some(2));
    assert_eq!(run(&broker.socket, &["manager", "--allow", "me"]).0, Some(2));
}

/// What the demo prints with another PATH. It leaves nothing behind.
fn demo(path: Option<&Path>) -> String {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(BATON);
    command.arg("demo").env("TMPDIR", directory.path());
    if let Some(path) = path {
        command.env("PATH", path);
    }
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left");
    said
}

#[test]
fn the_demo_shows_everything_and_leaves_nothing() {
    let said = demo(None);
    for part in [
        "echo: [baton.IEcho]",
        "result: \"hello\"",
        "told this process of \"clock\"",
        "told after",
        "AF_UNIX",
        "manager &",
    ] {
        assert!(said.contains(part), "{part:?} is missing:\n{said}");
    }
    assert!(said.lines().count() <= 40, "{said}");
}

#[test]
fn the_demo_has_a_bar_of_dbus_or_says_why_not() {
    let bus = |said: &str| {
        let line = said.lines().find(|line| line.starts_with("  D-Bus"));
        line.unwrap_or_else(|| panic!("{said}")).to_owned()
    };
    let (none, broken) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let line = bus(&demo(Some(none.path())));
    assert!(line.contains("install dbus-daemon"), "{line}");
    let program = broken.path().join("dbus-daemon");
    std::fs::write(&program, "#!/bin/sh\nexit 1\n").unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let line = bus(&demo(Some(broken.path())));
    assert!(line.contains("does not start"), "{line}");
    if Command::new("dbus-daemon").arg("--version").output().is_ok() {
        let line = bus(&demo(None));
        assert!(line.contains("##"), "{line}");
    }
}
