//! Real-time callers of a server of the raw interface, whose threads are its program's, and
//! real-time callers that use the raw interface themselves.
#[path = "support/program.rs"]
mod program;
#[path = "support/scheduling.rs"]
mod scheduling;
mod support;

use baton::{CallError, Handle, Parcel, Process, priority_changed};
use baton_abi::control::ProcessReport;
use baton_abi::uapi::*;
use baton_driver::observer::Observer;
use bytemuck::pod_read_unaligned;
use program::{Commands, Message, Program};
use rustix::io::Errno;
use scheduling::{become_real_time, bytes, may_be_real_time, sched_priority};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use support::Broker;

/// So many calls are made until one is served as it should be.
const PATIENCE: usize = 5_000_000;

/// The requests to the server.
const PRIORITY: u32 = 1;
/// Its priority, once the gate is open.
const HOLD: u32 = 2;
/// Its priority, and then the thread stays away until the gate is open.
const STAY_AWAY: u32 = 3;
/// What the object that comes with it answers.
const CALL_BACK: u32 = 4;
/// Its priority, and then the thread leaves with BINDER_THREAD_EXIT, or without.
const LEAVE: u32 = 5;
const END: u32 = 6;
/// Its priority, and its threads poll from then on.
const POLL: u32 = 7;

const ORDINARY: [i32; 2] = [libc::SCHED_OTHER, 0];

fn none() -> Commands {
    Commands::default()
}

/// A context manager that serves as its program's threads do in a library: one begins, and one more
/// for each BR_SPAWN_LOOPER.
#[derive(Clone)]
struct Server {
    program: Program,
    shared: Arc<Shared>,
}

/// The payload of a one-way transaction, the priority at which it was served at last, and the
/// thread.
type ServedOneWay = (Vec<u8>, [i32; 2], u32);

#[derive(Default)]
struct Shared {
    /// Threads that were started because they were asked for.
    spawned: AtomicU32,
    is_open: Mutex<bool>,
    opened: Condvar,
    /// Threads that wait for the gate.
    waiting: AtomicU32,
    /// The thread that has served last.
    tid: AtomicU32,
    interrupted: AtomicU32,
    one_ways: AtomicU32,
    served: Mutex<Vec<ServedOneWay>>,
    /// After each answer its thread asks for what came of it, at a real-time priority.
    asks: AtomicBool,
    /// Answers of which it was told, and others.
    told: [AtomicU32; 2],
}

impl Shared {
    fn set_open(&self, open: bool) {
        *self.is_open.lock().unwrap() = open;
        self.opened.notify_all();
    }

    fn pass(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        drop(self.opened.wait_while(self.is_open.lock().unwrap(), |open| !*open).unwrap());
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    fn await_one_ways(&self, count: u32) {
        while self.one_ways.load(Ordering::SeqCst) != count {
            thread::yield_now();
        }
    }

    fn await_waiting(&self, count: u32) {
        while self.waiting.load(Ordering::SeqCst) != count {
            thread::yield_now();
        }
    }
}

impl Server {
    fn start(socket: &Path, max_threads: u32) -> Server {
        let program = Program::open(socket);
        program.become_manager();
        let max = std::ptr::from_ref(&max_threads) as usize;
        program.device.ioctl(BINDER_SET_MAX_THREADS, max, false).unwrap();
        let server = Server { program, shared: Arc::default() };
        server.start_looper(BC_ENTER_LOOPER);
        server
    }

    fn start_looper(&self, command: u32) {
        let server = self.clone();
        thread::spawn(move || server.serve(command));
    }

    fn serve(&self, command: u32) {
        let mut next = none().put(command, &[]);
        loop {
            let returned = match self.program.exchange(next) {
                Ok(returned) => returned,
                Err(Errno::INTR) => {
                    self.shared.interrupted.fetch_add(1, Ordering::SeqCst);
                    next = none();
                    continue;
                }
                Err(_) => return,
            };
            next = none();
            let has_answered = returned.commands().contains(&BR_TRANSACTION_COMPLETE);
            if has_answered
                && self.shared.asks.load(Ordering::SeqCst)
                && sched_priority() != ORDINARY
            {
                let is_told = self.last_transaction() != 0;
                self.shared.told[usize::from(!is_told)].fetch_add(1, Ordering::SeqCst);
            }
            if returned.commands().contains(&BR_SPAWN_LOOPER) {
                self.shared.spawned.fetch_add(1, Ordering::SeqCst);
                self.start_looper(BC_REGISTER_LOOPER);
            }
            for request in returned.messages {
                match self.answer(&request) {
                    Some(commands) => next = commands,
                    None => return,
                }
            }
        }
    }

