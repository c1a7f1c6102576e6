//! Threads that close descriptors which others have sent.
//!
//! A close may wait for as long as the sender of the descriptor likes: a TCP socket with SO_LINGER
//! waits for its peer, and a file of FUSE for its server. A thread that others wait for hands such
//! a descriptor over to a [`Closer`].
//!
//! A closer has a thread while it has something to close. A child of fork has none: there the
//! descriptors that wait stay open, and the first one that it hands over itself starts a thread.

use crate::forks::ForkGeneration;
use crate::thread;
use rustix::fd::OwnedFd;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Closes descriptors in the order in which they come, on a thread of its own.
#[derive(Clone, Debug)]
pub struct Closer {
    name: &'static str,
    close: fn(OwnedFd),
    queue: Arc<Mutex<Queue>>,
}

/// Descriptors that wait, each with its user's token.
#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<(OwnedFd, Arc<()>)>,
    /// The process in which a thread runs.
    runs_in: Option<ForkGeneration>,
}

impl Closer {
    /// A closer without a thread, which will have this name. `close` closes one descriptor.
    pub fn new(name: &'static str, close: fn(OwnedFd)) -> Closer {
        Closer { name, close, queue: Arc::default() }
    }

    /// Hands a descriptor over and returns at once. The closer keeps `token` until the descriptor
    /// is closed, so its holders tell how many closes are unfinished. If the system has no room for
    /// a thread, the descriptor waits for the next one that is handed over.
    pub fn close(&self, descriptor: OwnedFd, token: Arc<()>) {
        // A simulated machine has its own threads only, and peers that send no such descriptor.
        if cfg!(simulated) {
            return drop((descriptor, token));
        }
        let mut queue = lock(&self.queue);
        queue.waiting.push_back((descriptor, token));
        if queue.runs_in.is_none_or(|process| !process.is_current()) {
            let (close, of_thread) = (self.close, Arc::clone(&self.queue));
            let started = thread::spawn(self.name, move || close_all(&of_thread, close));
            queue.runs_in = started.is_ok().then(ForkGeneration::current);
        }
    }
}

/// Closes until nothing waits.
fn close_all(queue: &Mutex<Queue>, close: fn(OwnedFd)) {
    loop {
        let mut locked = lock(queue);
        let Some((descriptor, token)) = locked.waiting.pop_front() else {
            locked.runs_in = None;
            return;
        };
        drop(locked);
        close(descriptor);
        drop(token);
    }
}

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::{PipeFlags, pipe_with};

    /// Reads to the end, which comes when the other end is closed.
    fn read_to_end(end: OwnedFd) {
        assert_eq!(rustix::io::read(end, &mut [0]), Ok(0));
    }

    #[test]
    fn a_descriptor_is_closed_and_then_its_token_is_dropped() {
        let closer = Closer::new("test", drop);
        for _ in 0..3 {
            let token = Arc::new(());
            let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
            closer.close(writer, Arc::clone(&token));
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
        let closer = Closer::new("test", |descriptor| {
            let _opened = GATE.lock().unwrap();
            drop(descriptor);
        });
        let token = Arc::new(());
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let copy = rustix::io::fcntl_dupfd_cloexec(&writer, 0).unwrap();
        closer.close(writer, Arc::clone(&token));
        closer.close(copy, Arc::clone(&token));
        assert_eq!(Arc::strong_count(&token), 3, "both are unfinished");
        drop(closed);
        read_to_end(reader);
    }
}
