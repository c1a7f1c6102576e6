//! The memory that calls on a real-time caller's lane touch is locked for as long as the lane is
//! such a lane.
//!
//! It starts this very program again for a process that may lock nothing; hence a `main` of its
//! own.

#[path = "support/service.rs"]
mod service;
mod support;

use baton::{Parcel, Process, RECEIVE_BYTES, Received};
use baton_shm::schedule;
use rustix::process::{Resource, Rlimit};
use service::{client_of, manage};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use support::Broker;

/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(600);
/// The largest plain call, and its header's page.
const AREA_BYTES: usize = (64 << 10) + 4096;
/// In this process a lane has two ends, and either end two areas.
const LANE_BYTES: usize = 4 * AREA_BYTES;
const CHANNEL: &str = "memfd:baton-channel";
const BUFFER: &str = "memfd:binder";

fn main() {
    if std::env::args().nth(1).as_deref() == Some("poor") {
        return call_without_memory();
    }
    if !become_real_time(10) {
        println!("skipped: memory (no real-time priority here)");
        return;
    }
    assert!(become_real_time(0));
    a_lane_stays_in_memory_as_long_as_it_is_a_real_time_threads();
    if may_lock_nothing() {
        let status = Command::new(std::env::current_exe().unwrap()).arg("poor").status().unwrap();
        assert!(status.success());
    }
}

fn become_real_time(priority: i32) -> bool {
    let policy = if priority == 0 { libc::SCHED_OTHER } else { libc::SCHED_FIFO };
    schedule::set(0, policy, priority).is_ok()
}

/// Bytes of maps of this file that are there and locked.
fn kept(file: &str) -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut total, mut is_it, mut there) = (0, false, 0);
    for line in maps.lines() {
        if let Some(kibibytes) = line.strip_prefix("Rss:") {
            there = kibibytes.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10;
        } else if let Some(flags) = line.strip_prefix("VmFlags:") {
            let locked = flags.split_whitespace().any(|flag| flag == "lo");
            total += if locked && is_it { there } else { 0 };
        } else if line.split_once(' ').is_some_and(|(range, _)| range.contains('-')) {
            is_it = line.contains(file);
        }
    }
    total
}

/// A server that serves already: before that no caller gets a looper of its own.
fn server(broker: &Broker) -> Process {
    let server = manage(broker, |request| Ok(Parcel::from(request.data())));
    let (first, manager) = client_of(broker);
    drop(manager.call(1, &Parcel::new()).unwrap());
    first.close();
    server
}

fn a_lane_stays_in_memory_as_long_as_it_is_a_real_time_threads() {
    let broker = Broker::start();
    let server = server(&broker);
    let (_client, manager) = client_of(&broker);
    let before = kept(CHANNEL);
    let (prepared, is_prepared) = mpsc::channel();
    let (end, ends) = mpsc::channel::<()>();
    let caller = thread::spawn(move || {
        assert!(become_real_time(10));
        prepared.send(manager.prepare(LONG)).unwrap();
        let _ = ends.recv();
        let data = vec![1; 64 << 10];
        let answer = manager.call(1, &Parcel::from(&data[..]));
        assert_eq!(answer.as_ref().map(Received::data), Ok(&data[..]));
    });
    assert_eq!(is_prepared.recv(), Ok(Ok(true)));
    let now = kept(CHANNEL);
    assert!(now - before >= LANE_BYTES, "{now} bytes, {before} before");
    // Of either process.
    assert!(kept(BUFFER) >= 2 * RECEIVE_BYTES, "{}", kept(BUFFER));
    drop(end);
    caller.join().unwrap();
    // The looper leaves, because its caller has ended.
    while kept(CHANNEL) - before >= LANE_BYTES {
        thread::yield_now();
    }
    server.close();
}

/// Takes this process the right to lock memory.
fn may_lock_nothing() -> bool {
    let no = Rlimit { current: Some(0), maximum: Some(0) };
    let without = || {
        let mut sets = rustix::thread::capabilities(None)?;
        sets.effective.remove(rustix::thread::CapabilitySet::IPC_LOCK);
        sets.permitted.remove(rustix::thread::CapabilitySet::IPC_LOCK);
        rustix::thread::set_capabilities(None, sets)
    };
    rustix::process::setrlimit(Resource::Memlock, no).is_ok() && without().is_ok()
}

fn call_without_memory() {
    // A program that root executes has all rights again.
    assert!(may_lock_nothing());
    let broker = Broker::start();
    let server = server(&broker);
    let (_client, manager) = client_of(&broker);
    assert!(become_real_time(10));
    assert_eq!(manager.prepare(LONG), Ok(true));
    assert_eq!((kept(CHANNEL), kept(BUFFER)), (0, 0));
    let answer = manager.call(1, &Parcel::from(&b"as ever"[..])).unwrap();
    assert_eq!(answer.data(), b"as ever");
    server.close();
}
