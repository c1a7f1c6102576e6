//! Real-time callers: a call at a priority is served at that priority, by a looper of its lane
//! alone.
//!
//! It starts this very program again for some of its processes; hence a `main` of its own.

#[path = "support/scheduling.rs"]
#[allow(dead_code, reason = "other tests ask more")]
mod scheduling;
mod support;

use baton::{Handle, Parcel, Process, Request, priority_changed};
use baton_abi::control::{LaneReport, ProcessReport};
use baton_abi::sched_priority::SchedPriority;
use baton_broker::{Config, Running};
use baton_driver::observer::Observer;
use baton_shm::schedule;
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use scheduling::{become_real_time, bytes, sched_priority};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, ThreadId};
use std::time::Duration;
use support::Broker;

/// So many calls are made until one is served as it should be.
const PATIENCE: usize = 5_000_000;

/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(600);

const PRIORITY: u32 = 1;
const RELAY: u32 = 2;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match &arguments[..] {
        [_, role, socket] if role == "server" => return serve(Path::new(socket)),
        [_, role, socket] if role == "caller" => return call_for_ever(Path::new(socket)),
        [_, role, socket] if role == "sender" => return send_and_wait(Path::new(socket)),
        _ => {}
    }
    if !become_real_time(libc::SCHED_FIFO, 1) {
        println!("skipped: real_time (no real-time priority here)");
        return;
    }
    become_ordinary();
    let tests: [(&str, fn()); 17] = [
        (
            "a_prepared_callers_first_call_is_served_at_its_priority",
            a_prepared_callers_first_call_is_served_at_its_priority,
        ),
        ("a_call_is_served_at_its_callers_priority", a_call_is_served_at_its_callers_priority),
        ("a_nested_call_inherits", a_nested_call_inherits),
        ("a_change_of_priority_is_followed", a_change_of_priority_is_followed),
        (
            "a_caller_with_a_deadline_has_the_highest_looper",
            a_caller_with_a_deadline_has_the_highest_looper,
        ),
        ("the_next_broker_knows_real_time_callers", the_next_broker_knows_real_time_callers),
        ("a_bound_callers_looper_is_bound_there", a_bound_callers_looper_is_bound_there),
        ("a_caller_that_ends_leaves_no_looper", a_caller_that_ends_leaves_no_looper),
        (
            "a_caller_that_ends_without_a_broker_leaves_no_looper",
            a_caller_that_ends_without_a_broker_leaves_no_looper,
        ),
        ("a_killed_caller_leaves_no_looper", a_killed_caller_leaves_no_looper),
        ("whatever_a_real_time_caller_sends_arrives", whatever_a_real_time_caller_sends_arrives),
        (
            "one_way_transactions_are_served_at_their_senders_priority",
            one_way_transactions_are_served_at_their_senders_priority,
        ),
        (
            "a_one_way_transaction_goes_before_ordinary_ones_and_raises_the_one_in_service",
            a_one_way_transaction_goes_before_ordinary_ones_and_raises_the_one_in_service,
        ),
        ("a_thread_that_was_raised_serves_on", a_thread_that_was_raised_serves_on),
        (
            "ordinary_senders_leave_room_for_a_real_time_one",
            ordinary_senders_leave_room_for_a_real_time_one,
        ),
        (
            "a_sender_that_becomes_ordinary_keeps_its_order",
            a_sender_that_becomes_ordinary_keeps_its_order,
        ),
        (
            "one_way_transactions_of_a_killed_sender_arrive",
            one_way_transactions_of_a_killed_sender_arrive,
        ),
    ];
    let only = arguments.get(1).filter(|argument| !argument.starts_with('-'));
    for (name, test) in tests {
        if only.is_none_or(|only| name.contains(only.as_str())) {
            println!("test {name}");
            // Each test runs on a thread of its own, because it changes its priority.
            thread::spawn(test).join().unwrap();
        }
    }
}

fn become_ordinary() {
    assert!(become_real_time(libc::SCHED_OTHER, 0));
}

fn answer_priority(_: &Request<'_>) -> Result<Parcel, Errno> {
    Ok(Parcel::from(&bytes(sched_priority())[..]))
}

