//! The items that a reader returns.

use crate::buffer::{Buffer, Priority};
use crate::moment::Moment;
use crate::read::origin::Origin;

/// The next item of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// A whole record.
    Record(Record<'a>),
    /// Records that no reader can read any more.
    Lost(Lost<'a>),
}

/// A record, its time and its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The buffer of the record.
    pub buffer: Buffer,
    /// The time at which it was written.
    pub moment: Moment,
    /// The process that wrote it.
    pub origin: &'a Origin,
    /// The thread, as the process says.
    pub thread: u32,
    /// The index of its ring in the file of its process.
    pub ring: usize,
    /// The record's number in that ring, from 0, of 48 bits. Missing numbers were reported as lost.
    pub sequence: u64,
    /// The text or the event.
    pub content: Content<'a>,
}

/// The content of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// A text. It may be any bytes, as no UTF-8 is checked.
    Text {
        /// The priority of the text.
        priority: Priority,
        /// The tag of the text.
        tag: &'a [u8],
        /// The text itself.
        message: &'a [u8],
    },
    /// A binary event.
    Event {
        /// The number of the event's tag.
        tag: u32,
        /// The values of the event, in Android's format.
        payload: &'a [u8],
    },
}

/// Records that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost<'a> {
    /// The buffer of the records; of [`Loss::Unread`], which is about all, the reader's first one.
    pub buffer: Buffer,
    /// The time at which the reader knew of the loss: that of the next record, or now.
    pub moment: Moment,
    /// The process of the records.
    pub origin: &'a Origin,
    /// The cause of the loss.
    pub loss: Loss,
}

/// Why records cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// They were overwritten before the reader copied them.
    Overwritten {
        /// The index of the ring in its process's file.
        ring: usize,
        /// The number of lost records.
        n_records: u64,
    },
    /// There was no ring for them: no memory, no room in the log's directory or too many threads.
    /// Or a signal handler logged while its thread did.
    Unlogged {
        /// The number of lost records.
        n_records: u64,
    },
    /// The ring has bytes that no writer of this crate makes. The number of lost records is not
    /// known.
    Damaged {
        /// The index of the ring in its process's file.
        ring: usize,
    },
    /// The reader has open as many files of the user as it may, or this process as many as it may.
    /// The reader is told once of each process whose file it cannot open. It reads that file when
    /// another one has been removed. Records that were overwritten by then are lost, and so are
    /// older ones of a reader that has begun at the newest record.
    Unread,
}
