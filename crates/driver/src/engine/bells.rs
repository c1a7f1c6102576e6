//! Rings by the process itself, for work of its own and for what the control thread has taken in.
//!
//! A looper that sleeps on several bells sleeps on `any_work` too, which no client has. One that
//! sleeps on a single bell is rung for there. Its client can make one such ring miss a looper that
//! is just about to sleep (`shm::bell`). So as long as somebody may have been missed, the control
//! thread rings once more after [`PAUSE`], if there is still work that a sleeper could take.

use super::Engine;
use super::round_timer::RoundTimer;
use crate::channel::Channel;
use baton_shm::bell::{OwnBell, OwnRing};
use baton_shm::futex;
use baton_shm::lock::Lock;
use baton_shm::sync::Ordering;
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Duration;

/// How long a ring may stay lost. Nothing of an honest client waits for it.
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

    /// Rings where nobody else does, and says whether somebody sleeps there still.
    fn ring_parting(&self) -> bool {
        let mut parting = self.parting.lock();
        parting.retain(|channel| ring(channel, |bell| bell.ring()) == OwnRing::Rung);
        !parting.is_empty()
    }
}

impl Engine {
    /// Wakes one looper that sleeps, or several: those on one bell only can be woken there only.
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

    /// Wakes all loopers that sleep: their channels are no longer what they were.
    pub(super) fn wake_loopers(&self) {
        self.tell_loopers();
        self.ring_own_bells();
    }

    /// The same, but for those who sleep on one bell alone.
    pub(super) fn tell_loopers(&self) {
        self.any_work.fetch_add(1, Ordering::SeqCst);
        futex::wake(&self.any_work, i32::MAX as u32);
    }

    /// For those who sleep on one bell alone: that is a active channel's. A look at each of these.
    pub(super) fn ring_own_bells(&self) {
        let mut rung = false;
        for channel in self.active().iter() {
            rung |= ring(channel, |bell| bell.ring_alone()) == OwnRing::Rung;
        }
        if rung {
            self.repeats.timer.expect();
        }
    }

    /// Wakes all who sleep on the bells of these channels.
    pub(super) fn ring_all(&self, channels: &[Arc<Channel>]) {
        for channel in channels {
            if ring(channel, |bell| bell.ring()) == OwnRing::Rung {
                self.repeats.timer.expect();
            }
        }
    }

    /// A channel has gone, and the loopers have been told: those on its bell leave it.
    pub(super) fn part_with(&self, channel: &Arc<Channel>) {
        if ring(channel, |bell| bell.ring()) == OwnRing::Rung {
            self.repeats.parting.lock().push(Arc::clone(channel));
            self.repeats.timer.expect();
        }
    }

    /// The control thread, [`PAUSE`] after a ring: again, for what nobody has taken.
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

    /// The control thread's last act: [`Engine::close`] may not have reached those who were about
    /// to sleep.
    pub(super) fn see_loopers_off(&self) {
        let bells_are_left = || {
            // Under the lock, as the close: it has been, or there is nothing that it could part
            // with.
            let _state = self.lock();
            !self.channels.lock().incoming.is_empty() || self.repeats.ring_parting()
        };
        while bells_are_left() {
            std::thread::sleep(PAUSE);
        }
        self.reclaim();
    }
}

fn ring(channel: &Channel, how: fn(OwnBell<'_>) -> OwnRing) -> OwnRing {
    let rung = channel.own_bell().map_or(OwnRing::NoSleeper, how);
    if channel.nudge_pinned() { OwnRing::Rung } else { rung }
}
