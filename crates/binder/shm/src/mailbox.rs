//! A word beside a message area that says whether the area contains a message and whether its
//! reader waits.
//!
//! ```text
//!   bit 0 FULL     set by the writer when the area is complete; cleared by the reader
//!   bit 1 WAITING  set by the reader before it sleeps; cleared after that, or with FULL
//!   bit 2 NUDGED   set by the reader's own process, which wants the reader for something else
//!   bit 3 CLOSED   set by the reader: no thread will take a message here again
//!   bit 4 POLLING  set by the reader while it sleeps in `poll`: notify it through the socket
//!   bit 5 RETURNED set by the writer, after CLOSED: it will not post here again
//!   bit 6 WATCHED  set by the reader while it spins on the word: no other thread need be told
//!   bit 7 DEDICATED set by a reader that alone takes every message, and always looks before it
//!                  sleeps on the word: the writer tells no other thread
//! ```
//!
//! Memory order: [`Mailbox::post`] releases the area, and [`Mailbox::look`] and [`Mailbox::wait`]
//! acquire it. [`Mailbox::clear`] releases the area back, and the next post's read of the word
//! acquires it. WAITING and FULL are set by read-modify-writes of one word, so the second one sees
//! the first. No wake-up is lost unless the reader itself causes that.
//!
//! The writer is another process. It may set and clear any bit at any time, and sleep on the word
//! itself. The reader handles every pattern: the worst result is that the writer's own conversation
//! stalls or ends. The reader's own process does not depend on the word: [`Mailbox::nudge`] wakes
//! all sleepers whatever it contains, and [`Mailbox::wait`] returns at every wake. But the writer
//! can also have the kernel move sleepers to another word (FUTEX_REQUEUE). A reader that does not
//! trust its writer gives its waits a timeout.

use crate::futex::{self, Wait};
use crate::sync::{AtomicU32, Ordering, fence_after_update};
use core::time::Duration;

const FULL: u32 = 1;
const WAITING: u32 = 2;
const NUDGED: u32 = 4;
const CLOSED: u32 = 8;
const POLLING: u32 = 16;
const RETURNED: u32 = 32;
const WATCHED: u32 = 64;
const DEDICATED: u32 = 128;

/// A view of the word. Any number of views may exist, but only one writer and one reader may use
/// them.
#[derive(Clone, Copy)]
pub struct Mailbox<'a> {
    word: &'a AtomicU32,
}

/// The reader's state at the time of a post, which decides whether another thread has to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// The reader slept on the word and was woken.
    Woken,
    /// The reader spins on the word.
    Watching,
    /// The reader alone takes every message, and looks before it sleeps.
    Dedicated,
    /// The reader will check by itself, or another thread has to be told.
    Elsewhere,
    /// The reader waits in `poll`: notify its process through the channel's socket.
    Polling,
    /// The reader is gone: no thread will take the message.
    Closed,
}

/// The result of a check of the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A message. Copy it, then call [`Mailbox::clear`].
    Message,
    /// The reader's own process wants the reader.
    Nudge,
    /// Neither a message nor a nudge.
    Nothing,
}

impl<'a> Mailbox<'a> {
    /// The mailbox of a word. A zero word is an empty mailbox.
    pub fn new(word: &'a AtomicU32) -> Self {
        Mailbox { word }
    }

    /// Posts a complete area and wakes the reader if it sleeps on the word. Called by the writer.
    #[inline(always)]
    pub fn post(self) -> Reader {
        // Release pairs with the acquire in `look` and `wait`. An addition returns the old word in
        // one instruction. An `or` that returns it reads the word first, and so fetches its cache
        // line from the reader twice.
        match self.word.fetch_add(FULL, Ordering::AcqRel) {
            // Readers that need no wake-up, in one comparison each.
            0 => Reader::Elsewhere,
            WATCHED => Reader::Watching,
            before => self.post_to(before),
        }
    }

    /// Handles the less frequent states of the reader after a post.
    #[inline]
    fn post_to(self, before: u32) -> Reader {
        if before & FULL != 0 {
            return self.post_again(before);
        }
        if before & CLOSED != 0 {
            self.word.fetch_and(!FULL, Ordering::AcqRel);
            return Reader::Closed;
        }
        if before & WAITING != 0 {
            futex::wake(self.word, 1);
            return Reader::Woken;
        }
        if before & WATCHED != 0 {
            return Reader::Watching;
        }
        if before & DEDICATED != 0 {
            return Reader::Dedicated;
        }
        if before & POLLING != 0 { Reader::Polling } else { Reader::Elsewhere }
    }

