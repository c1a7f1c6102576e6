//! Loans: bytes arrive as they were written, whatever happens between loan and call.
mod support;

use baton::{CallError, Handle, Loan, Options, Parcel, Process, Request};
use baton_abi::lane::{LANES, MAX_PAYLOAD_BYTES};
use baton_driver::observer::Observer;
use rustix::io::Errno;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use support::Broker;

const ECHO: u32 = 0;
/// Answered once it is released.
const HOLD: u32 = 1;

fn open(broker: &Broker) -> Process {
    Options::new().receive_bytes(MAX_PAYLOAD_BYTES).open("binder", &broker.socket).unwrap()
}

fn serve(process: &Process) {
    let serving = process.clone();
    thread::spawn(move || serving.serve());
}

fn manage(
    broker: &Broker,
    handler: impl Fn(&Request<'_>) -> Result<Parcel, Errno> + Send + Sync + 'static,
) -> Process {
    let server = open(broker);
    let object = server.object(handler).add();
    server.become_context_manager(object).unwrap();
    serve(&server);
    server
}

fn echo(request: &Request<'_>) -> Result<Parcel, Errno> {
    Ok(request.data().into())
}

fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index * 7 + index / 251 + seed) as u8).collect()
}

fn lend<'a>(handle: &'a Handle, bytes: &[u8]) -> Loan<'a> {
    let mut loan = handle.loan(bytes.len()).unwrap();
    loan.write(0, bytes);
    loan
}

/// The most channels that a process has.
fn channels(broker: &Broker) -> usize {
    let contexts = Observer::connect(&broker.socket).unwrap().report().unwrap().contexts;
    let processes = contexts.into_iter().flat_map(|context| context.processes);
    processes.map(|process| process.channels.len()).max().unwrap_or(0)
}

#[test]
fn bytes_arrive_as_they_were_written() {
    let broker = Broker::start();
    let server = manage(&broker, echo);
    let client = open(&broker);
    let manager = client.context_manager().unwrap();
    for bytes in [0, 1, 7, 124, 4096, 65536, 65539, 1 << 20, MAX_PAYLOAD_BYTES - 8] {
        let sent = pattern(bytes, bytes);
        let loan = lend(&manager, &sent);
        assert_eq!(loan.bytes(), bytes);
        assert!(loan.call(ECHO).unwrap().data() == sent, "{bytes} bytes");
    }
    server.close();
}

#[test]
fn bytes_are_written_in_pieces_by_words_or_by_address() {
    let broker = Broker::start();
    let server = manage(&broker, echo);
    let client = open(&broker);
    let manager = client.context_manager().unwrap();
    let mut loan = manager.loan(12).unwrap();
    loan.fill(|index| u64::from_ne_bytes([index as u8 + 1; 8]));
    loan.write(2, b"in");
    let first = loan.as_mut_ptr();
    assert_eq!(first.align_offset(16), 0);
    // SAFETY: the loan's last byte.
    unsafe { first.add(11).write(9) };
    let reply = loan.call(ECHO).unwrap();
    assert_eq!(reply.data(), [1, 1, b'i', b'n', 1, 1, 1, 1, 2, 2, 2, 9]);
    server.close();
}

#[test]
fn loans_that_are_dropped_or_refused_give_their_lanes_back() {
    let broker = Broker::start();
    let server = Process::open("binder", &broker.socket).unwrap();
    let object = server.object(echo).add();
    server.become_context_manager(object).unwrap();
    serve(&server);
    let client = open(&broker);
    let manager = client.context_manager().unwrap();
    for _ in 0..2 * LANES {
        drop(lend(&manager, b"not sent"));
        let too_large = manager.loan(1 << 20).unwrap().call(ECHO);
        assert_eq!(too_large.map(drop), Err(CallError::NoRoom));
    }
    assert_eq!(channels(&broker), 1);
    let too_large = manager.loan(MAX_PAYLOAD_BYTES + 1);
    assert_eq!(too_large.map(drop), Err(CallError::TooLarge));
    assert_eq!(lend(&manager, b"sent").call(ECHO).unwrap().data(), b"sent");
    server.close();
}