/// Manages the context and serves with one looper.
fn server(broker: &Path) -> Process {
    let process = Process::open("binder", broker).unwrap();
    let object = process.object(answer_priority).add();
    process.become_context_manager(object).unwrap();
    let serving = process.clone();
    thread::spawn(move || serving.serve());
    process
}

/// Calls until the answer is this.
fn call_until(handle: &Handle, code: u32, expected: [i32; 2]) {
    let served = (0..PATIENCE).any(|_| {
        let reply = handle.call(code, &Parcel::new()).unwrap();
        reply.data() == bytes(expected)
    });
    assert!(served, "never served at {expected:?}");
}

fn lanes(socket: &Path) -> Vec<LaneReport> {
    let report = Observer::connect(socket).unwrap().report().unwrap();
    let processes = report.contexts.into_iter().flat_map(|context| context.processes);
    processes.flat_map(|process: ProcessReport| process.real_time).collect()
}

/// Until the broker knows of so many.
fn await_lanes(socket: &Path, count: usize) {
    while lanes(socket).len() != count {
        thread::yield_now();
    }
}

/// Threads of this process that are loopers of real-time callers.
fn loopers(pid: u32) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.trim_end() == "baton-lane").count()
}

fn await_loopers(pid: u32, count: usize) {
    while loopers(pid) != count {
        thread::yield_now();
    }
}

fn a_call_is_served_at_its_callers_priority() {
    let broker = Broker::start();
    let server = server(&broker.socket);
    let client = Process::open("binder", &broker.socket).unwrap();
    let manager = client.context_manager().unwrap();
    let callers = [(libc::SCHED_FIFO, 30), (libc::SCHED_RR, 20), (libc::SCHED_FIFO, 10)];
    let callers = callers.map(|(policy, priority)| {
        let manager = manager.clone();
        thread::spawn(move || {
            assert!(become_real_time(policy, priority));
            call_until(&manager, PRIORITY, [policy, priority]);
            for _ in 0..1000 {
                let reply = manager.call(PRIORITY, &Parcel::new()).unwrap();
                assert_eq!(reply.data(), bytes([policy, priority]), "and from then on");
            }
        })
    });
    // An ordinary caller beside them is served by the pool.
    for _ in 0..1000 {
        let reply = manager.call(PRIORITY, &Parcel::new()).unwrap();
        assert_eq!(reply.data(), bytes([libc::SCHED_OTHER, 0]));
    }
    callers.into_iter().for_each(|caller| caller.join().unwrap());
    server.close();
}

fn a_prepared_callers_first_call_is_served_at_its_priority() {
    let broker = Broker::start();
    let server = server(&broker.socket);
    let client = Process::open("binder", &broker.socket).unwrap();
    let manager = client.context_manager().unwrap();
    assert_eq!(manager.prepare(Duration::ZERO), Ok(false), "an ordinary thread");
    // A server that does not serve yet has no such loopers.
    manager.call(PRIORITY, &Parcel::new()).unwrap();
    // One after the other, each with the thread that has waited for it; then some at once.
    let caller = |priority| {
        let manager = manager.clone();
        thread::spawn(move || {
            assert!(become_real_time(libc::SCHED_FIFO, priority));
            assert_eq!(manager.prepare(LONG), Ok(true));
            for _ in 0..10 {
                let reply = manager.call(PRIORITY, &Parcel::new()).unwrap();
                assert_eq!(reply.data(), bytes([libc::SCHED_FIFO, priority]));
            }
        })
    };
    for priority in 1..5 {
        caller(priority).join().unwrap();
    }
    let callers: Vec<_> = (1..10).map(caller).collect();
    callers.into_iter().for_each(|caller| caller.join().unwrap());
    server.close();
}

fn a_change_of_priority_is_followed() {
    let broker = Broker::start();
    let server = server(&broker.socket);
    let client = Process::open("binder", &broker.socket).unwrap();
    let manager = client.context_manager().unwrap();
    call_until(&manager, PRIORITY, [libc::SCHED_OTHER, 0]);
    for (policy, priority) in [
        (libc::SCHED_FIFO, 12),
        (libc::SCHED_RR, 34),
        (libc::SCHED_OTHER, 0),
        (libc::SCHED_FIFO, 5),
    ] {
        assert!(become_real_time(policy, priority));
        priority_changed();
        call_until(&manager, PRIORITY, [policy, priority]);
    }
    server.close();
}

