//! When writers wake followers, and when followers ask for that.
//!
//! ```text
//!            nothing for LINGER_NS              nothing in QUIET_NS
//!   awake ----------- asks -----------> asked ----------------------> asleep
//!     ^                                   |                             |
//!     +------------- withdraws -----------+-------- news, a wake-up ----+
//! ```
//!
//! A follower that is awake looks by itself, less often the longer no record has come. Writers do
//! not wake it, with one exception: a writer that fills a part of its ring does, so that the
//! follower reads the part before it is overwritten. Before a follower sleeps it writes into a word
//! that each writer compares with its stamp: the time *until which* writers have to wake it. So the
//! request of a follower that dies runs out. A follower that is woken withdraws its own request and
//! no other's, since one wake-up reaches all followers.
//!
//! Memory order: a writer publishes its record and then reads the word, without a fence. So it may
//! read the word earlier by the time that a store stays in a processor. A follower asks, and looks
//! for records [`QUIET_NS`] later. A writer that missed the request has published its record by
//! then; every later writer wakes the follower. `models` checks this, with a model of that time.

use crate::moment::Source;
use baton_shm::sync::{AtomicU64, Ordering};
use std::cell::Cell;

/// A thread that has woken followers wakes none again within this time. A follower that has asked
/// looks once more after this time.
pub(crate) const QUIET_NS: u64 = 1_000_000;
/// How long a follower stays awake while no record comes.
const LINGER_NS: u64 = 100_000_000;
/// A follower that is awake waits this part of the time without records until its next look,
const N_LOOKS: u64 = 2;
/// and at least this long: each look takes a cache line from a writer.
const PACE_NS: u64 = 250_000;
/// The time for which a follower asks,
pub(crate) const LEASE_NS: u64 = 10_000_000_000;
/// and the time after which it asks again.
pub(crate) const RENEW_NS: u64 = LEASE_NS / 2;

/// The requests of all followers of a log.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct WakeRequests {
    /// Wake followers for each record: at least one sleeps.
    pub asleep: RequestedUntil,
    /// Wake followers for each part of a ring: at least one follows.
    pub following: RequestedUntil,
}

/// The time until which writers wake followers, in the units of each kind of stamp.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct RequestedUntil {
    pub counter: AtomicU64,
    pub monotonic_ns: AtomicU64,
}

/// The request of one follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Until {
    pub counter: u64,
    pub monotonic_ns: u64,
}

impl WakeRequests {
    /// No requests.
    #[cfg(not(loom))]
    pub const fn none() -> WakeRequests {
        WakeRequests { asleep: RequestedUntil::nothing(), following: RequestedUntil::nothing() }
    }
}

impl RequestedUntil {
    #[cfg(not(loom))]
    const fn nothing() -> RequestedUntil {
        RequestedUntil { counter: AtomicU64::new(0), monotonic_ns: AtomicU64::new(0) }
    }

    /// The time until which writers with stamps of this source wake followers.
    pub fn by(&self, source: Source) -> &AtomicU64 {
        match source {
            Source::Counter => &self.counter,
            Source::Vdso | Source::SystemCall => &self.monotonic_ns,
        }
    }

    /// Asks for wake-ups. A request of another follower that lasts longer is replaced, too.
    pub fn ask(&self, until: Until) {
        // Swaps, so that a withdrawal at the same time comes before or changes nothing.
        self.counter.swap(until.counter, Ordering::Relaxed);
        self.monotonic_ns.swap(until.monotonic_ns, Ordering::Relaxed);
    }

