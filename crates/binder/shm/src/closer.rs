//! Threads that close descriptors which others have sent.
//!
//! A close may wait for as long as the sender of the descriptor likes: a TCP socket with SO_LINGER
//! waits for its peer, and a file of FUSE for its server. A thread that others wait for hands such
//! a descriptor over to a [`Closer`].
//!
//! A closer has a thread while it has something to close. A child of fork has none: there the
//! descriptors that wait stay open, and the first one that it hands over itself starts a thread.

use crate::forks::ForkGeneration;
use crate::lock::Lock;
use crate::schedule;
use crate::thread;
use std::collections::VecDeque;
use std::sync::Arc;

/// Closes descriptors in the order in which they come, on a thread of its own. `T` is what comes:
/// descriptors, and whatever is to be dropped after them.
#[derive(Clone, Debug)]
pub struct Closer<T> {
    name: &'static str,
    close: fn(T),
    queue: Arc<Lock<Queue<T>>>,
}

#[derive(Debug)]
struct Queue<T> {
    waiting: VecDeque<T>,
    /// The process in which a thread runs.
    runs_in: Option<ForkGeneration>,
}

impl<T: Send + 'static> Closer<T> {
    /// A closer without a thread, which will have this name. `close` closes what comes.
    pub fn new(name: &'static str, close: fn(T)) -> Closer<T> {
        let queue = Queue { waiting: VecDeque::new(), runs_in: None };
        Closer { name, close, queue: Arc::new(Lock::new(queue)) }
    }

    /// Hands descriptors over and returns at once. If the system has no room for a thread, they
    /// wait for the next ones that are handed over.
    pub fn close(&self, descriptors: T) {
        // A simulated machine has its own threads only, and peers that send no such descriptor.
        if cfg!(simulated) {
            return (self.close)(descriptors);
        }
        let mut queue = self.queue.lock();
        queue.waiting.push_back(descriptors);
        if queue.runs_in.is_none_or(|process| !process.is_current()) {
            let (close, of_thread) = (self.close, Arc::clone(&self.queue));
            let started = thread::spawn(self.name, move || close_all(&of_thread, close));
            queue.runs_in = started.is_ok().then(ForkGeneration::current);
        }
    }

    /// Whether no descriptor waits and no close is under way.
    pub fn is_idle(&self) -> bool {
        let queue = self.queue.lock();
        queue.waiting.is_empty() && queue.runs_in.is_none_or(|process| !process.is_current())
    }
}

/// Closes until nothing waits.
fn close_all<T>(queue: &Lock<Queue<T>>, close: fn(T)) {
    if thread::is_real_time() {
        // A real-time thread has handed the first one over.
        let _ = schedule::set(0, libc::SCHED_OTHER, 0);
    }
    loop {
        let mut locked = queue.lock();
        let Some(descriptors) = locked.waiting.pop_front() else {
            locked.runs_in = None;
            return;
        };
        drop(locked);
        close(descriptors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::OwnedFd;
    use rustix::pipe::{PipeFlags, pipe_with};
    use std::sync::Mutex;

    /// Reads to the end, which comes when the other end is closed.
    fn read_to_end(end: OwnedFd) {
        assert_eq!(rustix::io::read(end, &mut [0]), Ok(0));
    }

    #[test]
    fn a_descriptor_is_closed_and_then_its_token_is_dropped() {
        let closer = Closer::<(OwnedFd, Arc<()>)>::new("test", drop);
        for _ in 0..3 {
            let token = Arc::new(());
            let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
            closer.close((writer, Arc::clone(&token)));
            read_to_end(reader);
            while Arc::strong_count(&token) > 1 {
                std::thread::yield_now();
            }
        }
    }

    /// A close that waits, as those of strangers' descriptors may.
    #[test]
    fn a_close_that_waits_holds_up_nobody_but_later_ones() {
        static GATE: Mutex<()> = Mutex::new(());
        let closed = GATE.lock().unwrap();
        let closer = Closer::<(OwnedFd, Arc<()>)>::new("test", |descriptor| {
            let _opened = GATE.lock().unwrap();
            drop(descriptor);
        });
        assert!(closer.is_idle());
        let token = Arc::new(());
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let copy = rustix::io::fcntl_dupfd_cloexec(&writer, 0).unwrap();
        closer.close((writer, Arc::clone(&token)));
        closer.close((copy, Arc::clone(&token)));
        assert_eq!(Arc::strong_count(&token), 3, "both are unfinished");
        assert!(!closer.is_idle());
        drop(closed);
        read_to_end(reader);
        while !closer.is_idle() {
            std::thread::yield_now();
        }
    }
}
