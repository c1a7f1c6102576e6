//! A looper moves to its only caller's processor, if the program allows that processor.

mod support;

use baton::{Handle, Options, Parcel, Process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use support::Broker;

const WHERE: u32 = 1;
/// Calls within which a looper has followed: pauses included, at a few microseconds a call.
const MANY: usize = 100_000;

/// A looper and its caller, neither of which spins.
struct Pair {
    server: Process,
    object: Handle,
}

impl Pair {
    /// The looper is bound as this thread is when it calls this.
    fn start(broker: &Broker, follow: bool) -> Pair {
        let options = Options::new().longest_spin(Duration::ZERO).follow(follow);
        let open = || options.open("binder", &broker.socket).unwrap();
        let server = open();
        let object = server.object(|_| Ok(Parcel::from(&*whereabouts()))).add();
        server.become_context_manager(object).unwrap();
        let serving = server.clone();
        std::thread::spawn(move || serving.serve());
        let client = open();
        let object = client.context_manager().unwrap();
        Pair { server, object }
    }

    /// Where the looper serves a call, and to how many processors it is bound.
    fn ask(&self) -> (usize, u32) {
        let reply = self.object.call(WHERE, &Parcel::from(&[][..])).unwrap();
        let (processor, bound) = reply.data().split_at(8);
        let processor = u64::from_ne_bytes(processor.try_into().unwrap());
        (processor as usize, u32::from_ne_bytes(bound.try_into().unwrap()))
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.server.close();
    }
}

/// A thread of the lowest priority that keeps this processor busy.
struct Busy {
    on: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Busy {
    fn here() -> Busy {
        let on = Arc::new(AtomicBool::new(true));
        let going_on = Arc::clone(&on);
        let thread = std::thread::spawn(move || {
            rustix::process::setpriority_process(Some(rustix::thread::gettid()), 19).unwrap();
            while going_on.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        Busy { on, thread: Some(thread) }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.on.store(false, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

fn whereabouts() -> Vec<u8> {
    let bound = sched_getaffinity(None).unwrap().count();
    [&(sched_getcpu() as u64).to_ne_bytes()[..], &bound.to_ne_bytes()].concat()
}

fn bind(processor: usize) {
    let mut only = CpuSet::new();
    only.set(processor);
    sched_setaffinity(None, &only).unwrap();
}

/// Two processors on which this thread may run, and all of them; `None` where there are no two.
fn two() -> Option<([usize; 2], CpuSet)> {
    let allowed = sched_getaffinity(None).unwrap();
    let mut processors = (0..CpuSet::MAX_CPU).filter(|&processor| allowed.is_set(processor));
    Some(([processors.next()?, processors.next()?], allowed))
}

#[test]
fn a_looper_comes_to_its_caller_and_stays_bound_as_it_was() {
    let Some((two, allowed)) = two() else { return };
    let broker = Broker::start();
    let pair = Pair::start(&broker, true);
    for here in [two[0], two[1], two[0], two[1]] {
        bind(here);
        // Else the scheduler may bring both together by itself.
        let _busy = Busy::here();
        let mut places = (0..MANY).map(|_| pair.ask());
        let came = places.by_ref().inspect(|&(_, bound)| assert_eq!(bound, allowed.count()));
        assert!(came.into_iter().any(|(place, _)| place == here), "never on {here}");
    }
}

#[test]
fn a_looper_that_is_bound_to_one_processor_stays_there() {
    let Some((two, _)) = two() else { return };
    let broker = Broker::start();
    bind(two[0]);
    let pair = Pair::start(&broker, true);
    bind(two[1]);
    for _ in 0..500 {
        assert_eq!(pair.ask(), (two[0], 1));
    }
}
