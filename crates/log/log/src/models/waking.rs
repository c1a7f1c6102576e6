//! A follower goes to sleep while a writer may be reading the request word.
//!
//! The model has the effect of a millisecond in place of time: every step that a writer had begun
//! at its beginning is complete and visible at its end.

use super::{look, memory, write};
use crate::cursor::Cursor;
use crate::moment::Source;
use crate::ring::Ring;
use crate::wakeup::{FollowerState, QUIET_NS, RequestedUntil, Until, WakeupLimiter, wants_wakeup};
use baton_shm::sync::fence;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread::{self, JoinHandle};

const FIRST: Until = Until { counter: 1000, monotonic_ns: 1000 };
const SECOND: Until = Until { counter: 2000, monotonic_ns: 2000 };
/// The time at which the thread has just woken followers.
const START_NS: u64 = 5 * QUIET_NS;
const N_RECORDS: u64 = 2;

struct World {
    shared: Arc<super::Shared>,
    asked: RequestedUntil,
    now_ns: AtomicU64,
    /// Records that the writer has begun, and records that it has finished.
    begun: AtomicU64,
    done: AtomicU64,
    bells: AtomicU64,
}

impl World {
    fn new() -> Arc<World> {
        Arc::new(World {
            shared: memory(64),
            asked: RequestedUntil { counter: AtomicU64::new(0), monotonic_ns: AtomicU64::new(0) },
            now_ns: AtomicU64::new(START_NS),
            begun: AtomicU64::new(0),
            done: AtomicU64::new(0),
            bells: AtomicU64::new(0),
        })
    }

    fn let_pass(&self) {
        self.now_ns.fetch_add(QUIET_NS, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let begun = self.begun.load(Ordering::SeqCst);
        while self.done.load(Ordering::SeqCst) < begun {
            thread::yield_now();
        }
    }

    /// Writes as a thread that has woken a follower just before.
    fn write(&self) {
        let mut ring = Ring::new(super::Memory { shared: self.shared.clone() });
        let limiter = WakeupLimiter::default();
        assert!(limiter.is_due(START_NS));
        for number in 0..N_RECORDS {
            self.begun.store(number + 1, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            write(&mut ring, number);
            if wants_wakeup(self.asked.by(Source::Counter), number)
                && limiter.is_due(self.now_ns.load(Ordering::SeqCst))
            {
                self.bells.fetch_add(1, Ordering::SeqCst);
            }
            self.done.store(number + 1, Ordering::SeqCst);
        }
    }

    /// Falls asleep, and again after each wake-up. Returns the number of wake-ups and the known
    /// records.
    fn fall_asleep(&self) -> (u64, Vec<u64>) {
        let (mut cursor, mut known, mut heard) = (Cursor::oldest(), Vec::new(), 0);
        loop {
            self.asked.ask(FIRST);
            let mut rest = FollowerState::begin();
            rest.has_asked(START_NS);
            self.let_pass();
            known.extend(look(&self.shared, &mut cursor));
            rest.next(START_NS + QUIET_NS, START_NS + QUIET_NS, 0);
            assert_eq!(rest, FollowerState::Asleep { asked_at_ns: START_NS });
            let bells = self.bells.load(Ordering::SeqCst);
            if bells == heard {
                return (heard, known);
            }
            heard = bells;
            self.asked.withdraw(FIRST);
        }
    }

    /// Checks, after all threads have ended, that a sleeper without a wake-up to come has missed
    /// nothing.
    fn check(&self, (heard, known): (u64, Vec<u64>)) {
        let is_rung_for = self.bells.load(Ordering::SeqCst) > heard;
        assert!(is_rung_for || known.into_iter().eq(0..N_RECORDS), "asleep, and nobody rings");
    }
}

fn start(world: &Arc<World>, work: fn(&World)) -> JoinHandle<()> {
    let world = world.clone();
    thread::spawn(move || work(&world))
}

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 20_000;
    builder.check(model);
}

#[test]
fn who_falls_asleep_is_rung_for_or_has_seen_it() {
    check(|| {
        let world = World::new();
        let writer = start(&world, World::write);
        let end = world.fall_asleep();
        writer.join().unwrap();
        world.check(end);
    });
}

#[test]
fn who_wakes_up_lets_others_sleep_and_be_rung_for() {
    check(|| {
        let world = World::new();
        world.asked.ask(SECOND);
        let writer = start(&world, World::write);
        let other = start(&world, |world| world.asked.withdraw(SECOND));
        let end = world.fall_asleep();
        other.join().unwrap();
        writer.join().unwrap();
        world.check(end);
    });
}
