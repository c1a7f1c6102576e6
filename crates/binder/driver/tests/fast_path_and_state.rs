//! A fast call under way, which only its two threads know, enters the state as soon as an event
//! concerns it. Each test first calls until the fast path is taken.
mod support;

use baton::{CallError, Handle, Options, Parcel, Process, Request};
use baton_abi::control::ProcessReport;
use baton_driver::observer::Observer;
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use support::Broker;

/// Calls after which both threads use the fast path.
const WARM_UP: u32 = 4;
/// The server answers at once.
const ECHO: u32 = 0;
/// The server answers when it is released.
const HOLD: u32 = 1;
/// The server answers after it has called the object that came with [`ECHO`].
const CALL_BACK: u32 = 2;
/// The server answers with an object that echoes requests.
const GIVE: u32 = 3;

struct Stage {
    broker: Broker,
    server: Process,
    client: Process,
    manager: Handle,
    entered: mpsc::Receiver<()>,
    leave: mpsc::Sender<()>,
}

fn stage(loopers: usize) -> Stage {
    let broker = Broker::start();
    let server = Process::open("binder", &broker.socket).unwrap();
    let (enter, entered) = mpsc::channel();
    let (leave, may_leave) = mpsc::channel::<()>();
    let (may_leave, callback) = (Mutex::new(may_leave), Mutex::new(None));
    let serving = server.clone();
    let object = server
        .object(move |request: &Request<'_>| {
            if let Some(handle) = request.received.handle(0) {
                *callback.lock().unwrap() = Some(handle);
            }
            match request.code() {
                HOLD => {
                    enter.send(()).unwrap();
                    may_leave.lock().unwrap().recv().unwrap();
                }
                CALL_BACK => {
                    let callback = callback.lock().unwrap();
                    let reply = callback.as_ref().unwrap().call(7, &request.data().into());
                    return Ok(reply.map_err(|_| Errno::IO)?.data().into());
                }
                GIVE => {
                    let bytes = request.data().to_vec();
                    let object = serving.object(move |_| Ok(bytes[..].into())).add();
                    let mut parcel = Parcel::new();
                    parcel.write_object(object);
                    return Ok(parcel);
                }
                _ => {}
            }
            Ok(request.data().into())
        })
        .add();
    server.become_context_manager(object).unwrap();
    for _ in 0..loopers {
        let serving = server.clone();
        thread::spawn(move || serving.serve());
    }
    let client = Process::open("binder", &broker.socket).unwrap();
    let manager = client.context_manager().unwrap();
    Stage { broker, server, client, manager, entered, leave }
}

fn activate(manager: &Handle) {
    for number in 0..WARM_UP {
        let bytes = number.to_ne_bytes();
        assert_eq!(manager.call(ECHO, &bytes[..].into()).unwrap().data(), bytes);
    }
}

/// A call that is held, made by a thread of its own by the fast path.
fn held_call(stage: &Stage) -> thread::JoinHandle<Result<Vec<u8>, CallError>> {
    let manager = stage.manager.clone();
    let caller = thread::spawn(move || {
        activate(&manager);
        manager.call(HOLD, &b"held"[..].into()).map(|reply| reply.data().to_vec())
    });
    stage.entered.recv().unwrap();
    caller
}

/// The broker's report of both ends.
fn reports(stage: &Stage) -> Vec<ProcessReport> {
    let contexts = Observer::connect(&stage.broker.socket).unwrap().report().unwrap().contexts;
    contexts.into_iter().flat_map(|context| context.processes).collect()
}

/// A report revokes nothing: it adds the threads' own counts.
#[test]
fn a_call_under_way_is_counted_at_both_ends() {
    let stage = stage(1);
    let caller = held_call(&stage);
    let reports = reports(&stage);
    let open: Vec<_> = reports.iter().map(|report| report.engine.outstanding).collect();
    assert_eq!(open, [1, 1]);
    let received = reports.iter().map(|report| report.engine.transactions).sum::<u64>();
    assert_eq!(received, u64::from(WARM_UP) + 1);
    stage.leave.send(()).unwrap();
    caller.join().unwrap().unwrap();
    stage.server.close();
}

/// A channel has 64 lanes; a thread keeps one only as long as it lives.
#[test]
fn threads_that_end_give_their_lanes_back() {
    let stage = stage(1);
    for _ in 0..65 {
        let manager = stage.manager.clone();
        thread::spawn(move || activate(&manager)).join().unwrap();
    }
    let channels = reports(&stage).iter().map(|report| report.channels.len()).max();
    assert_eq!(channels, Some(1));
    stage.server.close();
}

#[test]
fn events_during_a_call_leave_it_as_it_was() {
    let stage = stage(1);
    let caller = held_call(&stage);
    // Both sides get events of new processes, channels and references.
    let other = Process::open("binder", &stage.broker.socket).unwrap();
    let to_server = other.context_manager().unwrap();
    let object = other.object(|_| Ok(Parcel::new())).add();
    let mut parcel = Parcel::new();
    parcel.write_object(object);
    to_server.one_way(ECHO, &parcel).unwrap();
    stage.leave.send(()).unwrap();
    assert_eq!(caller.join().unwrap().unwrap(), b"held");
    assert_eq!(to_server.call(ECHO, &b"other"[..].into()).unwrap().data(), b"other");
    activate(&stage.manager);
    stage.server.close();
}

/// The broker gives numbers out again, the lowest first.
#[test]
fn a_handles_number_that_is_another_objects_reaches_that() {
    let stage = stage(1);
    let manager = &stage.manager;
    for number in 0..50_u32 {
        let bytes = number.to_ne_bytes();
        // This thread keeps the lane by which it calls the objects.
        let give = || manager.call(GIVE, &bytes[..].into()).unwrap().handle(0).unwrap();
        let handle = thread::scope(|scope| scope.spawn(give).join().unwrap());
        for _ in 0..WARM_UP {
            assert_eq!(handle.call(0, &Parcel::new()).unwrap().data(), bytes);
        }
    }
    stage.server.close();
}

