//! A client overwrites the words on which the server's looper sleeps: its bell page, or its lane's
//! mailbox. No call and no work of the server waits for ever because of it.
mod support;

use baton::{Handle, Parcel, Process};
use baton_abi::lane::{BELL_BYTES, LANES_AT};
use baton_shm::futex;
use rustix::mm::{MremapFlags, mremap};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;
use support::Broker;

/// Wakes for nothing before each attempt.
const WAKES: usize = 10;
const ROUNDS: usize = 30;
/// Looks for a wake before the looper is taken for one that is elsewhere.
const LOOKS: u32 = 10_000;
/// More calls than pin a looper to a lane.
const IN_A_ROW: u32 = 100;
/// How long a call may take before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where the looper sleeps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SleepWord {
    Bell,
    /// The looper is pinned, and sleeps on the lane's mailbox.
    Lane,
}

impl SleepWord {
    /// Where such memory is mapped: bell pages, or the first lane of each channel.
    fn maps(self) -> BTreeSet<usize> {
        let (name, at) = match self {
            SleepWord::Bell => ("/memfd:baton-bell", 0),
            SleepWord::Lane => ("/memfd:baton-channel", LANES_AT),
        };
        let hex = |word: &str| usize::from_str_radix(word, 16).unwrap();
        let place = |line: &str| {
            let mut words = line.split_ascii_whitespace();
            let (start, end) = words.next()?.split_once('-')?;
            let (start, end) = (hex(start), hex(end));
            // Adjacent maps may stand in one line.
            let before = at.checked_sub(hex(words.nth(1)?))?;
            (before < end - start).then_some(start + before)
        };
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().filter(|line| line.contains(name)).filter_map(place).collect()
    }

    /// Requests after which loopers wait for this client alone: silent clients are waited for as
    /// long as that.
    fn requests(self) -> u32 {
        match self {
            SleepWord::Bell => 150,
            SleepWord::Lane => 2300,
        }
    }

    /// Undoes a write of the process, if there was one.
    fn undo(self, word: &AtomicU32, next: &AtomicU32) -> bool {
        match self {
            SleepWord::Bell => {
                next.store(0, Ordering::Relaxed);
                word.swap(0, Ordering::Relaxed) != 0
            }
            SleepWord::Lane => word.fetch_and(!NUDGED, Ordering::Relaxed) & NUDGED != 0,
        }
    }
}

/// Of a mailbox's word (`shm::mailbox`): its own process wants the reader.
const NUDGED: u32 = 4;

/// The values by which the two threads that share this word control each other.
#[derive(Default)]
struct Scribbles {
    stop: AtomicBool,
    /// Disturb the looper's sleep until the process rings.
    tease: AtomicBool,
    /// How often the looper has been woken for nothing.
    woken: AtomicUsize,
}

/// Undoes every write of the process there. While it teases, it also wakes the looper. It stops as
/// soon as it has undone a ring: a looper that was about to sleep then finds no one to wake it.
fn scribble(sleep_word: SleepWord, at: usize, wanted: &Scribbles) {
    // A map of its own, which outlives the channel: of a shared one's no bytes it makes another.
    // SAFETY: a fresh map at an address of the kernel's choice.
    let page = unsafe { mremap(at as *mut _, 0, BELL_BYTES, MremapFlags::MAYMOVE) }.unwrap();
    // SAFETY: within it, and nobody unmaps it. Its owner touches these words by atomics, too.
    let [word, next] = [0, 4].map(|at| unsafe { AtomicU32::from_ptr(page.byte_add(at).cast()) });
    while !wanted.stop.load(Ordering::Relaxed) {
        if sleep_word.undo(word, next) {
            wanted.tease.store(false, Ordering::Relaxed);
        } else if wanted.tease.load(Ordering::Relaxed) {
            wanted.woken.fetch_add(futex::wake(word, 1), Ordering::Relaxed);
        }
    }
}

const NOTED: u32 = 2;
const WATCHED: u32 = 3;

/// A server with one looper.
struct Stage {
    broker: Broker,
    server: Process,
    looper: thread::JoinHandle<()>,
    /// Once for each [`NOTED`], and for each death of what came with a [`WATCHED`].
    told: mpsc::Receiver<()>,
}

