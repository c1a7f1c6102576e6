//! Every operation of a forked child on its parent's device is `EBADF`, while threads of the parent
//! serve and call.
mod support;

use baton::{CallError, Handle, Loan, Parcel, Process, Received};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, waitpid};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use support::Broker;

/// Answers with an object and more bytes than the fast path takes.
const OBJECT: u32 = 1;
/// Like `OBJECT`, of few bytes.
const SHORT: u32 = OBJECT + 1;
/// Children for each operation: threads of the parent hold its locks at one fork or another.
const CHILDREN: usize = 20;
/// Calls after which a thread uses the fast path.
const MANY: u32 = 100;
/// Seconds after which a child that waits for something is at an end.
const PATIENCE: u32 = 120;
/// More bytes than the fast path takes.
const LONG: usize = 64 << 10;
const CLOSED: CallError = CallError::Closed;

/// The parent's objects when it forks.
struct Had<'a> {
    server: &'a Process,
    client: &'a Process,
    manager: &'a Handle,
    socket: &'a Path,
}

/// Runs in one child, which drops its copies of the parent's objects.
struct Left<'a> {
    loan: Loan<'a>,
    /// It lies in the receive buffer.
    reply: Received<'a>,
    /// It came by the fast path.
    short: Received<'a>,
    parcel: Parcel,
}

type Operation = (&'static str, fn(&Had<'_>, Left<'_>) -> bool);

const OPERATIONS: [Operation; 11] = [
    ("a call", |had, _| is_closed(had.manager.call(0, &Parcel::new()))),
    ("a call with an object", |had, left| is_closed(had.manager.call(0, &left.parcel))),
    ("a one-way transaction", |had, left| {
        is_closed(had.manager.one_way(0, &Parcel::new()))
            && is_closed(had.manager.one_way(0, &left.parcel))
    }),
    ("objects", |had, _| {
        let object = had.client.object(|_| Ok(Parcel::new())).add();
        let mut parcel = Parcel::new();
        parcel.write_object(object);
        had.client.become_context_manager(object) == Err(Errno::BADF)
            && is_closed(had.manager.call(0, &parcel))
    }),
    ("the manager, and a notice of its death", |had, _| {
        had.manager.link_to_death(|| {});
        is_closed(had.client.context_manager()) && is_closed(had.manager.prepare(Duration::ZERO))
    }),
    ("a loan", |had, mut left| {
        left.loan.write(0, b"bytes");
        left.loan.fill(|index| index as u64);
        is_closed(left.loan.call(0)) && is_closed(had.manager.loan(8))
    }),
    ("a loan that is dropped", |_, left| {
        drop(left.loan);
        true
    }),
    ("what has come in", |_, left| {
        let has_object = |reply: &Received<'_>| {
            reply.handle(0).is_some() || reply.own_object(0).is_some() || reply.fd(0).is_some()
        };
        let any = has_object(&left.reply) || has_object(&left.short);
        let nothing = left.reply.data().is_empty() && !any;
        drop((left.reply, left.short));
        nothing
    }),
    ("handles and parcels that are copied and dropped", |had, left| {
        let copies = (had.manager.clone(), left.parcel.clone(), left.parcel.handle(0));
        drop((copies, left));
        true
    }),
    ("serving and the end", |had, _| {
        had.client.close();
        had.server.close();
        had.server.serve() == Errno::BADF
    }),
    ("a device of its own", |had, _| {
        let Ok(own) = Process::open("binder", had.socket) else { return false };
        let Ok(manager) = own.context_manager() else { return false };
        let calls = |_| manager.call(0, &Parcel::from(&b"word"[..])).map(drop).is_ok();
        (0..MANY).all(calls) && is_closed(had.manager.call(0, &Parcel::new()))
    }),
];

fn is_closed<T>(result: Result<T, CallError>) -> bool {
    result.err() == Some(CLOSED)
}

/// Whether a child of this process ends with true.
fn in_child(body: impl FnOnce() -> bool) -> Result<(), String> {
    // SAFETY: what the child does is what this test is about; it ends without running anything of
    // its parent's.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: a clock that ends this process, and its end.
        unsafe {
            libc::alarm(PATIENCE);
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            libc::_exit(i32::from(!ended.unwrap_or(false)));
        }
    }
    let child = Pid::from_raw(child).ok_or("no fork")?;
    let (_, status) = waitpid(Some(child), WaitOptions::empty()).unwrap().unwrap();
    if status.exit_status() == Some(0) { Ok(()) } else { Err(format!("{status:?}")) }
}

#[test]
fn every_operation_of_a_forked_child_fails_and_the_parent_goes_on() {
    let broker = Broker::start();
    let server = Process::open("binder", &broker.socket).unwrap();
    let given = server.object(|_| Ok(Parcel::new())).add();
    let object = server
        .object(move |request| match request.code() {
            code @ (OBJECT | SHORT) => {
                let mut answer = Parcel::new();
                let bytes = if code == SHORT { 200 } else { LONG };
                answer.write_object(given).write(&vec![1; bytes]);
                Ok(answer)
            }
            _ => Ok(Parcel::from(request.data())),
        })
        .add();
    server.become_context_manager(object).unwrap();
    let serving = [(); 2].map(|()| {
        let server = server.clone();
        std::thread::spawn(move || server.serve())
    });
    let (client, manager) = client_of(&broker);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let caller = scope.spawn(|| {
            // On the general path, whose lock is held meanwhile.
            let (_other, manager) = client_of(&broker);
            while !stop.load(Relaxed) {
                drop(manager.call(OBJECT, &Parcel::new()).unwrap());
                drop(client.context_manager().unwrap().call(OBJECT, &Parcel::new()).unwrap());
            }
        });
        let mut failed = Vec::new();
        for (name, operation) in OPERATIONS {
            let had =
                Had { server: &server, client: &client, manager: &manager, socket: &broker.socket };
            for _ in 0..CHILDREN {
                for value in (0..MANY).map(u32::to_ne_bytes) {
                    let answer = manager.call(0, &Parcel::from(&value[..])).unwrap();
                    assert_eq!(answer.data(), value);
                }
                let reply = manager.call(OBJECT, &Parcel::new()).unwrap();
                let mut parcel = Parcel::new();
                parcel.write_handle(&reply.handle(0).expect("it has one"));
                let short = manager.call(SHORT, &Parcel::new()).unwrap();
                let loan = manager.loan(64).unwrap();
                let left = Left { loan, reply, short, parcel };
                if let Err(status) = in_child(|| operation(&had, left)) {
                    failed.push(format!("{name}: {status}"));
                    break;
                }
                let answer = manager.call(0, &Parcel::from(&b"still"[..])).unwrap();
                assert_eq!(answer.data(), b"still", "{name}");
            }
        }
        stop.store(true, Relaxed);
        caller.join().unwrap();
        assert_eq!(failed, [""; 0]);
    });
    server.close();
    serving.into_iter().for_each(|looper| _ = looper.join());
}

fn client_of(broker: &Broker) -> (Process, Handle) {
    let client = Process::open("binder", &broker.socket).unwrap();
    let manager = client.context_manager().unwrap();
    (client, manager)
}