/// Its own policy cannot be lent.
fn a_caller_with_a_deadline_has_the_highest_looper() {
    let broker = Broker::start();
    let server = server(&broker.socket);
    let client = Process::open("binder", &broker.socket).unwrap();
    let manager = client.context_manager().unwrap();
    if !take_deadline(Duration::from_millis(5), Duration::from_millis(10)) {
        println!(
            "skipped: a_caller_with_a_deadline_has_the_highest_looper (no SCHED_DEADLINE here)"
        );
        return server.close();
    }
    call_until(&manager, PRIORITY, [libc::SCHED_FIFO, 99]);
    become_ordinary();
    priority_changed();
    call_until(&manager, PRIORITY, [libc::SCHED_OTHER, 0]);
    server.close();
}

/// The calling thread may run for so long of each period.
fn take_deadline(runtime: Duration, period: Duration) -> bool {
    // SAFETY: plain data, of which zero is valid.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    attributes.size = size_of::<libc::sched_attr>() as u32;
    attributes.sched_policy = libc::SCHED_DEADLINE as u32;
    attributes.sched_runtime = runtime.as_nanos() as u64;
    (attributes.sched_deadline, attributes.sched_period) =
        (period.as_nanos() as u64, period.as_nanos() as u64);
    // SAFETY: changes how the calling thread is scheduled, by a structure of ours.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &attributes, 0) == 0 }
}

/// A caller goes on at its priority while there is no broker, and with the next one.
fn the_next_broker_knows_real_time_callers() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("broker.sock");
    let broker = Running::start(Config::at(&socket)).unwrap();
    let server = server(&socket);
    let client = Process::open("binder", &socket).unwrap();
    let manager = client.context_manager().unwrap();
    let at_priority = || {
        let reply = manager.call(PRIORITY, &Parcel::new()).unwrap();
        assert_eq!(reply.data(), bytes([libc::SCHED_FIFO, 30]));
    };
    assert!(become_real_time(libc::SCHED_FIFO, 30));
    call_until(&manager, PRIORITY, [libc::SCHED_FIFO, 30]);
    broker.stop().unwrap();
    (0..1000).for_each(|_| at_priority());
    let broker = Running::start(Config::at(&socket)).unwrap();
    // A broker that has no processor to itself runs while the caller waits for an ordinary thread.
    let knows = || {
        become_ordinary();
        lanes(&socket).iter().any(|lane| lane.looper.is_some())
    };
    let is_known = || thread::scope(|scope| scope.spawn(knows).join().unwrap());
    // Each round starts a thread.
    let mut rounds = 0..PATIENCE / 100;
    assert!(rounds.any(|_| {
        at_priority();
        is_known()
    }));
    // From now on the next broker sets the priority.
    for priority in [[libc::SCHED_RR, 12], [libc::SCHED_OTHER, 0]] {
        assert!(become_real_time(priority[0], priority[1]));
        priority_changed();
        call_until(&manager, PRIORITY, priority);
    }
    await_lanes(&socket, 0);
    server.close();
    drop(broker);
}

/// Threads of this process that serve a real-time caller's lane.
fn lane_loopers() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.flat_map(|task| std::fs::read_to_string(task.path().join("comm")));
    names.filter(|name| name.trim_end() == "baton-lane").count()
}

/// The broker that knew of the caller's lane has died, and the next one is told of its end.
fn a_caller_that_ends_without_a_broker_leaves_no_looper() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("broker.sock");
    let broker = Running::start(Config::at(&socket)).unwrap();
    let server = server(&socket);
    let client = Process::open("binder", &socket).unwrap();
    let manager = client.context_manager().unwrap();
    while lane_loopers() != 0 {
        thread::yield_now();
    }
    let calls_and_ends = || {
        assert!(become_real_time(libc::SCHED_FIFO, 30));
        call_until(&manager, PRIORITY, [libc::SCHED_FIFO, 30]);
        broker.stop().unwrap();
    };
    thread::scope(|scope| scope.spawn(calls_and_ends).join().unwrap());
    assert_eq!(lane_loopers(), 1, "nobody has told the server");
    let broker = Running::start(Config::at(&socket)).unwrap();
    while lane_loopers() != 0 {
        thread::yield_now();
    }
    client.close();
    server.close();
    drop(broker);
}

