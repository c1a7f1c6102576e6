//! One-way transactions that have come in: a node serves one at a time, as in the kernel's driver.
//!
//! ```text
//!   comes in, node is free ---> a looper's queue ---> served ---> its buffer is freed
//!            node is busy ----> the node's queue -------^             |
//!                                    ^----- the next one ------------+
//! ```
//!
//! Those of real-time senders go first, by their priorities. One sender's keep their order: if its
//! priority has grown, those that wait have it, too. They are for the dedicated looper of their
//! sender's lane, and for the pool while that one is busy or there is none.
//!
//! A transaction that no thread has read yet gives its turn to a more urgent one. A thread that
//! serves one gets the priority of the most urgent one behind it ([`Effect::Raise`]), and serves
//! that one next, at the priority that it has, if it reads at once. So a real-time sender waits for
//! at most one handler of others, at its own priority.
//!
//! **Invariants**: a node that is not busy has an empty queue. The to-do list of a thread that
//! serves a call or awaits an answer has no one-way transaction.

use super::release::Freer;
use crate::effect::Effect;
use crate::message::{Incoming, LaneId};
use crate::process::State;
use crate::thread::Thread;
use crate::work::{Queue, Tid, Work};
use baton_abi::control::{NodeId, ProcessId};

impl State {
    /// Queues a one-way transaction that has come in. `by` is the dedicated looper that takes it
    /// in, if one does.
    pub(super) fn queue_one_way(&mut self, node: NodeId, incoming: Incoming, by: Option<Tid>) {
        self.unread_one_way += 1;
        let target = self.nodes.get_mut(node).expect("admitted");
        if !target.one_way_busy {
            target.one_way_busy = true;
            return self.push_one_way(incoming, by);
        }
        let priority = incoming.real_time();
        let unread = self.take_unread(node, &incoming);
        let queue = &mut self.nodes.get_mut(node).expect("admitted").one_way_todo;
        queue.push(incoming);
        if let Some(unread) = unread {
            queue.put_back(unread);
            let next = queue.pop().expect("two at least");
            return self.push_one_way(next, by);
        }
        let server = self.nodes.get(node).and_then(|target| target.one_way_server);
        if let Some((server, priority)) = server.zip(priority) {
            self.effect(Effect::Raise(server, priority));
        }
    }

    /// Takes the node's less urgent transaction out of the queue in which it lies unread, if it
    /// does. It is more urgent from now on if it is of the same sender.
    fn take_unread(&mut self, node: NodeId, urgent: &Incoming) -> Option<Incoming> {
        let priority = Some(urgent.real_time()?);
        let is_unread = |work: &Work| match work {
            Work::Transaction(other) => {
                let is_of_node = other.serving.is_none() && other.node == Some(node);
                is_of_node && other.real_time() < priority
            }
            _ => false,
        };
        let of_threads = self.threads.iter_mut().map(|(_, thread)| &mut thread.todo);
        let mut todos = std::iter::once(&mut self.todo).chain(of_threads);
        let Work::Transaction(mut unread) = todos.find_map(|todo| todo.take_if(is_unread))? else {
            return None;
        };
        if unread.has_sender_of(urgent) {
            unread.inherit(urgent);
        }
        Some(unread)
    }

    /// Queues a transaction whose turn has come: for its sender's looper if that waits at its lane
    /// or is `by`, and has no work; else for the pool, from which the looper takes it if it comes
    /// first.
    fn push_one_way(&mut self, incoming: Incoming, by: Option<Tid>) {
        let looper = incoming.lane_sender.and_then(|sender| self.looper_of(sender.via));
        let Some((tid, via)) = looper else {
            return self.push_process(Work::Transaction(incoming));
        };
        let thread = self.thread(tid);
        if thread.is_available() && (Some(tid) == by || thread.waits_on(via)) {
            return self.push(Queue::Thread(tid), Work::Transaction(incoming));
        }
        self.push_process(Work::Transaction(incoming));
        // It may be about to wait past the state.
        self.wake(tid);
    }

    fn looper_of(&self, via: LaneId) -> Option<(Tid, LaneId)> {
        let looper = self.threads.iter().find(|(_, thread)| thread.is_looper_of(via));
        looper.map(|(tid, _)| (tid, via))
    }

    /// Called by the thread that is dedicated to the lane, before it waits there: takes a one-way
    /// transaction of its caller's over from the pool.
    pub fn claim_one_way(&mut self, tid: Tid, via: LaneId) {
        if !self.threads.get(tid).is_some_and(Thread::is_available) {
            return;
        }
        let is_own = |work: &Work| match work {
            Work::Transaction(incoming) => incoming.lane_sender.is_some_and(|it| it.via == via),
            _ => false,
        };
        if let Some(work) = self.todo.take_if(is_own) {
            self.thread(tid).todo.push(work);
        }
    }

    /// The looper leaves its lane: the one-way transactions that it has not read are the pool's.
    pub(crate) fn give_one_ways_back(&mut self, tid: Tid) {
        let is_one =
            |work: &Work| matches!(work, Work::Transaction(it) if it.lane_sender.is_some());
        while let Some(work) = self.thread(tid).todo.take_if(is_one) {
            self.push_process(work);
        }
    }

    /// The node's transaction in service has been freed: the next one's turn comes. A thread that
    /// was raised for the next one serves it itself, if it can.
    pub(super) fn next_one_way(&mut self, id: NodeId, by: Freer) {
        let Some(node) = self.nodes.get_mut(id) else { return };
        node.one_way_server = None;
        let Some(incoming) = node.one_way_todo.pop() else {
            node.one_way_busy = false;
            return;
        };
        if by.reads_next && self.thread(by.tid).may_serve_on(&incoming) {
            return self.push(Queue::Thread(by.tid), Work::Transaction(incoming));
        }
        self.push_one_way(incoming, Some(by.tid));
    }

    /// Drops an outdated one-way transaction of the same sender, node, `code` and `flags`
    /// (TF_UPDATE_TXN).
    pub fn supersede(&mut self, peer: ProcessId, node: NodeId, code: u32, flags: u32) {
        let Some(target) = self.nodes.get_mut(node) else { return };
        let same = |old: &Incoming| old.peer == peer && old.code == code && old.flags == flags;
        if let Some(old) = target.one_way_todo.take_if(same) {
            self.unread_one_way -= 1;
            self.drop_buffer(old.buffer, None);
        }
    }
}
