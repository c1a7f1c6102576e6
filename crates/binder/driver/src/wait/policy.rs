//! How a thread waits for the other end of a lane: it yields, spins or sleeps at once. That depends
//! on the processors of the two ends, at which the thread looks once for several waits.
//!
//! Either end may move to another processor in the meantime. Then one wait is in vain: the thread
//! sleeps, and looks again.

use super::settings::Settings;
use crate::channel::yield_first::{AWAY, LONG, crowded};
use crate::channel::{Channel, Lane, Placement};
use crate::sys::clock::{now, now_ns, stamp};
use crate::sys::spin::Spun;
use crate::sys::thread::may_yield;
use baton_abi::control::Stamps;
use baton_shm::blocking::yield_now;
use baton_shm::futex::Wait;
use baton_shm::mailbox::Seen;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// After this time a caller whose request still lies in its lane rings the doorbell: all loopers of
/// the server are busy, and its control thread has to look.
const UNTAKEN: Duration = Duration::from_millis(1);

/// Waits on a lane between two looks at the processors of its ends.
const WAITS: u32 = 32;

/// The step before a sleep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WaitMode {
    /// It yields once to the other end's thread: see [`crate::channel::yield_first`].
    Yield,
    /// It spins: see [`crate::sys::spin`].
    Spin,
    /// It sleeps at once.
    #[default]
    Sleep,
}

/// The mode of one end's next waits on a lane. At each look this end also shows the other one on
/// which processor it runs.
#[derive(Debug)]
pub(crate) struct WaitPolicy {
    mode: Cell<WaitMode>,
    /// Most waits for which one look holds.
    waits: u32,
    /// Waits after this one for which the look still holds.
    left: Cell<u32>,
}

impl WaitPolicy {
    /// For a thread that waits on the lane often.
    pub fn new() -> WaitPolicy {
        WaitPolicy { mode: Cell::default(), waits: WAITS, left: Cell::new(0) }
    }

    /// For one wait.
    pub fn of_one(settings: &Settings, channel: &Channel, lane: u32) -> WaitPolicy {
        let (mode, _) = mode(settings, channel, lane, 1);
        WaitPolicy { mode: Cell::new(mode), waits: 1, left: Cell::new(0) }
    }

    /// Begins the next wait, before the message that it waits to be answered is posted.
    #[inline(always)]
    pub fn next(&self, settings: &Settings, channel: &Channel, lane: u32) {
        match self.left.get().checked_sub(1) {
            Some(left) => self.left.set(left),
            None => self.find(settings, channel, lane),
        }
    }

    #[inline(never)]
    fn find(&self, settings: &Settings, channel: &Channel, lane: u32) {
        channel.show_processor();
        let (mode, waits) = mode(settings, channel, lane, self.waits);
        self.mode.set(mode);
        self.left.set(waits - 1);
    }

    /// The mode of this wait.
    #[inline(always)]
    pub fn mode(&self) -> WaitMode {
        self.mode.get()
    }

    /// How many waits before this one the look has served, if the mode is not to sleep.
    pub fn held(&self) -> u32 {
        self.waits - 1 - self.left.get()
    }

    /// Whether this is the last wait of the look.
    #[inline(always)]
    pub fn is_last(&self) -> bool {
        self.left.get() == 0
    }

    /// The wait has been in vain, or has not paid: the next one looks again.
    pub fn forget(&self) {
        self.left.set(0);
    }

    /// The thread sleeps. If the mode was another one, an end may have moved: the next wait looks
    /// again.
    pub fn sleep(&self) {
        if self.mode() != WaitMode::Sleep {
            self.forget();
        }
    }

    /// Yields once to the other end's thread, if that is the mode of this wait. `sent` returns the
    /// stamp of a message that lies there. True if one does.
    #[inline(always)]
    pub fn yields_to_peer(
        &self,
        stamps: Stamps,
        channel: &Channel,
        lane: u32,
        sent: impl FnOnce() -> Option<u64>,
    ) -> bool {
        if self.mode() != WaitMode::Yield {
            return false;
        }
        yield_now();
        let yield_first = channel.yield_first(lane);
        let Some(sent) = sent() else {
            yield_first.has_paid(self.held());
            yield_first.has_not_paid((1, AWAY));
            return false;
        };
        // A stamp is its sender's word: a false one makes this thread sleep. A stamp ahead of this
        // thread's clock is not late.
        let taken = stamp(stamps).wrapping_sub(sent).cast_signed();
        if taken > LONG {
            yield_first.has_paid(self.held());
            yield_first.has_not_paid(crowded(taken));
            self.forget();
        } else if self.is_last() {
            yield_first.has_paid(self.held() + 1);
        }
        true
    }

