//! `baton demo` leaves nothing behind, however it ends.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const BATON: &str = env!("CARGO_BIN_EXE_baton");

/// A demo whose broker, manager and service run. Each is known by a pidfd.
fn started(directory: &Path) -> (Child, Vec<OwnedFd>) {
    let mut command = Command::new(BATON);
    command.arg("demo").env("TMPDIR", directory).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut demo = command.stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(demo.stdout.take().unwrap()).lines();
    let pids = lines.map_while(Result::ok).filter_map(|line| {
        let (_, pid) = line.split_once(" pid ")?;
        let pid = Pid::from_raw(pid.split_once(':')?.0.parse().ok()?)?;
        Some(pidfd_open(pid, PidfdFlags::empty()).unwrap())
    });
    let processes: Vec<OwnedFd> = pids.take(3).collect();
    assert_eq!(processes.len(), 3);
    (demo, processes)
}

/// Sends a signal, waits for the demo, and checks that the signal has ended it.
fn end(demo: &mut Child, signal: Signal) {
    kill_process(Pid::from_child(demo), signal).unwrap();
    assert_eq!(demo.wait().unwrap().signal(), Some(signal.as_raw()), "{signal:?}");
}

#[test]
fn a_signal_ends_its_processes_and_removes_its_directory() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let directory = tempfile::tempdir().unwrap();
        let (mut demo, processes) = started(directory.path());
        end(&mut demo, signal);
        for process in &processes {
            let left = poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&Default::default()));
            assert_eq!(left, Ok(1), "a process is left after {signal:?}");
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "{signal:?}");
    }
}

#[test]
fn its_processes_end_with_a_demo_that_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let (mut demo, processes) = started(directory.path());
    end(&mut demo, Signal::KILL);
    for process in &processes {
        poll(&mut [PollFd::new(process, PollFlags::IN)], None).unwrap();
    }
}
