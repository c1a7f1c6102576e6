//! Whether writers ring for those who follow, and when these ask for it.
//!
//! ```text
//!            nothing for LINGER_NS              nothing in QUIET_NS
//!   awake ----------- asks -----------> asked ----------------------> asleep
//!     ^                                   |                             |
//!     +------------- withdraws -----------+-------- news, a bell -------+
//! ```
//!
//! A reader that is awake looks by itself, the less often the longer nothing has come, and writers
//! leave it alone but for one thing: who writes much tells it at the parts of its ring, so that it
//! comes before they are overwritten. A reader that goes to sleep asks first, in a word that every
//! writer compares with its stamp: *until when* to ring, so that a reader that dies leaves nothing
//! behind that does not run out. Who is rung for withdraws its own asking, and no other's: all who
//! sleep hear the same bell.
//!
//! Orders: a writer shows its record, then looks at the word, with no fence in between, so the look
//! may be ahead of the record by as long as a store stays in a processor. The reader asks, and
//! looks for records [`QUIET_NS`] later. A writer whose look missed the asking has shown its record
//! by then; every later one rings. `models` has this, with what passes for that time.

use crate::moment::Source;
use baton_shm::sync::{AtomicU64, Ordering};
use std::cell::Cell;

/// A thread that has rung does not ring again within this, and who has asked looks once more after
/// it.
pub(crate) const QUIET_NS: u64 = 1_000_000;
/// How long a reader stays awake for whom nothing comes.
const LINGER_NS: u64 = 100_000_000;
/// A reader that is awake looks after such a part of the time in which nothing has come,
const N_LOOKS: u64 = 2;
/// and not more often than this: each look takes from a writer the line that it is writing.
const PACE_NS: u64 = 250_000;
/// How far ahead a reader asks,
pub(crate) const LEASE_NS: u64 = 10_000_000_000;
/// and after what time it asks again.
pub(crate) const RENEW_NS: u64 = LEASE_NS / 2;

/// What readers ask for.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Words {
    /// To ring for each record: somebody sleeps.
    pub asleep: Asked,
    /// To ring for each part of a ring: somebody follows.
    pub following: Asked,
}

/// Until when to ring, by each kind of stamp.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Asked {
    pub counter: AtomicU64,
    pub monotonic_ns: AtomicU64,
}

/// What one reader has asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Until {
    pub counter: u64,
    pub monotonic_ns: u64,
}

impl Words {
    /// Nobody asks for anything.
    #[cfg(not(loom))]
    pub const fn none() -> Words {
        Words { asleep: Asked::nothing(), following: Asked::nothing() }
    }
}

impl Asked {
    #[cfg(not(loom))]
    const fn nothing() -> Asked {
        Asked { counter: AtomicU64::new(0), monotonic_ns: AtomicU64::new(0) }
    }

    /// The time until which those ring who stamp with this source.
    pub fn by(&self, source: Source) -> &AtomicU64 {
        match source {
            Source::Counter => &self.counter,
            Source::Vdso | Source::SystemCall => &self.monotonic_ns,
        }
    }

    /// Asks. Another reader may have asked for longer, but no sane one for much longer.
    pub fn ask(&self, until: Until) {
        // Exchanges, so that what somebody withdraws meanwhile comes before or is left alone.
        self.counter.swap(until.counter, Ordering::Relaxed);
        self.monotonic_ns.swap(until.monotonic_ns, Ordering::Relaxed);
    }