    /// Waits for a message on the lane of a call, until the deadline if there is one.
    #[inline(always)]
    pub fn await_answer_by(
        &self,
        settings: &Settings,
        channel: &Channel,
        number: u32,
        lane: Lane<'_>,
        deadline: Option<Instant>,
    ) -> Result<Seen, Wait> {
        match deadline {
            None => self.await_answer(settings, channel, number, lane),
            Some(deadline) => self.await_answer_until(settings, channel, number, lane, deadline),
        }
    }

    /// Waits for a message on the lane of a call until the deadline. The caller does not lend its
    /// priority: the lock that lends it has no time-out.
    #[cold]
    fn await_answer_until(
        &self,
        settings: &Settings,
        channel: &Channel,
        number: u32,
        lane: Lane<'_>,
        deadline: Instant,
    ) -> Result<Seen, Wait> {
        self.spin_or_sleep(settings, channel, lane, || {
            // A looper that has been woken takes the request.
            if !channel.client_lanes.is_expected(number) && !lane.outbox().is_empty() {
                match lane.inbox().wait(Some(UNTAKEN.min(left_until(deadline)))) {
                    Err(Wait::TimedOut) => channel.ring_if_untaken(number as usize),
                    outcome => return outcome,
                }
            }
            let left = left_until(deadline);
            lane.inbox().wait(Some(channel.longest_sleep().map_or(left, |most| left.min(most))))
        })
    }

    /// Waits for a message on the lane of a call.
    #[inline(never)]
    fn await_answer(
        &self,
        settings: &Settings,
        channel: &Channel,
        number: u32,
        lane: Lane<'_>,
    ) -> Result<Seen, Wait> {
        if let Some(seen) = channel.lend(number, lane) {
            return Ok(seen);
        }
        self.spin_or_sleep(settings, channel, lane, || sleep_for_answer(channel, number, lane))
    }

    #[inline(always)]
    fn spin_or_sleep(
        &self,
        settings: &Settings,
        channel: &Channel,
        lane: Lane<'_>,
        sleep: impl FnOnce() -> Result<Seen, Wait>,
    ) -> Result<Seen, Wait> {
        let longest = settings.longest_spin_ns;
        let mut since = None;
        if self.mode() == WaitMode::Spin {
            let look = || Some(lane.inbox().look()).filter(|seen| *seen != Seen::Nothing);
            match channel.answers.spin(longest, look) {
                Spun::Saw(seen) => return Ok(seen),
                Spun::Since(start) => since = Some(start),
            }
        }
        self.sleep();
        let outcome = sleep();
        if let Some(start) = since {
            channel.answers.record(now_ns() - start, longest);
        }
        outcome
    }
}

/// The mode of the calling thread's next waits on a lane, and for how many of them it holds, at
/// most `most`.
fn mode(settings: &Settings, channel: &Channel, lane: u32, most: u32) -> (WaitMode, u32) {
    // A thread that lends its priority sleeps on the lock that lends it.
    let may_yield_first = || !channel.lends(lane) && may_yield();
    match channel.placement() {
        Placement::Unknown => (WaitMode::Sleep, 1),
        Placement::SameProcessor if may_yield_first() => match channel.yield_first(lane).skip(most)
        {
            0 => (WaitMode::Yield, most),
            waits => (WaitMode::Sleep, waits),
        },
        Placement::OtherProcessor if settings.may_spin(true) => (WaitMode::Spin, most),
        Placement::SameProcessor | Placement::OtherProcessor => (WaitMode::Sleep, most),
    }
}

/// The time from now to the deadline.
pub(crate) fn left_until(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(now())
}

#[inline(always)]
fn sleep_for_answer(channel: &Channel, number: u32, lane: Lane<'_>) -> Result<Seen, Wait> {
    // A looper that has been woken for the request takes it.
    if channel.client_lanes.is_expected(number) || lane.outbox().is_empty() {
        return channel.sleep_at(lane, || false);
    }
    sleep_untaken(channel, number, lane)
}

#[inline(never)]
fn sleep_untaken(channel: &Channel, number: u32, lane: Lane<'_>) -> Result<Seen, Wait> {
    // This thread may keep a looper from its processor: a yield costs less than a timer. Some
    // schedulers heed no yield of a thread that has had less of the processor than the other one.
    if !channel.yield_first(number).is_given_up() {
        std::thread::yield_now();
        if lane.outbox().is_empty() {
            return channel.sleep_at(lane, || false);
        }
    }
    match lane.inbox().wait(Some(UNTAKEN)) {
        Err(Wait::TimedOut) => {
            channel.ring_if_untaken(number as usize);
            channel.sleep_at(lane, || false)
        }
        outcome => outcome,
    }
}
