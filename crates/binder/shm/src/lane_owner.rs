//! Which threads of a server take what arrives on a lane: one word of the server's private memory
//! for each lane.
//!
//! ```text
//!                 pin                      dedicate(tid)
//!   Pinned <------------------- Pool -----------------------> Dedicated(tid)
//!          ------------------->      <-----------------------
//!                unpin                      release(tid)
//! ```
//!
//! - `Pool`: any looper of the pool takes the request that it finds announced.
//! - `Pinned`: one looper of the pool stays with the lane and waits on the lane's mailbox. It
//!   serves the lane all the time, whether there is a request or not.
//! - `Dedicated`: one thread takes every request, at the priority of the lane's real-time caller.
//!
//! In each state at most one thread *serves* the lane: it takes a request in and owes the answer.
//! A lane may change its owner while a thread of the pool serves it; the new owner's first request
//! then waits for that thread's answer.
//!
//! **Invariant**: the word alone decides who takes a request. The bits `WATCHED` and `DEDICATED` of
//! the lane's [`Mailbox`] are copies for the client, which may change them: they are written here,
//! after the word, and never read back to decide.

use crate::mailbox::Mailbox;
use crate::sync::{AtomicU32, Ordering};

/// In the word: which owner.
const KIND: u32 = 3;
const POOL: u32 = 0;
const PINNED: u32 = 1;
const DEDICATED: u32 = 2;
/// In the word: a thread serves the lane, for the pool or as the dedicated one.
const SERVED: u32 = 4;
/// Above it: the thread of a dedicated lane. Linux numbers threads below 2^22.
const THREAD_SHIFT: u32 = 8;

/// Who takes what arrives on a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The loopers of the pool.
    Pool,
    /// One looper of the pool, which stays with the lane.
    Pinned,
    /// The thread with this id.
    Dedicated(u32),
}

impl Owner {
    #[inline(always)]
    fn word(self) -> u32 {
        match self {
            Owner::Pool => POOL,
            Owner::Pinned => PINNED,
            Owner::Dedicated(thread) => DEDICATED | thread << THREAD_SHIFT,
        }
    }
}

/// The owner of one lane, at the server's end; at first the pool.
#[derive(Debug)]
pub struct LaneOwner {
    word: AtomicU32,
}

impl Default for LaneOwner {
    fn default() -> LaneOwner {
        LaneOwner { word: AtomicU32::new(POOL) }
    }
}

impl LaneOwner {
    /// The owner at this moment.
    #[inline(always)]
    pub fn owner(&self) -> Owner {
        let word = self.word.load(Ordering::Acquire);
        match word & KIND {
            POOL => Owner::Pool,
            PINNED => Owner::Pinned,
            _ => Owner::Dedicated(word >> THREAD_SHIFT),
        }
    }

    /// Whether the pool takes what arrives, as by [`LaneOwner::owner`].
    #[inline(always)]
    pub fn is_pools(&self) -> bool {
        self.word.load(Ordering::Acquire) & KIND == POOL
    }

    /// Whether a thread serves the lane. A pinned looper does so all the time.
    pub fn is_served(&self) -> bool {
        let word = self.word.load(Ordering::Acquire);
        word & SERVED != 0 || word & KIND == PINNED
    }

    /// The calling thread, which acts for `owner`, serves the lane until
    /// [`LaneOwner::end_serving`]. False if the lane has another owner, or a thread serves it.
    #[inline(always)]
    pub fn start_serving(&self, owner: Owner) -> bool {
        self.change(owner.word(), owner.word() | SERVED)
    }

    /// The thread that serves the lane has answered, or has taken nothing in. A pinned looper goes
    /// on serving. Call it before the client can see the answer.
    #[inline(always)]
    pub fn end_serving(&self) {
        self.word.fetch_and(!SERVED, Ordering::Release);
    }

    /// The calling looper of the pool stays with the lane until [`LaneOwner::unpin`]. False if the
    /// lane has another owner than the pool, or a thread serves it.
    pub fn pin(&self, inbox: Mailbox<'_>) -> bool {
        let pins = self.change(POOL, PINNED);
        if pins {
            inbox.watch();
        }
        pins
    }

    /// The pinned looper, which calls this, gives the lane back to the pool. True if a request lies
    /// there of which no other thread knows.
    pub fn unpin(&self, inbox: Mailbox<'_>) -> bool {
        let unpins = self.change(PINNED, POOL);
        debug_assert!(unpins, "only the pinned looper unpins a lane");
        inbox.unwatch()
    }

