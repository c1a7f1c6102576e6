//! Plain messages, and the places to which a thread copies them.

use super::own_lane::LaneEntry;
use super::serve::Posted;
use crate::channel::INLINE_BYTES;
use crate::engine::Engine;
use baton_abi::control::ProcessId;
use baton_abi::lane::{Kind, Message};
use baton_shm::mapping::View;

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

/// A plain answer.
pub struct Plain<'a> {
    pub(super) entry: &'a LaneEntry<'a>,
    pub message: &'a Message,
    /// The area of the answer: the data follows the header.
    pub area: View<'a>,
}

impl Plain<'_> {
    /// The process that has answered.
    pub fn peer(&self) -> ProcessId {
        self.entry.peer()
    }

    /// Ends the call. False if the state has taken it over.
    #[inline(always)]
    pub fn leave(&self) -> bool {
        self.entry.end_call()
    }
}

/// Whether a message is plain, apart from its length, of this kind, and has so many callers in its
/// chain.
#[inline(always)]
pub(super) fn is_plain(message: &Message, kind: Kind, chain: u8) -> bool {
    let Message { offsets_bytes, buffers_bytes, ticket, .. } = *message;
    // These three are one word of the header, and one load.
    let counts = |fds: u8, chain: u8, objects: u16| {
        u32::from(fds) | u32::from(chain) << 8 | u32::from(objects) << 16
    };
    let counted = counts(message.fds, message.chain, message.objects) ^ counts(0, chain, 0);
    // One comparison for all fields that must be 0.
    let other = message.kind ^ kind as u32 | counted;
    u64::from(other | offsets_bytes | buffers_bytes) | ticket == 0
}
