//! Threads that poll: each has a descriptor that polls readable while the thread would find work.

use baton_shm::fd_numbers::set_apart;
use baton_shm::lock::Lock;
use baton_state::work::Tid;
use rustc_hash::FxHashMap;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};

/// The eventfds of one engine's threads.
#[derive(Debug, Default)]
pub(crate) struct Pollables {
    is_used: AtomicBool,
    all: Lock<FxHashMap<Tid, Pollable>>,
}

#[derive(Debug)]
enum Pollable {
    /// Never closed: the program's epoll may hold it.
    Lent(&'static OwnedFd),
    /// Others have only duplicates.
    Own(OwnedFd),
}

fn make_eventfd() -> Result<OwnedFd, Errno> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(set_apart)
}

impl AsFd for Pollable {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Pollable::Lent(fd) => fd.as_fd(),
            Pollable::Own(fd) => fd.as_fd(),
        }
    }
}

impl Pollables {
    /// Whether threads poll.
    pub fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    /// From now on threads poll.
    pub fn begin(&self) {
        self.is_used.store(true, Ordering::SeqCst);
    }

    /// The thread's descriptor, for good.
    pub fn of(&self, tid: Tid) -> Result<&'static OwnedFd, Errno> {
        let mut all = self.all.lock();
        let lent = match all.remove(&tid) {
            Some(Pollable::Lent(fd)) => fd,
            Some(Pollable::Own(fd)) => Box::leak(Box::new(fd)),
            None => Box::leak(Box::new(make_eventfd()?)),
        };
        all.insert(tid, Pollable::Lent(lent));
        Ok(lent)
    }

    /// A duplicate of the thread's descriptor.
    pub fn duplicate(&self, tid: Tid) -> Result<OwnedFd, Errno> {
        let mut all = self.all.lock();
        let pollable = match all.entry(tid) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(Pollable::Own(make_eventfd()?)),
        };
        rustix::io::fcntl_dupfd_cloexec(pollable, 0).map(set_apart)
    }

    /// The thread polls no more. Its descriptor is closed, unless it was given away for good.
    pub fn forget(&self, tid: Tid) {
        if self.is_used() && matches!(self.all.lock().get(&tid), Some(Pollable::Own(_))) {
            self.all.lock().remove(&tid);
        }
    }

    /// Shows each thread that polls whether it would find work.
    pub fn show(&self, is_readable: impl Fn(Tid) -> bool) {
        for (&tid, pollable) in self.all.lock().iter() {
            if is_readable(tid) {
                let _ = rustix::io::write(pollable, &1u64.to_ne_bytes());
            } else {
                let _ = rustix::io::read(pollable, &mut [0; 8]);
            }
        }
    }
}