    /// The number of the calling thread's, 0 if it has asked since.
    fn last_transaction(&self) -> u32 {
        let mut error = ExtendedError { id: 0, command: 0, param: 0 };
        let at = std::ptr::from_mut(&mut error) as usize;
        self.program.device.ioctl(BINDER_GET_EXTENDED_ERROR, at, false).unwrap();
        assert_eq!(error.command, BR_OK);
        error.id
    }

    /// What the thread does next, unless it ends.
    fn answer(&self, request: &Message) -> Option<Commands> {
        // SAFETY: asks about the calling thread, and touches no memory.
        let tid = unsafe { libc::gettid() } as u32;
        self.shared.tid.store(tid, Ordering::SeqCst);
        if request.transaction.flags & TF_ONE_WAY != 0 {
            let code = request.transaction.code;
            if matches!(code, HOLD | STAY_AWAY) {
                self.shared.pass();
            }
            let served = (request.data.clone(), sched_priority(), tid);
            self.shared.served.lock().unwrap().push(served);
            self.shared.one_ways.fetch_add(1, Ordering::SeqCst);
            if code == STAY_AWAY {
                self.program.exchange_in(&none().free(request), &mut []).unwrap();
                self.shared.await_one_ways(2);
                return Some(none());
            }
            return Some(none().free(request));
        }
        let code = request.transaction.code;
        let answer = match code {
            HOLD => {
                self.shared.pass();
                bytes(sched_priority())
            }
            CALL_BACK => self.call_back(request),
            PRIORITY | STAY_AWAY | LEAVE | END | POLL => bytes(sched_priority()),
            _ => request.data.clone(),
        };
        let reply = none().free(request).reply(&answer);
        if code == POLL {
            self.program.device.readable().unwrap();
        }
        if !matches!(code, STAY_AWAY | LEAVE | END) {
            return Some(reply);
        }
        self.program.exchange_in(&reply, &mut []).unwrap();
        match code {
            STAY_AWAY => self.shared.pass(),
            LEAVE => self.program.leave(),
            _ => {}
        }
        (code == STAY_AWAY).then(none)
    }

    fn call_back(&self, request: &Message) -> Vec<u8> {
        let object: FlatObject = pod_read_unaligned(&request.data[..size_of::<FlatObject>()]);
        let reply =
            self.program.await_message(none().call(u64::from(object.binder as u32), b"back"));
        let data = reply.data.clone();
        self.program.exchange_in(&none().free(&reply), &mut []).unwrap();
        data
    }
}

struct Stage {
    broker: Broker,
    server: Server,
    client: Process,
    manager: Handle,
}

fn stage(max_threads: u32) -> Option<Stage> {
    if !may_be_real_time() {
        println!(
            "skipped: {} (no real-time priority here)",
            std::thread::current().name().unwrap_or_default()
        );
        return None;
    }
    let broker = Broker::start();
    let server = Server::start(&broker.socket, max_threads);
    let client = Process::open("binder", &broker.socket).unwrap();
    let manager = client.context_manager().unwrap();
    Some(Stage { broker, server, client, manager })
}

impl Stage {
    fn call(&self, code: u32) -> Vec<u8> {
        self.manager.call(code, &Parcel::new()).unwrap().data().to_vec()
    }

    fn call_until(&self, code: u32, expected: [i32; 2]) {
        let served = (0..PATIENCE).any(|_| self.call(code) == bytes(expected));
        assert!(served, "never served at {expected:?}");
    }

    /// Runs on a thread of its own, whose priority the test may change.
    fn at<T: Send>(&self, policy: i32, priority: i32, body: impl FnOnce() -> T + Send) -> T {
        let body = move || {
            assert!(become_real_time(policy, priority));
            body()
        };
        thread::scope(|scope| scope.spawn(body).join().unwrap())
    }

    fn reports(&self) -> Vec<ProcessReport> {
        let contexts = Observer::connect(&self.broker.socket).unwrap().report().unwrap().contexts;
        contexts.into_iter().flat_map(|context| context.processes).collect()
    }

    fn lanes(&self) -> usize {
        self.reports().iter().map(|process| process.real_time.len()).sum()
    }

