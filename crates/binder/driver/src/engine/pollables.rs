//! Threads that poll: each has a descriptor that polls readable while the thread would find work.

use baton_shm::fd_numbers::set_apart;
use baton_shm::lock::Lock;
use baton_state::work::Tid;
use rustc_hash::FxHashMap;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The eventfds of one engine's threads. An eventfd is closed with the device, so the kernel takes
/// it out of the program's epoll sets then.
#[derive(Debug, Default)]
pub(crate) struct Pollables {
    is_used: AtomicBool,
    all: Lock<FxHashMap<Tid, Pollable>>,
}

#[derive(Debug)]
struct Pollable {
    fd: Arc<OwnedFd>,
    /// Whether an epoll set of the program may contain it. It then outlives its thread.
    in_sets: bool,
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
    pub fn of(&self, tid: Tid) -> Result<Arc<OwnedFd>, Errno> {
        self.find(tid, false)
    }

    /// The thread's descriptor, for an epoll set of the program.
    pub fn for_sets(&self, tid: Tid) -> Result<Arc<OwnedFd>, Errno> {
        self.find(tid, true)
    }

    fn find(&self, tid: Tid, in_sets: bool) -> Result<Arc<OwnedFd>, Errno> {
        let mut all = self.all.lock();
        let pollable = match all.entry(tid) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
                let fd = Arc::new(set_apart(eventfd(0, flags)?));
                place.insert(Pollable { fd, in_sets })
            }
        };
        pollable.in_sets |= in_sets;
        Ok(pollable.fd.clone())
    }

    /// The descriptors that epoll sets of the program may contain.
    pub fn in_sets(&self) -> Vec<Arc<OwnedFd>> {
        let all = self.all.lock();
        all.values().filter(|it| it.in_sets).map(|it| it.fd.clone()).collect()
    }

    /// The thread polls no more.
    pub fn forget(&self, tid: Tid) {
        if self.is_used() && self.all.lock().get(&tid).is_some_and(|it| !it.in_sets) {
            self.all.lock().remove(&tid);
        }
    }

    /// The device is closed: all descriptors are, but for those with which threads still wait.
    pub fn end(&self) {
        self.all.lock().clear();
    }

    /// Shows each thread that polls whether it would find work.
    pub fn show(&self, is_readable: impl Fn(Tid) -> bool) {
        for (&tid, Pollable { fd, .. }) in self.all.lock().iter() {
            if is_readable(tid) {
                let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
            } else {
                let _ = rustix::io::read(fd, &mut [0; 8]);
            }
        }
    }
}
