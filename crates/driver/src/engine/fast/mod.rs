//! The fast path: a plain call, and nothing that the state would have to know.
//!
//! It has one shape: a two-way transaction of at most [`INLINE_BYTES`], without objects, by a
//! handle that this thread has called by before; at the other end a looper that has served this
//! client and this node before. Neither takes a lock nor allocates; whatever else there is goes the
//! long way.
//!
//! What the long way has checked is remembered with the revocations' epoch, and holds while that
//! stands: [`Engine::revoke`] revokes entries before the state learns anything that could
//! change it (an event of the broker, an end), and makes of every call under way the frame on its
//! thread's stack that it would have been. From then on it is the long way's.
//!
//! What concerns one peer alone (its channels, its references, its death) revokes entries by
//! that peer's channels, and leaves what threads know of others as it is ([`Engine::revoke_with`]):
//! any process can cause such a thing as often as it likes.
//!
//! **Invariant**: a transaction is known to the state, or to exactly one [`InFlight`], until it
//! is answered; and to the status page in either case.

mod buffered;
mod call;
mod copied_payload;
mod dedicated_uapi;
mod in_flight;
mod lane_cache;
mod local;
mod own_lane;
mod pinned;
mod route_cache;
mod serve;
mod uapi_thread;

pub(crate) use buffered::{Brought, Buffered};

pub(crate) use call::{Outcome, Plain};
pub(crate) use copied_payload::CopiedPayload;
pub(crate) use lane_cache::LaneCache;
pub(crate) use local::while_serving;
pub(crate) use pinned::PinnedLooper;
pub(crate) use route_cache::RouteCache;
pub(crate) use serve::{ActiveSet, Answered, Posted, Served, Server, Taken};
pub(crate) use uapi_thread::{FastRead, Subject};

use crate::channel::Channel;
use crate::engine::Engine;
use baton_abi::control::ProcessId;
use baton_abi::lane::{ChainEntry, Kind, Message, status};
use baton_shm::lock::Lock;
use baton_shm::revocation::{Revocation, Revocations};
use baton_shm::sync::Ordering;
use baton_state::State;
use in_flight::{InFlight, Operation, Slot};
use std::sync::Weak;

/// Most bytes of data that the fast path carries.
pub const INLINE_BYTES: usize = 64 << 10;

/// Where plain messages go: to memory of the thread's own, or to the receive buffer. Either makes
/// the message the thread's, and is false if it leaves it where it is.
pub(crate) trait Receiver {
    /// Whether there is a place for it.
    #[inline(always)]
    fn fits(&self, message: &Message) -> bool {
        message.data_bytes as usize <= INLINE_BYTES
    }

