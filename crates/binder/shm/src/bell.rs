//! A futex word that its owner's threads sleep on and one other process, the ringer, may wake.
//!
//! Idle threads of the owner sleep on the bells of several ringers at once. Each ringer knows only
//! its own bell, because a process that can map a word can also sleep on it and take a wake-up that
//! was meant for another.
//!
//! An honest ringer writes nothing on the page. It maps the page for writing all the same, because
//! the kernel then wakes with 700 instructions less. Its wake may come after a sleeper has
//! announced itself and before that sleeper is asleep:
//!
//! ```text
//!   sleeper                               ringer
//!   elsewhere += 1, slept_on = 1   (a)    publish the message                        (c)
//!   check for messages: none       (b)    slept_on ? wake one : elsewhere > 0 ?      (d)
//!   futex wait                            no sleeper woken, or elsewhere -> other means
//! ```
//!
//! SeqCst fences separate (a) from (b) and (c) from (d): either the sleeper sees the message in (b)
//! or the ringer sees the sleeper in (d) (Dekker). `elsewhere` counts all sleepers of the owner,
//! including those on other bells, and the ringer cannot write it. A ringer whose wake found no
//! sleeper must notify the owner by other means: see [`Ring::Missed`] and [`Ring::Nobody`]. So
//! `slept_on` may be too small for an instant, in which one sleeper goes and another comes.
//!
//! The owner trusts no word of the page, and counts its sleepers in private memory. The owner's own
//! ring changes the word. A hostile ringer may change the word back before an announced sleeper has
//! reached the kernel, and that sleeper is missed. Threads that are already in the kernel wake
//! whatever the word contains. So the owner repeats its ring some time later if the reason for it
//! still exists. A hostile ringer can also have the kernel move sleepers to a word of its own
//! (FUTEX_REQUEUE), where no ring reaches them: on the bell of a ringer that it does not trust a
//! thread sleeps [among](Sleep::Among) others only, with a word of the owner's own.
//!
//! The owner deactivates the bell of a ringer that has been silent for long. While `inactive` is
//! set, the owner's threads do not check for this ringer's messages in (b), and the ringer uses
//! other means wherever it would have relied on the check. Again either the owner sees the message,
//! or the ringer sees `inactive`.
//!
//! While the owner's threads look often, ringers of some messages need not ring: [`Attentive`].

use crate::futex;
use crate::sync::{AtomicU32, Ordering, fence, fence_after_update};

/// The three words of a bell's page.
#[derive(Clone, Copy)]
pub struct Bell<'a> {
    bell: &'a AtomicU32,
    slept_on: &'a AtomicU32,
    inactive: &'a AtomicU32,
}

/// A bell and the owner's private count of its sleepers.
#[derive(Clone, Copy)]
pub struct OwnBell<'a> {
    page: Bell<'a>,
    asleep: &'a AtomicU32,
}

/// The words that a thread of the owner sleeps on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// Only bells of ringers.
    Alone,
    /// Bells of ringers, and also a word of the owner's own.
    Among,
}

impl Sleep {
    /// The amount that this sleeper adds to the count. The lower half counts all sleepers, the
    /// upper half those that no other word wakes.
    fn count(self) -> u32 {
        match self {
            Sleep::Alone => ALONE | 1,
            Sleep::Among => 1,
        }
    }
}

const ALONE: u32 = 1 << 16;

/// The result of a ringer's ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ring {
    /// A sleeper was woken and will check for messages.
    Woken,
    /// No thread sleeps. Threads that are awake check this channel before they sleep.
    NoSleeper,
    /// A thread is about to sleep here, or was just woken. The ringer has to ring again or use
    /// other means.
    Missed,
    /// A thread sleeps on other bells, or no thread checks this channel. The ringer has to use
    /// other means.
    Nobody,
}

/// The result of an owner's ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a ring that somebody may have missed is repeated"]
pub enum OwnRing {
    /// No thread slept here.
    NoSleeper,
    /// All threads that had to be woken and slept were woken, but maybe not all that were about to
    /// sleep.
    Rung,
}

impl<'a> Bell<'a> {
    /// A bell with these words, which are zero at first.
    #[inline]
    pub fn new(bell: &'a AtomicU32, slept_on: &'a AtomicU32, inactive: &'a AtomicU32) -> Self {
        Bell { bell, slept_on, inactive }
    }

    /// The owner's view of the bell. `asleep` is private memory that counts the sleepers here.
    pub fn own(self, asleep: &'a AtomicU32) -> OwnBell<'a> {
        OwnBell { page: self, asleep }
    }

    /// Rings after a message was published by a SeqCst read-modify-write. Called by the ringer.
    /// `elsewhere` counts all of the owner's sleepers.
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

impl Bell<'_> {
    /// Whether the owner's threads check for this ringer's messages.
    #[inline]
    pub fn is_active(self) -> bool {
        self.inactive.load(Ordering::Relaxed) == 0
    }
}

impl<'a> OwnBell<'a> {
    /// Announces a sleeper. Returns the word to sleep on and its expected value. The caller then
    /// calls [`fence_before_check`], checks for messages, and sleeps with [`futex::wait_any`].
    pub fn announce(self, sleep: Sleep) -> (&'a AtomicU32, u32) {
        // Acquire pairs with the release in `ring`.
        let bell = self.page.bell.load(Ordering::Acquire);
        self.page.slept_on.store(1, Ordering::Relaxed);
        // The last write: `fence_before_check` relies on this.
        self.asleep.fetch_add(sleep.count(), Ordering::SeqCst);
        (self.page.bell, bell)
    }

