//! The thread that looks at everything but requests: the end of serving, the ends of clients'
//! threads, polls, and ioctls that have waited for a while.
//!
//! The thread that reads requests sleeps in that read. Where it has to look up, the watcher
//! interrupts it until it has.

use crate::interrupt::interrupt;
use crate::opens::Opens;
use crate::shared::Shared;
use crate::watches::Watch;
use rustix::event::Timespec;
use std::sync::atomic::{AtomicBool, Ordering};

/// Time after which the reader is interrupted again.
const AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// Whether serving ends.
#[derive(Debug, Default)]
pub struct Ending {
    /// Nobody has the other end of the server's `kept_open`.
    has_left: AtomicBool,
    is_over: AtomicBool,
}

impl Ending {
    /// Whether the reader is to read no more.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Serving ends if those have left for whom it was and no device is open. Called by the reader
    /// after each close, and by the watcher after the leaving: one of them sees both.
    pub fn note_close(&self, opens: &Opens) {
        if self.has_left.load(Ordering::SeqCst) && opens.lock().is_empty() {
            self.is_over.store(true, Ordering::Release);
        }
    }
}

/// Watches until the reader, a thread with this id, has ended: [`Watch::Reader`].
pub fn watch(shared: &Shared, opens: &Opens, ending: &Ending, reader: u32) {
    loop {
        let is_over = ending.is_over();
        if is_over {
            interrupt(reader);
        }
        let patience = if is_over { Some(&AGAIN) } else { shared.watches.thread_patience() };
        let mut events = shared.watches.wait(patience);
        // A busy watcher looks at threads without pidfds later.
        if events.is_empty() && patience.is_some() {
            events = shared.watches.ended_threads();
        }
        for event in events {
            match event {
                Watch::Reader => return,
                Watch::Stop => ending.is_over.store(true, Ordering::Release),
                Watch::Left => {
                    ending.has_left.store(true, Ordering::SeqCst);
                    ending.note_close(opens);
                }
                Watch::Ioctls => shared.pending.look(),
                Watch::Poll { kernel_handle, is_wanted } => {
                    if is_wanted.swap(false, Ordering::SeqCst) {
                        shared.connection.notify_readable(kernel_handle);
                    }
                }
                Watch::Thread { handle, tid, .. } => {
                    shared.watches.forget_threads(handle, Some(tid));
                    if let Some(open) = opens.lock().get_mut(&handle) {
                        open.threads.remove(&tid);
                    }
                }
            }
        }
    }
}