/// A looper runs where its caller is bound, and nowhere in particular once that one is free again.
fn a_bound_callers_looper_is_bound_there() {
    let broker = Broker::start();
    let server = Process::open("binder", &broker.socket).unwrap();
    let object = server.object(|_| Ok(Parcel::from(&bytes(bound())[..]))).add();
    server.become_context_manager(object).unwrap();
    let serving = server.clone();
    thread::spawn(move || serving.serve());
    let client = Process::open("binder", &broker.socket).unwrap();
    let manager = client.context_manager().unwrap();
    let all = sched_getaffinity(None).unwrap();
    let free = bound();
    assert!(become_real_time(libc::SCHED_FIFO, 10));
    for processor in (0..CpuSet::MAX_CPU).filter(|&processor| all.is_set(processor)) {
        let mut only = CpuSet::new();
        only.set(processor);
        sched_setaffinity(None, &only).unwrap();
        priority_changed();
        call_until(&manager, PRIORITY, [1, processor as i32]);
    }
    sched_setaffinity(None, &all).unwrap();
    priority_changed();
    call_until(&manager, PRIORITY, free);
    server.close();
}

/// To how many processors the calling thread is bound, and the first of them.
fn bound() -> [i32; 2] {
    let bound = sched_getaffinity(None).unwrap();
    let first = (0..CpuSet::MAX_CPU).find(|&processor| bound.is_set(processor)).unwrap();
    [bound.count() as i32, first as i32]
}

/// Through a process in between, which calls on from its looper.
fn a_nested_call_inherits() {
    let broker = Broker::start();
    let last = server(&broker.socket);
    let middle = Process::open("hwbinder", &broker.socket).unwrap();
    let onward = Process::open("binder", &broker.socket).unwrap();
    let manager = onward.context_manager().unwrap();
    let object = middle
        .object(move |request| match request.code() {
            RELAY => {
                let reply = manager.call(PRIORITY, &Parcel::new()).map_err(|_| Errno::IO)?;
                Ok(Parcel::from(reply.data()))
            }
            _ => answer_priority(request),
        })
        .add();
    middle.become_context_manager(object).unwrap();
    let serving = middle.clone();
    thread::spawn(move || serving.serve());
    let client = Process::open("hwbinder", &broker.socket).unwrap();
    let handle = client.context_manager().unwrap();
    assert!(become_real_time(libc::SCHED_FIFO, 40));
    call_until(&handle, PRIORITY, [libc::SCHED_FIFO, 40]);
    call_until(&handle, RELAY, [libc::SCHED_FIFO, 40]);
    middle.close();
    last.close();
}

fn a_caller_that_ends_leaves_no_looper() {
    let broker = Broker::start();
    let server = server(&broker.socket);
    let client = Process::open("binder", &broker.socket).unwrap();
    let manager = client.context_manager().unwrap();
    // Loopers of earlier tests are gone, too.
    await_loopers(std::process::id(), 0);
    let handle = manager.clone();
    let caller = thread::spawn(move || {
        assert!(become_real_time(libc::SCHED_FIFO, 30));
        call_until(&handle, PRIORITY, [libc::SCHED_FIFO, 30]);
    });
    caller.join().unwrap();
    await_lanes(&broker.socket, 0);
    await_loopers(std::process::id(), 0);
    // Any thread may take its lane, and the pool serves it.
    call_until(&manager, PRIORITY, [libc::SCHED_OTHER, 0]);
    server.close();
}

