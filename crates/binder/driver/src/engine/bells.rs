//! Rings by the process itself, for its own work and for messages that the control thread takes in.
//!
//! A looper that sleeps on several bells also sleeps on `any_work`, which no client can reach. A
//! looper that sleeps on a single bell is rung there. The client of that bell can make one such
//! ring miss a looper that is just about to sleep (`shm::bell`). So while a ring may have missed a
//! looper, the control thread rings once more after [`PAUSE`], if there is still work for a
//! sleeper.

use super::Engine;
use super::round_timer::RoundTimer;
use crate::channel::Channel;
use baton_shm::bell::{OwnBell, OwnRing};
use baton_shm::blocking::pause;
use baton_shm::futex;
use baton_shm::lock::Lock;
use baton_shm::sync::Ordering;
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Duration;

/// How long a ring may stay lost. No request of an honest client waits for it.
const PAUSE: Duration = Duration::from_millis(1);

/// Rings that the control thread repeats.
#[derive(Debug)]
pub(super) struct Repeats {
    pub timer: RoundTimer,
    /// Channels that the process has no longer, and on whose bells loopers may still sleep.
    parting: Lock<Vec<Arc<Channel>>>,
}

impl Repeats {
    /// Errors of `timerfd_create`.
    pub fn new() -> Result<Repeats, Errno> {
        Ok(Repeats { timer: RoundTimer::new(PAUSE)?, parting: Lock::default() })
    }

    /// Rings on the bells of removed channels. True if a looper still sleeps there.
    fn ring_parting(&self) -> bool {
        let mut parting = self.parting.lock();
        parting.retain(|channel| ring(channel, |bell| bell.ring()) == OwnRing::Rung);
        !parting.is_empty()
    }
}

impl Engine {
    /// Wakes at least one looper that sleeps. Those that sleep on a single bell are all rung.
    pub(super) fn wake_looper(&self) {
        if !self.wake_one() {
            self.ring_own_bells();
        }
    }

    /// Wakes a looper that sleeps on several bells. False if there is none.
    pub(super) fn wake_one(&self) -> bool {
        // SeqCst: before the look at the sleepers; see `sleep_as_looper`.
        self.any_work.fetch_add(1, Ordering::SeqCst);
        futex::wake(&self.any_work, 1) != 0
    }

    /// Wakes all loopers that sleep: the list of channels has changed.
    pub(super) fn wake_loopers(&self) {
        self.tell_loopers();
        self.ring_own_bells();
    }

    /// Wakes all loopers that sleep, except those on a single bell.
    pub(super) fn tell_loopers(&self) {
        self.any_work.fetch_add(1, Ordering::SeqCst);
        futex::wake(&self.any_work, i32::MAX as u32);
    }

    /// Wakes the loopers that sleep on a single bell, which is an active channel's.
    pub(super) fn ring_own_bells(&self) {
        let mut rung = false;
        for channel in self.active().iter() {
            rung |= ring(channel, |bell| bell.ring_alone()) == OwnRing::Rung;
        }
        if rung {
            self.repeats.timer.expect();
        }
    }

    /// Wakes the loopers that sleep on the bells of these channels.
    pub(super) fn ring_all(&self, channels: &[Arc<Channel>]) {
        for channel in channels {
            if ring(channel, |bell| bell.ring()) == OwnRing::Rung {
                self.repeats.timer.expect();
            }
        }
    }

    /// Wakes the loopers on the bell of a channel that has been removed. They know that it has.
    pub(super) fn part_with(&self, channel: &Arc<Channel>) {
        if ring(channel, |bell| bell.ring()) == OwnRing::Rung {
            self.repeats.parting.lock().push(Arc::clone(channel));
            self.repeats.timer.expect();
        }
    }

    /// On the control thread, [`PAUSE`] after a ring: rings again if the work is still there.
    pub(super) fn ring_again(&self) {
        self.repeats.timer.begin();
        if self.repeats.ring_parting() {
            self.repeats.timer.expect();
        }
        let unseen = self.lock().has_work_for_sleepers();
        if unseen {
            self.any_work.fetch_add(1, Ordering::SeqCst);
            self.ring_own_bells();
        }
    }

    /// The control thread's last act: rings until no looper sleeps. [`Engine::close`] may have
    /// missed loopers that were about to.
    pub(super) fn see_loopers_off(&self) {
        let bells_are_left = || {
            // Under the lock, as in `close`: either that has removed the channels, or there are
            // some left.
            let _state = self.lock();
            !self.channels.lock().incoming.is_empty() || self.repeats.ring_parting()
        };
        while bells_are_left() {
            pause(PAUSE);
        }
        self.reclaim();
    }
}

fn ring(channel: &Channel, how: fn(OwnBell<'_>) -> OwnRing) -> OwnRing {
    let rung = channel.own_bell().map_or(OwnRing::NoSleeper, how);
    if channel.nudge_pinned() { OwnRing::Rung } else { rung }
}