    /// Withdraws the announcement of a sleeper, after the sleep or instead of it.
    pub fn withdraw(self, sleep: Sleep) {
        if self.asleep.fetch_sub(sleep.count(), Ordering::SeqCst) == sleep.count() {
            self.page.slept_on.store(0, Ordering::Relaxed);
        }
    }

    /// Stops the owner's threads from checking for this ringer's messages before they sleep: the
    /// ringer uses other means. Returns false, without a change, if there is a message.
    pub fn deactivate(self, has_message: impl FnOnce() -> bool) -> bool {
        self.page.inactive.store(1, Ordering::Relaxed);
        // Pairs with the fence in `Bell::ring`: either this call sees the message, or the ringer
        // sees `inactive`.
        fence(Ordering::SeqCst);
        let inactive = !has_message();
        if !inactive {
            self.reactivate();
        }
        inactive
    }

    /// Makes the owner's threads check again. A thread that finds `work` changed does so once it
    /// sees this store.
    pub fn reactivate(self) {
        self.page.inactive.store(0, Ordering::Release);
    }

    /// Wakes every thread that sleeps here, after work was published. Also wakes threads that are
    /// about to sleep, unless a hostile ringer undoes that.
    pub fn ring(self) -> OwnRing {
        self.ring_if(|asleep| asleep != 0, i32::MAX as u32)
    }

    /// Like [`OwnBell::ring`], but only if a thread sleeps on bells [alone](Sleep::Alone). The
    /// owner's own word has woken all others.
    pub fn ring_alone(self) -> OwnRing {
        self.ring_if(|asleep| asleep >= ALONE, i32::MAX as u32)
    }

    /// Like [`OwnBell::ring_alone`], but wakes one of those that sleep. The ringer could take the
    /// wake-up.
    pub fn ring_one(self) -> OwnRing {
        self.ring_if(|asleep| asleep >= ALONE, 1)
    }

    /// Passes a ring on to another sleeper. A thread that sleeps on several bells takes the rings
    /// of several ringers at once: until it runs, the kernel counts it as a sleeper of each. Call
    /// it with such a ringer's message still there. True if a sleeper was woken; a thread that is
    /// about to sleep sees the message.
    pub fn pass_on(self) -> bool {
        self.asleep.load(Ordering::SeqCst) != 0 && futex::wake(self.page.bell, 1) > 0
    }

    fn ring_if(self, wanted: impl FnOnce(u32) -> bool, most: u32) -> OwnRing {
        // Pairs with `fence_before_check`: either this ring sees the sleeper, or the sleeper sees
        // the work.
        fence(Ordering::SeqCst);
        if !wanted(self.asleep.load(Ordering::SeqCst)) {
            return OwnRing::NoSleeper;
        }
        // Release pairs with the acquire in `announce`; the changed word fails the futex wait.
        self.page.bell.fetch_add(1, Ordering::AcqRel);
        futex::wake(self.page.bell, most);
        OwnRing::Rung
    }
}

/// A word by which the owner tells ringers that they need not ring: its threads look at their
/// messages often. The word is cleared by a thread that is about to announce itself as a sleeper,
/// so either that thread's check sees a message, or the ringer sees the cleared word.
#[derive(Clone, Copy)]
pub struct Attentive<'a>(&'a AtomicU32);

