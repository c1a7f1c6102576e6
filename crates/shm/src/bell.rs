//! A futex word that its owner's threads sleep on, that one stranger may wake, and that only its owner
//! changes.
//!
//! Threads of the owner that have nothing to do sleep on the bells of several strangers at once, each
//! of whom knows its own bell only: whoever can map a word can sleep on it too, and take a wake-up
//! that was meant for somebody else, but here nobody else's is. The stranger maps the page read
//! only, which is enough to wake, so it cannot undo the owner's own ring. The price is that it cannot make
//! the kernel's check "does the word still hold this value?" fail, so its wake may find a
//! sleeper that has announced itself and is not asleep yet:
//!
//! ```text
//!   sleeper                               ringer
//!   sleepers += 1, elsewhere += 1  (a)    publish its message                      (c)
//!   look for messages: none        (b)    sleepers > 0 ? wake one : elsewhere > 0? (d)
//!   futex wait                            nobody woken, or elsewhere -> other means
//! ```
//!
//! (a)(b) and (c)(d) are separated by SeqCst fences: either the sleeper sees the message in (b) or
//! the ringer sees the sleeper in (d) (Dekker). `elsewhere` counts all of the owner's sleepers,
//! also those that sleep on other bells only. A ringer whose wake found nobody must tell the owner
//! by other means; [`Ring::Missed`] and [`Ring::Nobody`] say so.

use crate::futex;
use crate::sync::{AtomicU32, Ordering, fence};

/// A view of the two words of a bell.
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
    /// One is about to sleep here, or has just been woken: ring again, or tell it by other means.
    Missed,
    /// One sleeps elsewhere, or is about to, and may not look again.
    Nobody,
}

impl<'a> Bell<'a> {
    /// `bell` and `sleepers` are words of one page, zero at first.
    pub fn new(bell: &'a AtomicU32, sleepers: &'a AtomicU32) -> Self {
        Bell { bell, sleepers }
    }

    /// Owner: announces a sleeper, and says what to wait on. Call [`look_again`], look for messages
    /// after that, then sleep with [`futex::wait_any`].
    pub fn announce(self) -> (&'a AtomicU32, u32) {
        // Acquire pairs with the release in `ring_own`.
        let bell = self.bell.load(Ordering::Acquire);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        (self.bell, bell)
    }

    /// Owner: takes the announcement back, after the sleep or instead of it.
    pub fn rise(self) {
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Owner: wakes every thread that sleeps here or is about to. One wake could be the stranger's
    /// to take.
    pub fn ring_own(self) {
        // Release pairs with the acquire in `announce`; the changed word fails the futex wait.
        self.bell.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            futex::wake(self.bell, i32::MAX as u32);
        }
    }

    /// The stranger, after it has published something. `elsewhere` counts the owner's sleepers.
    pub fn ring(self, elsewhere: &AtomicU32) -> Ring {
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            return if futex::wake(self.bell, 1) > 0 { Ring::Woken } else { Ring::Missed };
        }
        match elsewhere.load(Ordering::SeqCst) {
            0 => Ring::NoSleeper,
            _ => Ring::Nobody,
        }
    }
}

/// Owner: between the announcements of a sleeper and its look for messages.
pub fn look_again() {
    fence(Ordering::SeqCst);
}
