//! Rings by the process itself, for its own work and for messages that the control thread takes in.
//!
//! A looper that sleeps on several bells also sleeps on `any_work`, which no client can reach. A
//! looper that sleeps on a single bell is rung there. The client of that bell can make one such
//! ring miss a looper that is just about to sleep (`shm::bell`), and can take a ring for one looper
//! itself. So while a ring may have missed a looper, the control thread rings once more after
//! [`REPEAT_AFTER`], for all of them, if there is still work for a sleeper.
//!
//! [`REPEAT_AFTER`]: crate::sys::control_poll::REPEAT_AFTER

use super::pool::Pool;
use crate::channel::Channel;
use baton_shm::bell::{OwnBell, OwnRing};
use baton_shm::futex;
use baton_shm::sync::Ordering;
use std::sync::Arc;

impl Pool {
    /// Wakes a looper that sleeps, also one that is pinned, unless one spins.
    pub(crate) fn wake_looper(&self) {
        self.any_work.fetch_add(1, Ordering::SeqCst);
        // SeqCst, as where a looper ceases to spin: that one looks at `any_work` after it.
        if self.spinning.load(Ordering::SeqCst) || futex::wake(&self.any_work, 1) != 0 {
            return;
        }
        let rings = |channel: &Channel| ring(channel, |bell| bell.ring_one()) == OwnRing::Rung;
        if self.channels.active().iter().any(|channel| rings(channel)) {
            self.control.repeats.expect();
        }
    }

    /// Wakes a looper that sleeps on several bells. False if there is none.
    pub(crate) fn wake_one(&self) -> bool {
        // SeqCst: the change comes before the look at the sleepers; see `sleep_as_looper`.
        self.any_work.fetch_add(1, Ordering::SeqCst);
        futex::wake(&self.any_work, 1) != 0
    }

    /// Wakes all loopers that sleep: the list of channels has changed.
    pub(crate) fn wake_loopers(&self) {
        self.wake_loopers_on_any_work();
        self.ring_own_bells();
    }

    /// Wakes all loopers that sleep, except those on a single bell.
    pub(crate) fn wake_loopers_on_any_work(&self) {
        self.any_work.fetch_add(1, Ordering::SeqCst);
        futex::wake(&self.any_work, i32::MAX as u32);
    }

    /// Wakes the loopers that sleep on a single bell, which is an active channel's.
    pub(crate) fn ring_own_bells(&self) {
        let mut rung = false;
        for channel in self.channels.active().iter() {
            rung |= ring(channel, |bell| bell.ring_alone()) == OwnRing::Rung;
        }
        if rung {
            self.control.repeats.expect();
        }
    }

    /// Wakes the loopers that sleep on the bells of these channels.
    pub(crate) fn ring_all(&self, channels: &[Arc<Channel>]) {
        for channel in channels {
            if ring(channel, |bell| bell.ring()) == OwnRing::Rung {
                self.control.repeats.expect();
            }
        }
    }

    /// Wakes the loopers that sleep on the bell of a removed channel.
    pub(crate) fn ring_removed(&self, channel: &Arc<Channel>) {
        if ring(channel, |bell| bell.ring()) == OwnRing::Rung {
            self.removed.lock().push(Arc::clone(channel));
            self.control.repeats.expect();
        }
    }

    /// Rings on the bells of removed channels. True if a looper still sleeps there.
    pub(crate) fn ring_removed_again(&self) -> bool {
        let mut removed = self.removed.lock();
        removed.retain(|channel| ring(channel, |bell| bell.ring()) == OwnRing::Rung);
        !removed.is_empty()
    }

    /// Rings again for work that no looper has seen yet.
    pub(crate) fn ring_again(&self) {
        self.any_work.fetch_add(1, Ordering::SeqCst);
        self.ring_own_bells();
    }
}

fn ring(channel: &Channel, how: fn(OwnBell<'_>) -> OwnRing) -> OwnRing {
    let rung = channel.own_bell().map_or(OwnRing::NoSleeper, how);
    if channel.nudge_pinned() { OwnRing::Rung } else { rung }
}
