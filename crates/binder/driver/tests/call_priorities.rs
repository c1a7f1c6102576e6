//! A transaction is served at its caller's or its node's nice value or priority, by either front
//! end.
#[path = "support/program.rs"]
mod program;
#[path = "support/scheduling.rs"]
mod scheduling;
mod support;

use baton::{Handle, Parcel, Process, SchedPriority, priority_changed};
use baton_abi::uapi::*;
use baton_driver::observer::Observer;
use bytemuck::Zeroable;
use program::{Commands, Program};
use scheduling::{may_be_real_time, sched_priority};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use support::Broker;

/// Enough calls for the fast path to be taken, and some more.
const CALLS: usize = 20;

fn none() -> Commands {
    Commands::default()
}

/// A nice value, or a policy and a priority, as an answer.
fn level() -> Vec<u8> {
    let [policy, priority] = sched_priority();
    let nice = rustix::process::getpriority_process(None).unwrap();
    let level = if policy == libc::SCHED_OTHER { [policy, nice] } else { [policy, priority] };
    scheduling::bytes(level)
}

fn nice(value: i32) -> Vec<u8> {
    scheduling::bytes([libc::SCHED_OTHER, value])
}

fn set_nice(value: i32) -> bool {
    let set = rustix::process::setpriority_process(None, value).is_ok();
    priority_changed();
    set
}

/// Whether threads may raise their nice value here.
fn may_be_nicer() -> bool {
    let may = thread::spawn(|| set_nice(-11)).join().unwrap();
    if !may {
        println!(
            "skipped: {} (no better nice value here)",
            std::thread::current().name().unwrap_or_default()
        );
    }
    may
}

/// The minimum that a server asks for, by either front end.
#[derive(Clone, Copy, Debug)]
struct Asked {
    minimum: SchedPriority,
    flags: u32,
}

const FIFO_25: u32 = (libc::SCHED_FIFO as u32) << FLAT_BINDER_FLAG_SCHED_POLICY_SHIFT | 25;