#[test]
fn calls_and_loans_take_other_lanes_than_a_loan_that_is_held() {
    let broker = Broker::start();
    let server = manage(&broker, echo);
    let client = open(&broker);
    let manager = client.context_manager().unwrap();
    let sent = |seed| pattern(5000, seed);
    let loans: Vec<Loan<'_>> = (0..LANES + 2).map(|seed| lend(&manager, &sent(seed))).collect();
    for _ in 0..3 {
        assert_eq!(manager.call(ECHO, &b"meanwhile"[..].into()).unwrap().data(), b"meanwhile");
    }
    assert_eq!(channels(&broker), 2);
    for (loan, seed) in loans.into_iter().zip(0..) {
        assert!(loan.call(ECHO).unwrap().data() == sent(seed), "loan {seed}");
    }
    server.close();
}

/// A server that calls, by loans, the object that comes with each request: by one made while it
/// serves, and by one that another thread made before.
#[test]
fn a_loan_calls_back_to_the_waiting_thread() {
    let broker = Broker::start();
    let server: &Process = Box::leak(Box::new(open(&broker)));
    let object = server
        .object(move |request| {
            let back: &Handle =
                Box::leak(Box::new(request.received.handle(0).ok_or(Errno::INVAL)?));
            let made_elsewhere = thread::spawn(move || lend(back, &pattern(9000, 1)));
            let made_here = lend(back, &pattern(9000, 2));
            for loan in [made_elsewhere.join().unwrap(), made_here] {
                loan.call(ECHO).map_err(|_| Errno::IO)?;
            }
            Ok(Parcel::new())
        })
        .add();
    server.become_context_manager(object).unwrap();
    serve(server);
    let client = open(&broker);
    let (told, heard) = mpsc::channel();
    let back = client
        .object(move |request: &Request<'_>| {
            told.send((thread::current().id(), request.data().to_vec())).unwrap();
            Ok(Parcel::new())
        })
        .add();
    let manager = client.context_manager().unwrap();
    let mut parcel = Parcel::new();
    parcel.write_object(back);
    manager.call(ECHO, &parcel).unwrap();
    for seed in [1, 2] {
        let (thread, data) = heard.recv().unwrap();
        assert_eq!(thread, thread::current().id());
        assert!(data == pattern(9000, seed), "loan {seed}");
    }
    server.close();
}

/// A chain grows by a process between loan and call, and shrinks by one.
#[test]
fn a_loan_is_called_with_another_chain_than_it_was_made_for() {
    let broker = Broker::start();
    let registered = Mutex::new(None);
    let end = manage(&broker, move |request| {
        let mut reply = Parcel::from(request.data());
        let mut registered = registered.lock().unwrap();
        match request.received.handle(0) {
            Some(handle) => *registered = Some(handle),
            None if request.data().is_empty() => {
                reply.write_handle(registered.as_ref().ok_or(Errno::NOENT)?);
            }
            None => {}
        }
        Ok(reply)
    });
    let middle: &Process = Box::leak(Box::new(open(&broker)));
    let to_end: &Handle = Box::leak(Box::new(middle.context_manager().unwrap()));
    let (sent, more) = (pattern(70_000, 1), pattern(70_000, 2));
    let outer = Mutex::new(Some(lend(to_end, &sent)));
    let (give, given) = mpsc::channel();
    let content = more.clone();
    let object = middle
        .object(move |_| {
            give.send(lend(to_end, &content)).unwrap();
            let loan = outer.lock().unwrap().take().ok_or(Errno::NOENT)?;
            Ok(loan.call(ECHO).map_err(|_| Errno::IO)?.data().into())
        })
        .add();
    serve(middle);
    let mut parcel = Parcel::new();
    parcel.write_object(object);
    to_end.call(ECHO, &parcel).unwrap();

    let client = open(&broker);
    let manager = client.context_manager().unwrap();
    let found = manager.call(ECHO, &Parcel::new()).unwrap();
    let to_middle = found.handle(0).unwrap();
    assert!(to_middle.call(ECHO, &b"go"[..].into()).unwrap().data() == sent);
    assert!(given.recv().unwrap().call(ECHO).unwrap().data() == more);
    middle.close();
    end.close();
}

