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

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> Message {
        Message { kind: Kind::Request as u32, chain: 1, ..Message::default() }
    }

    /// One change each of a field that a plain message has no choice about.
    const CHANGES: [fn(&mut Message); 7] = [
        |it| it.kind ^= 4,
        |it| it.fds ^= 4,
        |it| it.chain ^= 4,
        |it| it.objects ^= 4,
        |it| it.offsets_bytes ^= 4,
        |it| it.buffers_bytes ^= 4,
        |it| it.ticket ^= 4,
    ];

    /// No change makes up for another one.
    #[test]
    fn a_message_with_one_or_two_fields_that_are_not_plain_is_not_plain() {
        assert!(is_plain(&plain(), Kind::Request, 1));
        let high = Message { ticket: 1 << 63, ..plain() };
        assert!(!is_plain(&high, Kind::Request, 1));
        for (i, one) in CHANGES.into_iter().enumerate() {
            let mut message = plain();
            one(&mut message);
            assert!(!is_plain(&message, Kind::Request, 1), "{i}");
            for (j, other) in CHANGES.into_iter().enumerate().filter(|&(j, _)| j != i) {
                let mut message = message;
                other(&mut message);
                assert!(!is_plain(&message, Kind::Request, 1), "{i} and {j}");
            }
        }
    }

    #[test]
    fn a_message_with_few_references_has_one_offset_for_each_and_is_plain_otherwise() {
        const MOST: u16 = FEW as u16;
        for (objects, fds, offsets_bytes, has_few) in [
            (0, 0, 0, false),
            (0, 0, 8, false),
            (1, 0, 8, true),
            (0, 1, 8, true),
            (1, 1, 16, true),
            (1, 1, 8, false),
            (1, 0, 16, false),
            (1, 0, 0, false),
            (1, 0, 9, false),
            (MOST, 0, 8 * u32::from(MOST), true),
            (MOST, 1, 8 * u32::from(MOST) + 8, false),
            (u16::MAX, u8::MAX, u32::MAX, false),
        ] {
            let message = Message { objects, fds, offsets_bytes, ..plain() };
            let found = has_few_references(&message, Kind::Request, 1);
            assert_eq!(found, has_few, "{objects}, {fds}, {offsets_bytes}");
        }
        let changes: [fn(&mut Message); 4] =
            [|it| it.kind ^= 4, |it| it.chain = 0, |it| it.buffers_bytes = 8, |it| it.ticket = 1];
        for (i, change) in changes.into_iter().enumerate() {
            let mut message = Message { objects: 1, offsets_bytes: 8, ..plain() };
            change(&mut message);
            assert!(!has_few_references(&message, Kind::Request, 1), "{i}");
        }
    }
}
