//! Chooses the processor of a looper: the processor of its only caller, if that pays.
//!
//! A wake-up of a thread that sleeps on the same processor takes a tenth of one across two. Where a
//! spin pays, neither is needed. So a looper of the pool *follows* its caller only if it sleeps
//! without a spin: service times or gaps longer than a spin, spinning switched off.
//!
//! ```text
//!   woken ENOUGH times in a row by one caller that stood still elsewhere
//!     -> moves there, unless the pause since the last move is not over; the pause doubles
//!   woken ENOUGH times in a row by a caller on its own processor
//!     -> moving has helped: the pause is the shortest again
//! ```
//!
//! A looper moves when it has been woken, not when it goes to sleep. A caller that has just posted
//! sleeps where it was; a caller that has just been answered may be moving to the looper. The
//! kernel has no call that moves a thread. So the thread is bound to the one processor, and at once
//! to all those that it was bound to before: the scheduler leaves it where it is, until it has a
//! reason.
//!
//! A dedicated looper *stays* with a caller that is bound to one processor: it is bound there, too.
//! The kernel lets a real-time thread that wakes up run where a less urgent thread runs. That is
//! never its caller's processor, where the caller still runs: so each half of a call would wake
//! another processor, in 15 to 30 us instead of 3. The looper of an unbound caller follows instead:
//! a bound looper could not run where that caller goes.
//!
//! **Invariant**: the caller's processor is the client's word. A false value only moves the looper
//! to another processor that the program allows.

use super::pool::Pool;
use crate::channel::Channel;
use crate::sys::clock::now_ns;
use crate::sys::thread::{priorities_changed, processor};
use baton_abi::control::ChannelId;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::cell::{Cell, RefCell};

/// Waits of one kind in a row after which the looper acts.
const ENOUGH: u32 = 8;
/// The pause after a move, as long as moves help, and when they have not for long.
const PAUSE_NS: u64 = 10_000_000;
const LONGEST_PAUSE_NS: u64 = 10_000_000_000;

/// The caller that woke a looper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Caller {
    /// None: the looper did not sleep, or several clients may have woken it.
    None,
    /// One caller, on the looper's processor.
    Here,
    /// One caller, on another processor.
    Elsewhere {
        channel: ChannelId,
        processor: u32,
        /// How far the one-way ring has been read: a sender of one-way transactions does not wait.
        one_way: u64,
    },
}

/// A looper's record of its last waits.
#[derive(Debug)]
struct Follower {
    caller: Caller,
    in_a_row: u32,
    not_before_ns: u64,
    pause_ns: u64,
}

impl Follower {
    const fn new() -> Follower {
        Follower { caller: Caller::None, in_a_row: 0, not_before_ns: 0, pause_ns: PAUSE_NS }
    }

    /// One more wait has ended. Returns where to move.
    fn woken_by(&mut self, caller: Caller, now_ns: impl FnOnce() -> u64) -> Option<u32> {
        self.in_a_row = if caller == self.caller { self.in_a_row + 1 } else { 1 };
        self.caller = caller;
        if self.in_a_row < ENOUGH {
            return None;
        }
        self.in_a_row = 0;
        match caller {
            Caller::None => None,
            Caller::Here => {
                self.pause_ns = PAUSE_NS;
                None
            }
            Caller::Elsewhere { processor, .. } => self.may_move(now_ns()).then_some(processor),
        }
    }

    fn may_move(&mut self, now_ns: u64) -> bool {
        let may = now_ns >= self.not_before_ns;
        if may {
            self.not_before_ns = now_ns + self.pause_ns;
            self.pause_ns = LONGEST_PAUSE_NS.min(2 * self.pause_ns);
        }
        may
    }
}

thread_local! {
    static FOLLOWER: RefCell<Follower> = const { RefCell::new(Follower::new()) };
    /// The processor at which the calling thread stays.
    static STAYS_AT: Cell<Option<u32>> = const { Cell::new(None) };
    /// The processors to which it was bound before, while it is bound there.
    static BEFORE: Cell<Option<CpuSet>> = const { Cell::new(None) };
}

impl Pool {
    /// Moves the calling looper, which one of these clients has woken, to that client's processor,
    /// if that pays.
    #[inline(always)]
    pub(crate) fn follow(&self, recent: &[&Channel]) {
        let settings = &self.settings;
        let spins = || settings.may_spin(true) && self.gaps.pays(settings.longest_spin_ns);
        if settings.may_follow() && !spins() {
            follow(recent);
        }
    }