    /// Withdraws a request. A later request of another follower stays.
    pub fn withdraw(&self, until: Until) {
        for (word, own) in
            [(&self.counter, until.counter), (&self.monotonic_ns, until.monotonic_ns)]
        {
            // Pairs with nothing: wake-ups reach a follower through inotify, not through this word.
            let _ = word.compare_exchange(own, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

/// Whether the writer of a record with this stamp has to wake followers.
#[inline]
pub(crate) fn wants_wakeup(until: &AtomicU64, stamp: u64) -> bool {
    stamp < until.load(Ordering::Relaxed)
}

/// Limits the wake-ups that one thread sends.
#[derive(Debug, Default)]
pub(crate) struct WakeupLimiter {
    at_ns: Cell<u64>,
}

impl WakeupLimiter {
    /// Whether the thread may wake followers now; if so, records that it does. A record for which
    /// it may not was published before the clock was read, so the look that follows the last
    /// wake-up or the request, [`QUIET_NS`] later, sees it.
    pub fn is_due(&self, now_ns: u64) -> bool {
        let is_due = now_ns >= self.at_ns.get() + QUIET_NS;
        if is_due {
            self.at_ns.set(now_ns);
        }
        is_due
    }
}

/// The next step of a follower that has found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Look again after this many nanoseconds, or when woken.
    Pause(u64),
    /// Ask for wake-ups, call [`FollowerState::has_asked`], and go on.
    Ask,
}

/// The state of a follower between looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FollowerState {
    /// It looks by itself. The last record came at this time.
    Awake { since_ns: u64 },
    /// It has asked, and has to look once more.
    Asked { at_ns: u64 },
    /// It sleeps until it is woken, or has to ask again.
    Asleep { asked_at_ns: u64 },
}

impl FollowerState {
    /// The state before the first look.
    pub fn begin() -> FollowerState {
        FollowerState::Awake { since_ns: 0 }
    }

    /// Records a wake-up, or a look that has found something.
    pub fn wake(&mut self, now_ns: u64) {
        *self = FollowerState::Awake { since_ns: now_ns };
    }

    /// Records that the follower asked, before `now_ns`.
    pub fn has_asked(&mut self, now_ns: u64) {
        *self = FollowerState::Asked { at_ns: now_ns };
    }

    /// The step after a look that began at `looked_at_ns` and found nothing. Looks are at least
    /// `least_ns` apart.
    pub fn next(&mut self, looked_at_ns: u64, now_ns: u64, least_ns: u64) -> Step {
        if let FollowerState::Asked { at_ns } = *self
            && looked_at_ns >= at_ns + QUIET_NS
        {
            *self = FollowerState::Asleep { asked_at_ns: at_ns };
        }
        match *self {
            FollowerState::Awake { since_ns } if now_ns < since_ns + LINGER_NS => {
                let part_ns = now_ns.saturating_sub(since_ns) / N_LOOKS;
                Step::Pause(part_ns.max(least_ns).max(PACE_NS))
            }
            FollowerState::Awake { .. } => Step::Ask,
            FollowerState::Asked { at_ns } => {
                Step::Pause((at_ns + QUIET_NS).saturating_sub(now_ns))
            }
            FollowerState::Asleep { asked_at_ns } if now_ns < asked_at_ns + RENEW_NS => {
                Step::Pause(asked_at_ns + RENEW_NS - now_ns)
            }
            FollowerState::Asleep { .. } => Step::Ask,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Looks that find nothing: the time of each, and the step after it.
    fn run(rest: &mut FollowerState, from_ns: u64, n_looks: usize) -> Vec<(u64, Step)> {
        let mut now_ns = from_ns;
        let mut steps = Vec::new();
        for _ in 0..n_looks {
            let step = rest.next(now_ns, now_ns, 0);
            steps.push((now_ns / MS, step));
            match step {
                Step::Pause(pause_ns) => now_ns += pause_ns,
                Step::Ask => rest.has_asked(now_ns),
            }
        }
        steps
    }

    #[test]
    fn who_has_found_nothing_yet_asks_at_once_and_looks_once_more() {
        let mut rest = FollowerState::begin();
        let steps = run(&mut rest, 500 * MS, 4);
        let renewed = 500 + 5000;
        assert_eq!(steps[..2], [(500, Step::Ask), (500, Step::Pause(MS))]);
        assert_eq!(steps[2], (501, Step::Pause(4999 * MS)));
        assert_eq!(steps[3], (renewed, Step::Ask));
    }

    #[test]
    fn the_longer_nothing_comes_the_less_it_is_looked_for() {
        let mut rest = FollowerState::begin();
        rest.wake(1000 * MS);
        let steps = run(&mut rest, 1000 * MS, 100);
        let asked = steps.iter().position(|&(_, step)| step == Step::Ask).unwrap();
        assert!((10..30).contains(&asked), "{asked} looks");
        let pauses = steps[..asked].windows(2).map(|pair| (pair[0].1, pair[1].1));
        for (shorter, longer) in pauses {
            let (Step::Pause(shorter), Step::Pause(longer)) = (shorter, longer) else { panic!() };
            assert!(shorter <= longer && longer <= LINGER_NS / N_LOOKS);
        }
        assert!(steps[asked].0 >= 1100);
        assert!(matches!(rest, FollowerState::Asleep { .. } | FollowerState::Asked { .. }));
    }

    #[test]
    fn looks_that_take_long_are_seldom() {
        let mut rest = FollowerState::begin();
        rest.wake(0);
        assert_eq!(rest.next(MS, MS, 7 * MS), Step::Pause(7 * MS));
        assert_eq!(rest.next(80 * MS, 80 * MS, 7 * MS), Step::Pause(40 * MS));
        assert_eq!(rest.next(0, 0, 0), Step::Pause(PACE_NS));
    }

    #[test]
    fn a_look_that_began_too_early_does_not_count() {
        let mut rest = FollowerState::begin();
        rest.has_asked(10 * MS);
        assert_eq!(rest.next(11 * MS - 1, 12 * MS, 0), Step::Pause(0));
        assert!(matches!(rest, FollowerState::Asked { .. }));
        rest.next(11 * MS, 12 * MS, 0);
        assert_eq!(rest, FollowerState::Asleep { asked_at_ns: 10 * MS });
    }

    #[test]
    fn who_withdraws_leaves_what_others_ask_for() {
        let asked = WakeRequests::none().asleep;
        let (first, second) =
            (Until { counter: 100, monotonic_ns: 10 }, Until { counter: 200, monotonic_ns: 20 });
        let wants = |stamp| {
            [Source::Counter, Source::Vdso].map(|source| wants_wakeup(asked.by(source), stamp))
        };
        assert_eq!(wants(0), [false, false]);
        asked.ask(first);
        assert_eq!((wants(9), wants(10), wants(100)), ([true; 2], [true, false], [false; 2]));
        asked.ask(second);
        asked.withdraw(first);
        assert_eq!(wants(15), [true; 2]);
        asked.withdraw(second);
        assert_eq!(wants(0), [false, false]);
    }
}