    /// The server has at least so many loopers.
    fn await_loopers(&self, count: u32) {
        let has_all = |process: &ProcessReport| process.engine.loopers >= count;
        while !self.reports().iter().any(has_all) {
            thread::yield_now();
        }
    }

    fn await_lanes(&self, count: usize) {
        while self.lanes() != count {
            thread::yield_now();
        }
    }

    fn spawned(&self) -> u32 {
        self.server.shared.spawned.load(Ordering::SeqCst)
    }
}

#[test]
fn a_call_is_served_at_its_callers_priority_by_a_thread_that_was_asked_for() {
    let Some(stage) = stage(1) else { return };
    for (policy, priority) in [(libc::SCHED_FIFO, 30), (libc::SCHED_RR, 20)] {
        stage.at(policy, priority, || {
            stage.call_until(PRIORITY, [policy, priority]);
            let at_priority =
                (0..1000).filter(|_| stage.call(PRIORITY) == bytes([policy, priority]));
            // A thread that is preempted for long between answer and read loses its lane for a
            // while.
            assert!(at_priority.count() >= 900, "from then on");
            // Another caller at another priority beside it, and an ordinary one: neither has a
            // looper to itself.
            thread::scope(|scope| {
                scope.spawn(|| {
                    assert!(become_real_time(libc::SCHED_OTHER, 0));
                    (0..100).for_each(|_| assert_eq!(stage.call(PRIORITY), bytes(ORDINARY)));
                });
                scope.spawn(|| {
                    assert!(become_real_time(libc::SCHED_FIFO, 7));
                    (0..100).for_each(|_| drop(stage.call(PRIORITY)));
                });
            });
            stage.call_until(PRIORITY, [policy, priority]);
        });
        stage.await_lanes(0);
    }
    assert_eq!(stage.spawned(), 1, "no more than the program lets the pool have");
}

/// Sets the calling thread's priority and calls once: whether that is served at it.
fn change_and_call(stage: &Stage, [policy, priority]: [i32; 2]) -> bool {
    assert!(become_real_time(policy, priority));
    priority_changed();
    stage.call(PRIORITY) == bytes([policy, priority])
}

/// A first call waits for its looper for 100 ms: on a busy machine some may not be there by then. A
/// process may ask for 256 a second.
const FIRST_CALLS: usize = 20;

/// One call straight after each change: of a pool that can spare a looper, whether its program
/// began with two or was asked for the second, by a thread that has called before or has not.
#[test]
fn the_first_call_after_a_change_is_served_at_it() {
    for max_threads in [0, 1] {
        let Some(stage) = stage(max_threads) else { return };
        if max_threads == 0 {
            stage.server.start_looper(BC_ENTER_LOOPER);
        }
        stage.await_loopers(2);
        for calls_before in [0, 1, 20] {
            let both_are = |_| {
                let both_are = stage.at(libc::SCHED_OTHER, 0, || {
                    (0..calls_before).for_each(|_| drop(stage.call(PRIORITY)));
                    change_and_call(&stage, [libc::SCHED_RR, 50])
                        && change_and_call(&stage, [libc::SCHED_FIFO, 7])
                });
                stage.await_lanes(0);
                both_are
            };
            assert!((0..FIRST_CALLS).any(both_are), "{max_threads}, after {calls_before}");
        }
    }
}

/// The pool has no looper to spare for the second caller until it has four, for which its program
/// is asked.
#[test]
fn a_first_call_waits_for_a_looper_that_the_program_is_asked_for() {
    let both_are = |_| {
        let Some(stage) = stage(3) else { return true };
        stage.await_loopers(2);
        let both_are = stage.at(libc::SCHED_OTHER, 0, || {
            let second = || {
                stage.at(libc::SCHED_OTHER, 0, || change_and_call(&stage, [libc::SCHED_FIFO, 7]))
            };
            change_and_call(&stage, [libc::SCHED_RR, 50]) && second()
        });
        both_are && stage.spawned() == 3
    };
    assert!((0..FIRST_CALLS).any(both_are));
}

#[test]
fn a_change_of_priority_is_followed() {
    let Some(stage) = stage(3) else { return };
    stage.at(libc::SCHED_FIFO, 12, || {
        stage.call_until(PRIORITY, [libc::SCHED_FIFO, 12]);
        for (policy, priority) in
            [(libc::SCHED_RR, 34), (libc::SCHED_OTHER, 0), (libc::SCHED_FIFO, 5)]
        {
            assert!(become_real_time(policy, priority));
            priority_changed();
            stage.call_until(PRIORITY, [policy, priority]);
        }
    });
}

#[test]
fn a_pool_without_a_spare_looper_serves_real_time_callers_itself() {
    let Some(stage) = stage(0) else { return };
    stage.at(libc::SCHED_FIFO, 30, || {
        stage.call(PRIORITY);
        stage.await_lanes(1);
        (0..2000).for_each(|_| assert_eq!(stage.call(PRIORITY), bytes(ORDINARY)));
    });
    assert_eq!(stage.spawned(), 0);
}

#[test]
fn a_looper_whose_caller_has_ended_is_the_pools_again() {
    let Some(stage) = stage(1) else { return };
    stage.at(libc::SCHED_FIFO, 30, || stage.call_until(PRIORITY, [libc::SCHED_FIFO, 30]));
    stage.await_lanes(0);
    thread::scope(|scope| {
        // Both of the pool's loopers are needed, whichever was dedicated.
        let held = [(); 2].map(|()| scope.spawn(|| stage.call(HOLD)));
        stage.server.shared.await_waiting(2);
        stage.server.shared.set_open(true);
        held.into_iter().for_each(|held| assert_eq!(held.join().unwrap(), bytes(ORDINARY)));
    });
}

#[test]
fn a_looper_that_stays_away_leaves_its_lane_to_the_pool() {
    let Some(stage) = stage(1) else { return };
    stage.at(libc::SCHED_FIFO, 30, || {
        stage.call_until(PRIORITY, [libc::SCHED_FIFO, 30]);
        assert_eq!(stage.call(STAY_AWAY), bytes([libc::SCHED_FIFO, 30]));
        stage.server.shared.await_waiting(1);
        // The other looper serves it, and may become dedicated to the lane.
        stage.call(PRIORITY);
        stage.server.shared.set_open(true);
        stage.call_until(PRIORITY, [libc::SCHED_FIFO, 30]);
    });
}

#[test]
fn an_ordinary_caller_is_served_though_all_idle_loopers_are_dedicated() {
    let Some(stage) = stage(1) else { return };
    stage.at(libc::SCHED_FIFO, 30, || {
        stage.call_until(PRIORITY, [libc::SCHED_FIFO, 30]);
        thread::scope(|scope| {
            scope.spawn(|| {
                assert!(become_real_time(libc::SCHED_OTHER, 0));
                thread::scope(|scope| {
                    let held = scope.spawn(|| stage.call(HOLD));
                    stage.server.shared.await_waiting(1);
                    assert_eq!(stage.call(PRIORITY), bytes(ORDINARY));
                    stage.manager.one_way(PRIORITY, &Parcel::new()).unwrap();
                    stage.server.shared.await_one_ways(1);
                    stage.server.shared.set_open(true);
                    assert_eq!(held.join().unwrap(), bytes(ORDINARY));
                });
            });
        });
        stage.call_until(PRIORITY, [libc::SCHED_FIFO, 30]);
    });
}

#[test]
fn a_looper_that_leaves_is_replaced() {
    for way in [LEAVE, END] {
        let Some(stage) = stage(3) else { return };
        stage.at(libc::SCHED_FIFO, 30, || {
            stage.call_until(PRIORITY, [libc::SCHED_FIFO, 30]);
            assert_eq!(stage.call(way), bytes([libc::SCHED_FIFO, 30]));
            stage.call_until(PRIORITY, [libc::SCHED_FIFO, 30]);
        });
        stage.await_lanes(0);
    }
}

#[test]
fn whatever_a_real_time_caller_sends_arrives() {
    let Some(stage) = stage(1) else { return };
    stage.at(libc::SCHED_FIFO, 25, || {
        stage.call_until(PRIORITY, [libc::SCHED_FIFO, 25]);
        let callback =
            stage.client.object(|_| Ok(Parcel::from(&bytes(sched_priority())[..]))).add();
        for length in [0, 4, 100, 5000, 70_000, 4] {
            let data = vec![7; length];
            let reply = stage.manager.call(99, &Parcel::from(&data[..])).unwrap();
            assert_eq!(reply.data(), data);
            let mut parcel = Parcel::new();
            parcel.write_object(callback);
            let reply = stage.manager.call(CALL_BACK, &parcel).unwrap();
            assert_eq!(
                reply.data(),
                bytes([libc::SCHED_FIFO, 25]),
                "by the very thread that called"
            );
        }
        stage.call_until(PRIORITY, [libc::SCHED_FIFO, 25]);
    });
}

#[test]
fn a_dedicated_looper_is_told_of_its_last_answer() {
    let Some(stage) = stage(1) else { return };
    stage.at(libc::SCHED_FIFO, 30, || {
        stage.call_until(PRIORITY, [libc::SCHED_FIFO, 30]);
        (0..10).for_each(|_| drop(stage.call(PRIORITY)));
        stage.server.shared.asks.store(true, Ordering::SeqCst);
        (0..100).for_each(|_| drop(stage.call(PRIORITY)));
    });
    let [told, others] = stage.server.shared.told.each_ref().map(|n| n.load(Ordering::SeqCst));
    assert!(told > 0 && others == 0, "{told} of which it was told, {others} others");
}

#[test]
fn a_signal_ends_the_read_of_a_dedicated_looper_which_stays_dedicated() {
    extern "C" fn nothing(_: i32) {}
    let Some(stage) = stage(1) else { return };
    // SAFETY: the handler does nothing, and without SA_RESTART.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(i32) as usize;
        libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
    }
    stage.at(libc::SCHED_FIFO, 30, || {
        stage.call_until(PRIORITY, [libc::SCHED_FIFO, 30]);
        let shared = &stage.server.shared;
        for _ in 0..20 {
            let (before, tid) =
                (shared.interrupted.load(Ordering::SeqCst), shared.tid.load(Ordering::SeqCst));
            while shared.interrupted.load(Ordering::SeqCst) == before {
                // SAFETY: sends a signal that has a handler to a thread of this process.
                unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, libc::SIGUSR1) };
                thread::yield_now();
            }
            stage.call_until(PRIORITY, [libc::SCHED_FIFO, 30]);
        }
    });
}

