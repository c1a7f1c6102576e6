//! What a kernel has been told by others of its cluster: that it should look at a thread. What has
//! happened to the thread is in its envelope; a change has no content, so that one is as good as
//! many, and there is always room.
//!
//! ```text
//!  senders      . . 1 .                 bit k: kernel k has sent something
//!                   |
//!  lanes[k]     [ Sender ][ Receiver ][ Name ]
//!                   |
//!               summary . . 1 .         bit w: words[w] is not 0
//!                           |
//!               words   [3][2][1][0]    a bit for each thread
//! ```
//!
//! A lane has one writer, the kernel whose lane it is, and one reader. Written from below, taken
//! from above.
//!
//! **Invariant**: a change is taken after it was sent, and what its sender wrote before is seen
//! then: each level is set by a read-modify-write that releases, and taken by a swap that acquires.

use crate::sync::{AtomicU64, Ordering};

/// What is to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Topic {
    /// A thread of the kernel that wrote: what it offers, or how urgently.
    Sender,
    /// A thread of the kernel that reads: what it waits for has come.
    Receiver,
    /// A thread of the kernel that wrote: it has another name, or none.
    Name,
}

const TOPICS: [Topic; 3] = [Topic::Sender, Topic::Receiver, Topic::Name];

/// One thing to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// Who wrote it.
    pub(crate) from: u8,
    pub(crate) topic: Topic,
    /// The number of the thread, in whose kernel it is.
    pub(crate) number: u16,
}

/// A set of threads.
#[derive(Debug)]
struct Bits {
    summary: AtomicU64,
    words: Box<[AtomicU64]>,
}

impl Bits {
    fn new(n_threads: usize) -> Bits {
        let words = (0..n_threads.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Bits { summary: AtomicU64::new(0), words }
    }

    /// Says whether it was not there.
    fn insert(&self, number: u16) -> bool {
        let word = usize::from(number / 64);
        let bit = 1 << (number % 64);
        // Release: pairs with the swap of the word. What was there is still to be taken, by a swap
        // that comes after this.
        if self.words[word].fetch_or(bit, Ordering::AcqRel) & bit != 0 {
            return false;
        }
        // Release: pairs with the swap of the summary.
        self.summary.fetch_or(1 << word, Ordering::AcqRel);
        true
    }
}

/// The letters to one kernel.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Inbox {
    senders: AtomicU64,
    lanes: Box<[[Bits; TOPICS.len()]]>,
}

impl Inbox {
    pub(crate) fn new(n_kernels: usize, n_threads: usize) -> Inbox {
        let lane = |_| TOPICS.map(|_| Bits::new(n_threads));
        Inbox { senders: AtomicU64::new(0), lanes: (0..n_kernels).map(lane).collect() }
    }

    /// Written by the kernel `change.from` only. Says whether the reader has to be told.
    pub(crate) fn put(&self, change: Change) -> bool {
        let lane = &self.lanes[usize::from(change.from)];
        let is_new = lane[change.topic as usize].insert(change.number);
        if is_new {
            // Pairs with `open` and with `is_empty_at_rest`.
            self.senders.fetch_or(1 << change.from, Ordering::AcqRel);
        }
        is_new
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.senders.load(Ordering::Relaxed) == 0
    }

    /// Asked by the reader after it has said that it sleeps. A read-modify-write: a change that is
    /// put there later is put by somebody who sees that.
    pub(crate) fn is_empty_at_rest(&self) -> bool {
        self.senders.fetch_or(0, Ordering::AcqRel) == 0
    }

    /// Begins to take what is there. Letters that come from here on are for the next time.
    pub(crate) fn open(&self, cursor: &mut Cursor) {
        cursor.senders |= self.senders.swap(0, Ordering::AcqRel);
    }

    /// The next change.
    pub(crate) fn take(&self, cursor: &mut Cursor) -> Option<Change> {
        loop {
            let topic = TOPICS[cursor.topic.saturating_sub(1)];
            let lane = self.lanes.get(usize::from(cursor.from));
            if cursor.word != 0 {
                let bit = cursor.word.trailing_zeros() as u16;
                cursor.word &= cursor.word - 1;
                return Some(Change { from: cursor.from, topic, number: cursor.base + bit });
            }
            if cursor.summary != 0 {
                let word = cursor.summary.trailing_zeros() as usize;
                cursor.summary &= cursor.summary - 1;
                cursor.base = word as u16 * 64;
                cursor.word = lane?[topic as usize].words[word].swap(0, Ordering::AcqRel);
            } else if cursor.topic < TOPICS.len() {
                cursor.summary = lane?[cursor.topic].summary.swap(0, Ordering::AcqRel);
                cursor.topic += 1;
            } else if cursor.senders != 0 {
                cursor.from = cursor.senders.trailing_zeros() as u8;
                cursor.senders &= cursor.senders - 1;
                cursor.topic = 0;
            } else {
                return None;
            }
        }
    }
}

/// What of an inbox its reader has yet to look through.
#[derive(Clone, Debug)]
pub(crate) struct Cursor {
    senders: u64,
    from: u8,
    /// Topics of that kernel that were begun.
    topic: usize,
    summary: u64,
    base: u16,
    word: u64,
}

impl Default for Cursor {
    fn default() -> Cursor {
        Cursor { senders: 0, from: 0, topic: TOPICS.len(), summary: 0, base: 0, word: 0 }
    }
}
