//! The changes that other kernels of the cluster have posted to a kernel: threads whose envelopes
//! it has to look at. A change has no content, so one is as good as many, and there is always room.
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
//! A lane has one writer, its kernel, and one reader. The writer sets the bits from the bottom to
//! the top, and the reader takes them from the top to the bottom.
//!
//! **Invariant**: a change is taken after it was posted, and its reader sees what its writer wrote
//! before. Each level is set by a read-modify-write that releases, and taken by a swap that
//! acquires.

use crate::sync::{AtomicU64, Ordering};

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Topic {
    /// A thread of the writing kernel has a new offer, wait or priority.
    Sender,
    /// The wait of a thread of the reading kernel has come to an end, or notices have been left for
    /// it.
    Receiver,
    /// A number of the writing kernel has a new thread, or none.
    Name,
}

const TOPICS: [Topic; 3] = [Topic::Sender, Topic::Receiver, Topic::Name];

/// A change of one thread's envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// The kernel that has posted the change.
    pub(crate) from: u8,
    pub(crate) topic: Topic,
    /// The number of the thread in its kernel.
    pub(crate) number: u16,
}

/// A set of threads, by number.
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

    /// Inserts a thread. `false`: it was in the set already.
    fn insert(&self, number: u16) -> bool {
        let word = usize::from(number / 64);
        let bit = 1 << (number % 64);
        // Release: pairs with the swap of the word. If the bit was set, a swap that takes it is
        // still to come, and sees what the caller wrote before.
        if self.words[word].fetch_or(bit, Ordering::AcqRel) & bit != 0 {
            return false;
        }
        // Release: pairs with the swap of the summary.
        self.summary.fetch_or(1 << word, Ordering::AcqRel);
        true
    }
}

/// The changes for one kernel.
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

    /// Posts a change; only the kernel `change.from` calls this. Says whether the reader has to be
    /// woken.
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

    /// Whether the inbox is empty, for a reader that has announced its sleep. A read-modify-write:
    /// the writer of a later change sees the announcement.
    pub(crate) fn is_empty_at_rest(&self) -> bool {
        self.senders.fetch_or(0, Ordering::AcqRel) == 0
    }

    /// Begins a round: takes the kernels that have posted changes. Later changes belong to the next
    /// round.
    pub(crate) fn open(&self, cursor: &mut Cursor) {
        cursor.senders |= self.senders.swap(0, Ordering::AcqRel);
    }

    /// Takes the next change of the round.
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

/// The part of a round that its reader has not taken yet.
#[derive(Clone, Debug)]
pub(crate) struct Cursor {
    senders: u64,
    from: u8,
    /// The number of topics of this kernel that were begun.
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