    /// Asks no more. What another reader has asked for since stays.
    pub fn withdraw(&self, until: Until) {
        for (word, own) in
            [(&self.counter, until.counter), (&self.monotonic_ns, until.monotonic_ns)]
        {
            // Pairs with nothing: a reader that has asked is woken by what it is told, not by this
            // word.
            let _ = word.compare_exchange(own, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

/// Whether who has written a record of this stamp is to ring.
#[inline]
pub(crate) fn is_asked(until: &AtomicU64, stamp: u64) -> bool {
    stamp < until.load(Ordering::Relaxed)
}

/// When a thread has last rung.
#[derive(Debug, Default)]
pub(crate) struct Rung {
    at_ns: Cell<u64>,
}

impl Rung {
    /// Whether it may ring now, and then does. What is skipped was shown before the clock was read,
    /// so whoever was told the last time, or has asked since, sees it when they look [`QUIET_NS`]
    /// later.
    pub fn is_due(&self, now_ns: u64) -> bool {
        let is_due = now_ns >= self.at_ns.get() + QUIET_NS;
        if is_due {
            self.at_ns.set(now_ns);
        }
        is_due
    }
}

/// What a reader does that has found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Look again after so long, or when it is told of something.
    Pause(u64),
    /// Ask, say so by [`Rest::has_asked`], and go on.
    Ask,
}

/// How one reader rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// It looks by itself, since something came.
    Awake { since_ns: u64 },
    /// It has asked, and has to look once more.
    Asked { at_ns: u64 },
    /// It sleeps until it is told, or has to ask again.
    Asleep { asked_at_ns: u64 },
}

impl Rest {
    /// Before the first look.
    pub fn begin() -> Rest {
        Rest::Awake { since_ns: 0 }
    }

    /// Something has come, or was told.
    pub fn wake(&mut self, now_ns: u64) {
        *self = Rest::Awake { since_ns: now_ns };
    }

    /// It has asked, before `now_ns`.
    pub fn has_asked(&mut self, now_ns: u64) {
        *self = Rest::Asked { at_ns: now_ns };
    }

    /// What to do after a look that began at `looked_at_ns` and found nothing. It does not look
    /// more often than every `least_ns`.
    pub fn next(&mut self, looked_at_ns: u64, now_ns: u64, least_ns: u64) -> Step {
        if let Rest::Asked { at_ns } = *self
            && looked_at_ns >= at_ns + QUIET_NS
        {
            *self = Rest::Asleep { asked_at_ns: at_ns };
        }
        match *self {
            Rest::Awake { since_ns } if now_ns < since_ns + LINGER_NS => {
                let part_ns = now_ns.saturating_sub(since_ns) / N_LOOKS;
                Step::Pause(part_ns.max(least_ns).max(PACE_NS))
            }
            Rest::Awake { .. } => Step::Ask,
            Rest::Asked { at_ns } => Step::Pause((at_ns + QUIET_NS).saturating_sub(now_ns)),
            Rest::Asleep { asked_at_ns } if now_ns < asked_at_ns + RENEW_NS => {
                Step::Pause(asked_at_ns + RENEW_NS - now_ns)
            }
            Rest::Asleep { .. } => Step::Ask,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Looks, of which none finds anything: when each begins, and what follows from it.
    fn run(rest: &mut Rest, from_ns: u64, n_looks: usize) -> Vec<(u64, Step)> {
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
        let mut rest = Rest::begin();
        let steps = run(&mut rest, 500 * MS, 4);
        let renewed = 500 + 5000;
        assert_eq!(steps[..2], [(500, Step::Ask), (500, Step::Pause(MS))]);
        assert_eq!(steps[2], (501, Step::Pause(4999 * MS)));
        assert_eq!(steps[3], (renewed, Step::Ask));
    }

    #[test]
    fn the_longer_nothing_comes_the_less_it_is_looked_for() {
        let mut rest = Rest::begin();
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
        assert!(matches!(rest, Rest::Asleep { .. } | Rest::Asked { .. }));
    }

    #[test]
    fn looks_that_take_long_are_seldom() {
        let mut rest = Rest::begin();
        rest.wake(0);
        assert_eq!(rest.next(MS, MS, 7 * MS), Step::Pause(7 * MS));
        assert_eq!(rest.next(80 * MS, 80 * MS, 7 * MS), Step::Pause(40 * MS));
        assert_eq!(rest.next(0, 0, 0), Step::Pause(PACE_NS));
    }

    #[test]
    fn a_look_that_began_too_early_does_not_count() {
        let mut rest = Rest::begin();
        rest.has_asked(10 * MS);
        assert_eq!(rest.next(11 * MS - 1, 12 * MS, 0), Step::Pause(0));
        assert!(matches!(rest, Rest::Asked { .. }));
        rest.next(11 * MS, 12 * MS, 0);
        assert_eq!(rest, Rest::Asleep { asked_at_ns: 10 * MS });
    }

    #[test]
    fn who_withdraws_leaves_what_others_ask_for() {
        let asked = Words::none().asleep;
        let (first, second) =
            (Until { counter: 100, monotonic_ns: 10 }, Until { counter: 200, monotonic_ns: 20 });
        let wants =
            |stamp| [Source::Counter, Source::Vdso].map(|source| is_asked(asked.by(source), stamp));
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
