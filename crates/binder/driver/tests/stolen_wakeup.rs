//! A client that sleeps on every word of shared memory that it can see, to be woken in other
//! threads' place, keeps nobody else's call from being served.
mod support;

use baton::{Parcel, Process};
use rustix::thread::ClockId;
use rustix::thread::futex::{self, Timespec, Wait, WaitFlags, WaitPtr, WaitvFlags};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use support::Broker;

/// Most words of one `futex_waitv`.
const WORDS: usize = 128;
/// Bytes of a map whose words a hostile client sleeps on: all of a front or bell page, and of a
/// channel the header.
const STOLEN_BYTES: usize = 4096;
/// How long the calls may take before they count as stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where Baton's files whose names begin so are mapped.
fn maps(name: &str) -> BTreeSet<usize> {
    let (maps, name) =
        (std::fs::read_to_string("/proc/self/maps").unwrap(), format!("/memfd:{name}"));
    let ours = maps.lines().filter(|line| line.contains(&name));
    ours.map(|line| usize::from_str_radix(line.split('-').next().unwrap(), 16).unwrap()).collect()
}

/// Sleeps on the words from `at` on, again and again; says so before the first time.
fn steal(at: usize, stop: &AtomicBool, ready: &mpsc::Sender<()>) {
    let mut said = false;
    while !stop.load(Ordering::Relaxed) {
        let mut waits = [Wait::new(); WORDS];
        for (index, wait) in waits.iter_mut().enumerate() {
            let word = (at + index * 4) as *mut u32;
            // SAFETY: in a page that stays mapped as long as the engines live, which the test ends
            // after its thieves.
            wait.val = u64::from(unsafe { word.read_volatile() });
            wait.uaddr = WaitPtr::new(word.cast());
            wait.flags = WaitFlags::SIZE_U32;
        }
        if !std::mem::replace(&mut said, true) {
            ready.send(()).unwrap();
        }
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let until = Timespec { tv_sec: now.tv_sec + 1, tv_nsec: now.tv_nsec };
        let _ = futex::waitv(&waits, WaitvFlags::empty(), Some(&until), ClockId::Monotonic);
    }
}

#[test]
fn a_client_cannot_take_the_wakeups_of_other_threads() {
    let broker = Broker::start();
    let server = Process::open("binder", &broker.socket).unwrap();
    let (counted, is_counted) = mpsc::channel();
    let object = server
        .object(move |request| {
            if request.code() == 2 {
                counted.send(()).unwrap();
            }
            Ok(Parcel::new())
        })
        .add();
    server.become_context_manager(object).unwrap();
    let serving = server.clone();
    let looper = thread::spawn(move || serving.serve());
    let open = || {
        let bells = maps("baton-bell").len();
        let client = Process::open("binder", &broker.socket).unwrap();
        let manager = client.context_manager().unwrap();
        manager.call(1, &Parcel::new()).unwrap();
        // At both ends: at the client's it comes when its control thread hears of it.
        while maps("baton-bell").len() < bells + 2 {
            thread::yield_now();
        }
        (client, manager)
    };
    let (_honest, manager) = open();
    let others = maps("baton-");
    let (hostile, stolen) = open();
    let stolen_maps: Vec<usize> = maps("baton-").difference(&others).copied().collect();
    assert!(
        stolen_maps.len() >= 3,
        "the hostile client's channel, its own status page and the server's"
    );

    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let (ready, is_ready) = mpsc::channel();
        for at in stolen_maps.iter().flat_map(|map| (*map..map + STOLEN_BYTES).step_by(WORDS * 4)) {
            let (ready, stop) = (ready.clone(), &stop);
            scope.spawn(move || steal(at, stop, &ready));
        }
        drop(ready);
        is_ready.iter().take(stolen_maps.len() * STOLEN_BYTES / (WORDS * 4)).for_each(drop);
        let (done, is_done) = mpsc::channel();
        let caller = thread::spawn(move || {
            for _ in 0..200 {
                manager.call(1, &Parcel::new()).unwrap();
                manager.one_way(2, &Parcel::new()).unwrap();
                is_counted.recv().unwrap();
            }
            done.send(()).unwrap();
        });
        let outcome = is_done.recv_timeout(PATIENCE);
        stop.store(true, Ordering::Relaxed);
        outcome.expect("the honest client's calls were served");
        caller.join().unwrap();
    });
    drop((hostile, stolen));
    server.close();
    looper.join().unwrap();
}
