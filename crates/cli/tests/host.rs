//! `baton host`, and its services as clients see them.
#[path = "../../nucleus/host/tests/support/mod.rs"]
mod support;

use baton::{CallError, Parcel};
use baton_host::{Call, Host};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Mutex, mpsc};
use std::thread;
use support::Broker;

const BATON: &str = env!("CARGO_BIN_EXE_baton");

fn baton(broker: &Broker, arguments: &[&str]) -> Output {
    Command::new(BATON).args(arguments).arg("--socket").arg(&broker.socket).output().unwrap()
}

/// Standard output of a command that has to succeed.
fn shown(broker: &Broker, words: &str) -> String {
    let arguments: Vec<&str> = words.split(' ').collect();
    let output =
        Command::new(BATON).arg("--socket").arg(&broker.socket).args(arguments).output().unwrap();
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A host that has reported that it serves.
struct Hosting(Child);

impl Hosting {
    fn start(broker: &Broker, services: &[&str], says: &str) -> Hosting {
        let mut command = Command::new(BATON);
        command.arg("host").args(services).arg("--socket").arg(&broker.socket);
        Hosting::begin(&mut command, says)
    }

    fn begin(command: &mut Command, says: &str) -> Hosting {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, says);
        Hosting(child)
    }

    fn end(&mut self) -> ExitStatus {
        let pid = Pid::from_child(&self.0);
        kill_process(pid, Signal::TERM).unwrap();
        self.0.wait().unwrap()
    }
}

impl Drop for Hosting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn builtin_services_can_be_called() {
    let broker = Broker::start();
    let manager = support::serve_manager(&broker);
    let services = ["echo", "settings=properties", "clock"];
    let mut hosting = Hosting::start(&broker, &services, "Hosting echo, settings, clock\n");
    assert_eq!(shown(&broker, "check settings"), "Service settings: found\n");
    assert!(shown(&broker, "ping clock").starts_with("Service clock: alive"));
    let echoed = shown(&broker, "call echo 1 s16 hello");
    assert!(echoed.contains("00000000 00000005 00650068 006c006c"), "{echoed}");
    let nothing = shown(&broker, "call settings 1 s16 a");
    assert!(nothing.contains("00000000 ffffffff"), "{nothing}");
    shown(&broker, "call settings 2 s16 a s16 b");
    let value = shown(&broker, "call settings 1 s16 a");
    assert!(value.contains("00000000 00000001 00000062"), "{value}");
    let all = shown(&broker, "call settings 3");
    assert!(all.contains("00000000 00000001 00000001 00000061"), "{all}");
    // EX_UNSUPPORTED_OPERATION.
    assert!(shown(&broker, "call clock 9").contains("fffffff9"));
    assert!(hosting.end().success());
    manager.close();
}

