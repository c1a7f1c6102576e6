//! Waiting for news without looking for it.
//!
//! The directory is watched by inotify, which tells of new files, of files whose process has ended, and of writers that ring: they
//! write to their own file, which the kernel tells every reader with the file's name. A reader asks to be rung for by
//! the page of `watch`; without it, it looks every so often.
//!
//! A writer that has rung does not ring for a while, and one that has just begun to ring may have missed the asking. So
//! after either, who waits looks once more when that while is over, and sleeps then.

use crate::files::place::Directory;
use crate::files::watch::{LEASE_NS, QUIET_NS, Role, Watch};
use crate::moment::Source;
use baton_shm::clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::time::Duration;

/// How often a reader looks that cannot ask to be rung for.
const LOOK_NS: u64 = 20_000_000;
/// The asking is renewed long before it runs out.
const RENEW_NS: u64 = LEASE_NS / 2;
/// The counter's rate is taken over this: to a thousandth, which is enough for a time that is renewed.
const RATE_NS: u64 = 2_000_000;

pub(crate) struct Follow {
    events: OwnedFd,
    watch: Watch,
    ticks_in_lease: u64,
    asked_at_ns: Option<u64>,
    /// Whoever looks from here on has seen all that nobody will ring for.
    quiet_at_ns: u64,
}

/// What a wait has brought.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Whoever had something new at its beginning has rung since: nobody else needs to be looked at.
    pub was_settled: bool,
    /// Anything may have changed.
    pub is_anything: bool,
    /// Files that have changed, or are new.
    pub changed: BTreeSet<CString>,
    /// Files that are gone.
    pub removed: BTreeSet<CString>,
}

impl Follow {
    pub fn begin(directory: &Directory) -> Result<Follow, Errno> {
        let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let (come, go) = (
            WatchFlags::MOVED_TO | WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE,
            WatchFlags::DELETE,
        );
        inotify::add_watch(&events, &directory.path, come | go | WatchFlags::ONLYDIR)?;
        let watch = Watch::attach(directory, Role::Reader);
        let ticks_in_lease = if watch.is_there() { ticks_in_lease() } else { 0 };
        Ok(Follow { events, watch, ticks_in_lease, asked_at_ns: None, quiet_at_ns: 0 })
    }

    /// Sleeps until there is news, or for so long. The last look began at `looked_at_ns`.
    pub fn wait(&mut self, timeout: Option<Duration>, looked_at_ns: u64) -> Result<News, Errno> {
        let now_ns = clock::now_ns();
        let renew_at_ns = self.asked_at_ns.map_or(0, |asked_at_ns| asked_at_ns + RENEW_NS);
        if now_ns >= renew_at_ns {
            self.watch.ask(self.ticks_in_lease);
            self.asked_at_ns = Some(now_ns);
            self.quiet_at_ns = clock::now_ns() + QUIET_NS;
            return Ok(News { is_anything: true, ..News::default() });
        }
        let was_settled = self.watch.is_there() && looked_at_ns >= self.quiet_at_ns;
        let most_ns = match self.watch.is_there() {
            false => LOOK_NS,
            true if was_settled => renew_at_ns - now_ns,
            true => self.quiet_at_ns.saturating_sub(now_ns),
        };
        let wanted = timeout.map_or(Duration::MAX, |timeout| timeout);
        self.sleep(wanted.min(Duration::from_nanos(most_ns)))?;
        let mut news = News { was_settled, ..News::default() };
        self.read(&mut news)?;
        if news.is_anything || !news.changed.is_empty() {
            self.quiet_at_ns = clock::now_ns() + QUIET_NS;
        }
        Ok(news)
    }

    fn sleep(&self, most: Duration) -> Result<(), Errno> {
        let time =
            Timespec { tv_sec: most.as_secs() as i64, tv_nsec: i64::from(most.subsec_nanos()) };
        match poll(&mut [PollFd::new(&self.events, PollFlags::IN)], Some(&time)) {
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
        self.events.as_fd()
    }
}

fn ticks_in_lease() -> u64 {
    let first = Source::Counter.sample();
    std::thread::sleep(Duration::from_nanos(RATE_NS));
    let second = Source::Counter.sample();
    let length_ns = second.monotonic_ns.saturating_sub(first.monotonic_ns).max(1);
    let ticks = u128::from(second.stamp.saturating_sub(first.stamp));
    (ticks * u128::from(LEASE_NS) / u128::from(length_ns)).try_into().unwrap_or(u64::MAX)
}