/// Calls that the fast path does not carry: large payloads, descriptors, objects that are called
/// back.
fn whatever_a_real_time_caller_sends_arrives() {
    let broker = Broker::start();
    let server = Process::open("binder", &broker.socket).unwrap();
    let object = server
        .object(move |request| match request.code() {
            RELAY => {
                let callback = request.received.handle(0).ok_or(Errno::INVAL)?;
                let reply = callback.call(PRIORITY, &Parcel::new()).map_err(|_| Errno::IO)?;
                Ok(Parcel::from(reply.data()))
            }
            PRIORITY => answer_priority(request),
            _ => Ok(Parcel::from(request.data())),
        })
        .add();
    server.become_context_manager(object).unwrap();
    let serving = server.clone();
    thread::spawn(move || serving.serve());
    let client = Process::open("binder", &broker.socket).unwrap();
    let manager = client.context_manager().unwrap();
    let callback = client.object(answer_priority).add();
    assert!(become_real_time(libc::SCHED_FIFO, 25));
    call_until(&manager, PRIORITY, [libc::SCHED_FIFO, 25]);
    for length in [0, 4, 100, 5000, 70_000, 4] {
        let data = vec![7; length];
        let reply = manager.call(3, &Parcel::from(&data[..])).unwrap();
        assert_eq!(reply.data(), data);
    }
    for _ in 0..50 {
        let mut parcel = Parcel::new();
        parcel.write_object(callback);
        let reply = manager.call(RELAY, &parcel).unwrap();
        assert_eq!(reply.data(), bytes([libc::SCHED_FIFO, 25]), "by the very thread that called");
        manager.call(PRIORITY, &Parcel::new()).unwrap();
    }
    server.close();
}

// ---- one-way transactions -------------------------------------------------------------------

/// Of one transaction: its payload, and the priority at which it was served, when it began and when
/// it ended.
type Served = (Vec<u8>, [[i32; 2]; 2]);

/// The code of a transaction that waits until the gate is opened.
const HOLD: u32 = 4;

/// A context manager with some loopers, whose only object tells what it serves.
struct OneWayServer {
    process: Process,
    served: Mutex<Receiver<Served>>,
    /// By which threads.
    by: Mutex<Receiver<ThreadId>>,
    /// Opens the gate for one transaction.
    gate: Sender<()>,
    /// One transaction waits at the gate, on this thread.
    waits: Mutex<Receiver<u32>>,
}

impl OneWayServer {
    fn start(broker: &Path, n_loopers: usize) -> OneWayServer {
        let process = Process::open("binder", broker).unwrap();
        let (tell, served) = mpsc::channel();
        let (tell_by, by) = mpsc::channel();
        let (gate, opened) = mpsc::channel();
        let (begins, waits) = mpsc::channel();
        let opened = Mutex::new(opened);
        let object = process
            .object(move |request| {
                let begun = sched_priority();
                if request.code() == HOLD {
                    begins.send(baton_shm::thread::id()).unwrap();
                    opened.lock().unwrap().recv().unwrap();
                }
                tell_by.send(thread::current().id()).unwrap();
                tell.send((request.data().to_vec(), [begun, sched_priority()])).unwrap();
                Ok(Parcel::new())
            })
            .add();
        process.become_context_manager(object).unwrap();
        for _ in 0..n_loopers {
            let serving = process.clone();
            thread::spawn(move || serving.serve());
        }
        let (served, by, waits) = (Mutex::new(served), Mutex::new(by), Mutex::new(waits));
        OneWayServer { process, served, by, gate, waits }
    }

    fn next(&self) -> Served {
        self.served.lock().unwrap().recv_timeout(LONG).expect("a transaction is served")
    }

    /// The thread that served the next transaction that nobody has asked about.
    fn next_by(&self) -> ThreadId {
        self.by.lock().unwrap().recv_timeout(LONG).expect("a transaction is served")
    }

    /// The thread on which the transaction waits.
    fn await_held(&self) -> u32 {
        self.waits.lock().unwrap().recv_timeout(LONG).expect("a transaction is held")
    }
}

fn send(handle: &Handle, code: u32, number: u32) {
    handle.one_way(code, &Parcel::from(&number.to_ne_bytes()[..])).unwrap();
}

/// Runs on a thread at this priority that has a looper.
fn at_fifo<T: Send>(handle: &Handle, priority: i32, body: impl FnOnce() -> T + Send) -> T {
    let body = || {
        assert!(become_real_time(libc::SCHED_FIFO, priority));
        assert_eq!(handle.prepare(LONG), Ok(true));
        body()
    };
    thread::scope(|scope| scope.spawn(body).join().unwrap())
}