#[test]
fn a_frozen_server_refuses_and_serves_on_at_the_priority() {
    let Some(stage) = stage(1) else { return };
    let freezer = Program::open(&stage.broker.socket);
    let freeze = |enable| {
        let info = FreezeInfo { pid: std::process::id(), enable, timeout_ms: 1000 };
        freezer.device.ioctl(BINDER_FREEZE, std::ptr::from_ref(&info) as usize, false)
    };
    stage.at(libc::SCHED_FIFO, 30, || {
        stage.call_until(PRIORITY, [libc::SCHED_FIFO, 30]);
        freeze(1).unwrap();
        let refused = stage.manager.call(PRIORITY, &Parcel::new());
        assert!(matches!(refused, Err(CallError::Frozen)));
        freeze(0).unwrap();
        stage.call_until(PRIORITY, [libc::SCHED_FIFO, 30]);
    });
}

#[test]
fn a_server_whose_loopers_poll_serves_by_its_pool() {
    let Some(stage) = stage(3) else { return };
    stage.call(POLL);
    stage.at(libc::SCHED_FIFO, 30, || {
        stage.call(PRIORITY);
        stage.await_lanes(1);
        (0..1000).for_each(|_| assert_eq!(stage.call(PRIORITY), bytes(ORDINARY)));
    });
}