impl<'a> Attentive<'a> {
    /// With this word, which is zero at first.
    #[inline]
    pub fn new(word: &'a AtomicU32) -> Attentive<'a> {
        Attentive(word)
    }

    /// Whether a ringer need not ring. Called after a SeqCst fence that follows the message.
    #[inline]
    pub fn is_on(self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Threads of the owner look often from now on.
    pub fn begin(self) {
        self.0.store(1, Ordering::Relaxed);
    }

    /// They may look no more. A SeqCst fence and a check for messages follow.
    pub fn end(self) {
        if self.is_on() {
            self.0.store(0, Ordering::Relaxed);
        }
    }
}

/// The fence between a sleeper's announcements, or another SeqCst read-modify-write, and its check
/// for messages.
#[inline]
pub fn fence_before_check() {
    fence_after_update();
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::thread;

    /// A bell's page, its sleepers, and the owner's sleepers on all bells.
    #[derive(Default)]
    struct Words {
        bell: AtomicU32,
        slept_on: AtomicU32,
        inactive: AtomicU32,
        asleep: AtomicU32,
        elsewhere: AtomicU32,
    }

    impl Words {
        fn bell(&self) -> Bell<'_> {
            Bell::new(&self.bell, &self.slept_on, &self.inactive)
        }

        fn own(&self) -> OwnBell<'_> {
            self.bell().own(&self.asleep)
        }

        /// Whether the ringer is told of a sleeper, and the bell's value.
        fn page(&self) -> (bool, u32) {
            let word = |word: &AtomicU32| word.load(Ordering::Relaxed);
            (word(&self.slept_on) != 0, word(&self.bell))
        }

        /// Runs `body` while a thread sleeps on the bell in the kernel. `body` wakes it.
        fn while_asleep(&self, body: impl FnOnce()) {
            let (word, value) = self.own().announce(Sleep::Alone);
            thread::scope(|scope| {
                let (known, is_known) = std::sync::mpsc::channel();
                let sleeper = scope.spawn(move || {
                    known.send(rustix::thread::gettid()).unwrap();
                    futex::wait(word, value, None);
                });
                let tid = is_known.recv().unwrap().as_raw_nonzero();
                let stat = || std::fs::read_to_string(format!("/proc/self/task/{tid}/stat"));
                while !stat().is_ok_and(|stat| stat.contains(") S ")) {
                    thread::yield_now();
                }
                body();
                sleeper.join().unwrap();
            });
            self.own().withdraw(Sleep::Alone);
        }
    }

    #[test]
    fn a_ringer_is_told_of_sleepers_until_the_last_one_goes() {
        let words = Words::default();
        let own = words.own();
        let (word, value) = own.announce(Sleep::Among);
        assert!(std::ptr::eq(word, &words.bell));
        assert_eq!((value, words.page()), (0, (true, 0)));
        own.announce(Sleep::Alone);
        own.withdraw(Sleep::Among);
        assert_eq!(words.page(), (true, 0), "one is left");
        own.withdraw(Sleep::Alone);
        assert_eq!(words.page(), (false, 0));
        assert_eq!(words.asleep.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_ring_says_who_has_to_be_told_where_it_wakes_nobody() {
        for (slept_on, elsewhere, inactive, rung) in [
            (0, 0, 0, Ring::NoSleeper),
            (0, 0, 1, Ring::Nobody),
            (0, 2, 0, Ring::Nobody),
            (0, 2, 1, Ring::Nobody),
            (1, 2, 0, Ring::Missed),
        ] {
            let words = Words::default();
            words.slept_on.store(slept_on, Ordering::Relaxed);
            words.elsewhere.store(elsewhere, Ordering::Relaxed);
            words.inactive.store(inactive, Ordering::Relaxed);
            assert_eq!(words.bell().ring(&words.elsewhere), rung, "{slept_on}, {elsewhere}");
        }
    }

    #[test]
    fn each_ring_wakes_a_sleeper() {
        let rings: [fn(&Words); 5] = [
            |words| assert_eq!(words.bell().ring(&words.elsewhere), Ring::Woken),
            |words| assert_eq!(words.own().ring(), OwnRing::Rung),
            |words| assert_eq!(words.own().ring_alone(), OwnRing::Rung),
            |words| assert_eq!(words.own().ring_one(), OwnRing::Rung),
            |words| assert!(words.own().pass_on()),
        ];
        for ring in rings {
            let words = Words::default();
            words.while_asleep(|| ring(&words));
        }
    }

    #[test]
    fn an_owners_ring_changes_the_word_for_its_sleepers_alone() {
        let words = Words::default();
        let own = words.own();
        let rings = || [own.ring(), own.ring_alone(), own.ring_one()];
        assert_eq!(rings(), [OwnRing::NoSleeper; 3]);
        assert!(!own.pass_on());
        own.announce(Sleep::Among);
        assert_eq!((own.ring_alone(), words.page().1), (OwnRing::NoSleeper, 0));
        assert_eq!((own.ring(), words.page().1), (OwnRing::Rung, 1));
        own.announce(Sleep::Alone);
        assert_eq!((own.ring_alone(), words.page().1), (OwnRing::Rung, 2));
        assert_eq!(own.announce(Sleep::Alone).1, 2, "the value to sleep on");
        assert!(!own.pass_on(), "nobody sleeps in the kernel");
        assert_eq!(words.page().1, 2, "a ring that is passed on changes nothing");
    }

    #[test]
    fn a_bell_is_deactivated_unless_a_message_lies_there() {
        let words = Words::default();
        let (own, inactive) = (words.own(), || !words.bell().is_active());
        assert!(!own.deactivate(inactive), "the ringer is told before the look");
        assert!(!inactive());
        assert!(own.deactivate(|| false) && inactive());
        own.reactivate();
        assert!(!inactive());
    }

    #[test]
    fn a_ringer_is_told_that_threads_look_often_until_one_is_about_to_sleep() {
        let word = AtomicU32::default();
        let attentive = Attentive::new(&word);
        assert!(!attentive.is_on());
        attentive.begin();
        assert!(attentive.is_on());
        attentive.end();
        assert!(!attentive.is_on());
    }
}