fn one_way_transactions_are_served_at_their_senders_priority() {
    let broker = Broker::start();
    let server = OneWayServer::start(&broker.socket, 2);
    let client = Process::open("binder", &broker.socket).unwrap();
    let manager = client.context_manager().unwrap();
    manager.call(0, &Parcel::new()).unwrap();
    server.next();
    for priority in [30, 40] {
        at_fifo(&manager, priority, || {
            for number in 0..1000u32 {
                send(&manager, 0, number);
                if number % 3 == 0 {
                    let at = [[libc::SCHED_FIFO, priority]; 2];
                    let first = number.saturating_sub(2);
                    let expected =
                        (first..=number).map(|number| (number.to_ne_bytes().to_vec(), at));
                    expected.for_each(|expected| assert_eq!(server.next(), expected));
                }
            }
        });
    }
    server.process.close();
}

fn a_one_way_transaction_goes_before_ordinary_ones_and_raises_the_one_in_service() {
    let broker = Broker::start();
    let server = OneWayServer::start(&broker.socket, 1);
    let client = Process::open("binder", &broker.socket).unwrap();
    let manager = client.context_manager().unwrap();
    manager.call(0, &Parcel::new()).unwrap();
    server.next();
    let (ordinary, fifo) = ([libc::SCHED_OTHER, 0], |priority| [libc::SCHED_FIFO, priority]);
    send(&manager, HOLD, 0);
    let held = server.await_held();
    (1..10).for_each(|number| send(&manager, 0, number));
    for (priority, number) in [(20, 100), (30, 200), (20, 101)] {
        at_fifo(&manager, priority, || send(&manager, 0, number));
    }
    // All have come in before the gate opens.
    await_taken_in(&broker.socket, 12);
    await_raised(held, 30);
    server.gate.send(()).unwrap();
    assert_eq!(server.next(), (0u32.to_ne_bytes().to_vec(), [ordinary, fifo(30)]));
    let expected = [(200u32, fifo(30)), (100, fifo(20)), (101, fifo(20))].into_iter();
    for (number, at) in expected.chain((1..10).map(|number| (number, ordinary))) {
        let (data, [begun, ended]) = server.next();
        assert_eq!(data, number.to_ne_bytes());
        // One whose sender has ended is the pool's, at its sender's priority.
        assert_eq!((begun, ended), (at, at), "{number}");
    }
    server.process.close();
}

/// Waits until so many transactions are in their receivers' states, unread.
fn await_taken_in(socket: &Path, n_transactions: u32) {
    let in_state = || {
        let report = Observer::connect(socket).unwrap().report().unwrap();
        let processes = report.contexts.into_iter().flat_map(|context| context.processes);
        processes.map(|process| process.engine.outstanding).sum::<u32>()
    };
    while in_state() < n_transactions {
        thread::yield_now();
    }
}

/// Waits until a thread has this real-time priority. The transaction for which it is raised is
/// counted before that.
fn await_raised(tid: u32, priority: i32) {
    while schedule::priority(tid).unwrap() != priority {
        thread::yield_now();
    }
}

/// The sender's own looper, which waits at its lane, is not woken.
fn a_thread_that_was_raised_serves_on() {
    let broker = Broker::start();
    let server = OneWayServer::start(&broker.socket, 1);
    let client = Process::open("binder", &broker.socket).unwrap();
    let manager = client.context_manager().unwrap();
    let (ordinary, fifo) = ([libc::SCHED_OTHER, 0], [libc::SCHED_FIFO, 20]);
    for _ in 0..20 {
        send(&manager, HOLD, 0);
        let held = server.await_held();
        at_fifo(&manager, 20, || {
            send(&manager, 0, 1);
            await_raised(held, 20);
            server.gate.send(()).unwrap();
            assert_eq!(server.next().1, [ordinary, fifo]);
            assert_eq!(server.next().1, [fifo, fifo]);
            assert_eq!(server.next_by(), server.next_by());
            send(&manager, 0, 2);
            assert_eq!(server.next().1, [fifo, fifo], "by its own looper");
            server.next_by();
        });
        send(&manager, 0, 3);
        assert_eq!(server.next().1, [ordinary, ordinary]);
        server.next_by();
    }
    server.process.close();
}