/// A server that holds calls with the code [`HOLD`]: it reports each, and answers when it is
/// released or the releasing end is gone.
fn manage_and_hold(broker: &Broker) -> (Process, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (entered, is_entered) = mpsc::channel();
    let (leave, may_leave) = mpsc::channel::<()>();
    let may_leave = Mutex::new(may_leave);
    let server = manage(broker, move |request| {
        if request.code() == HOLD {
            entered.send(()).unwrap();
            let _ = may_leave.lock().unwrap().recv();
        }
        echo(request)
    });
    (server, is_entered, leave)
}

/// The state takes over each fast call while it is under way: the lanes come back.
#[test]
fn events_during_a_loaned_call_leave_it_as_it_was() {
    let broker = Broker::start();
    let (server, is_entered, leave) = manage_and_hold(&broker);
    let client = open(&broker);
    let manager = client.context_manager().unwrap();
    let sent = pattern(50_000, 3);
    for _ in 0..LANES + 1 {
        thread::scope(|scope| {
            let caller = scope.spawn(|| {
                for code in [ECHO, ECHO, ECHO, HOLD] {
                    let reply = lend(&manager, &sent).call(code).unwrap();
                    assert!(reply.data() == sent);
                }
            });
            is_entered.recv().unwrap();
            // The client gets an event of a new handle, the server of a new process.
            drop(open(&broker).context_manager().unwrap());
            leave.send(()).unwrap();
            caller.join().unwrap();
        });
    }
    assert_eq!(channels(&broker), 1);
    server.close();
}

#[test]
fn a_loan_to_a_process_that_dies_is_dead() {
    let broker = Broker::start();
    let (server, is_entered, leave) = manage_and_hold(&broker);
    let client = open(&broker);
    let manager = client.context_manager().unwrap();
    let before = lend(&manager, &pattern(65536, 1));
    let during = lend(&manager, &pattern(65536, 2));
    thread::scope(|scope| {
        let caller = scope.spawn(|| during.call(HOLD).map(drop));
        is_entered.recv().unwrap();
        server.close();
        assert_eq!(caller.join().unwrap(), Err(CallError::DeadObject));
    });
    drop(leave);
    assert_eq!(before.call(ECHO).map(drop), Err(CallError::DeadObject));
    assert_eq!(manager.loan(4).map(drop), Err(CallError::NoManager));
}

#[test]
fn a_loan_ends_with_its_process() {
    let broker = Broker::start();
    let server = manage(&broker, echo);
    let client = open(&broker);
    let manager = client.context_manager().unwrap();
    let mut loan = lend(&manager, b"too late");
    client.close();
    loan.write(0, b"far");
    let closed = Err(CallError::Closed);
    assert_eq!(loan.call(ECHO).map(drop), closed);
    assert_eq!(manager.loan(4).map(drop), closed);
    server.close();
}

#[test]
#[should_panic(expected = "past the end of a loan")]
fn writing_past_the_end_is_the_callers_bug() {
    let broker = Broker::start();
    let _server = Arc::new(manage(&broker, echo));
    let client = open(&broker);
    let manager = client.context_manager().unwrap();
    manager.loan(8).unwrap().write(5, b"four");
}

/// A lane that was given back twice would be two threads' at once.
#[test]
fn threads_that_lend_at_once_share_no_lane() {
    let broker = Broker::start();
    let server = manage(&broker, echo);
    serve(&server);
    let client = open(&broker);
    let manager = client.context_manager().unwrap();
    thread::scope(|scope| {
        for seed in 0..8 {
            let manager = &manager;
            scope.spawn(move || {
                for round in 0..100 {
                    let sent = pattern(3000 + 70_000 * (round % 2), seed);
                    let loan = lend(manager, &sent);
                    thread::yield_now();
                    if round % 5 > 0 {
                        assert!(loan.call(ECHO).unwrap().data() == sent, "thread {seed}");
                    }
                }
            });
        }
        // Each is an event for both sides, in the midst of calls.
        for _ in 0..20 {
            drop(open(&broker).context_manager().unwrap());
        }
    });
    server.close();
}
