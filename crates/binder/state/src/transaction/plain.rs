//! Messages of the fast path in the receive buffer. They come in and are the program's at once:
//! they never wait in a to-do list.

use crate::buffer::{Offset, allocation_bytes};
use crate::message::Buffer;
use crate::process::State;
use crate::thread::ExtendedError;
use crate::work::Tid;
use baton_abi::control::NodeId;
use baton_abi::uapi::TF_CLEAR_BUF;

impl State {
    /// Room for a plain message, with its node held if it has one. `None` if there is none.
    pub fn take_plain_room(&mut self, data_bytes: usize, node: Option<NodeId>) -> Option<Offset> {
        let bytes = allocation_bytes(data_bytes, 0, 0, 0);
        if let Some(node) = node {
            self.nodes.get(node)?;
        }
        let buffer = self.allocate(bytes, false).ok()?;
        if let Some(target) = node.and_then(|node| self.nodes.get_mut(node)) {
            target.local.strong += 1;
        }
        self.contents.insert(buffer, Buffer { node, bytes, delivered: true, ..Buffer::default() });
        Some(buffer)
    }

    /// The message has not come after all.
    pub fn give_plain_room_back(&mut self, buffer: Offset) {
        self.drop_buffer(buffer, true);
    }

    /// The message is in its room, complete.
    pub fn fill_plain_room(&mut self, buffer: Offset, flags: u32) {
        if flags & TF_CLEAR_BUF != 0
            && let Some(buffer) = self.contents.get_mut(&buffer)
        {
            buffer.clear = true;
        }
    }

    /// The thread has sent something past the state: its extended error says that nothing failed.
    pub fn has_sent(&mut self, tid: Tid) {
        let id = self.next_number() as u32;
        self.thread(tid).error = ExtendedError { id, ..ExtendedError::default() };
    }

    /// Whether the buffer can be freed, with no other effect than more room.
    pub fn frees_room_only(&self, offset: Offset) -> bool {
        self.contents.get(&offset).is_some_and(|buffer| {
            let more = buffer.one_way.is_some() || buffer.clear;
            buffer.delivered && !more && buffer.held.is_empty() && buffer.array_fds.is_empty()
        })
    }
}
