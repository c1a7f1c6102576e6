//! Room for one message that is set aside for one thread: it takes it and gives it back without a
//! lock, until its keeper, who holds one, wants it for others.
//!
//! ```text
//!   FREE --begin--> FILLING --lie--> LYING --end--> FREE
//!        its thread; with the keeper's lock others may end it, too
//!   any  --take_over--> GONE
//!        the keeper, once: what lay there is its own from now on
//! ```
//!
//! Memory order: each step releases what was done in the room, and acquires what was done there
//! before. `begin` comes before [`Entry::enter`](crate::revocation::Entry::enter), and `take_over`
//! after [`Revocation::revoke`](crate::revocation::Revocation::revoke), whose fences separate them:
//! whoever begins and enters either is taken_over, or does not enter (Dekker).

use crate::sync::{AtomicU32, Ordering};

const FREE: u32 = 0;
const FILLING: u32 = 1;
const LYING: u32 = 2;
const GONE: u32 = 3;

/// The room's word.
#[derive(Debug)]
pub struct ReservedSlot {
    word: AtomicU32,
}

/// What a keeper has found there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Was {
    /// Nothing.
    Free,
    /// A message of which not all is there: its thread learns from [`ReservedSlot::lie`], or
    /// [`ReservedSlot::turn_back`], that the room is the keeper's.
    Filling,
    /// A message.
    BufferedMessage,
}

impl Default for ReservedSlot {
    fn default() -> ReservedSlot {
        ReservedSlot { word: AtomicU32::new(FREE) }
    }
}

impl ReservedSlot {
    #[inline(always)]
    fn step(&self, from: u32, to: u32) -> bool {
        self.word.compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Its thread: whether nothing lies there. What is noted beside a room that is free reaches the
    /// keeper by `begin`.
    #[inline(always)]
    pub fn is_free(&self) -> bool {
        self.word.load(Ordering::Acquire) == FREE
    }

    /// Its thread: a message is to lie there. False if one does, or the room is gone.
    #[inline(always)]
    pub fn begin(&self) -> bool {
        self.step(FREE, FILLING)
    }

    /// Its thread: the message lies there. False if the room has gone, with the message.
    #[inline(always)]
    pub fn lie(&self) -> bool {
        self.step(FILLING, LYING)
    }

    /// Its thread: the message does not come after all. False if the room has gone, with the
    /// message.
    pub fn turn_back(&self) -> bool {
        self.step(FILLING, FREE)
    }

    /// Nobody needs the message any more. False if none lies there.
    #[inline(always)]
    pub fn end(&self) -> bool {
        self.step(LYING, FREE)
    }

    /// Whether it has been taken_over.
    pub fn is_gone(&self) -> bool {
        self.word.load(Ordering::Acquire) == GONE
    }

    /// Keeper: the room is its own.
    ///
    /// # Panics
    /// If it was already.
    pub fn take_over(&self) -> Was {
        match self.word.swap(GONE, Ordering::SeqCst) {
            FREE => Was::Free,
            FILLING => Was::Filling,
            LYING => Was::BufferedMessage,
            _ => panic!("taken_over twice"),
        }
    }
}
