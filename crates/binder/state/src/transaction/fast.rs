//! Transactions of the fast path that the state adopts, and their messages in the receive buffer,
//! which never wait in a to-do list.

use crate::buffer::{Offset, Use, allocation_bytes};
use crate::message::{Buffer, HeldObject, LaneId, Serving};
use crate::process::State;
use crate::thread::{Calling, ExtendedError, Frame, Waiting};
use crate::work::{Completion, Tid, Work};
use baton_abi::control::NodeId;
use baton_abi::uapi::TF_CLEAR_BUF;

impl State {
    /// Adopts a thread's call that is under way, as [`State::departed`] would have left it. The
    /// thread waits on the lane.
    pub fn adopt_call(&mut self, tid: Tid, calling: Calling) {
        self.has_sent(tid);
        let handle = calling.handle.and_then(|handle| self.references.get_mut(handle));
        if let Some(reference) = handle {
            reference.sending += 1;
        }
        self.tokens.insert(calling.token, tid);
        self.set_waiting(tid, Waiting::Lane(calling.via));
        let thread = self.thread(tid);
        thread.todo.push_deferred(Work::Complete(Completion::CallTaken(calling.token)));
        self.push_frame(tid, Frame::Calling(calling));
    }

    /// Drops an adopted call that is not made after all. False if it has failed meanwhile.
    pub fn disown_call(&mut self, tid: Tid, via: LaneId) -> bool {
        self.set_waiting(tid, Waiting::No);
        let under_way = self.thread(tid).calls_on().is_some_and(|calling| calling.via == via);
        if under_way {
            self.withdraw_completion(tid);
            self.pop_call(tid);
        }
        under_way
    }

    /// Adopts a transaction that a thread serves and that was taken in on the fast path.
    pub fn adopt_service(&mut self, tid: Tid, serving: Serving) {
        self.set_waiting(tid, Waiting::No);
        self.outstanding += 1;
        self.push_frame(tid, Frame::Serving(serving));
    }

    /// Drops an adopted transaction that stays on its lane.
    pub fn disown_service(&mut self, tid: Tid) {
        self.outstanding -= 1;
        self.thread(tid).stack.pop();
    }

    /// Takes room for a message of so many bytes of data and offsets, and holds its node if it has
    /// one. `None` if there is no room.
    pub fn take_plain_room(
        &mut self,
        (data_bytes, offsets_bytes): (usize, usize),
        node: Option<NodeId>,
    ) -> Option<Offset> {
        let bytes = allocation_bytes(data_bytes, offsets_bytes, 0, 0);
        if let Some(node) = node {
            self.nodes.get(node)?;
        }
        let buffer = self.allocate(bytes, Use::Call).ok()?;
        if let Some(target) = node.and_then(|node| self.nodes.get_mut(node)) {
            target.local.strong += 1;
        }
        self.contents.insert(buffer, Buffer { node, bytes, delivered: true, ..Buffer::default() });
        Some(buffer)
    }

    /// Gives back the room of a message that has not come after all.
    pub fn give_plain_room_back(&mut self, buffer: Offset) {
        self.drop_buffer(buffer, None);
    }

    /// Notes that the message is complete in its room.
    pub fn fill_plain_room(&mut self, buffer: Offset, flags: u32) {
        if flags & TF_CLEAR_BUF != 0
            && let Some(buffer) = self.contents.get_mut(&buffer)
        {
            buffer.clear = true;
        }
    }

    /// Gives the message in this room its references.
    pub fn fill_references(&mut self, buffer: Offset, held: &[HeldObject]) {
        if let Some(buffer) = self.contents.get_mut(&buffer) {
            buffer.received.held = held.to_vec();
        }
    }

    /// Notes that the thread has sent a transaction, also on the fast path, and clears its extended
    /// error. Returns the transaction's number.
    pub fn has_sent(&mut self, tid: Tid) -> u64 {
        let id = self.next_number();
        self.thread(tid).error = ExtendedError { id: id as u32, ..ExtendedError::default() };
        id
    }

    /// Whether freeing the buffer has no other effect than more room.
    pub fn frees_room_only(&self, offset: Offset) -> bool {
        self.contents.get(&offset).is_some_and(|buffer| {
            let (more, received) = (buffer.one_way.is_some() || buffer.clear, &buffer.received);
            let is_alone = !more && received.array_fds.is_empty();
            buffer.delivered && is_alone && self.goes_unnoticed(&received.held)
        })
    }
}