#[test]
fn an_unknown_service_is_refused_with_a_reason() {
    let broker = Broker::start();
    for (arguments, code, says) in [
        (&["host", "--timeout", "0", "echo"][..], 4, "has no context manager"),
        (&["host", "ech"], 2, "there are echo, clock, properties"),
        (&["host", "echo", "echo"], 2, "NAME=SERVICE"),
        (&["host", "=echo"], 2, "its name is empty"),
        (&["host", "./nothing.so"], 1, "nothing.so"),
        (&["host", "--context", "nowhere", "echo"], 1, "no such context"),
        (&["host"], 2, "SERVICE"),
    ] {
        let output = baton(&broker, arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(says), "{arguments:?}: {error}");
    }
    let output = Command::new(BATON)
        .args(["host", "echo", "--socket", "/proc/broker.sock"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
}

/// A service that blocks in a read of the pipe that the environment names.
const BLOCKING: &str = r#"
#include <baton_service.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static int handle(void *state, struct baton_call *call)
{
    char byte;
    (void)state;
    (void)call;
    return (int)read(open(getenv("PIPE"), O_RDONLY), &byte, 1);
}

const struct baton_service baton_service = {
    BATON_SERVICE_VERSION, 0, "blocking", "test.IBlocking", 0, handle, 0,
};
"#;

fn build_blocking(directory: &Path) -> PathBuf {
    let (source, object) = (directory.join("blocking.c"), directory.join("blocking.so"));
    std::fs::write(&source, BLOCKING).unwrap();
    let include = concat!(env!("CARGO_MANIFEST_DIR"), "/../nucleus/host/include");
    let mut command = Command::new("cc");
    command.args(["-std=gnu11", "-shared", "-fPIC", "-I", include, "-o"]).args([&object, &source]);
    assert!(command.status().unwrap().success());
    object
}

#[test]
fn signals_end_a_host_whose_handler_blocks() {
    let broker = Broker::start();
    let manager = support::serve_manager(&broker);
    let directory = tempfile::tempdir().unwrap();
    let (service, pipe) = (build_blocking(directory.path()), directory.path().join("pipe"));
    mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    for signals in [&[Signal::TERM, Signal::INT][..], &[Signal::INT]] {
        let mut command = Command::new(BATON);
        command.args(["host", "echo"]).arg(&service).arg("--socket").arg(&broker.socket);
        let mut hosting = Hosting::begin(
            command.env("PIPE", &pipe).stderr(Stdio::piped()),
            "Hosting echo, blocking\n",
        );
        let mut command = Command::new(BATON);
        command.args(["call", "blocking", "1", "--socket"]).arg(&broker.socket);
        let mut caller = command.stderr(Stdio::null()).spawn().unwrap();
        // The open returns when the handler has opened the other end.
        let writer = std::fs::File::options().write(true).open(&pipe).unwrap();
        let pid = Pid::from_child(&hosting.0);
        signals.iter().for_each(|signal| kill_process(pid, *signal).unwrap());
        let status = hosting.0.wait().unwrap();
        let mut said = String::new();
        hosting.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(status.code(), Some(1), "{signals:?}: {said}");
        assert!(said.contains("calls of blocking have not ended"), "{signals:?}: {said}");
        assert!(!caller.wait().unwrap().success());
        drop(writer);
    }
    manager.close();
}

#[test]
fn a_client_killed_in_its_call_leaves_nothing_behind() {
    let broker = Broker::start();
    let manager = support::serve_manager(&broker);
    let (held, is_held) = mpsc::channel();
    let (release, may_go_on) = mpsc::channel::<()>();
    let may_go_on = Mutex::new(may_go_on);
    let mut host = Host::new();
    let hold = move |call: &mut Call<'_>| {
        if call.code() == 1 {
            call.run_blocking(|| {
                held.send(()).unwrap();
                may_go_on.lock().unwrap().recv().unwrap();
            });
        }
        Ok(Parcel::from(call.data()))
    };
    host.add("hold", hold).unwrap();
    let mut running = host.start("binder", &broker.socket).unwrap();
    running.publish().unwrap();
    for _ in 0..10 {
        let mut command = Command::new(BATON);
        command.args(["call", "hold", "1", "--socket"]).arg(&broker.socket);
        let mut caller = command.spawn().unwrap();
        is_held.recv().unwrap();
        caller.kill().unwrap();
        caller.wait().unwrap();
        release.send(()).unwrap();
        assert_eq!(running.call("hold", 2, b"a").unwrap().data(), b"a");
    }
    running.close();
    manager.close();
}

#[test]
fn clients_learn_that_a_killed_host_is_dead() {
    let broker = Broker::start();
    let manager = support::serve_manager(&broker);
    let client = broker.open();
    let serving = client.clone();
    thread::spawn(move || serving.serve());
    let hosting = Hosting::start(&broker, &["echo", "clock"], "Hosting echo, clock\n");
    let (told, is_told) = mpsc::channel();
    let handles = ["echo", "clock"].map(|name| {
        let (handle, told) = (support::find(&client, name), told.clone());
        handle.link_to_death(move || told.send(name).unwrap());
        handle
    });
    drop(hosting);
    let mut names = [is_told.recv().unwrap(), is_told.recv().unwrap()];
    names.sort_unstable();
    assert_eq!(names, ["clock", "echo"]);
    for handle in &handles {
        let called = handle.call(1, &Parcel::new()).map(drop);
        assert_eq!(called, Err(CallError::DeadObject));
    }
    client.close();
    manager.close();
}
