//! Buffers: how they are freed, by the program or with work that no thread reads.

use crate::buffer::{Offset, Use};
use crate::effect::Effect;
use crate::message::{Buffer, Received};
use crate::process::State;
use crate::work::{Tid, Work};
use baton_abi::control::{ChannelId, ProcessId, Strength};

/// A thread whose program frees a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Freer {
    /// The thread.
    pub tid: Tid,
    /// Whether the thread reads its own work before it does anything else: see
    /// [`Thread::serves_on`](crate::thread::Thread::serves_on).
    pub reads_next: bool,
}

impl State {
    fn buffer_at(&self, offset: Option<Offset>) -> Option<&Buffer> {
        self.contents.get(&offset?)
    }

    /// Whether freeing this buffer may lead to work.
    pub fn frees_more(&self, offset: Option<Offset>) -> bool {
        let buffer = self.buffer_at(offset);
        buffer.is_some_and(|buffer| buffer.one_way.is_some() || !buffer.received.held.is_empty())
    }

    /// Owners of nodes whose handles may lose their last strong count with this buffer.
    pub fn frees_last(&self, offset: Option<Offset>) -> Vec<ProcessId> {
        self.owners_of_last(self.buffer_at(offset).map_or(&[], |buffer| &buffer.received.held))
    }

    /// Whether freeing this buffer closes descriptors.
    pub fn frees_descriptors(&self, offset: Option<Offset>) -> bool {
        let buffer = self.buffer_at(offset);
        buffer.is_some_and(|buffer| buffer.delivered && !buffer.received.array_fds.is_empty())
    }

    /// BC_FREE_BUFFER by a thread: `Some` with the bytes to wipe, if the sender asked for that.
    pub fn free(
        &mut self,
        freer: Freer,
        offset: Option<Offset>,
        address: u64,
    ) -> Option<(Offset, usize)> {
        // A thread other than the slot's own frees its message, or the slot is empty.
        self.take_over_slots(|slot| Some(slot.buffer) == offset);
        let known = offset.and_then(|offset| Some((offset, self.contents.get(&offset)?)));
        let Some((offset, buffer)) = known else {
            self.complain(format!("BC_FREE_BUFFER u{address:016x} no match"));
            return None;
        };
        if !buffer.delivered {
            let line = format!("BC_FREE_BUFFER u{address:016x} matched unreturned buffer");
            self.complain(line);
            return None;
        }
        let wipe = buffer.clear.then_some((offset, buffer.bytes));
        self.drop_buffer(offset, Some(freer));
        wipe
    }

    /// Notes that the program has unmapped its receive buffer: no message gets room any more.
    pub fn unmap(&mut self) {
        self.take_over_slots_of(None);
        self.buffers.unmap();
        self.made_room = true;
    }

    /// Closes the device: drops the messages that no thread has read.
    pub fn close(&mut self) {
        let lies_there = |work: &Work| matches!(work, Work::Transaction(_) | Work::Reply(_));
        let mut undelivered = Vec::new();
        let todos = self.threads.iter_mut().map(|(_, thread)| &mut thread.todo);
        for todo in todos.chain([&mut self.todo]) {
            undelivered.extend(std::iter::from_fn(|| todo.take_if(lies_there)));
        }
        for node in self.nodes.iter_mut() {
            undelivered.extend(node.one_way_todo.take_all().map(Work::Transaction));
        }
        for work in undelivered {
            self.discard(work);
        }
    }

    /// Drops a buffer; every buffer ends here. `freed_by` is the thread whose program frees it;
    /// `None` if no program has got it.
    pub(crate) fn drop_buffer(&mut self, offset: Offset, freed_by: Option<Freer>) {
        let Some(buffer) = self.contents.remove(&offset) else { return };
        let usage = if buffer.one_way.is_some() { Use::OneWay } else { Use::Call };
        self.buffers.release(offset, buffer.bytes, usage);
        self.made_room = true;
        let Received { held, fds, array_fds, user } = buffer.received;
        if freed_by.is_none() && !fds.is_empty() {
            self.effect(Effect::Discard(user, fds));
        } else if freed_by.is_some() && !array_fds.is_empty() {
            self.effect(Effect::Close(array_fds));
        }
        if let Some(channel) = buffer.one_way {
            let (bytes, buffers) = self.one_way_account(channel);
            match buffers {
                1 => self.one_way_accounts.remove(&channel),
                _ => self.one_way_accounts.insert(channel, (bytes - buffer.bytes, buffers - 1)),
            };
            self.effect(Effect::Account(channel));
        }
        if let Some(id) = buffer.node {
            if let Some(freer) = freed_by.filter(|_| buffer.one_way.is_some()) {
                self.next_one_way(id, freer);
            }
            if let Some(node) = self.nodes.get_mut(id) {
                node.local.strong -= 1;
            }
            self.node_dropped(id, Strength::Strong);
        }
        for granted in &held {
            self.let_go(granted);
        }
    }

    /// Bytes and buffers of the one-way transactions that a channel's client has in the receive
    /// buffer.
    pub fn one_way_account(&self, channel: ChannelId) -> (usize, usize) {
        self.one_way_accounts.get(&channel).copied().unwrap_or_default()
    }
}
