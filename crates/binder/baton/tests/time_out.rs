//! Calls that are given up: the answer that comes too late, and all that came with it, goes.

use baton::{CallError, Errno, Handle, Object, Parcel, Process};
use baton_broker::{Config, Running};
use baton_driver::observer::Observer;
use rustix::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Answers at once.
const ECHO: u32 = 1;
/// Says that it has come, and answers when it is told to: with an object and a descriptor.
const HOLD: u32 = 2;
/// Lanes between two processes.
const LANES: usize = 64;
const SHORT: Duration = Duration::from_millis(2);
/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(600);

struct Stage {
    server: Process,
    client: Process,
    manager: Handle,
    has_come: Receiver<()>,
    go: Sender<()>,
    /// Reads the end of the pipe whose other end a late answer has.
    reader: OwnedFd,
    loopers: Vec<JoinHandle<Errno>>,
    broker: Running,
    _directory: tempfile::TempDir,
}

impl Stage {
    fn new(n_loopers: usize) -> Stage {
        let directory = tempfile::tempdir().unwrap();
        let broker = Running::start(Config::at(directory.path().join("broker.sock"))).unwrap();
        let [server, client] = [(); 2].map(|()| Process::open("binder", broker.socket()).unwrap());
        let (come, has_come) = channel();
        let (go, may_go) = channel();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let given: Object = server.object(|_| Ok(Parcel::new())).add();
        let held = Mutex::new((may_go, Some(writer)));
        let come = Mutex::new(come);
        let object = server.object(move |request| match request.code() {
            HOLD => {
                come.lock().unwrap().send(()).unwrap();
                let (may_go, writer) = &mut *held.lock().unwrap();
                may_go.recv().unwrap();
                let mut answer = Parcel::new();
                answer.write_object(given);
                if let Some(writer) = writer.take() {
                    answer.write_owned_fd(writer);
                }
                Ok(answer)
            }
            _ => Ok(Parcel::from(request.data())),
        });
        server.become_context_manager(object.add()).unwrap();
        let serve = |_| {
            let server = server.clone();
            std::thread::spawn(move || server.serve())
        };
        let loopers = (0..n_loopers).map(serve).collect();
        let manager = client.context_manager().unwrap();
        let _directory = directory;
        Stage { server, client, manager, has_come, go, reader, loopers, broker, _directory }
    }

    /// How many channels there are, of the one client to the one server.
    fn channels(&self) -> usize {
        let report = Observer::connect(self.broker.socket()).unwrap().report().unwrap();
        let as_server =
            report.contexts.iter().flat_map(|it| &it.processes).flat_map(|it| &it.channels);
        as_server.filter(|(_, _, is_server)| *is_server).count()
    }

    fn echo(&self) {
        assert_eq!(self.manager.call(ECHO, &Parcel::from(&b"word"[..])).unwrap().data(), b"word");
    }

    fn end(self) {
        self.client.close();
        self.server.close();
        self.loopers.into_iter().for_each(|looper| _ = looper.join());
    }
}

#[test]
fn an_answer_in_time_is_an_answer() {
    let stage = Stage::new(1);
    // The first by the state, the others by the fast path.
    for value in (0..1000u32).map(u32::to_ne_bytes) {
        let answer = stage.manager.call_within(ECHO, &Parcel::from(&value[..]), LONG).unwrap();
        assert_eq!(answer.data(), value);
    }
    stage.end();
}

/// By the state and by the fast path, which the caller's thread knows after some calls.
#[test]
fn a_late_answer_is_freed_with_all_that_it_brings() {
    for calls_before in [0, 300] {
        let stage = Stage::new(2);
        (0..calls_before).for_each(|_| stage.echo());
        let late = stage.manager.call_within(HOLD, &Parcel::new(), SHORT);
        assert_eq!(late.err(), Some(CallError::TimedOut), "after {calls_before} calls");
        stage.has_come.recv().unwrap();
        // The answer is not the next one's.
        (0..100).for_each(|_| stage.echo());
        stage.go.send(()).unwrap();
        // The descriptor in it is nobody's: the pipe has no writer any more.
        assert_eq!(rustix::io::read(&stage.reader, &mut [0; 1]), Ok(0));
        (0..100).for_each(|_| stage.echo());
        stage.end();
    }
}

/// A lane that was given up comes back once the server has answered on it.
#[test]
fn lanes_of_calls_that_were_given_up_are_used_again() {
    let stage = Stage::new(1);
    for _ in 0..3 * LANES {
        let late = stage.manager.call_within(HOLD, &Parcel::new(), Duration::ZERO);
        assert_eq!(late.err(), Some(CallError::TimedOut));
        stage.go.send(()).unwrap();
        stage.has_come.recv().unwrap();
        // It comes after the late one, by the same looper.
        stage.echo();
    }
    // A call without a free lane would have opened another channel.
    assert_eq!(stage.channels(), 1);
    stage.end();
}

#[test]
fn a_loans_call_is_given_up_too() {
    let stage = Stage::new(1);
    let loan = stage.manager.loan(8).unwrap();
    assert_eq!(loan.call_within(HOLD, SHORT).err(), Some(CallError::TimedOut));
    stage.has_come.recv().unwrap();
    stage.go.send(()).unwrap();
    stage.echo();
    stage.end();
}

/// Nobody serves: the request waits there, and the caller does not.
#[test]
fn a_server_without_loopers_keeps_nobody_waiting() {
    let stage = Stage::new(0);
    for _ in 0..4 {
        let late = stage.manager.call_within(ECHO, &Parcel::new(), SHORT);
        assert_eq!(late.err(), Some(CallError::TimedOut));
    }
    stage.end();
}

/// A process dies meanwhile: that is said, not that the time is over.
#[test]
fn a_death_before_the_time_is_over_is_a_death() {
    let stage = Stage::new(1);
    std::thread::scope(|scope| {
        let call = scope.spawn(|| stage.manager.call_within(HOLD, &Parcel::new(), LONG).err());
        stage.has_come.recv().unwrap();
        stage.server.close();
        assert_eq!(call.join().unwrap(), Some(CallError::DeadObject));
    });
    stage.go.send(()).unwrap();
    stage.end();
}

/// The late request's own objects are released, too.
#[test]
fn what_a_late_request_carried_is_released() {
    let stage = Stage::new(1);
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let kept = Arc::new(());
    let token = Arc::clone(&kept);
    let object = stage.client.object(move |_| {
        let _ = &token;
        Ok(Parcel::new())
    });
    let mut parcel = Parcel::new();
    parcel.write_object(object.add()).write_owned_fd(writer);
    assert_eq!(stage.manager.call_within(HOLD, &parcel, SHORT).err(), Some(CallError::TimedOut));
    drop(parcel);
    stage.has_come.recv().unwrap();
    stage.go.send(()).unwrap();
    // Neither end has the descriptor any more.
    assert_eq!(rustix::io::read(&reader, &mut [0; 1]), Ok(0));
    stage.end();
    assert_eq!(Arc::strong_count(&kept), 1, "a closed process keeps no handler");
}
