//! The descriptors and timers that wake the control thread, each with its number in one epoll.

use baton_shm::blocking::Timer;
use baton_shm::fd_numbers::set_apart;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Events of the broker can be taken.
pub const EVENTS: u64 = 0;
/// The control thread ends.
pub const STOP: u64 = 1;
/// The next broker has answered.
pub const GREETING: u64 = 2;
/// [`ControlPoll::repeats`] is due.
pub const REPEAT: u64 = 3;
/// [`ControlPoll::watchdog`] is due.
pub const WATCHDOG: u64 = 4;
/// The number of a channel's socket is this plus the channel's id, which is at least one.
pub const CHANNELS: u64 = 4;

/// Longest time for which a ring may stay lost. No request of an honest client waits for it.
pub const REPEAT_AFTER: Duration = Duration::from_millis(1);
/// The watchdog's period. A pool that serves longer without a look may wait for a request that
/// nobody takes in.
const WATCHDOG_ROUND: Duration = Duration::from_millis(20);

/// The descriptors and timers that wake the control thread of one engine.
#[derive(Debug)]
pub(crate) struct ControlPoll {
    pub epoll: OwnedFd,
    stop: Arc<OwnedFd>,
    /// Due when rings that may have missed a looper are repeated.
    pub repeats: RoundTimer,
    /// Due when the control thread looks for work that nobody has taken.
    pub watchdog: RoundTimer,
}

impl ControlPoll {
    /// Errors of `epoll_create`, `eventfd`, `timerfd_create`.
    pub fn new() -> Result<ControlPoll, Errno> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let poll = ControlPoll {
            epoll: set_apart(epoll::create(epoll::CreateFlags::CLOEXEC)?),
            stop: Arc::new(set_apart(eventfd(0, flags)?)),
            repeats: RoundTimer::new(REPEAT_AFTER)?,
            watchdog: RoundTimer::new(WATCHDOG_ROUND)?,
        };
        poll.watch(poll.stop.as_fd(), STOP)?;
        poll.watch(poll.repeats.timer(), REPEAT)?;
        poll.watch(poll.watchdog.timer(), WATCHDOG)?;
        Ok(poll)
    }

    /// Wakes the control thread as long as there is something to read.
    pub fn watch(&self, fd: BorrowedFd<'_>, number: u64) -> Result<(), Errno> {
        let flags = EventFlags::IN | EventFlags::RDHUP;
        epoll::add(&self.epoll, fd, EventData::new_u64(number), flags)
    }

    /// Wakes the control thread once for each message on a channel's socket.
    pub fn watch_channel(&self, socket: BorrowedFd<'_>, id: u64) -> Result<(), Errno> {
        let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, socket, EventData::new_u64(id + CHANNELS), flags)
    }

    /// A muted channel wakes the control thread only by its end.
    pub fn set_muted(&self, socket: BorrowedFd<'_>, id: u64, muted: bool) {
        let always = EventFlags::RDHUP | EventFlags::ET;
        let flags = if muted { always } else { always | EventFlags::IN };
        let _ = epoll::modify(&self.epoll, socket, EventData::new_u64(id + CHANNELS), flags);
    }

    /// Undoes [`ControlPoll::watch`] and [`ControlPoll::watch_channel`].
    pub fn forget(&self, fd: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Makes it ready for another engine. The last one is gone: it has taken its channels back from
    /// the epoll, and has closed its sockets to brokers.
    pub fn renew(self) -> ControlPoll {
        self.repeats.cancel();
        self.watchdog.cancel();
        // It fails only if there is nothing to read.
        let _ = rustix::io::read(&*self.stop, &mut [0; 8]);
        self
    }

    /// The control thread ends.
    pub fn stop(&self) {
        drop(self.stopper());
    }

    /// Ends the control thread when it is dropped.
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.stop))
    }
}

/// See [`ControlPoll::stopper`].
#[derive(Debug)]
pub(crate) struct Stopper(Arc<OwnedFd>);

impl Drop for Stopper {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

/// A timer of one period, which runs only while a round of some work is expected.
#[derive(Debug)]
pub(crate) struct RoundTimer {
    /// Runs while `expected`.
    timer: Timer,
    expected: AtomicBool,
    period: Duration,
}

impl RoundTimer {
    /// Errors of `timerfd_create`.
    fn new(period: Duration) -> Result<RoundTimer, Errno> {
        Ok(RoundTimer { timer: Timer::new()?, expected: AtomicBool::new(false), period })
    }

    /// Polls readable when a round is due.
    fn timer(&self) -> BorrowedFd<'_> {
        self.timer.descriptor()
    }

    /// A round is due a period from now, or sooner if one is expected already.
    pub fn expect(&self) {
        // SeqCst: after the work for the round. If the timer runs, the end of its period finds it.
        if !self.expected.swap(true, Ordering::SeqCst) {
            self.timer.set(self.period);
        }
    }

    /// No round comes.
    fn cancel(&self) {
        if self.expected.swap(false, Ordering::SeqCst) {
            self.timer.cancel();
        }
    }

    /// The round begins. Work that comes from now on expects another one.
    pub fn begin(&self) {
        self.timer.clear();
        self.expected.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::Timespec;

    /// The numbers of what is ready now.
    fn ready(poll: &ControlPoll) -> Vec<u64> {
        let mut events = Vec::with_capacity(8);
        let room = rustix::buffer::spare_capacity(&mut events);
        epoll::wait(&poll.epoll, room, Some(&Timespec::default())).unwrap();
        events.iter().map(|event: &epoll::Event| event.data.u64()).collect()
    }

    #[test]
    fn a_stopped_poll_serves_another_engine() {
        let poll = ControlPoll::new().unwrap();
        drop(poll.stopper());
        poll.stop();
        assert_eq!(ready(&poll), [STOP]);
        let poll = poll.renew();
        assert_eq!(ready(&poll), []);
        poll.repeats.expect();
        while ready(&poll) != [REPEAT] {
            std::thread::yield_now();
        }
        // The other timer is still running.
        poll.watchdog.expect();
        let poll = poll.renew();
        let (repeats, watchdog) = (poll.repeats.timer(), poll.watchdog.timer());
        for timer in [repeats, watchdog] {
            let left = rustix::time::timerfd_gettime(timer).unwrap().it_value;
            assert_eq!((left.tv_sec, left.tv_nsec), (0, 0), "it is running");
        }
        assert_eq!(ready(&poll), []);
        poll.watchdog.expect();
        while ready(&poll) != [WATCHDOG] {
            std::thread::yield_now();
        }
    }
}