    /// Handles a post beside an unread message: restores the bits that the addition changed, and
    /// wakes all sleepers whatever the reader has seen meanwhile.
    #[cold]
    fn post_again(self, before: u32) -> Reader {
        self.word.fetch_sub(FULL, Ordering::AcqRel);
        futex::wake(self.word, i32::MAX as u32);
        if before & CLOSED != 0 { Reader::Closed } else { Reader::Elsewhere }
    }

    /// Whether there is no message, so that the area may be written.
    #[inline]
    pub fn is_empty(self) -> bool {
        // Acquire pairs with the release in `clear`.
        self.word.load(Ordering::Acquire) & FULL == 0
    }

    /// Checks the word without waiting. Consumes a nudge, but reports a message first. Called by
    /// the reader.
    #[inline]
    pub fn look(self) -> Seen {
        let word = self.word.load(Ordering::Acquire);
        if word & FULL != 0 {
            return Seen::Message;
        }
        if word & NUDGED != 0 {
            self.word.fetch_and(!NUDGED, Ordering::AcqRel);
            return Seen::Nudge;
        }
        Seen::Nothing
    }

    /// Gives the area back to the writer after the message was copied, and ends watching. Called by
    /// the reader.
    #[inline]
    pub fn clear(self) {
        self.word.fetch_and(!(FULL | WAITING | WATCHED), Ordering::AcqRel);
    }

    /// Like [`Mailbox::clear`], for a reader that continues to watch.
    #[inline]
    pub fn clear_watched(self) {
        self.word.fetch_and(!(FULL | WAITING), Ordering::AcqRel);
    }

    /// Marks the reader as spinning on the word, until [`Mailbox::unwatch`] or [`Mailbox::clear`].
    #[inline]
    pub fn watch(self) {
        self.word.fetch_or(WATCHED, Ordering::AcqRel);
    }

    /// Ends the spinning. Returns true if there is a message, which possibly no other thread knows
    /// of.
    #[inline]
    pub fn unwatch(self) -> bool {
        // A plain load saves the read-modify-write if `clear` follows.
        !self.is_empty() || self.word.fetch_and(!WATCHED, Ordering::AcqRel) & FULL != 0
    }

