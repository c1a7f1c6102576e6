//! Reads: whether a thread has something to read, and the returns that it gets.

use crate::buffer::Offset;
use crate::effect::Return;
use crate::message::Incoming;
use crate::process::State;
use crate::thread::{Frame, Thread, Waiting};
use crate::work::{Completion, Tid, Work};
use baton_abi::uapi::*;

impl State {
    /// Whether the thread takes the process's work: it owes nothing, has no work of its own, and is
    /// dedicated to no lane.
    pub fn takes_process_work(&mut self, tid: Tid) -> bool {
        let thread = self.thread(tid);
        thread.is_available() && thread.dedicated_to.is_none()
    }

    /// Whether a read by this thread has something to return.
    pub fn has_work(&mut self, tid: Tid, process_work: bool) -> bool {
        let process = process_work && (!self.todo.is_empty() || self.is_to_ask(tid));
        let thread = self.thread(tid);
        process || thread.todo.urgent || thread.return_once
    }

    /// Has each thread's read return at once, if only with BR_NOOP: the one in which the thread
    /// waits, or its next one.
    pub fn end_reads(&mut self) {
        let tids: Vec<Tid> = self.threads.iter().map(|(tid, _)| tid).collect();
        for tid in tids {
            self.thread(tid).return_once = true;
            self.wake(tid);
        }
    }

    /// Whether there is work for a thread that sleeps on the bell.
    pub fn has_work_for_sleepers(&self) -> bool {
        self.threads.iter().any(|(_, thread)| {
            thread.waiting == Waiting::Bell && (thread.todo.urgent || !self.todo.is_empty())
        })
    }

    /// Whether a read by this thread would return without waiting.
    pub fn would_read(&self, tid: Tid) -> bool {
        let thread = self.threads.get(tid);
        thread.is_some_and(|thread| thread.todo.urgent || thread.return_once)
            || thread.is_none_or(Thread::is_available) && !self.todo.is_empty()
    }

    /// Whether the thread may take a plain message at once: it neither owes nor awaits an answer,
    /// and has no work to read.
    pub fn is_free(&self, tid: Tid) -> bool {
        let thread = self.threads.get(tid);
        thread.is_some_and(|thread| {
            let first = thread.failed
                | thread.return_once
                | thread.relieved_of.is_some()
                | thread.raised.is_some()
                | thread.is_off_priority;
            thread.is_available() && !first
        })
    }

    /// The next return for a thread. `None`: nothing is left.
    pub fn next_return(&mut self, tid: Tid, process_work: bool) -> Option<Return> {
        let work = match self.thread(tid).todo.pop() {
            Some(work) => work,
            None if process_work => {
                self.watchdog.count_visit();
                self.todo.pop()?
            }
            None => return None,
        };
        Some(match work {
            Work::Transaction(incoming) => self.start_serving(tid, incoming),
            Work::Reply(incoming) => {
                self.mark_delivered(incoming.buffer);
                self.unread_replies -= 1;
                Return::Reply(incoming)
            }
            Work::Complete(completion) => Return::Bare(match completion {
                Completion::PendingFrozen => BR_TRANSACTION_PENDING_FROZEN,
                Completion::SpamSuspect if self.spam_detection => BR_ONEWAY_SPAM_SUSPECT,
                Completion::SpamSuspect | Completion::Taken | Completion::CallTaken(_) => {
                    BR_TRANSACTION_COMPLETE
                }
            }),
            Work::Error(command) => Return::Bare(command),
            Work::Refused(command) => {
                self.thread(tid).failed = false;
                Return::Bare(command)
            }
            Work::Node(node) => self.node_return(node),
            Work::Dead(queued) => {
                self.death_delivered(queued);
                Return::Cookie(BR_DEAD_BINDER, queued.cookie)
            }
            Work::DeathCleared(cookie) => Return::Cookie(BR_CLEAR_DEATH_NOTIFICATION_DONE, cookie),
            Work::Frozen(queued) => match self.freeze_delivered(queued) {
                Some(frozen) => Return::Frozen(queued.cookie, frozen),
                None => Return::Nothing,
            },
            Work::FreezeCleared(cookie) => {
                Return::Cookie(BR_CLEAR_FREEZE_NOTIFICATION_DONE, cookie)
            }
        })
    }

    fn start_serving(&mut self, tid: Tid, mut incoming: Incoming) -> Return {
        self.mark_delivered(incoming.buffer);
        match &incoming.serving {
            Some(serving) => {
                if !self.peers.contains_key(&serving.peer) {
                    // The caller is dead: there is no process with that number any more.
                    incoming.sender.0 = 0;
                }
                self.push_frame(tid, Frame::Serving(serving.clone()));
            }
            None => {
                self.unread_one_way -= 1;
                if let Some(node) = incoming.node.and_then(|node| self.nodes.get_mut(node)) {
                    node.one_way_server = Some(tid);
                }
            }
        }
        let node = incoming.node.and_then(|node| self.nodes.get(node));
        let object = node.map_or((0, 0), |node| (node.ptr, node.cookie));
        Return::Transaction(incoming, object)
    }

    /// Marks the buffer and its descriptors as the program's.
    fn mark_delivered(&mut self, buffer: Offset) {
        if let Some(buffer) = self.contents.get_mut(&buffer) {
            buffer.delivered = true;
            buffer.received.fds.clear();
        }
    }
}