    /// Moves the calling looper, which has one caller and does not spin, to its processor.
    pub(crate) fn follow_caller(&self, channel: &Channel) {
        if self.settings.may_follow() {
            follow(&[channel]);
        }
    }

    /// Moves the calling thread, which is dedicated to the lane and has been woken, to its caller's
    /// processor.
    #[inline]
    pub(crate) fn stay_with_caller(&self, channel: &Channel, lane: u32) {
        let bound = channel.callers_processor(lane).filter(|_| self.settings.may_follow());
        if bound != STAYS_AT.get() {
            stay_at(bound);
        }
        if bound.is_none() {
            self.follow(&[channel]);
        }
    }
}

#[inline(never)]
fn follow(recent: &[&Channel]) {
    let caller = only_caller(recent);
    let to = FOLLOWER.with(|follower| {
        // The program's signal handler may have interrupted another use.
        follower.try_borrow_mut().ok()?.woken_by(caller, now_ns)
    });
    if let Some(processor) = to {
        move_to(processor);
    }
}

#[inline]
fn only_caller(recent: &[&Channel]) -> Caller {
    let [client] = recent else { return Caller::None };
    match client.peers_processor() {
        None => Caller::None,
        Some(there) if there == processor() => Caller::Here,
        Some(there) => Caller::Elsewhere {
            channel: client.id,
            processor: there,
            one_way: client.one_way_read(),
        },
    }
}

/// Moves the calling thread, and leaves its affinity mask as it was.
#[cold]
fn move_to(processor: u32) {
    bind_to(processor).inspect(|before| unbind(processor, before));
}

/// Unbinds the calling thread, which is dedicated no longer.
pub(crate) fn unbind_from_caller() {
    if STAYS_AT.get().is_some() {
        stay_at(None);
    }
}

#[cold]
fn stay_at(processor: Option<u32>) {
    // Servers that this thread calls take its processor from here, too.
    priorities_changed();
    if let Some((here, before)) = STAYS_AT.replace(processor).zip(BEFORE.take()) {
        unbind(here, &before);
    }
    BEFORE.set(processor.and_then(bind_to));
}

/// Binds the calling thread to one of the processors to which it is bound. These are returned.
fn bind_to(processor: u32) -> Option<CpuSet> {
    let before = sched_getaffinity(None).ok()?;
    let is_allowed = (processor as usize) < CpuSet::MAX_CPU && before.is_set(processor as usize);
    (is_allowed && sched_setaffinity(None, &only(processor)).is_ok()).then_some(before)
}

/// Undoes [`bind_to`], unless the program has bound the thread in between.
fn unbind(processor: u32, before: &CpuSet) {
    if sched_getaffinity(None) == Ok(only(processor)) {
        let _ = sched_setaffinity(None, before);
    }
}

