//! A client that undoes what the process writes where its looper sleeps delays nobody's call and no
//! work of the process for good: on its bell page, which it is not to write, or on its lane's word.
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
/// Calls after which a looper is pinned to a lane, and some.
const IN_A_ROW: u32 = 100;
/// How long a call may take before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where the looper sleeps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bed {
    Bell,
    /// It is pinned.
    Lane,
}

impl Bed {
    /// Where such memory is mapped: bell pages, or the first lane of each channel.
    fn maps(self) -> BTreeSet<usize> {
        let (name, at) = match self {
            Bed::Bell => ("/memfd:baton-bell", 0),
            Bed::Lane => ("/memfd:baton-channel", LANES_AT),
        };
        let hex = |word: &str| usize::from_str_radix(word, 16).unwrap();
        let place = |line: &str| {
            let mut words = line.split_ascii_whitespace();
            let (start, end) = words.next()?.split_once('-')?;
            let (start, end) = (hex(start), hex(end));
            // Maps that lie side by side may be told of as one.
            let before = at.checked_sub(hex(words.nth(1)?))?;
            (before < end - start).then_some(start + before)
        };
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().filter(|line| line.contains(name)).filter_map(place).collect()
    }

    /// After how many of its requests one client is waited for alone there: others that are silent
    /// are looked for as long as that.
    fn requests(self) -> u32 {
        match self {
            Bed::Bell => 150,
            Bed::Lane => 2300,
        }
    }

    /// Takes back what the process has written on it, if it has.
    fn undo(self, word: &AtomicU32, next: &AtomicU32) -> bool {
        match self {
            Bed::Bell => {
                next.store(0, Ordering::Relaxed);
                word.swap(0, Ordering::Relaxed) != 0
            }
            Bed::Lane => word.fetch_and(!NUDGED, Ordering::Relaxed) & NUDGED != 0,
        }
    }
}

/// Of a mailbox's word (`shm::mailbox`): its own process wants the reader.
const NUDGED: u32 = 4;

/// The two who share it: what one wants of the other.
#[derive(Default)]
struct Scribbles {
    stop: AtomicBool,
    /// Keep the looper going to sleep, until the process rings.
    tease: AtomicBool,
    /// How often it has been woken for nothing.
    woken: AtomicUsize,
}

/// Undoes whatever the process does there. While it teases, it wakes the looper as well, and no
/// more as soon as it has undone a ring: a looper that was just about to sleep then has nobody who
/// wakes it.
fn scribble(bed: Bed, at: usize, wanted: &Scribbles) {
    // A map of its own, which outlives the channel: of a shared one's no bytes it makes another.
    // SAFETY: a fresh map at an address of the kernel's choice.
    let page = unsafe { mremap(at as *mut _, 0, BELL_BYTES, MremapFlags::MAYMOVE) }.unwrap();
    // SAFETY: within it, and nobody unmaps it. Its owner touches these words by atomics, too.
    let [word, next] = [0, 4].map(|at| unsafe { AtomicU32::from_ptr(page.byte_add(at).cast()) });
    while !wanted.stop.load(Ordering::Relaxed) {
        if bed.undo(word, next) {
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

    /// Lets a client scribble where the looper sleeps while `body` runs and the server closes. What
    /// it is given makes that client the only one that loopers wait for, and has it tease them.
    fn among_scribbles(self, bed: Bed, body: impl FnOnce(&Stage, &dyn Fn())) {
        let others = bed.maps();
        let (_hostile, manager) = self.client();
        let call = || drop(manager.call(1, &Parcel::new()).unwrap());
        // Its page at both ends: at the client's it comes when its control thread hears of it.
        while bed.maps().difference(&others).count() < 2 {
            call();
        }
        let at = *bed.maps().difference(&others).next().unwrap();
        let wanted = Scribbles::default();
        thread::scope(|scope| {
            let _stop = Stop(&wanted.stop);
            scope.spawn(|| scribble(bed, at, &wanted));
            body(&self, &|| {
                wanted.tease.store(false, Ordering::Relaxed);
                for request in 0..bed.requests() {
                    call();
                    if bed == Bed::Bell && request % 32 == 0 {
                        // On another lane: nobody is pinned to the first.
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
                    if bed == Bed::Lane && looks % LOOKS == 0 {
                        // Other work has called the looper away: it comes back to one who calls
                        // often enough.
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

fn check(bed: Bed) {
    // A looper that spins hears of work without a bell.
    // SAFETY: no other thread of this program runs yet that looks at its environment.
    unsafe { std::env::set_var("BATON_SPIN_US", "0") };
    Stage::set().among_scribbles(bed, |stage, tease| {
        serve_others(stage, tease);
        hear_of_deaths(stage, tease);
    });
}

#[test]
fn a_client_that_writes_where_loopers_sleep_keeps_nobody_waiting() {
    check(Bed::Bell);
    check(Bed::Lane);
}
