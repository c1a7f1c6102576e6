//! A thread's operation on the fast path, where the holder of the state's lock can see it.

use crate::channel::Channel;
use baton_abi::control::{ChannelId, ProcessId};
use baton_abi::lane::{ChainEntry, STATUS_BYTES, status};
use baton_shm::held::Held;
use baton_shm::lock::Lock;
use baton_shm::mapping::Mapping;
use baton_shm::revocation::{Entry, Revocation, Revocations};
use baton_shm::sync::{AtomicU32, AtomicU64, Ordering};
use baton_state::thread::Calling;
use baton_state::transaction::{LaneId, Serving};
use baton_state::work::Tid;
use std::sync::{Arc, Weak};

/// The operation is a call.
pub(crate) const CALLING: u32 = 1;
/// The operation is a service.
pub(crate) const SERVING: u32 = 2;

/// The fast path's part of an engine: what all its threads share.
#[derive(Debug, Default)]
pub(crate) struct Operations {
    pub revocation: Revocation,
    all: Lock<Vec<Weak<InFlight>>>,
}

/// The operation of one thread, which alone writes it.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub tid: Tid,
    /// The thread's slot of the status page, if one was free.
    pub slot: Option<Slot>,
    entry: Entry,
    channel: AtomicU64,
    lane: AtomicU32,
    peer: AtomicU64,
    /// A call's handle; a service's mark whether the answer may carry descriptors.
    handle: AtomicU32,
    /// The token of the calling thread, in a call and in a service.
    token: AtomicU64,
}

/// A slot of the status page, in which one thread counts.
#[derive(Debug)]
pub(crate) struct Slot {
    pub number: u8,
    /// [`status::SLOT_OPEN`].
    pub open: Held<Mapping<STATUS_BYTES>, AtomicU32>,
    /// [`status::SLOT_TRANSACTIONS`].
    pub transactions: Held<Mapping<STATUS_BYTES>, AtomicU64>,
}

impl Operations {
    /// The revocations that a plain call on a channel checks.
    #[inline(always)]
    pub fn revocations_of<'a>(&'a self, channel: &'a Channel) -> Revocations<'a> {
        Revocations(&self.revocation, &channel.revocation)
    }

    /// Calls `take` for each operation that is concerned.
    pub fn for_each_if(
        &self,
        concerned: impl Fn(&InFlight) -> bool,
        mut take: impl FnMut(&InFlight),
    ) {
        self.all.lock().retain(|in_flight| {
            let in_flight = in_flight.upgrade();
            in_flight.iter().filter(|it| concerned(it)).for_each(|it| take(it));
            in_flight.is_some()
        });
    }

    /// Whether a thread may still use a channel that has been removed from all lists.
    pub fn use_channel(&self, channel: &Channel) -> bool {
        let all = self.all.lock();
        all.iter().filter_map(Weak::upgrade).any(|it| it.is_inside(channel.id))
    }

    /// The thread's operation, if it has one.
    pub fn of(&self, tid: Tid) -> Option<Arc<InFlight>> {
        self.all.lock().iter().filter_map(Weak::upgrade).find(|it| it.tid == tid)
    }

    /// Lists a new operation of the thread, which counts in a slot of the page if one is free.
    pub fn add(&self, tid: Tid, page: &Arc<Mapping<STATUS_BYTES>>) -> Arc<InFlight> {
        let mut all = self.all.lock();
        let number = |it: &Weak<InFlight>| Some(it.upgrade()?.slot.as_ref()?.number);
        let taken: Vec<_> = all.iter().filter_map(number).collect();
        let free = (0..status::SLOTS as u8).find(|slot| !taken.contains(slot));
        let in_flight = Arc::new(InFlight::new(tid, free.map(|free| Slot::new(page, free))));
        all.push(Arc::downgrade(&in_flight));
        in_flight
    }
}

impl Slot {
    fn new(page: &Arc<Mapping<STATUS_BYTES>>, number: u8) -> Slot {
        let (at, page) = (status::slot_at(number), || Arc::clone(page));
        let open = Held::new(page(), |page| page.word(at + status::SLOT_OPEN));
        let transactions =
            Held::new(page(), |page| page.double_word(at + status::SLOT_TRANSACTIONS));
        Slot { number, open, transactions }
    }
}

/// An operation that has been taken over.
#[derive(Debug)]
pub(crate) enum Operation {
    Calling(Calling),
    Serving(Serving),
}

impl InFlight {
    pub fn new(tid: Tid, slot: Option<Slot>) -> InFlight {
        InFlight {
            tid,
            slot,
            entry: Entry::default(),
            channel: AtomicU64::new(0),
            lane: AtomicU32::new(0),
            peer: AtomicU64::new(0),
            handle: AtomicU32::new(0),
            token: AtomicU64::new(0),
        }
    }

    /// The thread's next operations are on this lane.
    #[inline(always)]
    pub fn set_lane(&self, via: LaneId, peer: ProcessId) {
        // Release: whoever sees it, as `is_inside` does, sees that the last operation is over.
        self.channel.store(via.channel.0, Ordering::Release);
        // Relaxed: `Entry::enter` releases them.
        self.lane.store(via.lane, Ordering::Relaxed);
        self.peer.store(peer.0, Ordering::Relaxed);
    }