#[test]
fn a_call_back_comes_to_the_thread_that_waits() {
    let stage = stage(1);
    let (client, manager) = (&stage.client, &stage.manager);
    let served_by = Arc::new(Mutex::new(None));
    let by = served_by.clone();
    let object = client
        .object(move |request| {
            *by.lock().unwrap() = Some(thread::current().id());
            Ok(request.data().into())
        })
        .add();
    let mut parcel = Parcel::new();
    parcel.write_object(object);
    manager.call(ECHO, &parcel).unwrap();
    for number in 0..20_u32 {
        activate(manager);
        let bytes = number.to_ne_bytes();
        // No other thread serves in the client: only this thread can answer.
        let reply = manager.call(CALL_BACK, &bytes[..].into()).unwrap();
        assert_eq!(reply.data(), bytes);
        assert_eq!(served_by.lock().unwrap().take(), Some(thread::current().id()));
    }
    stage.server.close();
}

#[test]
fn a_server_that_goes_fails_the_call() {
    let stage = stage(1);
    let caller = held_call(&stage);
    stage.server.close();
    assert_eq!(caller.join().unwrap(), Err(CallError::DeadObject));
    let after = stage.manager.call(ECHO, &Parcel::new()).err();
    assert_eq!(after, Some(CallError::DeadObject));
    stage.leave.send(()).unwrap();
}

#[test]
fn a_client_that_closes_fails_its_own_call() {
    let stage = stage(2);
    let caller = held_call(&stage);
    stage.client.close();
    assert!(caller.join().unwrap().is_err());
    stage.leave.send(()).unwrap();
    // The looper that served it goes on.
    let other = Process::open("binder", &stage.broker.socket).unwrap();
    let to_server = other.context_manager().unwrap();
    activate(&to_server);
    stage.server.close();
}

#[test]
fn answers_of_every_shape_come_back() {
    let stage = stage(1);
    let manager = &stage.manager;
    for bytes in [0, 1, 4, 31, 33, 124, 127, 128, 129, 130, 4096, 65536, 0, 128] {
        let sent: Vec<u8> = (0..bytes).map(|n| n as u8).collect();
        for _ in 0..3 {
            let reply = manager.call(ECHO, &sent[..].into()).unwrap();
            assert_eq!(reply.data(), sent);
        }
    }
    stage.server.close();
}

/// Many threads call while others make and drop references and processes.
#[test]
fn calls_and_events_cross_without_harm() {
    const CALLS: u32 = 3000;
    let stage = stage(2);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let callers: Vec<_> = (0..3_u32)
            .map(|name| {
                let manager = &stage.manager;
                scope.spawn(move || {
                    for number in 0..CALLS {
                        let sent = [name.to_ne_bytes(), number.to_ne_bytes()].concat();
                        let reply = manager.call(ECHO, &sent[..].into()).unwrap();
                        assert_eq!(reply.data(), sent);
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let other = Process::open("binder", &stage.broker.socket).unwrap();
                let to_server = other.context_manager().unwrap();
                let object = other.object(|_| Ok(Parcel::new())).add();
                let mut parcel = Parcel::new();
                parcel.write_object(object);
                to_server.call(ECHO, &parcel).unwrap();
                other.close();
            }
        });
        for caller in callers {
            caller.join().unwrap();
        }
        over.store(true, Ordering::Relaxed);
    });
    // The last answers are counted before they are given: nothing is open any more.
    let open: Vec<_> = reports(&stage).iter().map(|report| report.engine.outstanding).collect();
    assert!(open.len() >= 2 && open.iter().all(|open| *open == 0), "{open:?}");
    stage.server.close();
}

#[test]
fn payloads_of_any_size_come_back_whatever_came_before() {
    let stage = stage(1);
    activate(&stage.manager);
    let sizes = [0, 32, 33, 128, 129, 4096, 65536, 65537, 100_000];
    let mut kept = Vec::new();
    for (first, second) in sizes.iter().flat_map(|first| sizes.map(|second| (*first, second))) {
        for bytes in [first, second] {
            let sent: Vec<u8> = (0..bytes).map(|index| (index * 3 + first) as u8).collect();
            let reply = stage.manager.call(ECHO, &sent[..].into()).unwrap();
            assert!(reply.data() == sent, "{bytes} bytes");
            // Some payloads are kept, with their memory.
            kept.push((reply, sent));
            kept.truncate(3);
        }
    }
    assert!(kept.iter().all(|(reply, sent)| reply.data() == sent));
    stage.server.close();
}

/// A receive buffer that has no room for a payload has none by the fast path either.
#[test]
fn a_payload_that_could_not_be_received_is_refused() {
    let broker = Broker::start();
    let server = Options::new().receive_bytes(8192).open("binder", &broker.socket).unwrap();
    let object = server.object(|request| Ok(request.data().into())).add();
    server.become_context_manager(object).unwrap();
    let serving = server.clone();
    thread::spawn(move || serving.serve());
    let client = Process::open("binder", &broker.socket).unwrap();
    let manager = client.context_manager().unwrap();
    activate(&manager);
    for (bytes, fits) in [(8192, true), (8193, false), (8192, true), (65536, false)] {
        let reply = manager.call(ECHO, &vec![1; bytes][..].into()).map(drop);
        let expected = if fits { Ok(()) } else { Err(CallError::NoRoom) };
        assert_eq!(reply, expected, "{bytes} bytes");
    }
    server.close();
}
