//! Work: what waits for a thread or for the process, each item one return of the protocol.

use super::transaction::Incoming;
use baton_abi::control::NodeId;
use std::collections::VecDeque;

/// A thread's id, as gettid has it.
pub type Tid = u32;

/// Where an item waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// For one thread.
    Thread(Tid),
    /// For any looper.
    Process,
}

/// One item.
#[derive(Clone, Debug)]
pub enum Work {
    /// A transaction to serve.
    Transaction(Incoming),
    /// The answer to the thread's call.
    Reply(Incoming),
    /// `BR_TRANSACTION_COMPLETE` or what stands in its place.
    Complete(Completion),
    /// `BR_FAILED_REPLY`, `BR_DEAD_REPLY` or `BR_FROZEN_REPLY` in the place of an answer.
    Error(u32),
    /// The same for a transaction that did not leave: no command runs until it has been read.
    Refused(u32),
    /// A node has news; it is looked at when it is delivered.
    Node(NodeId),
    /// `BR_DEAD_BINDER` for a handle's listener.
    Dead(Obituary),
    /// `BR_CLEAR_DEATH_NOTIFICATION_DONE`.
    DeathCleared(u64),
    /// `BR_FROZEN_BINDER` for a handle's listener.
    Frozen(Obituary),
    /// `BR_CLEAR_FREEZE_NOTIFICATION_DONE`.
    FreezeCleared(u64),
}

/// A notification of a handle whose listener may be taken off while it is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Obituary {
    /// The notice that is told; see [`super::death`] and [`super::freeze`].
    pub notice: u64,
    /// The listener's word.
    pub cookie: u64,
}

/// What the sender of a transaction is told at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// It was taken.
    Taken,
    /// It was taken and the sender floods the target with one-way transactions.
    SpamSuspect,
    /// It was taken and waits until the target is thawed.
    PendingFrozen,
}

/// A to-do list, with the kernel's distinction of work that does not end a wait by itself.
#[derive(Clone, Debug, Default)]
pub struct Todo {
    items: VecDeque<Work>,
    /// Some item is worth waking up for.
    pub urgent: bool,
}

impl Todo {
    /// Adds an item worth waking up for.
    pub fn push(&mut self, work: Work) {
        self.items.push_back(work);
        self.urgent = true;
    }

    /// Adds an item that waits until there is another reason to return.
    pub fn push_deferred(&mut self, work: Work) {
        self.items.push_back(work);
    }

    /// The item that comes next.
    pub fn first(&self) -> Option<&Work> {
        self.items.front()
    }

    /// The next item.
    pub fn pop(&mut self) -> Option<Work> {
        let work = self.items.pop_front();
        if self.items.is_empty() {
            self.urgent = false;
        }
        work
    }

    /// Nothing at all.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Whether some item matches.
    pub fn any(&self, matches: impl FnMut(&Work) -> bool) -> bool {
        self.items.iter().any(matches)
    }

    /// Takes out what matches.
    pub fn take_if(&mut self, mut matches: impl FnMut(&Work) -> bool) -> Option<Work> {
        let at = self.items.iter().position(&mut matches)?;
        let work = self.items.remove(at);
        if self.items.is_empty() {
            self.urgent = false;
        }
        work
    }

    /// Takes out the last one that matches.
    pub fn take_last_if(&mut self, matches: impl FnMut(&Work) -> bool) {
        if let Some(at) = self.items.iter().rposition(matches) {
            self.items.remove(at);
        }
        if self.items.is_empty() {
            self.urgent = false;
        }
    }

    /// Everything, in order.
    pub fn drain(&mut self) -> impl Iterator<Item = Work> {
        self.urgent = false;
        std::mem::take(&mut self.items).into_iter()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.items.len()
    }
}