impl Stage {
    fn set() -> Stage {
        let broker = Broker::start();
        let server = Process::open("binder", &broker.socket).unwrap();
        let (tell, told) = mpsc::channel();
        let watched = Mutex::new(Vec::new());
        let object = server
            .object(move |request| {
                let tell = tell.clone();
                match request.code() {
                    NOTED => tell.send(()).unwrap(),
                    WATCHED => {
                        let handle = request.received.handle(0).unwrap();
                        handle.link_to_death(move || tell.send(()).unwrap());
                        watched.lock().unwrap().push(handle);
                    }
                    _ => {}
                }
                Ok(Parcel::new())
            })
            .add();
        server.become_context_manager(object).unwrap();
        let serving = server.clone();
        let looper = thread::spawn(move || _ = serving.serve());
        Stage { broker, server, looper, told }
    }

    fn client(&self) -> (Process, Handle) {
        let client = Process::open("binder", &self.broker.socket).unwrap();
        let manager = client.context_manager().unwrap();
        (client, manager)
    }

    fn is_told(&self) {
        self.told.recv_timeout(PATIENCE).expect("it is not kept waiting");
    }

    /// Lets a client overwrite the words on which the looper sleeps, while `body` runs and the
    /// server closes. The function that `body` gets makes that client the only one that loopers
    /// wait for, and has it tease them.
    fn while_overwritten(self, word: SleepWord, body: impl FnOnce(&Stage, &dyn Fn())) {
        let others = word.maps();
        let (_hostile, manager) = self.client();
        let call = || drop(manager.call(1, &Parcel::new()).unwrap());
        // The page appears at both ends; at the client's, when its control thread has received it.
        while word.maps().difference(&others).count() < 2 {
            call();
        }
        let at = *word.maps().difference(&others).next().unwrap();
        let wanted = Scribbles::default();
        thread::scope(|scope| {
            let _stop = Stop(&wanted.stop);
            scope.spawn(|| scribble(word, at, &wanted));
            body(&self, &|| {
                wanted.tease.store(false, Ordering::Relaxed);
                for request in 0..word.requests() {
                    call();
                    if word == SleepWord::Bell && request % 32 == 0 {
                        // The call uses another lane, so that no looper is pinned to the first.
                        drop(manager.loan(0).unwrap().call(1).unwrap());
                    }
                }
                let woken = || wanted.woken.load(Ordering::Relaxed);
                let (enough, mut looks) = (woken() + WAKES, 0);
                while woken() < enough {
                    // A ring for the last of those calls may have ended it.
                    wanted.tease.store(true, Ordering::Relaxed);
                    thread::yield_now();
                    looks += 1;
                    if word == SleepWord::Lane && looks % LOOKS == 0 {
                        // Other work has called the looper away: it comes back after enough calls.
                        (0..IN_A_ROW).for_each(|_| call());
                    }
                }
            });
            self.server.close();
            let (done, is_done) = mpsc::channel();
            let looper = self.looper;
            scope.spawn(move || {
                looper.join().unwrap();
                done.send(()).unwrap();
            });
            is_done.recv_timeout(PATIENCE).expect("its looper comes home");
        });
    }
}

/// Ends the scribbles, also when the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn serve_others(stage: &Stage, tease: &dyn Fn()) {
    let (_honest, manager) = stage.client();
    for _ in 0..ROUNDS {
        tease();
        manager.one_way(NOTED, &Parcel::new()).unwrap();
        stage.is_told();
    }
}

fn hear_of_deaths(stage: &Stage, tease: &dyn Fn()) {
    for _ in 0..ROUNDS {
        let (mortal, manager) = stage.client();
        let object = mortal.object(|_| Ok(Parcel::new())).add();
        manager.call(WATCHED, Parcel::new().write_object(object)).unwrap();
        tease();
        mortal.close();
        stage.is_told();
    }
}

fn check(word: SleepWord) {
    // A looper that spins hears of work without a bell.
    // SAFETY: no other thread of this program runs yet that looks at its environment.
    unsafe { std::env::set_var("BATON_SPIN_US", "0") };
    Stage::set().while_overwritten(word, |stage, tease| {
        serve_others(stage, tease);
        hear_of_deaths(stage, tease);
    });
}

#[test]
fn a_client_that_writes_where_loopers_sleep_keeps_nobody_waiting() {
    check(SleepWord::Bell);
    check(SleepWord::Lane);
}
