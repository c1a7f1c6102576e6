//! The fast path: plain calls, past the state.
//!
//! A call is *plain* if it is two-way, carries at most [`INLINE_BYTES`] and no objects, and goes by
//! a handle that the thread has called before, to a looper that has served this client and this
//! node before. Neither end takes a lock or allocates. Every other transaction takes the general
//! path.
//!
//! A thread remembers what the general path has checked, together with an epoch. The check holds as
//! long as the epoch stands. [`Engine::revoke`] ends the epoch before the state learns anything
//! that could change a check (an event of the broker, the end of a channel). It also turns every
//! operation in flight into the frame on its thread's stack that the general path would have made.
//! From then on the operation is the state's.
//!
//! A change that concerns one peer alone (its channels, references or death) ends the epochs of
//! that peer's channels only ([`Engine::revoke_with`]), because any process can cause such changes
//! as often as it likes.
//!
//! **Invariant**: until a transaction is answered, either the state or exactly one [`InFlight`]
//! knows it; the status page counts it in both cases.

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

pub use call::{Outcome, Plain};
pub use copied_payload::CopiedPayload;
pub use lane_cache::LaneCache;
pub use local::while_serving;
pub use pinned::PinnedLooper;
pub use route_cache::RouteCache;
pub use serve::{ActiveSet, Answered, Posted, Served, Server, Taken};
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

/// The place to which a thread copies plain messages: its own memory, or the receive buffer. Each
/// `take` function makes the message the thread's, or returns false and leaves it on its lane.
pub trait Receiver {
    /// Whether a message is short enough.
    #[inline(always)]
    fn fits(&self, message: &Message) -> bool {
        message.data_bytes as usize <= INLINE_BYTES
    }

    /// Takes an answer: [`Plain::leave`], then the copy.
    fn take_answer(&mut self, engine: &Engine, answer: &Plain<'_>) -> bool;

    /// Takes a request: [`Posted::begin`], then the copy.
    fn take_request(&mut self, engine: &Engine, request: &Posted<'_>) -> bool;
}

/// The part that all threads of an engine share.
#[derive(Debug, Default)]
pub(crate) struct Fast {
    pub revocation: Revocation,
    operations: Lock<Vec<Weak<InFlight>>>,
}

/// Whether a message is plain, apart from its length, of this kind, and has so many callers in its
/// chain.
#[inline(always)]
fn is_plain(message: &Message, kind: Kind, chain: u16) -> bool {
    let Message { offsets_bytes, buffers_bytes, fds, ticket, .. } = *message;
    // One comparison for all fields that must be 0.
    let other = message.kind ^ kind as u32 | u32::from(message.chain ^ chain);
    u64::from(other | offsets_bytes | buffers_bytes | u32::from(fds)) | ticket == 0
}

impl Engine {
    /// Ends every epoch, and makes all operations in flight known to the state. To be called before
    /// the state looks at other threads' calls, or changes anything by which calls were checked.
    pub fn revoke(&self, state: &mut State) {
        self.fast.revocation.revoke();
        self.take_over_if(state, |_| true);
        state.take_over_slots_of(None);
    }

    /// As [`Engine::revoke`], for the channels and operations with one peer.
    pub(crate) fn revoke_with(&self, state: &mut State, peer: ProcessId) {
        self.revoke_entries_with(peer);
        self.take_over_if(state, |in_flight| in_flight.is_with(peer));
        state.take_over_slots_of(Some(peer));
    }

    /// Registers with the state every fast call of this process that appears in `chain`. These
    /// callers wait for their answers, so no further one begins meanwhile.
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

    /// The revocations that a plain call on a channel checks.
    #[inline(always)]
    fn way<'a>(&'a self, channel: &'a Channel) -> Revocations<'a> {
        Revocations(&self.fast.revocation, &channel.revocation)
    }

    /// Whether a thread may still use a channel that has been removed from all lists.
    pub(super) fn is_used(&self, channel: &Channel) -> bool {
        self.fast
            .operations
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .any(|in_flight| in_flight.is_inside(channel.id))
    }

    /// Makes the calling thread's operation in flight known to the state.
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
        // The state counts the operation before the thread stops counting it.
        self.publish(state);
        self.set_open(in_flight, false);
    }

    /// Shows on the page whether the thread has an operation in flight: freezing asks for it.
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

    /// Counts a transaction that the thread has received.
    #[inline(always)]
    fn count_received(&self, in_flight: &InFlight) {
        match &in_flight.slot {
            Some(slot) => {
                // Only this thread writes it.
                let count = slot.transactions.load(Ordering::Relaxed).wrapping_add(1);
                slot.transactions.store(count, Ordering::Relaxed);
            }
            None => {
                self.front.double_word(status::TRANSACTIONS).fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// A slot of the status page that no thread has.
    fn free_slot(&self, operations: &[Weak<InFlight>]) -> Option<Slot> {
        let number = |in_flight: &Weak<InFlight>| Some(in_flight.upgrade()?.slot.as_ref()?.number);
        let taken: Vec<_> = operations.iter().filter_map(number).collect();
        let free = (0..status::SLOTS as u8).find(|slot| !taken.contains(slot))?;
        Some(Slot::new(&self.front, free))
    }
}