fn ordinary_senders_leave_room_for_a_real_time_one() {
    const LARGE: usize = 100 << 10;
    let broker = Broker::start();
    let server = OneWayServer::start(&broker.socket, 1);
    let client = Process::open("binder", &broker.socket).unwrap();
    let manager = client.context_manager().unwrap();
    send(&manager, HOLD, 0);
    server.await_held();
    let large = Parcel::from(&vec![1; LARGE][..]);
    let flooded = (0..PATIENCE).find(|_| manager.one_way(0, &large).is_err());
    let flooded = flooded.expect("refused at some time");
    at_fifo(&manager, 30, || {
        (1..5).for_each(|number| send(&manager, 0, number));
        server.gate.send(()).unwrap();
        (0..5u32).for_each(|number| assert_eq!(server.next().0, number.to_ne_bytes()));
    });
    (0..flooded).for_each(|_| assert_eq!(server.next().0.len(), LARGE));
    server.process.close();
}

fn a_sender_that_becomes_ordinary_keeps_its_order() {
    let broker = Broker::start();
    let server = OneWayServer::start(&broker.socket, 2);
    let client = Process::open("binder", &broker.socket).unwrap();
    let manager = client.context_manager().unwrap();
    manager.call(0, &Parcel::new()).unwrap();
    server.next();
    for round in 0..200 {
        at_fifo(&manager, 1, || {
            send(&manager, 0, 2 * round);
            become_ordinary();
            priority_changed();
            send(&manager, 0, 2 * round + 1);
        });
    }
    let number = |served: Served| u32::from_ne_bytes(served.0.try_into().unwrap());
    let numbers: Vec<u32> = (0..400).map(|_| number(server.next())).collect();
    let place = |number| numbers.iter().position(|other| *other == number).unwrap();
    // What one thread has sent as an ordinary one, the next one's may overtake.
    (0..200).for_each(|round| assert!(place(2 * round) < place(2 * round + 1), "{numbers:?}"));
    server.process.close();
}

/// How many transactions a sender's process sends that is killed then.
const LAST_WORDS: u32 = 100;

fn one_way_transactions_of_a_killed_sender_arrive() {
    let broker = Broker::start();
    let server = OneWayServer::start(&broker.socket, 1);
    for _ in 0..5 {
        let mut sender = start("sender", &broker.socket);
        sender.kill().unwrap();
        sender.wait().unwrap();
        (0..LAST_WORDS).for_each(|number| assert_eq!(server.next().0, number.to_ne_bytes()));
    }
    server.process.close();
}

// ---- processes of their own -----------------------------------------------------------------

fn serve(socket: &Path) {
    let _server = server(socket);
    ready();
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

fn call_for_ever(socket: &Path) {
    let client = Process::open("binder", socket).unwrap();
    let manager = client.context_manager().unwrap();
    assert!(become_real_time(libc::SCHED_FIFO, 30));
    call_until(&manager, PRIORITY, [libc::SCHED_FIFO, 30]);
    ready();
    loop {
        manager.call(PRIORITY, &Parcel::new()).unwrap();
    }
}

fn send_and_wait(socket: &Path) {
    let client = Process::open("binder", socket).unwrap();
    let manager = client.context_manager().unwrap();
    assert!(become_real_time(libc::SCHED_FIFO, 30));
    (0..LAST_WORDS).for_each(|number| send(&manager, 0, number));
    ready();
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

fn ready() {
    println!("ready");
    std::io::stdout().flush().unwrap();
}

fn start(role: &str, socket: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(role).arg(socket).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    child
}

fn a_killed_caller_leaves_no_looper() {
    let broker = Broker::start();
    let mut server = start("server", &broker.socket);
    for _ in 0..3 {
        let mut caller = start("caller", &broker.socket);
        let lanes = lanes(&broker.socket);
        let priority = SchedPriority::fifo(30);
        assert!(lanes.iter().all(|lane| lane.priority == priority), "{lanes:?}");
        assert!(lanes[0].looper.as_ref().is_some_and(|looper| looper.promoted), "{lanes:?}");
        caller.kill().unwrap();
        caller.wait().unwrap();
        await_lanes(&broker.socket, 0);
        await_loopers(server.id(), 0);
    }
    server.kill().unwrap();
    server.wait().unwrap();
}
