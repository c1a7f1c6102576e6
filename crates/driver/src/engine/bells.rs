//! Rings by the process itself, for work of its own and for what the control thread has taken in.
//!
//! A looper that sleeps on several bells sleeps on `any_work` too, which no client has. One that
//! sleeps on a single bell is rung for there. Its client can make one such ring miss a looper that
//! is just about to sleep (`shm::bell`). So as long as somebody may have been missed, the control
//! thread rings once more after [`PAUSE`], if there is still work that a sleeper could take.

use super::Engine;
use crate::channel::Channel;
use baton_shm::bell::{OwnBell, OwnRing};
use baton_shm::futex;
use baton_shm::lock::Lock;
use baton_shm::sync::Ordering;
use rustix::event::Timespec;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How long a ring may stay lost. Nothing of an honest client waits for it.
const PAUSE: Duration = Duration::from_millis(1);

/// Rings that are to be repeated.
#[derive(Debug)]
pub(super) struct Repeats {
    /// Runs while `expected`.
    timer: OwnedFd,
    expected: AtomicBool,
    /// Channels that the process has no longer, and whose sleepers have not come home.
    parting: Lock<Vec<Arc<Channel>>>,
}

impl Repeats {
    pub fn new() -> Result<Repeats, Errno> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Repeats { timer, expected: AtomicBool::new(false), parting: Lock::default() })
    }

    /// Polls readable when it is time.
    pub fn timer(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }

    /// Somebody may have been missed.
    fn expect(&self) {
        // SeqCst: after what the ring was for. If the timer runs, its end finds that.
        if self.expected.swap(true, Ordering::SeqCst) {
            return;
        }
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let soon = Timespec { tv_sec: 0, tv_nsec: PAUSE.subsec_nanos().into() };
        let once = Itimerspec { it_interval: never, it_value: soon };
        // It cannot fail: the descriptor is a timer and the time is one.
        let _ = rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once);
    }

    /// The time has come. What is rung for from now on expects another one.
    fn begin(&self) {
        let _ = rustix::io::read(&self.timer, &mut [0; 8]);
        self.expected.store(false, Ordering::SeqCst);
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
            self.repeats.expect();
        }
    }

    /// Wakes all who sleep on the bells of these channels.
    pub(super) fn ring_all(&self, channels: &[Arc<Channel>]) {
        for channel in channels {
            if ring(channel, |bell| bell.ring()) == OwnRing::Rung {
                self.repeats.expect();
            }
        }
    }

    /// A channel has gone, and the loopers have been told: those on its bell leave it.
    pub(super) fn part_with(&self, channel: &Arc<Channel>) {
        if ring(channel, |bell| bell.ring()) == OwnRing::Rung {
            self.repeats.parting.lock().push(Arc::clone(channel));
            self.repeats.expect();
        }
    }

    /// The control thread, [`PAUSE`] after a ring: again, for what nobody has taken.
    pub(super) fn ring_again(&self) {
        self.repeats.begin();
        if self.repeats.ring_parting() {
            self.repeats.expect();
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