fn asked() -> [(&'static str, Asked); 4] {
    [
        ("nothing", Asked { minimum: SchedPriority::default(), flags: 0 }),
        ("its callers'", Asked { minimum: SchedPriority::LEAST, flags: 0x7f }),
        ("-7", Asked { minimum: SchedPriority::nice(-7), flags: 0xf9 }),
        ("FIFO 25", Asked { minimum: SchedPriority::fifo(25), flags: FIFO_25 }),
    ]
}

/// The answers to callers at these nice values, by a looper whose own value is 0.
fn expected(asked: &str, caller: i32) -> Vec<u8> {
    match asked {
        "nothing" => nice(caller.min(0)),
        "its callers'" => nice(caller),
        "-7" => nice(caller.min(-7)),
        _ => scheduling::bytes([libc::SCHED_FIFO, 25]),
    }
}

/// Calls at each of some nice values, in turn and often in a row.
fn call_at_all(socket: &Path, asked: &'static str) {
    for caller in [0, 10, -5, 0, -10, 3, 0] {
        let client = Process::open("binder", socket).unwrap();
        thread::spawn(move || {
            assert!(set_nice(caller));
            let manager = client.context_manager().unwrap();
            for _ in 0..CALLS {
                let reply = manager.call(1, &Parcel::new()).unwrap();
                assert_eq!(reply.data(), expected(asked, caller), "{asked}, {caller}");
            }
            assert_eq!(rustix::process::getpriority_process(None).unwrap(), caller, "its own");
        })
        .join()
        .unwrap();
    }
}

#[test]
fn an_object_is_served_at_its_callers_priority_or_its_own() {
    if !may_be_nicer() || !may_be_real_time() {
        return;
    }
    for (name, asked) in asked() {
        let broker = Broker::start();
        let server = Process::open("binder", &broker.socket).unwrap();
        let object =
            server.object(|_| Ok(Parcel::from(&level()[..]))).min_priority(asked.minimum).add();
        server.become_context_manager(object).unwrap();
        let serving = server.clone();
        let looper = thread::spawn(move || {
            assert!(set_nice(0));
            serving.serve();
            level()
        });
        call_at_all(&broker.socket, name);
        server.close();
        assert_eq!(looper.join().unwrap(), nice(0), "{name}: the looper's own");
    }
}

/// Serves until the gate ends it; its priority between reply and read goes to `between`.
fn serve_raw(program: &Program, between: &Sender<Vec<u8>>) {
    let mut next = none().put(BC_ENTER_LOOPER, &[]);
    loop {
        let Ok(returned) = program.exchange(next) else { return };
        next = none();
        for request in returned.messages {
            let reply = none().free(&request).reply(&level());
            if request.transaction.flags & TF_ONE_WAY == 0 {
                program.exchange_in(&reply, &mut []).unwrap();
            } else {
                next = none().free(&request);
            }
            if between.send(level()).is_err() {
                return;
            }
        }
    }
}

fn become_manager(program: &Program, flags: u32) {
    let object = FlatObject { flags, ..FlatObject::zeroed() };
    let address = std::ptr::from_ref(&object) as usize;
    program.device.ioctl(BINDER_SET_CONTEXT_MGR_EXT, address, false).unwrap();
}

#[test]
fn a_node_is_served_at_its_callers_priority_or_its_own() {
    if !may_be_nicer() || !may_be_real_time() {
        return;
    }
    for (name, asked) in asked() {
        let broker = Broker::start();
        let server = Program::open(&broker.socket);
        become_manager(&server, asked.flags);
        let (between, levels) = channel();
        thread::spawn(move || {
            assert!(set_nice(0));
            serve_raw(&server, &between);
        });
        call_at_all(&broker.socket, name);
        for level in levels.try_iter() {
            assert_eq!(level, nice(0), "{name}: the looper's own, once it has answered");
        }
    }
}

/// Policy and flag of the calling thread.
fn policy() -> i32 {
    // SAFETY: asks about the calling thread, and touches no memory.
    unsafe { libc::sched_getscheduler(0) }
}

/// A thread that is started by one that serves at a real-time priority is an ordinary one, and the
/// priority leaves no trace of itself.
#[test]
fn a_started_thread_has_no_node_priority() {
    if !may_be_real_time() {
        return println!(
            "skipped: a_started_thread_has_no_node_priority (no real-time priority here)"
        );
    }
    let broker = Broker::start();
    let server = Program::open(&broker.socket);
    become_manager(&server, FIFO_25);
    let looper = thread::spawn(move || {
        let mut policies = Vec::new();
        let mut next = none().put(BC_ENTER_LOOPER, &[]);
        while policies.len() < 2 {
            let returned = server.exchange(next).unwrap();
            next = none();
            for request in returned.messages {
                assert_eq!(sched_priority(), [libc::SCHED_FIFO, 25]);
                let child = thread::spawn(|| (level(), policy())).join().unwrap();
                assert_eq!(child, (nice(0), libc::SCHED_OTHER), "of a child");
                let reply = none().free(&request).reply(b"");
                server.exchange_in(&reply, &mut []).unwrap();
                policies.push(policy());
            }
        }
        policies
    });
    let client = Process::open("binder", &broker.socket).unwrap();
    let manager = client.context_manager().unwrap();
    (0..2).for_each(|_| drop(manager.call(1, &Parcel::new()).unwrap()));
    assert_eq!(looper.join().unwrap(), [libc::SCHED_OTHER; 2], "once it has answered");
}

/// A one-way transaction is served at its node's minimum, and no looper keeps that priority.
#[test]
fn a_one_way_transaction_is_served_at_its_nodes_priority() {
    if !may_be_nicer() {
        return;
    }
    let broker = Broker::start();
    let server = Program::open(&broker.socket);
    become_manager(&server, 0xf9);
    let (between, levels) = channel();
    thread::spawn(move || {
        assert!(set_nice(0));
        serve_raw(&server, &between);
    });
    let client = Process::open("binder", &broker.socket).unwrap();
    let manager = client.context_manager().unwrap();
    for _ in 0..CALLS {
        manager.one_way(1, &Parcel::new()).unwrap();
        assert_eq!(levels.recv().unwrap(), nice(-7), "until it reads again");
        let reply = manager.call(1, &Parcel::new()).unwrap();
        assert_eq!(reply.data(), nice(-7));
        assert_eq!(levels.recv().unwrap(), nice(0), "and not after");
    }
}

/// Holds the first call until it is released, and notes the later calls in the order of service.
struct Noting {
    order: Mutex<Vec<u32>>,
    holds: AtomicBool,
    go: Mutex<Receiver<()>>,
}

impl Noting {
    fn serve(&self, code: u32) {
        if code == 0 {
            self.holds.store(true, Ordering::Release);
            self.go.lock().unwrap().recv().unwrap();
        } else {
            self.order.lock().unwrap().push(code);
        }
    }
}

fn taken_in(socket: &Path, server: u64) -> u32 {
    let report = Observer::connect(socket).unwrap().report().unwrap();
    let mut processes = report.contexts.into_iter().flat_map(|context| context.processes);
    processes.find(|process| process.process == server).unwrap().engine.outstanding
}

fn server_of(socket: &Path) -> u64 {
    let report = Observer::connect(socket).unwrap().report().unwrap();
    let mut processes = report.contexts.into_iter().flat_map(|context| context.processes);
    processes.find(|process| !process.holdings.is_empty()).unwrap().process
}

fn call_at(manager: &Handle, value: i32, code: u32) {
    assert!(set_nice(value));
    manager.call(code, &Parcel::new()).unwrap();
}

/// Calls that wait for a looper are served by nice value, and by age where that is equal.
#[test]
fn the_best_nice_value_is_served_first() {
    if !may_be_nicer() {
        return;
    }
    let broker = Broker::start();
    let server = Process::open("binder", &broker.socket).unwrap();
    let (go, gone) = channel();
    let noting = Arc::new(Noting {
        order: Mutex::default(),
        holds: AtomicBool::new(false),
        go: Mutex::new(gone),
    });
    let serving = Arc::clone(&noting);
    let object = server
        .object(move |request| {
            serving.serve(request.code());
            Ok(Parcel::new())
        })
        .add();
    server.become_context_manager(object).unwrap();
    let looper = server.clone();
    thread::spawn(move || looper.serve());
    let clients = [(); 2].map(|()| Process::open("binder", &broker.socket).unwrap());
    let managers = clients.each_ref().map(|client| client.context_manager().unwrap());
    let number = server_of(&broker.socket);
    thread::scope(|scope| {
        scope.spawn(|| call_at(&managers[0], 0, 0));
        // The call has to be served, not only taken in: else the looper takes another call first.
        while !noting.holds.load(Ordering::Acquire) {
            thread::yield_now();
        }
        for (place, (value, code)) in
            [(10, 1), (0, 2), (-10, 3), (5, 4), (0, 5), (-10, 6)].into_iter().enumerate()
        {
            let manager = &managers[place % 2];
            scope.spawn(move || call_at(manager, value, code));
            // The looper is busy: the control thread takes the call in.
            while taken_in(&broker.socket, number) != place as u32 + 2 {
                thread::yield_now();
            }
        }
        go.send(()).unwrap();
    });
    assert_eq!(*noting.order.lock().unwrap(), [3, 6, 2, 5, 4, 1]);
    server.close();
}
