//! Waiting for new records.
//!
//! A follower that is awake looks by itself. Before it sleeps it asks for wake-ups: see `wakeup`.
//! It watches the directory with inotify, which reports new files, files whose process has ended,
//! and wake-ups: a writer wakes followers by a write to its own file. A follower that cannot ask,
//! or has to expect records without wake-ups, looks periodically.

use crate::files::directory::Directory;
use crate::files::watch::{Role, Watch};
use crate::moment::Source;
use crate::wakeup::{FollowerState, LEASE_NS, QUIET_NS, RENEW_NS, Step, Until};
use baton_shm::clock;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::time::Duration;

/// The period of looks without wake-ups.
const LOOK_NS: u64 = 10_000_000;
/// A follower that is awake spends at most one part in this many of its time with looks that find
/// nothing.
const N_LOOKS_IN_PAUSE: u64 = 20;
/// The time over which the counter's rate is measured: to a thousandth, which is enough for a
/// request that is renewed.
const RATE_NS: u64 = 2_000_000;

pub(crate) struct Follow {
    events: OwnedFd,
    /// Fires when the next look is due, for programs that poll.
    timer: OwnedFd,
    /// Readable when either of them is.
    either: OwnedFd,
    watch: Watch,
    ticks_in_lease: u64,
    rest: FollowerState,
    asked: Option<Until>,
    /// When the request for parts has to be renewed.
    renew_at_ns: u64,
    has_begun: bool,
}

/// The result of the last look.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Looked {
    pub began_ns: u64,
    pub took_ns: u64,
    /// Whether something was found then, or since the last wait.
    pub has_found: bool,
}

/// The result of a wait.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Any file may be new.
    pub is_anything: bool,
    /// Files that have changed or are new.
    pub changed: BTreeSet<CString>,
    /// Files that are gone.
    pub removed: BTreeSet<CString>,
}

impl News {
    fn is_empty(&self) -> bool {
        !self.is_anything && self.changed.is_empty() && self.removed.is_empty()
    }
}

impl Follow {
    pub fn begin(directory: &Directory) -> Result<Follow, Errno> {
        let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let (come, go) = (
            WatchFlags::MOVED_TO | WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE,
            WatchFlags::DELETE,
        );
        inotify::add_watch(&events, &directory.path, come | go | WatchFlags::ONLYDIR)?;
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?;
        let either = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (number, descriptor) in [&events, &timer].into_iter().enumerate() {
            let data = epoll::EventData::new_u64(number as u64);
            epoll::add(&either, descriptor, data, epoll::EventFlags::IN)?;
        }
        let watch = Watch::attach(directory, Role::Reader);
        let ticks_in_lease = if watch.is_there() { ticks_in_lease() } else { 0 };
        Ok(Follow {
            events,
            timer,
            either,
            watch,
            ticks_in_lease,
            rest: FollowerState::begin(),
            asked: None,
            renew_at_ns: 0,
            has_begun: false,
        })
    }

    /// Sleeps until something new may be there, at most for `timeout`. `has_silent_writers`:
    /// records may come without wake-ups.
    pub fn wait(
        &mut self,
        timeout: Option<Duration>,
        looked: Looked,
        has_silent_writers: bool,
    ) -> Result<News, Errno> {
        if !self.has_begun {
            // Changes that came before the directory was watched.
            self.has_begun = true;
            return Ok(News { is_anything: true, ..News::default() });
        }
        if looked.has_found {
            self.wake();
        }
        let pause_ns = self.pause_ns(looked);
        let pause_ns = if has_silent_writers { pause_ns.min(LOOK_NS) } else { pause_ns };
        self.sleep(Duration::from_nanos(pause_ns), timeout)?;
        self.told()
    }

    /// Sleeps until a writer has filled a part of a ring, at most for `timeout`.
    pub fn wait_for_part(
        &mut self,
        timeout: Duration,
        has_silent_writers: bool,
    ) -> Result<News, Errno> {
        if std::mem::replace(&mut self.has_begun, true) {
            self.renew(clock::now_ns());
            let is_told = self.watch.is_there() && !has_silent_writers;
            let pause_ns = if is_told { RENEW_NS } else { LOOK_NS };
            self.sleep(Duration::from_nanos(pause_ns), Some(timeout))?;
            return self.told();
        }
        Ok(News { is_anything: true, ..News::default() })
    }

    /// Renews the request for parts, if that is due.
    fn renew(&mut self, now_ns: u64) {
        if now_ns >= self.renew_at_ns {
            self.renew_at_ns = now_ns + RENEW_NS;
            self.watch.words().following.ask(self.watch.lease(self.ticks_in_lease));
        }
    }

    /// The changes since the last call. It does not wait.
    pub fn told(&mut self) -> Result<News, Errno> {
        let mut news = News::default();
        self.read(&mut news)?;
        if !news.is_empty() {
            self.wake();
        }
        Ok(news)
    }

    fn wake(&mut self) {
        if let Some(until) = self.asked.take() {
            self.watch.words().asleep.withdraw(until);
        }
        self.rest.wake(clock::now_ns());
    }

    /// The longest time to sleep after this look.
    fn pause_ns(&mut self, looked: Looked) -> u64 {
        if !self.watch.is_there() {
            return LOOK_NS;
        }
        let now_ns = clock::now_ns();
        self.renew(now_ns);
        let least_ns = N_LOOKS_IN_PAUSE * looked.took_ns;
        match self.rest.next(looked.began_ns, now_ns, least_ns) {
            Step::Pause(pause_ns) => pause_ns,
            Step::Ask => {
                let until = self.watch.lease(self.ticks_in_lease);
                self.watch.words().asleep.ask(until);
                self.asked = Some(until);
                self.rest.has_asked(clock::now_ns());
                QUIET_NS
            }
        }
    }

    fn sleep(&self, pause: Duration, timeout: Option<Duration>) -> Result<(), Errno> {
        let once = Itimerspec { it_interval: timespec(Duration::ZERO), it_value: timespec(pause) };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        let timeout = timeout.map(timespec);
        match poll(&mut [PollFd::new(&self.either, PollFlags::IN)], timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn read(&self, news: &mut News) -> Result<(), Errno> {
        let mut bytes = [MaybeUninit::uninit(); 16 * 1024];
        let mut events = inotify::Reader::new(&self.events, &mut bytes);
        loop {
            match events.next() {
                Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => {
                    news.is_anything = true
                }
                Ok(event) => {
                    let Some(name) = event.file_name().map(CStr::to_owned) else { continue };
                    match event.events().contains(ReadFlags::DELETE) {
                        true => news.removed.insert(name),
                        false => news.changed.insert(name),
                    };
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for Follow {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.either.as_fd()
    }
}

fn timespec(duration: Duration) -> Timespec {
    let tv_sec = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec, tv_nsec: i64::from(duration.subsec_nanos()) }
}

fn ticks_in_lease() -> u64 {
    let first = Source::Counter.sample();
    std::thread::sleep(Duration::from_nanos(RATE_NS));
    let second = Source::Counter.sample();
    let length_ns = second.monotonic_ns.saturating_sub(first.monotonic_ns).max(1);
    let ticks = u128::from(second.stamp.saturating_sub(first.stamp));
    (ticks * u128::from(LEASE_NS) / u128::from(length_ns)).try_into().unwrap_or(u64::MAX)
}