fn only(processor: u32) -> CpuSet {
    let mut only = CpuSet::new();
    only.set(processor as usize);
    only
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn elsewhere(processor: u32) -> Caller {
        Caller::Elsewhere { channel: ChannelId(1), processor, one_way: 0 }
    }

    /// The moves of a looper that is woken by these callers, once a millisecond.
    fn moves(follower: &mut Follower, from_ms: u64, callers: &[Caller]) -> Vec<(u64, u32)> {
        let waits = (from_ms..).zip(callers);
        waits
            .filter_map(|(ms, &caller)| Some((ms, follower.woken_by(caller, || ms * MS)?)))
            .collect()
    }

    #[test]
    fn a_looper_follows_one_caller_that_stands_still() {
        let one_way = |one_way| Caller::Elsewhere { channel: ChannelId(1), processor: 3, one_way };
        let other = Caller::Elsewhere { channel: ChannelId(2), processor: 3, one_way: 0 };
        let alternate = |one, other| [one, other].repeat(20);
        for (what, callers, wanted) in [
            ("a caller elsewhere", vec![elsewhere(3); 8], vec![(7, 3)]),
            ("too few", vec![elsewhere(3); 7], vec![]),
            ("a caller here", vec![Caller::Here; 40], vec![]),
            ("several", vec![Caller::None; 40], vec![]),
            ("several between", alternate(elsewhere(3), Caller::None), vec![]),
            ("a caller that moves", alternate(elsewhere(3), elsewhere(2)), vec![]),
            ("two callers in turn", alternate(elsewhere(3), other), vec![]),
            ("one-way transactions", (0..40).map(one_way).collect(), vec![]),
        ] {
            assert_eq!(moves(&mut Follower::new(), 0, &callers), wanted, "{what}");
        }
    }

    #[test]
    fn moves_that_do_not_help_become_rare() {
        let mut follower = Follower::new();
        let times: Vec<u64> = moves(&mut follower, 0, &vec![elsewhere(3); 90_000])
            .into_iter()
            .map(|(ms, _)| ms)
            .collect();
        assert_eq!(times[..4], [7, 23, 47, 87], "by 10, 20 and 40 ms, at every eighth wait");
        let last = times.windows(2).last().map(|pair| pair[1] - pair[0]);
        assert_eq!(last, Some(10_000), "the longest pause");
    }

    #[test]
    fn a_move_that_has_helped_makes_the_next_one_soon() {
        let mut follower = Follower::new();
        let unhelped = moves(&mut follower, 0, &[elsewhere(3); 48]);
        assert_eq!(unhelped.last(), Some(&(47, 3)));
        assert_eq!(moves(&mut follower, 48, &[Caller::Here; 8]), []);
        // The pause after the last one has still to end.
        assert_eq!(moves(&mut follower, 100, &[elsewhere(2); 24]), [(107, 2), (123, 2)]);
    }

    #[test]
    fn a_moved_thread_is_there_and_bound_to_what_it_was_bound_to() {
        let allowed = sched_getaffinity(None).unwrap();
        let processors = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
        let processors: Vec<usize> = processors.collect();
        let test = move || {
            for cpu in processors.repeat(10) {
                // The scheduler may have a reason to move it again at once, but not every time.
                let there = || {
                    move_to(cpu as u32);
                    processor() as usize == cpu
                };
                assert!((0..10).any(|_| there()), "never on {cpu}");
                assert_eq!(sched_getaffinity(None).unwrap(), allowed);
            }
            move_to(CpuSet::MAX_CPU as u32);
            assert_eq!(sched_getaffinity(None).unwrap(), allowed);
        };
        std::thread::spawn(test).join().unwrap();
    }

    #[test]
    fn a_bound_thread_does_not_move() {
        let allowed = sched_getaffinity(None).unwrap();
        let bound = (0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).unwrap();
        let test = move || {
            let only = only(bound as u32);
            sched_setaffinity(None, &only).unwrap();
            (0..CpuSet::MAX_CPU)
                .filter(|&cpu| allowed.is_set(cpu))
                .for_each(|cpu| move_to(cpu as u32));
            assert_eq!((processor() as usize, sched_getaffinity(None)), (bound, Ok(only)));
        };
        std::thread::spawn(test).join().unwrap();
    }

    fn bound() -> CpuSet {
        sched_getaffinity(None).unwrap()
    }

    fn processors() -> impl Iterator<Item = u32> {
        let bound = bound();
        (0..CpuSet::MAX_CPU).filter(move |&processor| bound.is_set(processor)).map(|n| n as u32)
    }

    /// On a thread of its own, which may be bound.
    fn check(test: fn()) {
        std::thread::spawn(test).join().unwrap();
    }

    #[test]
    fn a_thread_that_has_stayed_is_bound_as_before() {
        check(|| {
            let before = bound();
            for processor in processors() {
                stay_at(Some(processor));
                assert_eq!(bound(), only(processor));
            }
            unbind_from_caller();
            assert_eq!(bound(), before);
        });
    }

    #[test]
    fn a_false_processor_number_changes_nothing() {
        check(|| {
            let before = bound();
            for processor in [CpuSet::MAX_CPU as u32 - 1, CpuSet::MAX_CPU as u32, u32::MAX - 1] {
                stay_at(Some(processor));
                assert_eq!(bound(), before);
            }
            unbind_from_caller();
            assert_eq!(bound(), before);
        });
    }

    #[test]
    fn a_later_binding_by_the_program_is_kept() {
        check(|| {
            let Some((first, second)) = processors().next().zip(processors().nth(1)) else {
                return;
            };
            stay_at(Some(first));
            assert!(sched_setaffinity(None, &only(second)).is_ok());
            unbind_from_caller();
            assert_eq!(bound(), only(second));
        });
    }
}
