//! Ids of threads, and of the other sources of messages.
//!
//! ```text
//!  31   30       18 17    12 11       0
//! +---+------------+--------+----------+
//! | 0 |  version   | kernel |  number  |   a thread: its version is never 0
//! +---+------------+--------+----------+
//! | 1 |        kind         |  number  |   not a thread: an interrupt, the notices, nobody
//! +---+---------------------+----------+
//! ```
//!
//! A kernel outside of clusters has the number 0.
//!
//! **Invariant**: no two threads of a kernel have the same id, as long as each number is used at
//! most 8,191 times.

use crate::list::Slot;
use std::fmt;

/// The id of a thread, unique in its kernel and its cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct ThreadId(u32);

const NOT_A_THREAD: u32 = 1 << 31;

/// Sources and destinations in one word, as registers and TCBs hold them.
pub(crate) mod raw {
    use super::NOT_A_THREAD;

    /// Any source. Zero, so that the fast path tests for it with one instruction.
    pub(crate) const ANY: u32 = 0;
    /// The first of 64 interrupts.
    pub(crate) const INTERRUPT: u32 = NOT_A_THREAD;
    /// The thread's own notices.
    pub(crate) const NOTICES: u32 = NOT_A_THREAD | 1 << 16;
    /// Instead of a destination: the thread makes a request and sends no message.
    pub(crate) const REQUEST: u32 = NOT_A_THREAD | 2 << 16;
    /// Nobody: the IPC has no such phase.
    pub(crate) const NOBODY: u32 = NOT_A_THREAD | 3 << 16;
    /// The value of a gate through which no sender passes.
    pub(crate) const SHUT: u32 = u32::MAX;
}

/// Threads of one kernel, at most.
pub const MAX_THREADS: usize = 1 << NUMBER_BITS;
/// Kernels of one cluster, at most.
pub const MAX_KERNELS: usize = 1 << KERNEL_BITS;

const NUMBER_BITS: u32 = 12;
const VERSION_BITS: u32 = 13;
const KERNEL_BITS: u32 = 6;
const VERSION_SHIFT: u32 = NUMBER_BITS + KERNEL_BITS;
const LAST_VERSION: u32 = (1 << VERSION_BITS) - 1;
const _: () = assert!(VERSION_SHIFT + VERSION_BITS == 31);

impl ThreadId {
    pub(crate) const fn new(kernel: u8, slot: Slot, version: u32) -> ThreadId {
        assert!((kernel as usize) < MAX_KERNELS && slot.index() < MAX_THREADS);
        assert!(version != 0 && version <= LAST_VERSION);
        let kernel = (kernel as u32) << NUMBER_BITS;
        ThreadId(version << VERSION_SHIFT | kernel | slot.index() as u32)
    }

    /// The id of the next thread with this number.
    pub(crate) const fn next(self) -> ThreadId {
        let version = self.version() + 1;
        let version = if version > LAST_VERSION { 1 } else { version };
        ThreadId::new(self.kernel(), self.slot(), version)
    }

    const fn version(self) -> u32 {
        self.0 >> VERSION_SHIFT
    }

    /// The number of the thread's kernel in its cluster.
    #[inline]
    pub const fn kernel(self) -> u8 {
        (self.0 >> NUMBER_BITS) as u8 & (MAX_KERNELS as u8 - 1)
    }

    /// The thread's number in its kernel.
    #[inline]
    pub(crate) const fn slot(self) -> Slot {
        Slot::new((self.0 & (MAX_THREADS as u32 - 1)) as u16)
    }

    /// The id as one word.
    #[inline]
    pub const fn raw(self) -> u32 {
        self.0
    }

    /// The id that a word encodes. `None`: the word encodes no id. The kernel finds out later
    /// whether the thread exists.
    #[inline]
    pub const fn from_raw(raw: u32) -> Option<ThreadId> {
        if raw & NOT_A_THREAD == 0 && raw >> VERSION_SHIFT != 0 {
            Some(ThreadId(raw))
        } else {
            None
        }
    }
}

impl fmt::Debug for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}@{}", self.slot().index(), self.version(), self.kernel())
    }
}

/// The sources from which a thread receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// Any thread, any interrupt of this thread, and its notices.
    Any,
    /// One thread.
    Thread(ThreadId),
    /// One interrupt, 0 to 63.
    Interrupt(u8),
}

/// The source of a received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sender {
    /// A thread.
    Thread(ThreadId),
    /// An interrupt whose handler the receiver is.
    Interrupt(u8),
    /// The receiver's notices; the first word of the message has their bits.
    Notices,
}

/// Interrupts of one kernel.
pub const N_INTERRUPTS: u8 = 64;

impl Source {
    pub(crate) fn raw(self) -> u32 {
        match self {
            Source::Any => raw::ANY,
            Source::Thread(id) => id.raw(),
            Source::Interrupt(number) => {
                assert!(number < N_INTERRUPTS, "interrupts are numbered from 0 to 63");
                raw::INTERRUPT + u32::from(number)
            }
        }
    }
}

impl Sender {
    #[inline]
    pub(crate) fn raw(self) -> u32 {
        match self {
            Sender::Thread(id) => id.raw(),
            Sender::Interrupt(number) => raw::INTERRUPT + u32::from(number),
            Sender::Notices => raw::NOTICES,
        }
    }

    #[inline]
    pub(crate) fn from_raw(word: u32) -> Sender {
        match ThreadId::from_raw(word) {
            Some(id) => Sender::Thread(id),
            None if word == raw::NOTICES => Sender::Notices,
            None => Sender::Interrupt(word as u8),
        }
    }
}
