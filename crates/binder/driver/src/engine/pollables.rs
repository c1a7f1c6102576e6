//! Threads that poll: each has a descriptor that polls readable while the thread would find work.

use baton_shm::lock::Lock;
use baton_state::work::Tid;
use rustc_hash::FxHashMap;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};

/// The eventfds of one engine's threads.
#[derive(Debug, Default)]
pub(crate) struct Pollables {
    is_used: AtomicBool,
    all: Lock<FxHashMap<Tid, &'static OwnedFd>>,
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

    /// The thread's descriptor.
    pub fn of(&self, tid: Tid) -> Result<&'static OwnedFd, Errno> {
        Ok(match self.all.lock().entry(tid) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(place) => {
                let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
                // Never closed: the program's epoll may hold it.
                place.insert(Box::leak(Box::new(eventfd(0, flags)?)))
            }
        })
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
