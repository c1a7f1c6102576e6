//! A client that has been silent for long becomes inactive, and is served as soon as it calls
//! again.
mod support;

use baton::{Handle, Parcel, Process};
use baton_abi::lane::bell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use support::Broker;

/// Calls after which a client that has not called is silent, whenever they began.
const MANY: u32 = 4 * 1024;
const ROUNDS: usize = 40;
/// How long it may take before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(60);
/// The server's notes.
const NOTED: u32 = 2;

/// The INACTIVE word on each map of a bell page. The maps stay as long as the engines live.
fn inactive_words() -> BTreeSet<usize> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let bells = maps.lines().filter(|line| line.contains("/memfd:baton-bell"));
    let address = |line: &str| usize::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
    bells.map(|line| address(line) + bell::INACTIVE).collect()
}

fn is_inactive(word: usize) -> bool {
    // SAFETY: see `inactive_words`; the test ends before its engines do.
    unsafe { AtomicU32::from_ptr(word as *mut u32) }.load(Ordering::Relaxed) == 1
}

struct Stage {
    broker: Broker,
    server: Process,
    noted: mpsc::Receiver<()>,
}

impl Stage {
    /// A server with one looper.
    fn set() -> Stage {
        let broker = Broker::start();
        let server = Process::open("binder", &broker.socket).unwrap();
        let (note, noted) = mpsc::channel();
        let object = server
            .object(move |request| {
                if request.code() == NOTED {
                    note.send(()).unwrap();
                }
                Ok(Parcel::new())
            })
            .add();
        server.become_context_manager(object).unwrap();
        let serving = server.clone();
        thread::spawn(move || serving.serve());
        Stage { broker, server, noted }
    }

    fn client(&self) -> (Process, Handle) {
        let client = Process::open("binder", &self.broker.socket).unwrap();
        let manager = client.context_manager().unwrap();
        call(&manager);
        (client, manager)
    }
}

fn call(manager: &Handle) {
    drop(manager.call(1, &Parcel::new()).unwrap());
}

#[test]
fn a_silent_client_becomes_inactive_and_is_served_when_it_comes_back() {
    let stage = Stage::set();
    let (_silent, its_manager) = stage.client();
    let word = *inactive_words().first().unwrap();
    let (_busy, manager) = stage.client();
    assert!(!is_inactive(word), "to begin with");
    for _ in 0..3 {
        (0..MANY).for_each(|_| call(&manager));
        assert!(is_inactive(word), "after long silence");
        call(&its_manager);
        assert!(!is_inactive(word), "once it has called");
    }
    assert_eq!(inactive_words().into_iter().filter(|&word| is_inactive(word)).count(), 0);
    come_back_while_others_call(&stage, &its_manager, &manager, word);
    stage.server.close();
}

/// No client rings for a looper that never sleeps, and a one-way transaction has no waiting caller.
fn come_back_while_others_call(stage: &Stage, its_manager: &Handle, manager: &Handle, word: usize) {
    let (stop, calls) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                call(manager);
                calls.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut outcome = Ok(());
        for round in 0..ROUNDS {
            let start = calls.load(Ordering::Relaxed);
            // In every other round it may be just about to go inactive.
            let is_ripe = || match round % 2 {
                0 => is_inactive(word),
                _ => calls.load(Ordering::Relaxed).wrapping_sub(start) > MANY / 4 + round as u32,
            };
            while !is_ripe() {
                thread::yield_now();
            }
            its_manager.one_way(NOTED, &Parcel::new()).unwrap();
            outcome = stage.noted.recv_timeout(PATIENCE);
            if outcome.is_err() {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        outcome.expect("it is served");
    });
}
