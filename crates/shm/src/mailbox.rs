//! One word beside a message area: is there a message, and who waits for it.
//!
//! ```text
//!   bit 0 FULL     set by the writer when the area is complete; cleared by the reader
//!   bit 1 WAITING  set by the reader before it sleeps; cleared after that, or with FULL
//!   bit 2 NUDGED   set by the reader's own process: something else wants this thread
//!   bit 3 CLOSED   set by the reader: nobody will take a message here any more
//!   bit 4 POLLING  set by the reader: tell me by other means (its socket), I do not sleep here
//!   bit 5 RETURNED set by the writer, after CLOSED: it will not post here again either
//!   bit 6 WATCHED  set by the reader while it spins on the word: nobody else need be told
//!   bit 7 DEDICATED set by a reader that alone takes every message, and always looks before it
//!                  sleeps on the word: the writer tells no other thread
//! ```
//!
//! Memory order: [`Mailbox::post`] releases the area, [`Mailbox::look`] and [`Mailbox::wait`]
//! acquire it; [`Mailbox::clear`] releases it back, and the next post's read of the word acquires.
//! A reader can only lose a wake-up that it causes itself: WAITING and FULL are set by
//! read-modify-writes on one word, so whichever comes second sees the first.
//!
//! The writer is another process. It may set and clear any bit at any time, and sleep on the word
//! itself; every pattern is handled, and the worst that it achieves is that its own conversation
//! stalls or ends. What the reader's own process has to say goes past it: [`Mailbox::nudge`] wakes
//! all sleepers whatever the word says, and [`Mailbox::wait`] returns at every wake.

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

/// A view of the word. Any number of views may exist; one writer and one reader use them.
#[derive(Clone, Copy)]
pub struct Mailbox<'a> {
    word: &'a AtomicU32,
}

/// Who takes notice of a posted message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// It slept on the word and has been woken.
    Woken,
    /// It spins on the word.
    Watching,
    /// It alone takes every message, and looks before it sleeps.
    Dedicated,
    /// It will look by itself, or somebody else has to be told.
    Elsewhere,
    /// It waits in `poll`: tell its process through the channel's socket.
    Polling,
    /// It is gone: the message will not be taken.
    Closed,
}

/// What a look at the word found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A message: copy it, then [`Mailbox::clear`].
    Message,
    /// Its own process wants the reader.
    Nudge,
    /// Nothing.
    Nothing,
}

impl<'a> Mailbox<'a> {
    /// The mailbox whose word this is; zero is the empty one.
    pub fn new(word: &'a AtomicU32) -> Self {
        Mailbox { word }
    }

    /// Writer: the area is complete. Wakes the reader if it sleeps on the word.
    #[inline(always)]
    pub fn post(self) -> Reader {
        // Release pairs with the acquire in `look` and `wait`. An addition says what there was in
        // one instruction; an
        // `or` that does so reads the word first, and that fetches its line from the reader twice.
        match self.word.fetch_add(FULL, Ordering::AcqRel) {
            // Whom nobody need wake, in one comparison each.
            0 => Reader::Elsewhere,
            WATCHED => Reader::Watching,
            before => self.post_to(before),
        }
    }

    /// A message has been posted to a reader of whom there is more to say.
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

    /// There was a message, and the addition has changed other bits: they become what they were,
    /// and everybody is told, whatever the reader has seen in between.
    #[cold]
    fn post_again(self, before: u32) -> Reader {
        self.word.fetch_sub(FULL, Ordering::AcqRel);
        futex::wake(self.word, i32::MAX as u32);
        if before & CLOSED != 0 { Reader::Closed } else { Reader::Elsewhere }
    }

    /// Whether there is no message: the area may be written.
    #[inline]
    pub fn is_empty(self) -> bool {
        // Acquire pairs with the release in `clear`.
        self.word.load(Ordering::Acquire) & FULL == 0
    }

    /// Reader: what there is, without waiting. A nudge is consumed, but a message goes first.
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

