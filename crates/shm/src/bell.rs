//! A futex word that its owner's threads sleep on, and that one stranger may wake.
//!
//! Threads of the owner that have nothing to do sleep on the bells of several strangers at once,
//! each of whom knows its own bell only: whoever can map a word can sleep on it too, and take a
//! wake-up that was meant for somebody else, but here nobody else's is. The stranger changes
//! nothing on the page, but it could: the kernel wakes by a map for writing with 700 instructions
//! less. An honest one's wake may find a sleeper that has announced itself and is not asleep yet:
//!
//! ```text
//!   sleeper                               ringer
//!   elsewhere += 1, slept_on = 1   (a)    publish its message                        (c)
//!   look for messages: none        (b)    slept_on ? wake one : elsewhere > 0 ?      (d)
//!   futex wait                            nobody woken, or elsewhere -> other means
//! ```
//!
//! (a)(b) and (c)(d) are separated by SeqCst fences: either the sleeper sees the message in (b) or
//! the ringer sees the sleeper in (d) (Dekker). `elsewhere` counts all of the owner's sleepers,
//! also those that sleep on other bells only, and is not the stranger's to write. A ringer whose
//! wake found nobody must tell the owner by other means; [`Ring::Missed`] and [`Ring::Nobody`] say
//! so. So `slept_on` may be too small, for an instant in which one sleeper leaves while another one
//! comes.
//!
//! The owner believes nothing on the page. How many of its threads sleep there it keeps for itself.
//! Its own ring changes the word, and a hostile stranger may change it back before a sleeper that
//! has announced itself has reached the kernel. That sleeper is missed; whoever is in the kernel is
//! woken whatever the word holds. An owner's ring is therefore repeated some time later if what it
//! was for is still there.
//!
//! Of a stranger that has been silent for long the owner makes itself free: while `inactive` is
//! set, its threads do not look for this stranger's messages in (b), and the ringer uses other
//! means wherever it would have relied on that. Here too either the owner sees the message, or the
//! ringer that it has gone inactive.

use crate::futex;
use crate::sync::{AtomicU32, Ordering, fence, fence_after_update};

/// A view of a bell's words.
#[derive(Clone, Copy)]
pub struct Bell<'a> {
    bell: &'a AtomicU32,
    slept_on: &'a AtomicU32,
    inactive: &'a AtomicU32,
}

/// A bell, as its owner has it.
#[derive(Clone, Copy)]
pub struct OwnBell<'a> {
    page: Bell<'a>,
    asleep: &'a AtomicU32,
}

/// What an owner's thread sleeps on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// This bell.
    Alone,
    /// This bell, others, and a word of the owner's own.
    Among,
}

impl Sleep {
    /// As sleepers are counted: in the lower half all, in the upper half those that no other word
    /// wakes.
    fn count(self) -> u32 {
        match self {
            Sleep::Alone => ALONE | 1,
            Sleep::Among => 1,
        }
    }
}

const ALONE: u32 = 1 << 16;

/// What a stranger's ring achieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ring {
    /// A sleeper is awake and will look.
    Woken,
    /// No thread sleeps: those that are awake look here before they do.
    NoSleeper,
    /// One is about to sleep here, or has just been woken: ring again, or tell it by other means.
    Missed,
    /// One sleeps elsewhere or is about to, or none looks here.
    Nobody,
}

/// Whom an owner's ring may have reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a ring that somebody may have missed is repeated"]
pub enum OwnRing {
    /// Nobody slept here.
    NoSleeper,
    /// All who slept, and not all who were about to.
    Rung,
}

impl<'a> Bell<'a> {
    /// Words of one page, zero at first.
    #[inline]
    pub fn new(bell: &'a AtomicU32, slept_on: &'a AtomicU32, inactive: &'a AtomicU32) -> Self {
        Bell { bell, slept_on, inactive }
    }

    /// Of its owner, which keeps in `asleep`, where no stranger writes, how many sleep here.
    pub fn own(self, asleep: &'a AtomicU32) -> OwnBell<'a> {
        OwnBell { page: self, asleep }
    }

    /// The stranger, after it has published something by a SeqCst read-modify-write, or before a
    /// fence. `elsewhere` counts the owner's sleepers.
    #[inline]
    pub fn ring(self, elsewhere: &AtomicU32) -> Ring {
        fence_after_update();
        if self.slept_on.load(Ordering::Relaxed) != 0 {
            return if futex::wake(self.bell, 1) > 0 { Ring::Woken } else { Ring::Missed };
        }
        match elsewhere.load(Ordering::SeqCst) {
            0 if self.inactive.load(Ordering::Relaxed) == 0 => Ring::NoSleeper,
            _ => Ring::Nobody,
        }
    }
}

impl<'a> OwnBell<'a> {
    /// Announces a sleeper, and says what to wait on. Call [`look_again`], look for messages
    /// after that, then sleep with [`futex::wait_any`].
    pub fn announce(self, sleep: Sleep) -> (&'a AtomicU32, u32) {
        // Acquire pairs with the release in `ring`.
        let bell = self.page.bell.load(Ordering::Acquire);
        self.page.slept_on.store(1, Ordering::Relaxed);
        // Last: `look_again` relies on it.
        self.asleep.fetch_add(sleep.count(), Ordering::SeqCst);
        (self.page.bell, bell)
    }

    /// Takes the announcement back, after the sleep or instead of it.
    pub fn rise(self, sleep: Sleep) {
        if self.asleep.fetch_sub(sleep.count(), Ordering::SeqCst) == sleep.count() {
            self.page.slept_on.store(0, Ordering::Relaxed);
        }
    }

    /// Nobody looks for the stranger's messages from now on before they sleep: it tells by other
    /// means. False, and nothing has changed, if there is one.
    pub fn deactivate(self, has_message: impl FnOnce() -> bool) -> bool {
        self.page.inactive.store(1, Ordering::Relaxed);
        // Pairs with the fence in `Bell::ring`: either the message is seen here, or the word there.
        fence(Ordering::SeqCst);
        let inactive = !has_message();
        if !inactive {
            self.reactivate();
        }
        inactive
    }

    /// Its threads look again, those excepted that find `work` changed: they do as soon as they see
    /// it.
    pub fn reactivate(self) {
        self.page.inactive.store(0, Ordering::Release);
    }

    /// After work has been published: wakes every thread that sleeps here or, unless the stranger
    /// undoes it, is about to. One wake could be the stranger's to take.
    pub fn ring(self) -> OwnRing {
        self.ring_if(|asleep| asleep != 0)
    }

    /// The same, if somebody sleeps here [alone](Sleep::Alone): others have been woken by the
    /// owner's word.
    pub fn ring_alone(self) -> OwnRing {
        self.ring_if(|asleep| asleep >= ALONE)
    }

    fn ring_if(self, wanted: impl FnOnce(u32) -> bool) -> OwnRing {
        // Pairs with `look_again`: either the sleeper is seen here, or it sees the work.
        fence(Ordering::SeqCst);
        if !wanted(self.asleep.load(Ordering::SeqCst)) {
            return OwnRing::NoSleeper;
        }
        // Release pairs with the acquire in `announce`; the changed word fails the futex wait.
        self.page.bell.fetch_add(1, Ordering::AcqRel);
        futex::wake(self.page.bell, i32::MAX as u32);
        OwnRing::Rung
    }
}

/// Owner: between the announcements of a sleeper, or another SeqCst read-modify-write, and its look
/// for messages.
#[inline]
pub fn look_again() {
    fence_after_update();
}