#[test]
fn one_way_transactions_are_served_at_their_senders_priority_in_order() {
    const MANY: u32 = 1000;
    // With a dedicated looper, by the only looper, and by those that poll.
    for (max_threads, polls) in [(1, false), (0, false), (3, true)] {
        let Some(stage) = stage(max_threads) else { return };
        if polls {
            stage.call(POLL);
        }
        stage.at(libc::SCHED_FIFO, 30, || {
            if max_threads == 1 {
                stage.call_until(PRIORITY, [libc::SCHED_FIFO, 30]);
            }
            for number in 0..MANY {
                let parcel = Parcel::from(&number.to_ne_bytes()[..]);
                stage.manager.one_way(PRIORITY, &parcel).unwrap();
                if number % 7 == 0 {
                    stage.server.shared.await_one_ways(number + 1);
                }
            }
            stage.server.shared.await_one_ways(MANY);
        });
        let served = stage.server.shared.served.lock().unwrap();
        let numbers =
            served.iter().map(|(data, ..)| u32::from_ne_bytes(data[..].try_into().unwrap()));
        assert!(numbers.eq(0..MANY), "{max_threads}");
        let at_priority = served.iter().filter(|(_, at, _)| *at == [libc::SCHED_FIFO, 30]).count();
        // The first come before the server has heard of the priority.
        assert!(at_priority >= MANY as usize * 9 / 10, "{max_threads}: {at_priority}");
    }
}

