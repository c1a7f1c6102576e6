//! Priority lending without privilege: a waiting caller lends its priority to the looper of its
//! lane.
//!
//! Where the broker may not set priorities, the looper owns the lane's two priority-inheriting
//! futexes:
//!
//! ```text
//!   caller                                    looper
//!   says for which word, posts a request
//!   waits for that word       --- lends -->   runs at the caller's priority
//!                                             owns the other word again
//!                                             serves, posts the answer
//!   has the word, lets go     <------------   lets go of the word
//!   posts the next one, with the other word
//! ```
//!
//! There are two words, because the looper may not have run since the end of the last call: then
//! nobody owns the word that the looper has released.
//!
//! **Invariant**: neither end waits for the other longer than without lending. The looper takes a
//! word only if nobody owns it, and the caller looks for its answer after each [`SLICE`]. The
//! server can write any thread id into a word, and the caller's wait would raise that thread. So
//! the caller waits for a word only while it names a thread that it has found among the server's. A
//! server that writes another id between look and wait gains nothing: its own looper could do the
//! same work at that priority.

use super::{Channel, Lane};
use crate::sys::thread;
use baton_abi::lane::header::{OWNERS, owner_at, waits_at};
use baton_shm::futex::{self, Lent, WAITERS};
use baton_shm::mailbox::Seen;
use baton_shm::sync::{AtomicU32, Ordering};
use std::time::Duration;

/// How long a caller waits before it looks at its mailbox: a nudge does not end this wait.
const SLICE: Duration = Duration::from_millis(5);

/// The word of a lane that its looper has to release; 0 for none.
#[derive(Clone, Copy, Debug)]
#[must_use = "the caller waits for it"]
pub struct Owed {
    lane: u32,
    word: u32,
}

impl Channel {
    /// One of a lane's owner words, numbered from 1.
    fn owner(&self, lane: u32, word: u32) -> Option<&AtomicU32> {
        let word = word.checked_sub(1).filter(|&word| (word as usize) < OWNERS)?;
        Some(self.head.word(owner_at(lane as usize, word as usize)))
    }

    /// The number of the word on which the lane's caller waits, or 0.
    fn waits_on(&self, lane: u32) -> &AtomicU32 {
        self.head.word(waits_at(lane as usize))
    }

    fn owners(&self, lane: u32) -> impl Iterator<Item = &AtomicU32> {
        (1..).map_while(move |word| self.owner(lane, word))
    }

    /// Whether calls on some lane lend a priority.
    #[inline(always)]
    fn lends_any(&self) -> bool {
        self.lending.load(Ordering::Relaxed) != 0
    }

    /// Whether calls on this lane lend a priority; at the server's end, whether they should.
    pub fn lends(&self, lane: u32) -> bool {
        self.lending.load(Ordering::Relaxed) >> lane & 1 == 1
    }

    /// Client: notes whether the lane's looper wants to be lent a priority. Nothing is lent unless
    /// the looper is a thread of `pid`.
    pub fn see_looper(&self, lane: u32, pid: u32) {
        let named = self.owners(lane).map(|word| word.load(Ordering::Acquire) & !WAITERS).max();
        let looper = named.filter(|&tid| tid != 0 && thread::is_thread_of(pid, tid));
        self.loopers[lane as usize].store(looper.unwrap_or(0), Ordering::Relaxed);
        match looper {
            Some(_) => self.lending.fetch_or(1 << lane, Ordering::Relaxed),
            None => self.lending.fetch_and(!(1 << lane), Ordering::Relaxed),
        };
    }

    /// Client: chooses the word on which the caller will wait, before a request is posted.
    #[inline(always)]
    pub fn begin_lending(&self, lane: u32) {
        if self.lends_any() {
            self.choose_word(lane);
        }
    }

    #[cold]
    fn choose_word(&self, lane: u32) {
        if !self.lends(lane) {
            return;
        }
        let looper = self.loopers[lane as usize].load(Ordering::Relaxed);
        let is_owned = |word: &AtomicU32| word.load(Ordering::Acquire) & !WAITERS == looper;
        let owned = (1..).zip(self.owners(lane)).filter(|(_, word)| is_owned(word));
        // The looper may be about to release the last one, for the last answer.
        let last = self.waits_on(lane).load(Ordering::Relaxed);
        let chosen = owned.map(|(number, _)| number).max_by_key(|number| *number != last);
        let chosen = chosen.unwrap_or(0);
        // Relaxed: the post releases the store.
        self.waits_on(lane).store(chosen, Ordering::Relaxed);
    }

    /// Client: waits for a message on the lane, and lends the looper its priority meanwhile. `None`
    /// if lending has ended or cannot be: the caller then waits without it.
    #[inline(always)]
    pub fn lend(&self, number: u32, lane: Lane<'_>) -> Option<Seen> {
        if self.lends_any() { self.lend_on(number, lane) } else { None }
    }

    #[cold]
    fn lend_on(&self, number: u32, lane: Lane<'_>) -> Option<Seen> {
        if !self.lends(number) {
            return None;
        }
        let word = self.owner(number, self.waits_on(number).load(Ordering::Relaxed))?;
        loop {
            match lane.inbox().look() {
                Seen::Nothing => {}
                seen => return Some(seen),
            }
            let looper = self.loopers[number as usize].load(Ordering::Relaxed);
            let names_it = word.load(Ordering::Acquire) & !WAITERS == looper;
            match names_it.then(|| futex::lend(word, SLICE)) {
                Some(Lent::Late) => {}
                Some(Lent::Over) => {
                    futex::give_back(word, thread::tid());
                    break;
                }
                // The looper has released the word, with the answer.
                Some(Lent::Refused) | None => break,
            }
        }
        self.waits_on(number).store(0, Ordering::Relaxed);
        Some(lane.inbox().look()).filter(|seen| *seen != Seen::Nothing)
    }

    /// Server: the calling thread, the lane's looper, takes the owner words, so that its caller can
    /// lend it a priority. To be called before the thread owns the lane, and before it serves.
    pub fn borrow(&self, lane: u32) {
        let tid = thread::tid();
        for word in self.owners(lane) {
            // Acquire pairs with the client's release of the word.
            let _ = word.compare_exchange(0, tid, Ordering::Acquire, Ordering::Relaxed);
        }
        self.lending.fetch_or(1 << lane, Ordering::Relaxed);
    }

    /// Server: the word on which the lane's caller waits, for [`Channel::repay`]. To be called
    /// before a message is posted to the caller, whose next request names another word.
    #[inline(always)]
    pub fn owed(&self, lane: u32) -> Owed {
        // A caller that writes a false number here harms only itself.
        let word = if self.lends_any() { self.waits_on(lane).load(Ordering::Relaxed) } else { 0 };
        Owed { lane, word }
    }

    /// Server: releases the word on which the lane's caller waits, after a message has been posted
    /// to it.
    #[inline(always)]
    pub fn repay(&self, owed: Owed) {
        if owed.word != 0 {
            self.repay_caller(owed);
        }
    }

    #[cold]
    fn repay_caller(&self, Owed { lane, word }: Owed) {
        if let Some(word) = self.owner(lane, word) {
            futex::give_back(word, thread::tid());
        }
    }

    /// Server: ends the lending, because the calling thread leaves the lane or has the priority by
    /// itself.
    pub fn borrow_no_more(&self, lane: u32) {
        if self.lends(lane) {
            self.lending.fetch_and(!(1 << lane), Ordering::Relaxed);
            self.owners(lane).for_each(|word| futex::give_back(word, thread::tid()));
        }
    }
}