    /// Begins a call or a service on the lane of [`InFlight::set_lane`]; the thread is inside from
    /// then on. `handle` and `token` as in the fields. False if the epoch has ended: then see
    /// [`InFlight::leave`].
    #[inline(always)]
    pub fn begin(
        &self,
        operation: u32,
        (revocations, epoch): (Revocations<'_>, u64),
        handle: u32,
        token: u64,
    ) -> bool {
        self.handle.store(handle, Ordering::Relaxed);
        self.token.store(token, Ordering::Relaxed);
        self.entry.enter(revocations, epoch, operation)
    }

    /// By the thread while it serves: whether the answer may carry descriptors.
    pub fn accepts_fds(&self) -> bool {
        self.handle.load(Ordering::Relaxed) != 0
    }

    /// Ends the call. False if the state has taken it over.
    #[inline(always)]
    pub fn end_call(&self) -> bool {
        self.entry.end()
    }

    /// The thread is no longer inside.
    #[inline(always)]
    pub fn come_out(&self) {
        self.entry.come_out();
    }

    /// Ends the operation, or one that has not begun. False if the state has taken it over.
    pub fn leave(&self) -> bool {
        self.entry.leave()
    }

    /// Whether the thread may still use this channel, for which no thread can enter any more.
    pub fn is_inside(&self, channel: ChannelId) -> bool {
        self.entry.is_inside() && self.channel.load(Ordering::Acquire) == channel.0
    }

    /// With the state's lock held: whether the operation, if there is one, is with this peer.
    pub fn is_with(&self, peer: ProcessId) -> bool {
        self.entry.is_inside() && self.peer.load(Ordering::Relaxed) == peer.0
    }

    /// With the state's lock held: whether the operation, if there is one, has one of these tokens.
    pub fn has_given(&self, tokens: impl IntoIterator<Item = u64>) -> bool {
        self.entry.is_inside() && {
            let given = self.token.load(Ordering::Relaxed);
            tokens.into_iter().any(|token| token == given)
        }
    }

    /// With the state's lock held: takes the operation, which is the state's from now on.
    pub fn take_over(&self) -> Option<Operation> {
        let operation = self.entry.take_over()?;
        let lane = self.lane.load(Ordering::Relaxed);
        let via = LaneId { channel: ChannelId(self.channel.load(Ordering::Relaxed)), lane };
        let peer = ProcessId(self.peer.load(Ordering::Relaxed));
        let (handle, token) =
            (self.handle.load(Ordering::Relaxed), self.token.load(Ordering::Relaxed));
        Some(match operation {
            CALLING => {
                let (owns_lane, dead) = (true, false);
                Operation::Calling(Calling {
                    via,
                    peer,
                    handle: Some(handle),
                    token,
                    owns_lane,
                    dead,
                })
            }
            _ => {
                let chain = vec![ChainEntry { process: peer.0, token }];
                Operation::Serving(Serving { via, peer, accepts_fds: handle != 0, chain })
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_shm::revocation::Revocation;

    #[test]
    fn a_revoked_call_can_be_taken_over_until_its_thread_has_left() {
        let (everybodys, own) = (Revocation::default(), Revocation::default());
        let revocations = Revocations(&everybodys, &own);
        let known = revocations.epoch();
        let in_flight = InFlight::new(1, None);
        let via = LaneId { channel: ChannelId(1), lane: 2 };
        own.revoke();
        in_flight.set_lane(via, ProcessId(3));
        assert!(!in_flight.begin(CALLING, (revocations, known), 4, 5));
        let taken_over = in_flight.take_over();
        assert!(
            matches!(&taken_over, Some(Operation::Calling(calling))
                if (calling.via, calling.token) == (via, 5)),
            "{taken_over:?}"
        );
        assert!(!in_flight.leave(), "it is the state's");
        assert!(in_flight.leave(), "and no call any more");
    }

    #[test]
    fn operations_of_threads_that_have_ended_are_listed_until_the_next_look() {
        let operations = Operations::default();
        operations.all.lock().push(Weak::new());
        operations.for_each_if(|_| true, |_| panic!("its thread has ended"));
        assert!(operations.all.lock().is_empty());
    }

    #[test]
    fn an_operation_concerns_its_channel_its_peer_and_its_token_until_it_is_over() {
        let (everybodys, own) = (Revocation::default(), Revocation::default());
        let in_flight = InFlight::new(1, None);
        let concerned = || {
            let tokens = [4, 5, 6].map(|token| in_flight.has_given([token, 7]));
            let channels = [1, 2].map(|channel| in_flight.is_inside(ChannelId(channel)));
            (channels, [3, 4].map(|peer| in_flight.is_with(ProcessId(peer))), tokens)
        };
        let nothing = ([false; 2], [false; 2], [false; 3]);
        in_flight.set_lane(LaneId { channel: ChannelId(1), lane: 2 }, ProcessId(3));
        assert_eq!(concerned(), nothing);
        for accepts_fds in [false, true] {
            let handle = u32::from(accepts_fds);
            assert!(in_flight.begin(SERVING, (Revocations(&everybodys, &own), 0), handle, 5));
            assert_eq!(concerned(), ([true, false], [true, false], [false, true, false]));
            let taken_over = in_flight.take_over();
            assert!(
                matches!(&taken_over, Some(Operation::Serving(serving))
                    if serving.accepts_fds == accepts_fds),
                "{taken_over:?}"
            );
            assert!(in_flight.take_over().is_none(), "it is the state's already");
            assert!(!in_flight.leave());
            assert_eq!(concerned(), nothing);
        }
        assert!(in_flight.begin(CALLING, (Revocations(&everybodys, &own), 0), 4, 5));
        assert!(in_flight.end_call());
        assert!(in_flight.take_over().is_none(), "it is over");
        assert_eq!(concerned().0, [true, false], "its thread has not come out");
        in_flight.come_out();
        assert_eq!(concerned(), nothing);
    }
}