    /// Reader: it alone takes every message until [`Mailbox::end_dedicated`], and wakes a writer in
    /// [`Mailbox::await_dedicated`]. False if a message lies here, of which the writer may have
    /// told other threads.
    pub fn dedicate(self) -> bool {
        let dedicated = |word| (word & FULL == 0).then_some(word | DEDICATED);
        let update = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, dedicated);
        let dedicates = update.is_ok();
        if dedicates {
            // Its writer may wait for that.
            futex::wake(self.word, i32::MAX as u32);
        }
        dedicates
    }

    /// Writer: whether the reader says that it is dedicated.
    pub fn is_dedicated(self) -> bool {
        self.word.load(Ordering::Acquire) & DEDICATED != 0
    }

    /// Writer: sleeps until the reader is dedicated, at most `timeout`. `Err` after that, or after
    /// a signal. A hostile reader can keep its writer here for that long.
    pub fn await_dedicated(self, timeout: Option<Duration>) -> Result<(), Wait> {
        loop {
            let word = self.word.load(Ordering::Acquire);
            if word & DEDICATED != 0 {
                return Ok(());
            }
            match futex::wait(self.word, word, timeout) {
                Wait::Woken => {}
                ended => return Err(ended),
            }
        }
    }

    /// Reader: other threads take messages again. True if one lies here, of which only the reader
    /// knows.
    pub fn end_dedicated(self) -> bool {
        self.word.fetch_and(!DEDICATED, Ordering::AcqRel) & FULL != 0
    }

    /// Sleeps until there is a message or a nudge, or the wait returns for no reason: the caller
    /// then checks everything that it waits for. `Err` after a signal or at the timeout. Called by
    /// the reader.
    #[inline(always)]
    pub fn wait(self, timeout: Option<Duration>) -> Result<Seen, Wait> {
        self.wait_unless(timeout, || false)
    }

    /// Like [`Mailbox::wait`], unless `something_else` is true. The function runs once other
    /// threads can see the reader wait. A thread that makes it true later nudges the reader.
    #[inline(always)]
    pub fn wait_unless(
        self,
        timeout: Option<Duration>,
        something_else: impl FnOnce() -> bool,
    ) -> Result<Seen, Wait> {
        let word = self.word.fetch_or(WAITING, Ordering::AcqRel) | WAITING;
        if word & FULL != 0 {
            return Ok(Seen::Message);
        }
        fence_after_update();
        let outcome = if word & NUDGED != 0 || something_else() {
            Ok(())
        } else {
            match futex::wait(self.word, word, timeout) {
                Wait::Woken => Ok(()),
                ended => Err(ended),
            }
        };
        if !self.is_empty() {
            // [`Mailbox::clear`] removes WAITING together with FULL. Until then no message is
            // posted.
            return Ok(Seen::Message);
        }
        self.word.fetch_and(!WAITING, Ordering::AcqRel);
        match (self.look(), outcome) {
            (Seen::Nothing, Err(ended)) => Err(ended),
            (seen, _) => Ok(seen),
        }
    }

    /// Makes a waiting reader return. Called by any thread of the reader's process. Wakes all
    /// sleepers, without a check of WAITING: the writer may have cleared WAITING or be a sleeper
    /// itself.
    pub fn nudge(self) {
        self.word.fetch_or(NUDGED, Ordering::AcqRel);
        futex::wake(self.word, i32::MAX as u32);
    }

    /// Makes a waiting reader return without a message, because something lies elsewhere for it.
    /// Called by the writer. True if the reader is dedicated and slept on the word, or was about
    /// to: it looks now.
    pub fn alert(self) -> bool {
        // Release: what lies elsewhere comes before it. The reader's `wait` and `look` acquire.
        let before = self.word.fetch_or(NUDGED, Ordering::AcqRel);
        if before & WAITING != 0 {
            futex::wake(self.word, 1);
        }
        before & (DEDICATED | WAITING) == DEDICATED | WAITING
    }

    /// Sets whether the reader waits in `poll`. Called by the reader.
    pub fn set_polling(self, polling: bool) {
        if polling {
            self.word.fetch_or(POLLING, Ordering::AcqRel);
        } else {
            self.word.fetch_and(!POLLING, Ordering::AcqRel);
        }
    }

    /// Closes the mailbox: the reader takes no later message. Returns true if there is a message
    /// that was posted before. Called by the reader.
    pub fn close(self) -> bool {
        self.word.fetch_or(CLOSED, Ordering::AcqRel) & FULL != 0
    }

    /// Whether [`Mailbox::close`] was called. Called by the writer.
    pub fn is_closed(self) -> bool {
        self.word.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Confirms a [`Mailbox::close`]: the writer will not post here again. Called by the writer.
    pub fn give_back(self) {
        self.word.fetch_or(RETURNED, Ordering::AcqRel);
    }

    /// Whether [`Mailbox::give_back`] was called. Called by the reader.
    pub fn is_given_back(self) -> bool {
        self.word.load(Ordering::Acquire) & RETURNED != 0
    }

    /// Either end, once the other end's thread has left: empties the word. A dedicated reader has
    /// not left, and keeps its bits.
    pub fn reset(self) {
        let rest =
            |word| if word & DEDICATED == 0 { 0 } else { word & (DEDICATED | WAITING | NUDGED) };
        let _ =
            self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| Some(rest(word)));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    /// Runs a step on a word, and checks the word after it.
    fn step<T>(before: u32, after: u32, step: impl FnOnce(Mailbox<'_>) -> T) -> T {
        let word = AtomicU32::new(before);
        let returned = step(Mailbox::new(&word));
        assert_eq!(word.load(Ordering::Relaxed), after, "from {before:#b}");
        returned
    }

    #[test]
    fn a_post_says_where_its_reader_is_and_changes_only_its_own_bit() {
        for (before, reader) in [
            (0, Reader::Elsewhere),
            (NUDGED, Reader::Elsewhere),
            (WATCHED, Reader::Watching),
            (WATCHED | NUDGED | DEDICATED | POLLING, Reader::Watching),
            (WAITING, Reader::Woken),
            (WAITING | WATCHED | DEDICATED | POLLING, Reader::Woken),
            (DEDICATED, Reader::Dedicated),
            (DEDICATED | POLLING, Reader::Dedicated),
            (POLLING, Reader::Polling),
            (POLLING | NUDGED, Reader::Polling),
        ] {
            assert_eq!(step(before, before | FULL, |it| it.post()), reader, "{before:#b}");
        }
        for (before, reader) in [
            (CLOSED, Reader::Closed),
            (CLOSED | WAITING | WATCHED | DEDICATED, Reader::Closed),
            (FULL, Reader::Elsewhere),
            (FULL | WAITING | WATCHED | DEDICATED | POLLING, Reader::Elsewhere),
            (FULL | CLOSED, Reader::Closed),
            (FULL | CLOSED | WAITING, Reader::Closed),
        ] {
            assert_eq!(step(before, before, |it| it.post()), reader, "{before:#b}");
        }
    }

    #[test]
    fn a_look_reports_a_message_before_a_nudge_and_takes_the_nudge() {
        for (before, seen, after) in [
            (0, Seen::Nothing, 0),
            (!(FULL | NUDGED), Seen::Nothing, !(FULL | NUDGED)),
            (FULL | NUDGED, Seen::Message, FULL | NUDGED),
            (NUDGED, Seen::Nudge, 0),
            (NUDGED | WATCHED | DEDICATED, Seen::Nudge, WATCHED | DEDICATED),
        ] {
            assert_eq!(step(before, after, |it| it.look()), seen, "{before:#b}");
        }
    }

    /// Each step from a word that shows the bits it needs, and from one that shows all others.
    #[test]
    fn each_step_changes_its_own_bits_and_asks_for_them_alone() {
        type Step = fn(Mailbox<'_>) -> bool;
        /// The word before, what the step returns, and the word after.
        type Case = (u32, bool, u32);
        let steps: [(&str, Step, &[Case]); 9] = [
            ("is empty", |it| it.is_empty(), &[(!FULL, true, !FULL), (FULL, false, FULL)]),
            (
                "unwatch",
                |it| it.unwatch(),
                &[(!FULL, false, !(FULL | WATCHED)), (FULL | WATCHED, true, FULL | WATCHED)],
            ),
            (
                "dedicate",
                |it| it.dedicate(),
                &[
                    (WATCHED, true, WATCHED | DEDICATED),
                    (DEDICATED, true, DEDICATED),
                    (FULL, false, FULL),
                ],
            ),
            (
                "is dedicated",
                |it| it.is_dedicated(),
                &[(!DEDICATED, false, !DEDICATED), (DEDICATED, true, DEDICATED)],
            ),
            (
                "end of dedication",
                |it| it.end_dedicated(),
                &[(!FULL, false, !(FULL | DEDICATED)), (FULL | DEDICATED, true, FULL)],
            ),
            (
                "alert",
                |it| it.alert(),
                &[
                    (0, false, NUDGED),
                    (!DEDICATED, false, !DEDICATED),
                    (!WAITING, false, !WAITING),
                    (DEDICATED | WAITING, true, DEDICATED | WAITING | NUDGED),
                    (!NUDGED, true, u32::MAX),
                ],
            ),
            (
                "close",
                |it| it.close(),
                &[(!FULL & !CLOSED, false, !FULL), (FULL, true, FULL | CLOSED)],
            ),
            (
                "is closed",
                |it| it.is_closed(),
                &[(!CLOSED, false, !CLOSED), (CLOSED, true, CLOSED)],
            ),
            (
                "is given back",
                |it| it.is_given_back(),
                &[(!RETURNED, false, !RETURNED), (RETURNED, true, RETURNED)],
            ),
        ];
        for (name, run, cases) in steps {
            for &(before, returned, after) in cases {
                assert_eq!(step(before, after, run), returned, "{name} from {before:#b}");
            }
        }
        type Change = fn(Mailbox<'_>);
        let changes: [(&str, Change, u32, u32); 8] = [
            ("clear", |it| it.clear(), u32::MAX, !(FULL | WAITING | WATCHED)),
            ("clear, watched", |it| it.clear_watched(), u32::MAX, !(FULL | WAITING)),
            ("watch", |it| it.watch(), WAITING, WAITING | WATCHED),
            ("nudge", |it| it.nudge(), WAITING, WAITING | NUDGED),
            ("give back", |it| it.give_back(), CLOSED, CLOSED | RETURNED),
            ("polls", |it| it.set_polling(true), WATCHED, WATCHED | POLLING),
            ("reset", |it| it.reset(), !DEDICATED, 0),
            ("reset, dedicated", |it| it.reset(), 255, DEDICATED | WAITING | NUDGED),
        ];
        for (name, change, before, after) in changes {
            let word = AtomicU32::new(before);
            change(Mailbox::new(&word));
            assert_eq!(word.load(Ordering::Relaxed), after, "{name}");
        }
        step(u32::MAX, !POLLING, |it| it.set_polling(false));
    }

    /// A wait that does not sleep, or whose time is over at once.
    #[test]
    fn a_wait_ends_by_a_message_a_nudge_or_something_else_and_waits_no_more() {
        let at_once = Some(Duration::ZERO);
        for (before, something_else, seen, after) in [
            (0, false, Err(Wait::TimedOut), 0),
            (WAITING, false, Err(Wait::TimedOut), 0),
            (DEDICATED | WATCHED, false, Err(Wait::TimedOut), DEDICATED | WATCHED),
            (DEDICATED, true, Ok(Seen::Nothing), DEDICATED),
            (NUDGED | DEDICATED, false, Ok(Seen::Nudge), DEDICATED),
            (NUDGED, true, Ok(Seen::Nudge), 0),
            (FULL | NUDGED, false, Ok(Seen::Message), FULL | NUDGED | WAITING),
        ] {
            let wait = |it: Mailbox<'_>| it.wait_unless(at_once, || something_else);
            assert_eq!(step(before, after, wait), seen, "{before:#b}");
        }
        let posted = |it: Mailbox<'_>| it.wait_unless(at_once, || it.post() == Reader::Woken);
        assert_eq!(step(0, FULL | WAITING, posted), Ok(Seen::Message));
        let dedicated = |it: Mailbox<'_>| it.await_dedicated(at_once);
        assert_eq!(step(DEDICATED, DEDICATED, dedicated), Ok(()));
        assert_eq!(step(!DEDICATED, !DEDICATED, dedicated), Err(Wait::TimedOut));
    }

    /// Returns once a thread sleeps in the kernel. `None` if it has ended.
    fn wait_until_asleep(tid: i32) -> Option<()> {
        loop {
            let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).ok()?;
            if stat.rsplit(") ").next()?.starts_with('S') {
                return Some(());
            }
            thread::yield_now();
        }
    }

    /// A thread that sleeps on the word.
    fn sleeper(word: &Arc<AtomicU32>, body: fn(&AtomicU32)) -> thread::JoinHandle<()> {
        let (word, (known, is_known)) = (Arc::clone(word), std::sync::mpsc::channel());
        let thread = thread::spawn(move || {
            known.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            body(&word);
        });
        wait_until_asleep(is_known.recv().unwrap()).unwrap();
        thread
    }

    #[test]
    fn a_reader_that_sleeps_is_woken_by_a_post_and_by_an_alert() {
        let wakes: [fn(Mailbox<'_>); 2] = [
            |mailbox| assert_eq!(mailbox.post(), Reader::Woken),
            |mailbox| assert!(!mailbox.alert(), "the reader is not dedicated"),
        ];
        for wake in wakes {
            let word = Arc::new(AtomicU32::new(0));
            let reader = sleeper(&word, |word| _ = Mailbox::new(word).wait(None));
            wake(Mailbox::new(&word));
            reader.join().unwrap();
        }
    }

    #[test]
    fn a_nudge_reaches_the_reader_whatever_the_writer_does() {
        let word = Arc::new(AtomicU32::new(0));
        // The hostile writer's own sleeper is the first in the kernel's queue.
        let hostile_sleeper = sleeper(&word, |word| _ = futex::wait(word, 0, None));
        let reader = sleeper(&word, |word| _ = Mailbox::new(word).wait(None));
        word.store(0, Ordering::Release);
        Mailbox::new(&word).nudge();
        reader.join().unwrap();
        hostile_sleeper.join().unwrap();
    }
}
