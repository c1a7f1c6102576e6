//! Priority without a privilege: a caller that waits lends its own to the looper of its lane.
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
//! Two, because at the next call the looper may not have run since the last one's end: the word
//! that it let go of is nobody's then.
//!
//! **Invariant**: neither waits for the other longer than it would without: the looper takes a word
//! only if it is nobody's, and the caller looks for its answer after each [`SLICE`]. A word is the
//! other process's to write: it may name any thread, whom the caller's wait would raise. So the
//! caller waits for a word only while it names one that it has found among the server's; what a
//! server gains that names another between look and wait, it has anyway, as whatever its own looper
//! does at that priority.

use super::{Channel, Lane};
use crate::sys::thread;
use baton_abi::lane::header::{OWNERS, owner_at, waits_at};
use baton_shm::futex::{self, Lent, WAITERS};
use baton_shm::mailbox::Seen;
use baton_shm::sync::{AtomicU32, Ordering};
use std::time::Duration;

/// How long a caller waits before it looks for what else wants it: a nudge does not reach it there.
const SLICE: Duration = Duration::from_millis(5);

impl Channel {
    /// One of a lane's, from 1.
    fn owner(&self, lane: u32, word: u32) -> Option<&AtomicU32> {
        let word = word.checked_sub(1).filter(|&word| (word as usize) < OWNERS)?;
        Some(self.head.word(owner_at(lane as usize, word as usize)))
    }

    /// On which of them the lane's caller waits, or 0.
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

    /// Whether calls on this lane do, or, at the server's end, are to.
    pub fn lends(&self, lane: u32) -> bool {
        self.lending.load(Ordering::Relaxed) >> lane & 1 == 1
    }

    /// Client: the lane has its looper now, which wants to be lent a priority, or not. It is a
    /// thread of `pid`'s, or nothing is lent to it.
    pub fn see_looper(&self, lane: u32, pid: u32) {
        let named = self.owners(lane).map(|word| word.load(Ordering::Acquire) & !WAITERS).max();
        let looper = named.filter(|&tid| tid != 0 && thread::is_thread_of(pid, tid));
        self.loopers[lane as usize].store(looper.unwrap_or(0), Ordering::Relaxed);
        match looper {
            Some(_) => self.lending.fetch_or(1 << lane, Ordering::Relaxed),
            None => self.lending.fetch_and(!(1 << lane), Ordering::Relaxed),
        };
    }

    /// Client: a request is about to be posted. Chooses the word on which its caller will wait, if
    /// it can.
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
        let chosen = self.owners(lane).position(is_owned).map_or(0, |word| word as u32 + 1);
        // Relaxed: the post releases it.
        self.waits_on(lane).store(chosen, Ordering::Relaxed);
    }

    /// Client: waits for something on the lane, and lends the looper its priority meanwhile. `None`
    /// if that is over, or cannot be: then it is to wait as others do.
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
                // It has let go of the word, with the answer.
                Some(Lent::Refused) | None => break,
            }
        }
        self.waits_on(number).store(0, Ordering::Relaxed);
        Some(lane.inbox().look()).filter(|seen| *seen != Seen::Nothing)
    }

    /// Server: the calling thread is the lane's looper, and is to be lent its caller's priority.
    /// Before it owns the lane, and before it serves.
    pub fn borrow(&self, lane: u32) {
        let tid = thread::tid();
        for word in self.owners(lane) {
            // Acquire pairs with the client's release of the word.
            let _ = word.compare_exchange(0, tid, Ordering::Acquire, Ordering::Relaxed);
        }
        self.lending.fetch_or(1 << lane, Ordering::Relaxed);
    }

    /// Server: something has been posted to the lane's caller.
    #[inline(always)]
    pub fn repay(&self, lane: u32) {
        if self.lends_any() {
            self.repay_caller(lane);
        }
    }

    #[cold]
    fn repay_caller(&self, lane: u32) {
        // What the caller writes there is its own loss.
        if let Some(word) = self.owner(lane, self.waits_on(lane).load(Ordering::Relaxed)) {
            futex::give_back(word, thread::tid());
        }
    }

    /// Server: the calling thread is the lane's looper no more, or has a priority of its own.
    pub fn borrow_no_more(&self, lane: u32) {
        if self.lends(lane) {
            self.lending.fetch_and(!(1 << lane), Ordering::Relaxed);
            self.owners(lane).for_each(|word| futex::give_back(word, thread::tid()));
        }
    }
}