    /// Reader: the message has been copied; its area is the writer's again. It watches no longer.
    #[inline]
    pub fn clear(self) {
        self.word.fetch_and(!(FULL | WAITING | WATCHED), Ordering::AcqRel);
    }

    /// The same of a reader that goes on watching.
    #[inline]
    pub fn clear_watched(self) {
        self.word.fetch_and(!(FULL | WAITING), Ordering::AcqRel);
    }

    /// Reader: it spins on the word from now on, until [`Mailbox::unwatch`] or [`Mailbox::clear`].
    #[inline]
    pub fn watch(self) {
        self.word.fetch_or(WATCHED, Ordering::AcqRel);
    }

    /// Reader: it spins no longer. True if there is a message, of which nobody else may know.
    #[inline]
    pub fn unwatch(self) -> bool {
        // The look saves the other operation where `clear` is to come.
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

    /// Reader: sleeps until there is something or somebody wakes it for nothing; look again at what
    /// else there may be. `Err` after a signal or at the timeout.
    #[inline(always)]
    pub fn wait(self, timeout: Option<Duration>) -> Result<Seen, Wait> {
        self.wait_unless(timeout, || false)
    }

    /// The same, unless there is something else, which whoever makes it so nudges the reader for:
    /// it is looked for once the reader can be seen to wait.
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
            // WAITING goes with the message: until then nobody posts.
            return Ok(Seen::Message);
        }
        self.word.fetch_and(!WAITING, Ordering::AcqRel);
        match (self.look(), outcome) {
            (Seen::Nothing, Err(ended)) => Err(ended),
            (seen, _) => Ok(seen),
        }
    }

    /// Anyone in the reader's process who knows that it waits: makes it return. Not by WAITING,
    /// which the writer may have cleared, nor one sleeper only, which may be the writer.
    pub fn nudge(self) {
        self.word.fetch_or(NUDGED, Ordering::AcqRel);
        futex::wake(self.word, i32::MAX as u32);
    }

    /// Reader: whether it waits in `poll` from now on.
    pub fn set_polling(self, polling: bool) {
        if polling {
            self.word.fetch_or(POLLING, Ordering::AcqRel);
        } else {
            self.word.fetch_and(!POLLING, Ordering::AcqRel);
        }
    }

    /// Reader: it will never take a message here again. True if there is one that was posted
    /// before; what is posted from now on is not left here.
    pub fn close(self) -> bool {
        self.word.fetch_or(CLOSED, Ordering::AcqRel) & FULL != 0
    }

    /// Writer: whether [`Mailbox::close`] was called.
    pub fn is_closed(self) -> bool {
        self.word.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Writer, to whom the reader has closed: it will not post here again.
    pub fn give_back(self) {
        self.word.fetch_or(RETURNED, Ordering::AcqRel);
    }

    /// Reader: whether [`Mailbox::give_back`] was called.
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

    /// Once the task sleeps in the kernel; `None` if it has ended.
    fn asleep(tid: i32) -> Option<()> {
        loop {
            let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).ok()?;
            if stat.rsplit(") ").next()?.starts_with('S') {
                return Some(());
            }
            thread::yield_now();
        }
    }

    #[test]
    fn a_writer_cannot_keep_a_nudge_from_the_reader() {
        let word = Arc::new(AtomicU32::new(0));
        let (known, is_known) = std::sync::mpsc::channel();
        let sleeper = |body: fn(&AtomicU32)| {
            let (word, known) = (word.clone(), known.clone());
            let thread = thread::spawn(move || {
                known.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
                body(&word);
            });
            asleep(is_known.recv().unwrap()).unwrap();
            thread
        };
        // The writer's own sleeper is the first in the queue.
        let thief = sleeper(|word| _ = futex::wait(word, 0, None));
        let reader = sleeper(|word| _ = Mailbox::new(word).wait(None));
        word.store(0, Ordering::Release);
        Mailbox::new(&word).nudge();
        reader.join().unwrap();
        thief.join().unwrap();
    }
}
