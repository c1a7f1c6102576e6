//! What a reader hands out.

use crate::buffer::{Buffer, Priority};
use crate::moment::Moment;
use crate::read::origin::Origin;

/// What comes next in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// A record, whole.
    Record(Record<'a>),
    /// Records that there were, and that nobody can read any more.
    Lost(Lost<'a>),
}

/// A record, and what is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Where it was filed.
    pub buffer: Buffer,
    /// When it was written.
    pub moment: Moment,
    /// Whose it is.
    pub origin: &'a Origin,
    /// The thread, as the process says.
    pub thread: u32,
    /// Which of the process's rings it was in.
    pub ring: usize,
    /// Its number in that ring, from 0 on, of 48 bits. Numbers that are missing were told as lost.
    pub sequence: u64,
    /// What it says.
    pub content: Content<'a>,
}

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// A text. Any bytes: nobody has looked whether they are UTF-8.
    Text {
        /// How much it matters.
        priority: Priority,
        /// What it is about.
        tag: &'a [u8],
        /// What it says about it.
        message: &'a [u8],
    },
    /// An event.
    Event {
        /// Which one.
        tag: u32,
        /// Its values, in Android's form.
        payload: &'a [u8],
    },
}

/// Records that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost<'a> {
    /// Where they were filed.
    pub buffer: Buffer,
    /// When that was known: the next record's time, or now.
    pub moment: Moment,
    /// Whose they were.
    pub origin: &'a Origin,
    /// What became of them.
    pub loss: Loss,
}

/// What became of records that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// They were overwritten before this reader came.
    Overwritten {
        /// In which of the process's rings.
        ring: usize,
        /// How many.
        n_records: u64,
    },
    /// There was no ring for them: no memory, no room in the log's directory, too many threads; or
    /// a signal handler wrote while its thread did.
    Unlogged {
        /// How many.
        n_records: u64,
    },
    /// What lies in the ring no writer of this crate has made. How many they were nobody knows.
    Damaged {
        /// Which of the process's rings.
        ring: usize,
    },
}