#[test]
fn a_one_way_transaction_goes_before_ordinary_ones_and_raises_the_one_in_service() {
    let Some(stage) = stage(1) else { return };
    let send = |code, number: u32| {
        stage.manager.one_way(code, &Parcel::from(&number.to_ne_bytes()[..])).unwrap();
    };
    let shared = &stage.server.shared;
    send(HOLD, 0);
    shared.await_waiting(1);
    (1..10).for_each(|number| send(PRIORITY, number));
    stage.at(libc::SCHED_FIFO, 30, || {
        stage.call_until(PRIORITY, [libc::SCHED_FIFO, 30]);
        send(PRIORITY, 100);
        // What has come in before this call's event has raised the looper.
        stage.call(PRIORITY);
        while stage.reports().iter().map(|it| it.engine.outstanding).sum::<u32>() < 10 {
            thread::yield_now();
        }
        shared.set_open(true);
        shared.await_one_ways(11);
    });
    let served = shared.served.lock().unwrap();
    let numbers: Vec<u32> =
        served.iter().map(|(data, ..)| u32::from_ne_bytes(data[..].try_into().unwrap())).collect();
    assert_eq!(numbers, [0, 100, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let fifo = [libc::SCHED_FIFO, 30];
    assert_eq!([served[0].1, served[1].1, served[2].1], [fifo, fifo, ORDINARY]);
    assert_eq!(served[0].2, served[1].2, "a thread that was raised serves on");
}

/// The thread was raised for the next one, and may stay away for long.
#[test]
fn a_thread_that_frees_and_does_not_read_leaves_the_next_one_to_another() {
    let Some(stage) = stage(1) else { return };
    let shared = &stage.server.shared;
    stage.manager.one_way(STAY_AWAY, &Parcel::new()).unwrap();
    shared.await_waiting(1);
    stage.at(libc::SCHED_FIFO, 30, || {
        stage.call_until(PRIORITY, [libc::SCHED_FIFO, 30]);
        stage.manager.one_way(PRIORITY, &Parcel::new()).unwrap();
        // What has come in before this call's event has raised the looper.
        stage.call(PRIORITY);
        while stage.reports().iter().map(|it| it.engine.outstanding).sum::<u32>() < 1 {
            thread::yield_now();
        }
        shared.set_open(true);
        shared.await_one_ways(2);
    });
    let served = shared.served.lock().unwrap();
    assert_ne!(served[0].2, served[1].2);
}

/// Its looper, which has been dedicated to its lane without a call from there, goes on waiting
/// there.
#[test]
fn a_thread_that_has_only_sent_one_way_can_call() {
    let Some(stage) = stage(1) else { return };
    stage.at(libc::SCHED_FIFO, 30, || {
        for number in 1..100 {
            stage.manager.one_way(PRIORITY, &Parcel::new()).unwrap();
            stage.server.shared.await_one_ways(number);
        }
        stage.call_until(PRIORITY, [libc::SCHED_FIFO, 30]);
    });
}

/// The end of a raw caller at a real-time priority.
#[derive(Clone, Copy, Debug)]
enum Parting {
    /// BINDER_THREAD_EXIT.
    Exit,
    /// Nothing.
    End,
}

#[test]
fn a_caller_of_the_raw_interface_has_a_looper_as_long_as_its_thread_lives() {
    for parting in [Parting::Exit, Parting::End] {
        let Some(stage) = stage(1) else { return };
        let caller = Program::open(&stage.broker.socket);
        stage.at(libc::SCHED_FIFO, 40, || {
            let priority = |commands: Commands| {
                let reply = caller.await_message(commands.send_code(0, PRIORITY));
                (reply.data.clone(), none().free(&reply))
            };
            let (mut answer, mut next) = priority(none());
            let mut calls = 0;
            while answer != bytes([libc::SCHED_FIFO, 40]) {
                (answer, next) = priority(next);
                calls += 1;
                assert!(calls < PATIENCE, "never served at its priority");
            }
            assert_eq!(stage.lanes(), 1, "{parting:?}");
            if matches!(parting, Parting::Exit) {
                caller.leave();
            }
        });
        stage.await_lanes(0);
        assert_eq!(stage.call(PRIORITY), bytes(ORDINARY));
    }
}
