//! Priority inheritance of `Lock`: the tests observe the order in which threads end on one
//! processor.

use baton_shm::lock::Lock;
use baton_shm::schedule;
use rustix::thread::CpuSet;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

const ORDINARY: i32 = 0;
const MEDIUM: i32 = 2;
const HIGH: i32 = 3;

/// A thread that has started and waits for its cue.
struct Actor {
    cue: mpsc::Sender<()>,
    place: JoinHandle<usize>,
}

/// Threads on one processor, and the number of those that have ended.
struct Stage {
    processor: CpuSet,
    ended: Arc<AtomicUsize>,
}

impl Stage {
    fn new() -> Stage {
        let mut processor = CpuSet::new();
        let allowed = rustix::thread::sched_getaffinity(None).unwrap();
        processor.set((0..CpuSet::MAX_CPU).find(|&number| allowed.is_set(number)).unwrap());
        Stage { processor, ended: Arc::default() }
    }

    /// Starts a thread that records its place in the order of ends. `None` where this process may
    /// not set the priority.
    fn actor(&self, priority: i32, body: impl FnOnce() + Send + 'static) -> Option<Actor> {
        let (cue, cued) = mpsc::channel();
        let (told, ready) = mpsc::channel();
        let (processor, ended) = (self.processor, self.ended.clone());
        let place = thread::spawn(move || {
            rustix::thread::sched_setaffinity(None, &processor).unwrap();
            told.send(become_real_time(priority)).unwrap();
            if cued.recv().is_ok() {
                body();
            }
            ended.fetch_add(1, Ordering::SeqCst)
        });
        if !ready.recv().unwrap() {
            println!(
                "skipped: {} (no real-time priority here)",
                std::thread::current().name().unwrap_or_default()
            );
            return None;
        }
        Some(Actor { cue, place })
    }
}

fn become_real_time(priority: i32) -> bool {
    let policy = if priority == ORDINARY { libc::SCHED_OTHER } else { libc::SCHED_FIFO };
    schedule::set(0, policy, priority).is_ok()
}

/// Returns once a thread sleeps in the kernel.
fn await_sleep(tid: i32) {
    let stat = || std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap();
    while !stat().rsplit(") ").next().unwrap().starts_with('S') {
        thread::yield_now();
    }
}

#[test]
fn a_holder_runs_before_threads_below_its_waiter() {
    let (stage, lock) = (Stage::new(), Arc::new(Lock::new(())));
    let wanted = lock.clone();
    let Some(high) = stage.actor(HIGH, move || drop(wanted.lock())) else { return };
    let Some(medium) = stage.actor(MEDIUM, || {}) else { return };
    let (high_cue, medium_cue) = (high.cue, medium.cue);
    let holds = move || {
        let held = lock.lock();
        // The waiter runs at once, and sleeps until the lock is free.
        high_cue.send(()).unwrap();
        medium_cue.send(()).unwrap();
        drop(held);
    };
    let low = stage.actor(ORDINARY, holds).unwrap();
    low.cue.send(()).unwrap();
    let [high, medium] = [high.place, medium.place].map(|place| place.join().unwrap());
    assert!(high < medium, "{high} {medium}");
    low.place.join().unwrap();
}

/// The holder of the wanted lock itself waits for another lock.
#[test]
fn a_priority_is_inherited_through_a_chain_of_locks() {
    let (stage, first, second) = (Stage::new(), Arc::new(Lock::new(())), Arc::new(Lock::new(())));
    let wanted = first.clone();
    let Some(high) = stage.actor(HIGH, move || drop(wanted.lock())) else { return };
    let Some(medium) = stage.actor(MEDIUM, || {}) else { return };
    let waits = Arc::new(AtomicI32::new(0));
    let (inner, waiting) = (second.clone(), waits.clone());
    let between = move || {
        let _first = first.lock();
        waiting.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::SeqCst);
        drop(inner.lock());
    };
    let between = stage.actor(ORDINARY, between).unwrap();
    let (high_cue, medium_cue, between_cue) = (high.cue, medium.cue, between.cue);
    let holds = move || {
        let held = second.lock();
        between_cue.send(()).unwrap();
        while waits.load(Ordering::SeqCst) == 0 {
            thread::yield_now();
        }
        await_sleep(waits.load(Ordering::SeqCst));
        high_cue.send(()).unwrap();
        medium_cue.send(()).unwrap();
        drop(held);
    };
    let low = stage.actor(ORDINARY, holds).unwrap();
    low.cue.send(()).unwrap();
    let [high, medium] = [high.place, medium.place].map(|place| place.join().unwrap());
    assert!(high < medium, "{high} {medium}");
    between.place.join().unwrap();
    low.place.join().unwrap();
}

/// Its holder then inherits the priority.
#[test]
fn a_sleeper_that_is_made_a_real_time_thread_waits_as_one() {
    let lock = Lock::new(());
    let (told, tid) = mpsc::channel();
    thread::scope(|scope| {
        let held = lock.lock();
        scope.spawn(|| {
            told.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            drop(lock.lock());
        });
        let tid = tid.recv().unwrap();
        while !lock.is_contended() {
            thread::yield_now();
        }
        await_sleep(tid);
        assert!(!lock.is_awaited(), "it sleeps as an ordinary thread");
        if schedule::set(tid.cast_unsigned(), libc::SCHED_FIFO, HIGH).is_err() {
            println!("skipped: no real-time priority here");
        } else {
            lock.wake(tid.cast_unsigned());
            while !lock.is_awaited() {
                thread::yield_now();
            }
        }
        drop(held);
    });
}

/// Real-time and ordinary threads contend for one lock.
#[test]
fn a_lock_admits_one_thread_at_a_time() {
    const TURNS: u64 = 20_000;
    let lock = Arc::new(Lock::new(0));
    let threads: Vec<_> = (0..6)
        .map(|number| {
            let lock = lock.clone();
            thread::spawn(move || {
                // Where real-time priorities are not allowed, all threads are ordinary.
                become_real_time(if number % 2 == 0 { ORDINARY } else { number });
                for _ in 0..TURNS {
                    let mut value = lock.lock();
                    let before = *value;
                    std::hint::spin_loop();
                    *value = before + 1;
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(*lock.lock(), 6 * TURNS);
}