    /// An answer: [`Plain::leave`], and copy it.
    fn take_answer(&mut self, engine: &Engine, answer: &Plain<'_>) -> bool;

    /// A request: [`Posted::begin`], and copy it.
    fn take_request(&mut self, engine: &Engine, request: &Posted<'_>) -> bool;
}

/// What all threads of an engine share.
#[derive(Debug, Default)]
pub(crate) struct Fast {
    pub revocation: Revocation,
    operations: Lock<Vec<Weak<InFlight>>>,
}

/// Whether a message is of the one shape, whatever its length, of this kind and with so many
/// callers in its chain.
#[inline(always)]
fn is_plain(message: &Message, kind: Kind, chain: u16) -> bool {
    let Message { offsets_bytes, buffers_bytes, fds, ticket, .. } = *message;
    // One comparison for all that must be nothing.
    let other = message.kind ^ kind as u32 | u32::from(message.chain ^ chain);
    u64::from(other | offsets_bytes | buffers_bytes | u32::from(fds)) | ticket == 0
}

impl Engine {
    /// Revokes all entries, and makes everything that is under way known to the state. To be
    /// called before the state looks at other threads' calls, or changes what calls were checked
    /// by.
    pub(crate) fn revoke(&self, state: &mut State) {
        self.fast.revocation.revoke();
        self.take_over_if(state, |_| true);
        state.take_over_slots_of(None);
    }

    /// The same of what is under way with one peer, before the state changes what calls from it or
    /// to it were checked by.
    pub(crate) fn revoke_with(&self, state: &mut State, peer: ProcessId) {
        self.revoke_entries_with(peer);
        self.take_over_if(state, |in_flight| in_flight.is_with(peer));
        state.take_over_slots_of(Some(peer));
    }

    /// Makes calls of ours known to the state that have led to one with these callers. They wait:
    /// none begins meanwhile that could have.
    pub(crate) fn revoke_callers(&self, state: &mut State, chain: &[ChainEntry]) {
        let ours = || chain.iter().filter(|entry| entry.process == self.identity.process.0);
        if ours().next().is_some() {
            self.take_over_if(state, |in_flight| {
                in_flight.has_given(ours().map(|entry| entry.token))
            });
        }
    }

    fn take_over_if(&self, state: &mut State, concerned: impl Fn(&InFlight) -> bool) {
        let mut operations = self.fast.operations.lock();
        operations.retain(|in_flight| match in_flight.upgrade() {
            Some(in_flight) => {
                if concerned(&in_flight) {
                    self.take_over(state, &in_flight);
                }
                true
            }
            None => false,
        });
    }

    /// What stands on a plain call's way by a channel.
    #[inline(always)]
    fn way<'a>(&'a self, channel: &'a Channel) -> Revocations<'a> {
        Revocations(&self.fast.revocation, &channel.revocation)
    }

    /// Whether a thread may use a channel that is on no list any more, and that nobody keeps for
    /// it.
    pub(super) fn is_used(&self, channel: &Channel) -> bool {
        self.fast
            .operations
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .any(|in_flight| in_flight.is_inside(channel.id))
    }

    /// Makes what the calling thread has under way known to the state.
    pub(crate) fn take_over_own(&self, state: &mut State) {
        if let Some(in_flight) = self.own_in_flight() {
            self.take_over(state, &in_flight);
        }
    }

    fn take_over(&self, state: &mut State, in_flight: &InFlight) {
        match in_flight.take_over() {
            Some(Operation::Calling(calling)) => state.adopt_call(in_flight.tid, calling),
            Some(Operation::Serving(serving)) => state.adopt_service(in_flight.tid, serving),
            None => return,
        }
        // The state counts it before the thread does no more.
        self.publish(state);
        self.set_open(in_flight, false);
    }

    /// Whether the in_flight's thread has something under way, for whoever freezes the process.
    #[inline(always)]
    fn set_open(&self, in_flight: &InFlight, open: bool) {
        match &in_flight.slot {
            // Release, and `Entry::enter` fences it: see the broker's status page.
            Some(slot) => slot.open.store(u32::from(open), Ordering::Release),
            None => {
                let change = if open { 1 } else { u32::MAX };
                self.front.word(status::OUTSTANDING).fetch_add(change, Ordering::SeqCst);
            }
        }
    }

    /// The in_flight's thread has received a transaction.
    #[inline(always)]
    fn count_received(&self, in_flight: &InFlight) {
        match &in_flight.slot {
            Some(slot) => {
                // Nobody else writes it.
                let count = slot.transactions.load(Ordering::Relaxed).wrapping_add(1);
                slot.transactions.store(count, Ordering::Relaxed);
            }
            None => {
                self.front.double_word(status::TRANSACTIONS).fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// A slot of the status page that no in_flight has.
    fn free_slot(&self, operations: &[Weak<InFlight>]) -> Option<Slot> {
        let number = |in_flight: &Weak<InFlight>| Some(in_flight.upgrade()?.slot.as_ref()?.number);
        let taken: Vec<_> = operations.iter().filter_map(number).collect();
        let free = (0..status::SLOTS as u8).find(|slot| !taken.contains(slot))?;
        Some(Slot::new(&self.front, free))
    }
}
