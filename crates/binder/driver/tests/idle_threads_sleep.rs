//! Idle costs nothing: when nobody calls, every thread of client, server and broker sleeps, and
//! none of them with a timeout.
mod support;

use baton::{Parcel, Process};
use std::collections::BTreeSet;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};
use support::Broker;

/// More lanes than one channel has.
const LANES: usize = 100;
const PATIENCE: Duration = Duration::from_secs(30);

fn threads() -> BTreeSet<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks.flatten().map(|task| task.file_name().into_string().unwrap()).collect()
}

/// Whether the thread sleeps until somebody wakes it, by the system call in which it is.
fn sleeps_for_good(thread: &str) -> bool {
    let call = std::fs::read_to_string(format!("/proc/self/task/{thread}/syscall"));
    let Ok(call) = call else { return true };
    let mut words = call.split_whitespace();
    let Some(number) = words.next().and_then(|word| word.parse::<i64>().ok()) else { return false };
    let argument = |at: usize| {
        let word = call.split_whitespace().nth(1 + at)?;
        u64::from_str_radix(word.trim_start_matches("0x"), 16).ok()
    };
    let forever = u64::from(-1_i32 as u32);
    match number {
        libc::SYS_futex | libc::SYS_futex_waitv | libc::SYS_epoll_pwait2 => argument(3) == Some(0),
        libc::SYS_epoll_pwait => argument(3).is_some_and(|time| time & forever == forever),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_wait => argument(3).is_some_and(|time| time & forever == forever),
        libc::SYS_ppoll => argument(2) == Some(0),
        _ => false,
    }
}

#[test]
fn a_hundred_idle_lanes_wake_nobody() {
    let others = threads();
    let broker = Broker::start();
    let server = Process::open("binder", &broker.socket).unwrap();
    let all_are_here = Arc::new(Barrier::new(LANES));
    let object = server
        .object(move |_| {
            all_are_here.wait();
            Ok(Parcel::new())
        })
        .add();
    server.become_context_manager(object).unwrap();
    for _ in 0..LANES {
        let serving = server.clone();
        thread::spawn(move || serving.serve());
    }
    let client = Process::open("binder", &broker.socket).unwrap();
    let manager = client.context_manager().unwrap();
    thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| manager.call(1, &Parcel::new()).map(drop).unwrap());
        }
    });
    let late = Instant::now() + PATIENCE;
    loop {
        let ours = threads();
        let awake: Vec<_> =
            ours.difference(&others).filter(|thread| !sleeps_for_good(thread)).collect();
        if awake.is_empty() {
            break;
        }
        assert!(Instant::now() < late, "{awake:?} do not sleep, or wake by themselves");
        thread::yield_now();
    }
    server.close();
}
