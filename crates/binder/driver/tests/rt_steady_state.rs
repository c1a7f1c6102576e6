//! A real-time call takes four system calls of both sides together and allocates no memory, once
//! its looper is there. The test skips itself where the machine allows ordinary priorities only.
//!
//! The test starts itself under strace, and counts between two calls that no other thread makes.
//! Threads that the first call has caused (the looper for the next such caller) may still start
//! when the counting begins, and their requests to the broker put calls on the general path. So the
//! test counts again until a series is free of them. Calls that always take more never have such a
//! series.

mod support;

use baton::{Parcel, Process};
use baton_shm::schedule;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use support::Broker;

/// Calls of a series, which are counted.
const CALLS: u64 = 1000;
/// Series, at most.
const SERIES: u64 = 100;
/// Series that are traced, which is slow.
const TRACED: u64 = 5;
/// The client's wake and wait, and the looper's.
const MOST_PER_CALL: u64 = 4;
/// Further system calls of a series: late page faults, waits that end without a message.
const OTHERS: u64 = 40;
/// The mark by which the handler knows its looper.
const HANDLERS: &str = "sched_getscheduler(";
/// Calls until the looper is there, at most.
const PATIENCE: usize = 5_000_000;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Whether this thread makes the calls, or answers them. Others are still on their way to their
    /// first wait.
    static IS_COUNTED: Cell<bool> = const { Cell::new(false) };
}

// SAFETY: the system's allocator does what it promises, and is asked for the same.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(u64::from(IS_COUNTED.get()), Ordering::Relaxed);
        // SAFETY: the caller's promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    if std::env::args().nth(1).as_deref() == Some("traced") {
        let mut begun = 0;
        let mark = || {
            let _ = rustix::process::getppid();
            begun += 1;
            begun > TRACED
        };
        assert!(series_becomes_steady(mark));
        return;
    }
    if !become_real_time(30) {
        println!("skipped: rt_steady_state (no real-time priority here)");
        return;
    }
    assert!(become_real_time(0));
    let mut before = None;
    let mark = || {
        let now = ALLOCATIONS.load(Ordering::Relaxed);
        before.replace(now) == Some(now)
    };
    assert!(series_becomes_steady(mark), "allocations in each of {SERIES} times {CALLS} calls");
    // A child has its parent's priority.
    assert!(become_real_time(0));
    match system_calls() {
        None => println!("skipped: rt_steady_state (strace is not installed, or may not be used)"),
        Some(made) => {
            println!("{made} system calls in {CALLS} calls");
            let most = CALLS * MOST_PER_CALL + OTHERS;
            assert!(made <= most, "{made} system calls in {CALLS} calls, at most {most}");
            assert!(made >= CALLS, "{made} are too few to be these calls");
        }
    }
}

fn become_real_time(priority: i32) -> bool {
    let policy = if priority == 0 { libc::SCHED_OTHER } else { libc::SCHED_FIFO };
    schedule::set(0, policy, priority).is_ok()
}

fn is_real_time() -> bool {
    schedule::policy(0).unwrap() & !libc::SCHED_RESET_ON_FORK == libc::SCHED_FIFO
}

/// Makes series of calls, with `mark` before the first and after each, until that is true. False if
/// it never is.
fn series_becomes_steady(mut mark: impl FnMut() -> bool) -> bool {
    let broker = Broker::start();
    let server = Process::open("binder", &broker.socket).unwrap();
    // An error and a parcel without bytes: neither takes memory.
    let object = server
        .object(|_| {
            IS_COUNTED.set(is_real_time());
            if IS_COUNTED.get() { Ok(Parcel::new()) } else { Err(rustix::io::Errno::AGAIN) }
        })
        .add();
    server.become_context_manager(object).unwrap();
    let serving = server.clone();
    thread::spawn(move || serving.serve());
    let client = Process::open("binder", &broker.socket).unwrap();
    let manager = client.context_manager().unwrap();
    assert!(become_real_time(30));
    let parcel = Parcel::new();
    let call = || manager.call(1, &parcel).is_ok();
    IS_COUNTED.set(true);
    assert!((0..PATIENCE).any(|_| call()), "its looper never came");
    // Both ends use the fast path by now.
    (0..100).for_each(|_| assert!(call()));
    let ended = (0..=SERIES).any(|series| {
        if series > 0 {
            (0..CALLS).for_each(|_| assert!(call()));
        }
        mark()
    });
    server.close();
    ended
}

/// Of all threads, in the series that has the fewest.
fn system_calls() -> Option<u64> {
    let trace = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o"]).arg(trace.path());
    command.arg(std::env::current_exe().unwrap()).arg("traced");
    command.status().ok().filter(|status| status.success())?;
    let text = std::fs::read_to_string(trace.path()).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    // One that lasts has a second line; and the handler's own is not the call's.
    let made = |line: &&&str| !line.contains(" resumed>") && !line.contains(HANDLERS);
    let series = lines.split(|line| line.contains("getppid(")).skip(1).take(TRACED as usize);
    series.map(|lines| lines.iter().filter(made).count() as u64).min()
}
