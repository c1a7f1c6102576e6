//! A thread that goes on by what it once knew of itself, without the lock under which others change
//! that, until one of them has news for it.
//!
//! ```text
//!   bit 0 HERE   set by the thread before it waits, cleared by it when it goes about something
//!   bit 1 NEWS   set by whoever, under the lock, has changed what the thread goes by
//! ```
//!
//! One word, and read-modify-writes: who sets NEWS second sees that the thread waits, and wakes it
//! by what it sleeps on; who sets HERE second sees the news. The word it sleeps on may be a
//! stranger's to write. So the thread looks for news once more when it can be seen to wait
//! ([`Mailbox::wait_unless`](crate::mailbox::Mailbox::wait_unless)), and then sleeps through no
//! wake.

use crate::sync::{AtomicU32, Ordering, fence_after_update};

const HERE: u32 = 1;
const NEWS: u32 = 2;

/// One thread's.
#[derive(Debug)]
pub struct EventFlag {
    word: AtomicU32,
}

impl Default for EventFlag {
    fn default() -> EventFlag {
        EventFlag { word: AtomicU32::new(0) }
    }
}

impl EventFlag {
    /// The thread, with the lock: it knows everything, and goes about something.
    pub fn renew(&self) {
        self.word.store(0, Ordering::SeqCst);
    }

    /// The thread: it waits from now on. False if there is news: then it does not.
    #[inline(always)]
    pub fn arrive(&self) -> bool {
        self.word.fetch_or(HERE, Ordering::SeqCst) & NEWS == 0
    }

    /// The thread: it goes about something.
    #[inline(always)]
    pub fn depart(&self) {
        self.word.fetch_and(!HERE, Ordering::SeqCst);
    }

    /// The thread: whether there is news.
    #[inline(always)]
    pub fn has_news(&self) -> bool {
        self.word.load(Ordering::SeqCst) & NEWS != 0
    }

    /// Whoever has news, with the lock, once it is there: before the thread is woken.
    pub fn tell(&self) {
        self.word.fetch_or(NEWS, Ordering::SeqCst);
        // Pairs with the fence in `wait_unless`: either the thread sees the news there, or who
        // wakes it comes after it.
        fence_after_update();
    }

    /// Whether it waits, or is about to.
    pub fn is_here(&self) -> bool {
        self.word.load(Ordering::SeqCst) & HERE != 0
    }
}
