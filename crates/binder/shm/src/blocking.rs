//! System calls in which a thread may wait for something other than a futex. The simulator
//! (`--cfg simulated`) replaces the waits, not the calls.

use crate::fd_numbers::set_apart;
#[cfg(simulated)]
use crate::simulation;
use core::time::Duration;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::Event;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::rand::GetRandomFlags;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags};

/// `epoll_wait` into the spare capacity of `events`. An interrupted wait returns `EINTR`.
pub fn epoll_wait(
    epoll: &OwnedFd,
    events: &mut Vec<Event>,
    at_most: Option<&Timespec>,
) -> Result<usize, Errno> {
    #[cfg(simulated)]
    if let Some(machine) = simulation::machine() {
        let at_most = at_most.map(|time| {
            Duration::from_secs(time.tv_sec as u64) + Duration::from_nanos(time.tv_nsec as u64)
        });
        simulation::await_descriptor(&machine, Some((epoll.as_fd(), PollFlags::IN)), at_most);
        let now = Timespec::default();
        return rustix::event::epoll::wait(epoll, spare_capacity(events), Some(&now));
    }
    rustix::event::epoll::wait(epoll, spare_capacity(events), at_most)
}

/// Waits until a descriptor is readable, or the time has passed.
pub fn await_readable(fd: impl AsFd, at_most: Duration) {
    await_flags(fd.as_fd(), PollFlags::IN, Some(at_most));
}

/// Sleeps.
pub fn pause(time: Duration) {
    #[cfg(simulated)]
    if let Some(machine) = simulation::machine() {
        return simulation::await_descriptor(&machine, None, Some(time));
    }
    std::thread::sleep(time);
}

/// To be called before a system call that waits in the kernel until a descriptor is readable.
#[inline]
pub fn before_read(fd: impl AsFd) {
    if cfg!(simulated) {
        await_flags(fd.as_fd(), PollFlags::IN, None);
    }
}

/// To be called before a system call that waits in the kernel until a descriptor has room.
#[inline]
pub fn before_write(fd: impl AsFd) {
    if cfg!(simulated) {
        await_flags(fd.as_fd(), PollFlags::OUT, None);
    }
}

fn await_flags(fd: BorrowedFd<'_>, flags: PollFlags, at_most: Option<Duration>) {
    #[cfg(simulated)]
    if let Some(machine) = simulation::machine() {
        return simulation::await_descriptor(&machine, Some((fd, flags)), at_most);
    }
    let at_most = at_most.map(|time| Timespec {
        tv_sec: time.as_secs() as i64,
        tv_nsec: time.subsec_nanos().into(),
    });
    let _ = poll(&mut [PollFd::from_borrowed_fd(fd, flags)], at_most.as_ref());
}

/// A descriptor that becomes readable when a time has come.
#[derive(Debug)]
pub struct Timer(OwnedFd);

impl Timer {
    /// A timer that is not set. Errors of `timerfd_create`.
    pub fn new() -> Result<Timer, Errno> {
        #[cfg(simulated)]
        if simulation::machine().is_some() {
            return Ok(Timer(simulation::signal()?));
        }
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Timer(set_apart(timer)))
    }

    /// Polls readable from the time of the last [`Timer::set`] on, until [`Timer::clear`].
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Sets the time, after now.
    pub fn set(&self, after: Duration) {
        #[cfg(simulated)]
        if let Some(machine) = simulation::machine() {
            return machine.signal_after(after, &self.0);
        }
        let it_value =
            Timespec { tv_sec: after.as_secs() as i64, tv_nsec: after.subsec_nanos().into() };
        let once = Itimerspec { it_interval: Timespec::default(), it_value };
        // It cannot fail: the descriptor is a timer and the time is one.
        let _ = rustix::time::timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once);
    }

    /// The timer is not set any more, nor readable. On a simulated machine, the time that was set
    /// still comes.
    pub fn cancel(&self) {
        let never = Timespec::default();
        let never = Itimerspec { it_interval: never, it_value: never };
        // It cannot fail: the descriptor is a timer.
        let _ = rustix::time::timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &never);
    }

    /// The timer is readable no more.
    pub fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

/// Random bytes of the kernel's. `EAGAIN` if it has none yet.
pub fn random<const BYTES: usize>() -> Result<[u8; BYTES], Errno> {
    #[cfg(simulated)]
    if let Some(machine) = simulation::machine() {
        return Ok(core::array::from_fn(|_| machine.below(256) as u8));
    }
    let mut bytes = [0; BYTES];
    match rustix::rand::getrandom(&mut bytes, GetRandomFlags::empty())? {
        filled if filled == BYTES => Ok(bytes),
        _ => Err(Errno::AGAIN),
    }
}

/// Gives the processor to another thread that could run.
#[inline]
pub fn yield_now() {
    #[cfg(simulated)]
    simulation::relinquish();
    #[cfg(not(simulated))]
    rustix::thread::sched_yield();
}