    /// The thread takes every request on the lane until [`LaneOwner::release`]. False while the
    /// lane is pinned, or another thread's.
    pub fn dedicate(&self, thread: u32) -> bool {
        let owned = Owner::Dedicated(thread).word();
        let next = |word| match word & KIND {
            POOL => Some(owned | word & SERVED),
            _ if word & !SERVED == owned => Some(word),
            _ => None,
        };
        self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).is_ok()
    }

    /// The client of a dedicated lane is told that the lane has a thread of its own, and need
    /// announce no request any more. False if a request lies there, which may have been announced:
    /// the owner takes it first.
    pub fn show_dedicated(&self, inbox: Mailbox<'_>) -> bool {
        inbox.dedicate()
    }

    /// The lane is the pool's again, if it was the thread's. True if a request lies there: then the
    /// caller announces it, as its client may not have done so.
    pub fn release(&self, thread: u32, inbox: Mailbox<'_>) -> bool {
        let owned = Owner::Dedicated(thread).word();
        let next = |word| (word & !SERVED == owned).then_some(word & SERVED);
        let releases = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).is_ok();
        releases && inbox.end_dedicated()
    }

    #[inline(always)]
    fn change(&self, from: u32, to: u32) -> bool {
        self.word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::mailbox::Reader;

    const OURS: u32 = 7;
    const THEIRS: u32 = 8;

    type Edge = fn(&LaneOwner, Mailbox<'_>) -> bool;
    /// The owner, and whether a thread serves the lane.
    type At = (Owner, bool);

    /// Every edge from every state: whether it is taken, and the state after it.
    #[test]
    fn each_edge_leads_from_its_states_only() {
        use Owner::{Dedicated, Pinned, Pool};
        let states: [At; 5] = [
            (Pool, false),
            (Pool, true),
            (Pinned, true),
            (Dedicated(OURS), false),
            (Dedicated(OURS), true),
        ];
        let at = |(owner, served): At| {
            let is_marked = served && owner != Pinned;
            let word = owner.word() | if is_marked { SERVED } else { 0 };
            LaneOwner { word: AtomicU32::new(word) }
        };
        // For each edge the state after it, from each of the states in their order; `None` if it
        // is refused.
        let edges: [(&str, Edge, [Option<At>; 5]); 7] = [
            (
                "the pool starts to serve",
                |lane, _| lane.start_serving(Pool),
                [Some((Pool, true)), None, None, None, None],
            ),
            (
                "the dedicated thread starts to serve",
                |lane, _| lane.start_serving(Dedicated(OURS)),
                [None, None, None, Some((Dedicated(OURS), true)), None],
            ),
            (
                "another dedicated thread starts to serve",
                |lane, _| lane.start_serving(Dedicated(THEIRS)),
                [None; 5],
            ),
            ("pin", LaneOwner::pin, [Some((Pinned, true)), None, None, None, None]),
            (
                "dedicate",
                |lane, _| lane.dedicate(OURS),
                [
                    Some((Dedicated(OURS), false)),
                    Some((Dedicated(OURS), true)),
                    None,
                    Some((Dedicated(OURS), false)),
                    Some((Dedicated(OURS), true)),
                ],
            ),
            (
                "dedicate to another thread",
                |lane, _| lane.dedicate(THEIRS),
                [
                    Some((Dedicated(THEIRS), false)),
                    Some((Dedicated(THEIRS), true)),
                    None,
                    None,
                    None,
                ],
            ),
            (
                "end of serving",
                |lane, _| {
                    lane.end_serving();
                    true
                },
                [
                    Some((Pool, false)),
                    Some((Pool, false)),
                    Some((Pinned, true)),
                    Some((Dedicated(OURS), false)),
                    Some((Dedicated(OURS), false)),
                ],
            ),
        ];
        for (name, edge, afters) in edges {
            for (before, after) in states.into_iter().zip(afters) {
                let (lane, word) = (at(before), AtomicU32::new(0));
                let taken = edge(&lane, Mailbox::new(&word));
                assert_eq!(taken, after.is_some(), "{name} from {before:?}");
                let expected = after.unwrap_or(before);
                assert_eq!((lane.owner(), lane.is_served()), expected, "{name} from {before:?}");
                assert_eq!(lane.is_pools(), expected.0 == Pool, "{name} from {before:?}");
            }
        }
    }

    #[test]
    fn a_lane_that_is_given_back_says_whether_a_request_lies_there() {
        for posts in [false, true] {
            let (lane, word) = (LaneOwner::default(), AtomicU32::new(0));
            let inbox = Mailbox::new(&word);
            let post = |told| assert!(!posts || inbox.post() == told);
            assert!(lane.pin(inbox));
            post(Reader::Watching);
            assert_eq!(lane.unpin(inbox), posts);
            inbox.clear();
            assert!(lane.dedicate(OURS) && lane.show_dedicated(inbox));
            post(Reader::Dedicated);
            assert!(!lane.release(THEIRS, inbox), "it is not that thread's");
            assert_eq!(lane.owner(), Owner::Dedicated(OURS));
            assert_eq!(lane.release(OURS, inbox), posts);
            assert_eq!(lane.owner(), Owner::Pool);
            inbox.clear();
            assert!(!inbox.is_dedicated());
        }
    }

    #[test]
    fn a_service_outlasts_a_change_of_owner() {
        let (lane, word) = (LaneOwner::default(), AtomicU32::new(0));
        assert!(lane.start_serving(Owner::Pool) && lane.dedicate(OURS));
        assert!(!lane.start_serving(Owner::Dedicated(OURS)), "the pool's thread serves");
        lane.release(OURS, Mailbox::new(&word));
        assert_eq!((lane.owner(), lane.is_served()), (Owner::Pool, true));
        lane.end_serving();
        assert!(!lane.is_served());
    }

    #[test]
    fn a_lane_with_a_request_is_not_shown_as_dedicated() {
        let (lane, word) = (LaneOwner::default(), AtomicU32::new(0));
        let inbox = Mailbox::new(&word);
        inbox.post();
        assert!(lane.dedicate(OURS));
        assert!(!lane.show_dedicated(inbox));
        assert!(lane.start_serving(Owner::Dedicated(OURS)), "the thread takes it all the same");
        inbox.clear();
        assert!(lane.show_dedicated(inbox));
    }
}
