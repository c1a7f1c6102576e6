//! A payload that has been copied out of its lane into the thread's own memory.

use super::receiver::{PostedAnswer, Receiver};
use super::references::CopiedReferences;
use super::serve::{DATA_AT, Posted, Taken};
use crate::channel::{Channel, Lane};
use crate::engine::Engine;
use baton_abi::lane::Message;
use baton_shm::lock::Lock;
use baton_shm::mapping::View;
use baton_state::parcel::Few;
use baton_state::transaction::HeldObject;
use rustix::fd::OwnedFd;
use std::cell::RefCell;
use std::mem::ManuallyDrop;

/// What a payload needs beyond the inline bytes.
#[derive(Default)]
struct Long {
    data: Box<[u8]>,
    /// Offsets of the objects in the data.
    offsets: Few<u64>,
    /// The nodes and handles.
    held: Few<HeldObject>,
    /// The descriptors that the program has not taken out.
    fds: Lock<Vec<OwnedFd>>,
}

type FreeBoxes = Vec<Box<Long>>;

thread_local! {
    /// Boxes of dropped payloads, for the next ones. A thread needs one or two.
    static FREE_BOXES: RefCell<FreeBoxes> = const { RefCell::new(Vec::new()) };
}

/// Most boxes that a thread keeps.
const MOST_FREE_BOXES: usize = 2;
/// The longest payload that is kept inline.
const SHORT_BYTES: usize = 32;
/// The smallest box for a longer payload.
const LEAST_BYTES: usize = 128;

/// One payload. A payload that is long has to be freed before it is dropped.
pub struct CopiedPayload {
    short: [u8; SHORT_BYTES],
    /// The payload, if it is longer than `short` or has references. Plain payloads, too, would pass
    /// the code that drops it.
    long: Option<ManuallyDrop<Box<Long>>>,
    bytes: usize,
    /// `binder_transaction_data.code`.
    pub code: u32,
    /// `binder_transaction_data.flags`.
    pub flags: u32,
    /// The sender's pid and effective uid.
    pub sender: (u32, u32),
}

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
            if self.long.is_some() {
                self.recycle();
            }
        } else {
            self.fill_long(map, at);
        }
    }

    /// Takes a message with references, if these can come in and `begin` agrees. Both happen under
    /// one hold of the state's lock. Descriptors of a message that stays on its lane are given
    /// back.
    #[inline(never)]
    fn fill_with_references(
        &mut self,
        engine: &Engine,
        message: &Message,
        lane: Lane<'_>,
        channel: &Channel,
        begin: impl FnOnce() -> bool,
    ) -> bool {
        let bytes = message.data_bytes as usize;
        let Long { data, offsets, held, fds } = self.lengthen(bytes);
        let data = &mut data[..bytes];
        let copied = CopiedReferences::copy(message, lane.incoming(), data);
        let Some(copied) = copied else { return false };
        let mut state = engine.lock();
        let Some(taken) = copied.may_come_in(&state, channel) else { return false };
        if !begin() {
            return false;
        }
        let taken = taken.keep();
        *held = copied.take(&mut state, channel.sender(), lane, data, &taken);
        *fds.get_mut() = taken;
        engine.unlock_if_changed(state);
        *offsets = copied.offsets;
        (self.code, self.flags, self.bytes) = (message.code, message.flags, bytes);
        true
    }

    #[inline(never)]
    fn fill_long(&mut self, map: View<'_>, at: usize) {
        let bytes = self.bytes;
        map.read(at, &mut self.lengthen(bytes).data[..bytes]);
    }

    /// Memory for so many bytes of data.
    fn lengthen(&mut self, bytes: usize) -> &mut Long {
        let free = || FREE_BOXES.try_with(|free| free.borrow_mut().pop()).ok().flatten();
        let long = self.long.get_or_insert_with(|| ManuallyDrop::new(free().unwrap_or_default()));
        if long.data.len() < bytes {
            // Calls of one size reuse their memory.
            let room = bytes.next_power_of_two().max(LEAST_BYTES);
            long.data = vec![0; room].into_boxed_slice();
        }
        long
    }

    /// Keeps the memory of a long payload for the next one.
    #[inline(never)]
    fn recycle(&mut self) {
        let Some(long) = self.long.take() else { return };
        let mut long = ManuallyDrop::into_inner(long);
        long.offsets.clear();
        long.fds.get_mut().clear();
        let _ = FREE_BOXES.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < MOST_FREE_BOXES {
                free.push(long);
            }
        });
    }

    /// The bytes.
    #[inline]
    pub fn data(&self) -> &[u8] {
        let all = self.long.as_ref().map_or(&self.short[..], |long| &long.data);
        &all[..self.bytes]
    }

    /// The offset of the object with this index.
    pub fn offset(&self, index: usize) -> Option<u64> {
        self.long.as_ref()?.offsets.get(index).copied()
    }

    /// Its descriptors, as long as the program has not taken them out: they are closed with it.
    pub fn fds(&self) -> Option<&Lock<Vec<OwnedFd>>> {
        self.long.as_ref().map(|long| &long.fds)
    }

    /// Whether it has memory of its own, and may have references.
    #[inline(always)]
    pub fn is_long(&self) -> bool {
        self.long.is_some()
    }

    /// Lets the references go, and keeps the memory for the next payload.
    pub fn free(&mut self, engine: &Engine) {
        let Some(long) = &mut self.long else { return };
        if !long.held.is_empty() {
            engine.let_go(&std::mem::take(&mut long.held));
        }
        self.recycle();
    }
}

impl Receiver for CopiedPayload {
    #[inline(always)]
    fn take_answer(&mut self, _: &Engine, answer: &PostedAnswer<'_>) -> bool {
        let is_ours = answer.leave();
        if is_ours {
            self.fill(answer.message, answer.lane.incoming(), size_of::<Message>());
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

    fn take_answer_with_references(&mut self, engine: &Engine, answer: &PostedAnswer<'_>) -> bool {
        let leave = || answer.leave();
        self.fill_with_references(engine, answer.message, answer.lane, answer.channel, leave)
    }

    fn take_request_with_references(&mut self, engine: &Engine, request: &Posted<'_>) -> bool {
        let Taken { lane, channel, .. } = request.taken;
        let mut has_turned_back = false;
        let begin = || {
            has_turned_back = !request.begin(engine);
            !has_turned_back
        };
        let taken = self.fill_with_references(engine, &request.message, lane, channel, begin);
        if has_turned_back {
            request.turn_back(engine);
        }
        self.sender = *request.sender;
        taken
    }
}
