//! Messages on the fast path, and the places to which a thread copies them.

use super::serve::Posted;
use crate::channel::{Channel, INLINE_BYTES, Lane};
use crate::engine::Engine;
use crate::engine::in_flight::InFlight;
use baton_abi::lane::{Kind, Message};
use baton_state::parcel::FEW;

/// The place to which a thread copies messages: its own memory, or the receive buffer. Each `take`
/// function makes the message the thread's, or returns false and leaves it on its lane.
pub trait Receiver {
    /// Whether a message is short enough.
    #[inline(always)]
    fn fits(&self, message: &Message) -> bool {
        message.data_bytes as usize <= INLINE_BYTES
    }

    /// Takes a plain answer: [`PostedAnswer::leave`], then the copy.
    fn take_answer(&mut self, engine: &Engine, answer: &PostedAnswer<'_>) -> bool;

    /// Takes a plain request: [`Posted::begin`], then the copy.
    fn take_request(&mut self, engine: &Engine, request: &Posted<'_>) -> bool;

    /// Takes an answer with few references.
    fn take_answer_with_references(&mut self, engine: &Engine, answer: &PostedAnswer<'_>) -> bool;

    /// Takes a request with few references.
    fn take_request_with_references(&mut self, engine: &Engine, request: &Posted<'_>) -> bool;
}

/// An answer that lies in its lane.
pub struct PostedAnswer<'a> {
    pub(super) in_flight: &'a InFlight,
    /// The channel to the process that has answered.
    pub(super) channel: &'a Channel,
    pub message: &'a Message,
    /// The lane: the data follows the header in the area of the answer.
    pub lane: Lane<'a>,
}

impl PostedAnswer<'_> {
    /// Ends the call. False if the state has taken it over.
    #[inline(always)]
    pub fn leave(&self) -> bool {
        self.in_flight.end_call()
    }
}

/// Fields of a message as one word of its header, and one load.
#[inline(always)]
fn counts(fds: u8, chain: u8, objects: u16) -> u32 {
    u32::from(fds) | u32::from(chain) << 8 | u32::from(objects) << 16
}

/// Whether a message is plain, apart from its length, of this kind, and has so many callers in its
/// chain.
#[inline(always)]
pub(super) fn is_plain(message: &Message, kind: Kind, chain: u8) -> bool {
    let Message { offsets_bytes, buffers_bytes, ticket, .. } = *message;
    let counted = counts(message.fds, message.chain, message.objects) ^ counts(0, chain, 0);
    // One comparison for all fields that must be 0.
    let other = message.kind ^ kind as u32 | counted;
    u64::from(other | offsets_bytes | buffers_bytes) | ticket == 0
}

/// Like [`is_plain`], of a message with few references and nothing else.
pub(super) fn has_few_references(message: &Message, kind: Kind, chain: u8) -> bool {
    let n = usize::from(message.objects) + usize::from(message.fds);
    let without = Message { objects: 0, fds: 0, offsets_bytes: 0, ..*message };
    (1..=FEW).contains(&n)
        && message.offsets_bytes as usize == n * size_of::<u64>()
        && is_plain(&without, kind, chain)
}
