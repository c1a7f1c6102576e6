//! A payload that has been copied out of its lane into the thread's own memory.

use super::receiver::{Plain, Receiver};
use super::serve::{DATA_AT, Posted};
use crate::engine::Engine;
use baton_abi::lane::Message;
use baton_shm::mapping::View;
use std::cell::RefCell;

type Long = Box<[u8]>;

thread_local! {
    /// Boxes of dropped payloads, for the next ones. A thread needs one or two.
    static FREE_BOXES: RefCell<Vec<Long>> = const { RefCell::new(Vec::new()) };
}

/// Most boxes that a thread keeps.
const MOST_FREE_BOXES: usize = 2;
/// The longest payload that is kept inline.
const SHORT_BYTES: usize = 32;
/// The smallest box for a longer payload.
const LEAST_BYTES: usize = 128;

/// One payload.
pub struct CopiedPayload {
    short: [u8; SHORT_BYTES],
    /// The payload, if it is longer than `short`.
    long: Option<RecycledBox>,
    bytes: usize,
    /// `binder_transaction_data.code`.
    pub code: u32,
    /// `binder_transaction_data.flags`.
    pub flags: u32,
    /// The sender's pid and effective uid.
    pub sender: (u32, u32),
}

/// Memory that goes back to [`FREE_BOXES`] when it is dropped; empty only then.
struct RecycledBox(Long);

impl Default for CopiedPayload {
    /// An empty payload, to be filled.
    #[inline]
    fn default() -> Self {
        let (short, long) = ([0; SHORT_BYTES], None);
        CopiedPayload { short, long, bytes: 0, code: 0, flags: 0, sender: (0, 0) }
    }
}

impl CopiedPayload {
    /// Copies a plain message's data out of its lane.
    #[inline(always)]
    fn fill(&mut self, message: &Message, map: View<'_>, at: usize) {
        (self.code, self.flags) = (message.code, message.flags);
        self.bytes = message.data_bytes as usize;
        if self.bytes <= SHORT_BYTES {
            // Always copies the full size: one load and one store.
            map.read(at, &mut self.short);
            self.long = None;
        } else {
            self.long = Some(RecycledBox::filled(map, at, self.bytes));
        }
    }

    /// The bytes.
    #[inline]
    pub fn data(&self) -> &[u8] {
        let all = self.long.as_ref().map_or(&self.short[..], |RecycledBox(data)| data);
        &all[..self.bytes]
    }
}

impl Receiver for CopiedPayload {
    #[inline(always)]
    fn take_answer(&mut self, _: &Engine, answer: &Plain<'_>) -> bool {
        let is_ours = answer.leave();
        if is_ours {
            self.fill(answer.message, answer.area, size_of::<Message>());
        }
        is_ours
    }

    #[inline(always)]
    fn take_request(&mut self, engine: &Engine, request: &Posted<'_>) -> bool {
        if !request.begin(engine) {
            request.turn_back(engine);
            return false;
        }
        // The point of no return.
        self.fill(&request.message, request.taken.lane.incoming(), DATA_AT);
        self.sender = *request.sender;
        true
    }
}

impl RecycledBox {
    #[inline(never)]
    fn filled(map: View<'_>, at: usize, bytes: usize) -> RecycledBox {
        let free = FREE_BOXES.try_with(|free| free.borrow_mut().pop()).ok().flatten();
        // A box that is too short is dropped: calls of one size reuse their boxes.
        let mut data = free.filter(|data: &Long| data.len() >= bytes).unwrap_or_else(|| {
            vec![0; bytes.next_power_of_two().max(LEAST_BYTES)].into_boxed_slice()
        });
        map.read(at, &mut data[..bytes]);
        RecycledBox(data)
    }
}

impl Drop for RecycledBox {
    // Not inlined: few payloads are long.
    #[inline(never)]
    fn drop(&mut self) {
        let _ = FREE_BOXES.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < MOST_FREE_BOXES {
                free.push(std::mem::take(&mut self.0));
            }
        });
    }
}
