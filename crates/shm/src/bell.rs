//! A futex word that strangers may wake and only its owner changes.
//!
//! Threads of the owner sleep on the bell when they have nothing to do. Clients map the page read
//! only, so none of them can undo another one's ring; a futex wake needs no write access. The
//! price is that a client cannot make the kernel's check "does the word still hold this value?"
//! fail, so a wake may find a sleeper that has announced itself and is not asleep yet:
//!
//! ```text
//!   sleeper                               ringer
//!   sleepers += 1           (a)           publish its message        (c)
//!   look for messages: none (b)           sleepers > 0 ? wake one    (d)
//!   futex wait                            nobody woken -> other means
//! ```
//!
//! (a)(b) and (c)(d) are separated by SeqCst fences: either the sleeper sees the message in (b) or
//! the ringer sees the sleeper in (d) (Dekker). A ringer whose wake found nobody must tell the
//! owner by other means; [`Ring::Nobody`] says so.

use crate::futex::{self, Wait};
use crate::sync::{AtomicU32, Ordering, fence};

/// The owner's view.
#[derive(Clone, Copy)]
pub struct Bell<'a> {
    bell: &'a AtomicU32,
    sleepers: &'a AtomicU32,
}

/// What a stranger's ring achieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ring {
    /// A sleeper is awake and will look.
    Woken,
    /// No thread sleeps: those that are awake look before they do.
    NoSleeper,
    /// One was about to sleep and may not look again.
    Nobody,
}

impl<'a> Bell<'a> {
    /// `bell` and `sleepers` are words of one page, zero at first.
    pub fn new(bell: &'a AtomicU32, sleepers: &'a AtomicU32) -> Self {
        Bell { bell, sleepers }
    }

    /// Owner: announces a sleeper. Look for messages after this, then [`Bell::sleep`].
    pub fn announce(self) -> u32 {
        let bell = self.bell.load(Ordering::Acquire);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        bell
    }

    /// Owner: sleeps unless the owner rang since `announced`. Ends at every signal handler.
    pub fn sleep(self, announced: u32) -> Wait {
        futex::wait(self.bell, announced, Some(futex::FAR_AHEAD))
    }

    /// Owner: takes the announcement back, after the sleep or instead of it.
    pub fn rise(self) {
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Owner: wakes one sleeper, also one that is only about to sleep.
    pub fn ring_own(self) {
        // Release pairs with the acquire in `announce`; the changed word fails the futex wait.
        self.bell.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            futex::wake(self.bell, 1);
        }
    }

    /// A stranger, after it has published something.
    pub fn ring(self) -> Ring {
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) == 0 {
            return Ring::NoSleeper;
        }
        if futex::wake(self.bell, 1) > 0 { Ring::Woken } else { Ring::Nobody }
    }
}
