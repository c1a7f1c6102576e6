//! Many calls of a few bytes in a row: after some of them both ends use the fast path, and a looper
//! is pinned to its only caller's lane.
#[path = "support/service.rs"]
mod service;
mod support;

use baton::{CallError, Handle, Parcel, Process, priority_changed};
use rustix::io::Errno;
use service::{client_of, manage};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use support::Broker;

/// More calls than pin a looper to its only caller's lane.
const MANY: u32 = 200;

/// The server answers with twice the value, ...
const DOUBLE: u32 = 0;
/// after it has met the test twice, ...
const HOLD: u32 = 1;
/// with an error, ...
const REFUSE: u32 = 2;
/// or not at all.
const PANIC: u32 = 3;

struct Stage {
    /// The barriers at which a held call is met and released.
    held: Arc<[Barrier; 2]>,
    server: Process,
    client: Process,
    manager: Handle,
    _broker: Broker,
}

impl Stage {
    fn set() -> Stage {
        let broker = Broker::start();
        let held = Arc::new([(); 2].map(|()| Barrier::new(2)));
        let holds = Arc::clone(&held);
        let server = manage(&broker, move |request| {
            match request.code() {
                HOLD => holds.iter().for_each(|barrier| _ = barrier.wait()),
                REFUSE => return Err(Errno::DOM),
                PANIC => panic!("as the test wants"),
                _ => {}
            }
            let value = request.data().try_into().map_err(|_| Errno::INVAL)?;
            Ok(Parcel::from(&(2 * u32::from_ne_bytes(value)).to_ne_bytes()[..]))
        });
        let (client, manager) = client_of(&broker);
        Stage { held, server, client, manager, _broker: broker }
    }

    fn call(&self, code: u32, value: u32) -> Result<u32, CallError> {
        value_of(&self.manager, code, &value.to_ne_bytes())
    }

    fn call_many(&self) {
        (0..MANY).for_each(|value| assert_eq!(self.call(DOUBLE, value), Ok(2 * value)));
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.server.close();
    }
}

fn value_of(to: &Handle, code: u32, value: &[u8]) -> Result<u32, CallError> {
    let answer = to.call(code, &Parcel::from(value))?;
    Ok(u32::from_ne_bytes(answer.data().try_into().expect("a value")))
}

#[test]
fn an_error_or_a_panic_fails_its_call_and_not_the_next() {
    let stage = Stage::set();
    for value in 0..MANY {
        let (code, wanted) = match value % 50 {
            30 => (REFUSE, Err(CallError::Refused(Errno::DOM))),
            40 => (PANIC, Err(CallError::Refused(Errno::FAULT))),
            _ => (DOUBLE, Ok(2 * value)),
        };
        assert_eq!(stage.call(code, value), wanted);
    }
    stage.call_many();
    assert_eq!(stage.call(PANIC, 0), Err(CallError::Refused(Errno::FAULT)));
    assert_eq!(stage.call(DOUBLE, 4), Ok(8));
}

#[test]
fn a_value_of_another_length_is_another_call() {
    let stage = Stage::set();
    let refused = Err(CallError::Refused(Errno::INVAL));
    stage.call_many();
    for bytes in [0, 3, 5, 16, 40, 4096] {
        let long = vec![1; bytes];
        assert_eq!(value_of(&stage.manager, DOUBLE, &long), refused, "{bytes}");
        assert_eq!(stage.call(DOUBLE, 7), Ok(14), "after {bytes}");
    }
}

#[test]
fn calls_go_on_when_the_callers_priority_has_changed() {
    let stage = Stage::set();
    for value in 0..MANY {
        assert_eq!(stage.call(DOUBLE, value), Ok(2 * value));
        if value % 16 == 0 {
            priority_changed();
        }
    }
}

#[test]
fn a_server_that_goes_fails_the_call_and_those_after_it() {
    let stage = Stage::set();
    stage.call_many();
    thread::scope(|scope| {
        scope.spawn(|| {
            stage.held[0].wait();
            stage.server.close();
        });
        assert_eq!(stage.call(HOLD, 1), Err(CallError::DeadObject));
    });
    stage.held[1].wait();
    assert_eq!(stage.call(DOUBLE, 1), Err(CallError::DeadObject));
    stage.client.close();
    assert_eq!(stage.call(DOUBLE, 1), Err(CallError::Closed));
}

#[test]
fn a_call_back_comes_to_the_thread_that_waits() {
    let broker = Broker::start();
    let callback = Mutex::new(None);
    let server = manage(&broker, move |request| {
        let mut callback = callback.lock().unwrap();
        if let Some(handle) = request.received.handle(0) {
            *callback = Some(handle);
            return Ok(Parcel::new());
        }
        let callback = callback.as_ref().ok_or(Errno::NOENT)?;
        let answer = value_of(callback, 7, request.data());
        Ok(answer.map_err(|_| Errno::IO)?.to_ne_bytes()[..].into())
    });
    let (client, manager) = client_of(&broker);
    let ours = thread::current().id();
    let mut parcel = Parcel::new();
    parcel.write_object(
        client
            .object(move |request| {
                // No other thread serves in the client.
                assert_eq!(thread::current().id(), ours);
                let value = request.data().try_into().map_err(|_| Errno::INVAL)?;
                Ok((u32::from_ne_bytes(value) + 1).to_ne_bytes()[..].into())
            })
            .add(),
    );
    manager.call(0, &parcel).unwrap();
    for value in 0..MANY {
        let answer = value_of(&manager, 0, &value.to_ne_bytes());
        assert_eq!(answer, Ok(value + 1));
    }
    server.close();
}
