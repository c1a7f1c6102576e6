//! A flag that tells a waiting thread that other threads have changed its state.
//!
//! The thread works from a copy of its state, without the lock that protects the state. A thread
//! that changes the state under the lock raises this flag.
//!
//! ```text
//!   bit 0 WAITING  set by the thread before it waits, cleared by the thread afterwards
//!   bit 1 RAISED   set by a thread that has changed the state, under the lock
//! ```
//!
//! Both bits are set by read-modify-writes of one word. A thread that sets RAISED second sees
//! WAITING, and wakes the waiting thread through the word that it sleeps on. A thread that sets
//! WAITING second sees RAISED.
//!
//! A hostile peer may write the word that the thread sleeps on. So the thread checks the flag once
//! more when others can see it wait ([`EventFlag::wait_on`]), and from then on misses no wake.

use crate::futex::Wait;
use crate::mailbox::{Mailbox, Seen};
use crate::sync::{AtomicU32, Ordering, fence_after_update};
use core::time::Duration;

const WAITING: u32 = 1;
const RAISED: u32 = 2;

/// The flag of one thread.
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
    /// Resets the flag. Called by its thread, under the lock, when its copy of the state is
    /// current.
    pub fn reset(&self) {
        self.word.store(0, Ordering::SeqCst);
    }

    /// Marks its thread as waiting. Returns false if the flag is raised: the thread must not wait.
    #[inline(always)]
    pub fn begin_wait(&self) -> bool {
        self.word.fetch_or(WAITING, Ordering::SeqCst) & RAISED == 0
    }

    /// Marks its thread as no longer waiting.
    #[inline(always)]
    pub fn end_wait(&self) {
        self.word.fetch_and(!WAITING, Ordering::SeqCst);
    }

    /// Like [`Mailbox::wait`], unless the flag is raised. Called by its thread after
    /// [`EventFlag::begin_wait`].
    #[inline(always)]
    pub fn wait_on(&self, mailbox: Mailbox<'_>, timeout: Option<Duration>) -> Result<Seen, Wait> {
        mailbox.wait_unless(timeout, || self.is_raised())
    }

    /// Whether the flag is raised. Called by its thread.
    #[inline(always)]
    pub fn is_raised(&self) -> bool {
        self.word.load(Ordering::SeqCst) & RAISED != 0
    }

    /// Raises the flag. Called under the lock, after the change of the state and before the
    /// wake-up.
    pub fn raise(&self) {
        self.word.fetch_or(RAISED, Ordering::SeqCst);
        // Pairs with the fence in `Mailbox::wait_unless`: either the thread sees the flag
        // there, or the wake-up comes after its check.
        fence_after_update();
    }

    /// Whether its thread waits or is about to.
    pub fn is_waiting(&self) -> bool {
        self.word.load(Ordering::SeqCst) & WAITING != 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_flag_that_is_raised_keeps_its_thread_from_waiting_until_it_is_reset() {
        let flag = EventFlag::default();
        let state = || (flag.is_waiting(), flag.is_raised());
        assert_eq!((flag.begin_wait(), state()), (true, (true, false)));
        flag.end_wait();
        assert_eq!(state(), (false, false));
        flag.raise();
        assert_eq!(state(), (false, true));
        assert_eq!((flag.begin_wait(), state()), (false, (true, true)));
        flag.end_wait();
        assert_eq!(state(), (false, true), "it stays raised");
        flag.begin_wait();
        flag.reset();
        assert_eq!(state(), (false, false));
    }

    #[test]
    fn a_wait_ends_at_once_if_the_flag_is_raised() {
        let (flag, word) = (EventFlag::default(), AtomicU32::new(0));
        assert!(flag.begin_wait());
        flag.raise();
        assert_eq!(flag.wait_on(Mailbox::new(&word), None), Ok(Seen::Nothing));
    }
}
