//! Work: items that wait for a thread or for the process, each one return of the protocol.

use crate::message::Incoming;
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
    /// `BR_TRANSACTION_COMPLETE`, or the return in its place.
    Complete(Completion),
    /// `BR_FAILED_REPLY`, `BR_DEAD_REPLY` or `BR_FROZEN_REPLY` in the place of an answer.
    Error(u32),
    /// Like `Error`, for a transaction that did not leave: no command runs until it has been read.
    Refused(u32),
    /// A node has news; it is looked at when it is delivered.
    Node(NodeId),
    /// `BR_DEAD_BINDER` for a handle's listener.
    Dead(QueuedNotice),
    /// `BR_CLEAR_DEATH_NOTIFICATION_DONE`.
    DeathCleared(u64),
    /// `BR_FROZEN_BINDER` for a handle's listener.
    Frozen(QueuedNotice),
    /// `BR_CLEAR_FREEZE_NOTIFICATION_DONE`.
    FreezeCleared(u64),
}

/// A notice in a queue; its listener may be removed meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedNotice {
    /// The number of the notice; see [`crate::notice`].
    pub notice: u64,
    /// The listener's word.
    pub cookie: u64,
}

/// The return that the sender of a transaction gets at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The reply or one-way transaction was taken.
    Taken,
    /// The call with this token was taken.
    CallTaken(u64),
    /// The transaction was taken, and the sender floods the target with one-way transactions.
    SpamSuspect,
    /// The transaction was taken, and waits until the target is thawed.
    PendingFrozen,
}

/// A to-do list, with the kernel's distinction of work that does not end a wait by itself.
#[derive(Clone, Debug, Default)]
pub struct Todo {
    items: VecDeque<Work>,
    /// How many of them are [patient](is_patient).
    n_patient: usize,
    /// Some item is worth waking up for.
    pub urgent: bool,
}

/// Whether the item is a one-way transaction of an ordinary thread, to a node that asks for no
/// priority.
fn is_patient(work: &Work) -> bool {
    let Work::Transaction(incoming) = work else { return false };
    incoming.serving.is_none() && incoming.lane_sender.is_none() && incoming.min_priority.is_none()
}

impl Todo {
    /// Adds an item worth waking up for.
    pub fn push(&mut self, work: Work) {
        self.push_deferred(work);
        self.urgent = true;
    }

    /// Adds a call, before the calls of worse nice values at the end. Each call has a waiting
    /// caller of its own, so no call was made because of another; an item that is no call keeps its
    /// place.
    pub fn push_call(&mut self, incoming: Incoming) {
        self.push_before(incoming, |older, incoming| {
            older.serving.is_some() && older.queue_priority.lets_by(incoming.queue_priority)
        });
    }

    /// Adds a one-way transaction of a real-time sender, before the less urgent transactions at the
    /// end. An item that is no transaction keeps its place.
    pub fn push_real_time(&mut self, incoming: Incoming) {
        self.push_before(incoming, |older, incoming| older.lets_by(incoming));
    }

    fn push_before(
        &mut self,
        incoming: Incoming,
        mut lets_by: impl FnMut(&mut Incoming, &Incoming) -> bool,
    ) {
        let mut lets_by = |work: &mut Work| match work {
            Work::Transaction(older) => lets_by(older, &incoming),
            _ => false,
        };
        let mut at = self.items.len();
        while at > 0 && lets_by(&mut self.items[at - 1]) {
            at -= 1;
        }
        let work = Work::Transaction(incoming);
        self.n_patient += usize::from(is_patient(&work));
        self.items.insert(at, work);
        self.urgent = true;
    }

    /// Adds an item that waits until there is another reason to return.
    pub fn push_deferred(&mut self, work: Work) {
        self.n_patient += usize::from(is_patient(&work));
        self.items.push_back(work);
    }

    /// All items, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &Work> {
        self.items.iter()
    }

    /// The item that comes next.
    pub fn first(&self) -> Option<&Work> {
        self.items.front()
    }

    /// The next item.
    pub fn pop(&mut self) -> Option<Work> {
        let work = self.items.pop_front();
        self.forget(work.as_ref());
        work
    }

    fn forget(&mut self, work: Option<&Work>) {
        self.n_patient -= usize::from(work.is_some_and(is_patient));
        self.urgent &= !self.items.is_empty();
    }

    /// Nothing at all.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Whether some item matches.
    pub fn any(&self, matches: impl FnMut(&Work) -> bool) -> bool {
        self.items.iter().any(matches)
    }

    /// Takes out the first item that matches.
    pub fn take_if(&mut self, mut matches: impl FnMut(&Work) -> bool) -> Option<Work> {
        let at = self.items.iter().position(&mut matches)?;
        let work = self.items.remove(at);
        self.forget(work.as_ref());
        work
    }

    /// Everything, in order.
    pub fn drain(&mut self) -> impl Iterator<Item = Work> {
        std::mem::take(self).items.into_iter()
    }

    /// Whether every item is a one-way transaction of an ordinary thread, to a node that asks for
    /// no priority.
    pub fn is_patient(&self) -> bool {
        self.n_patient == self.items.len()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.items.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{LaneId, Serving};
    use crate::priority::QueuePriority;
    use baton_abi::control::{ChannelId, ProcessId};

    fn call(nice: i32, code: u32) -> Incoming {
        let via = LaneId { channel: ChannelId(1), lane: code };
        let peer = ProcessId(2);
        Incoming {
            buffer: 0,
            peer,
            node: None,
            code,
            flags: 0,
            sizes: (0, 0),
            sender: (0, 0),
            label: None,
            min_priority: None,
            queue_priority: QueuePriority::of(nice),
            lane_sender: None,
            serving: Some(Serving { via, peer, accepts_fds: false, chain: Vec::new() }),
        }
    }

    fn order(todo: &mut Todo) -> Vec<u32> {
        let number = |work| match work {
            Work::Transaction(incoming) => incoming.code,
            _ => 0,
        };
        todo.drain().map(number).collect()
    }

    #[test]
    fn calls_wait_by_nice_values_and_pass_nothing_else() {
        for (nice, expected) in [
            (&[0, 0, 0][..], &[1, 2, 3][..]),
            (&[5, 0, -5], &[3, 2, 1]),
            (&[0, 5, 0, -5, 0], &[4, 1, 3, 5, 2]),
            (&[i32::MAX, 19, 20, i32::MIN], &[4, 1, 2, 3]),
        ] {
            let mut todo = Todo::default();
            let calls = nice.iter().zip(1..).map(|(nice, code)| call(*nice, code));
            calls.for_each(|call| todo.push_call(call));
            assert_eq!(order(&mut todo), expected, "{nice:?}");
        }
        for between in
            [Work::Error(0), Work::Transaction(Incoming { serving: None, ..call(19, 0) })]
        {
            let mut todo = Todo::default();
            todo.push_call(call(5, 1));
            todo.push(between);
            todo.push_call(call(-5, 2));
            assert_eq!(order(&mut todo), [1, 0, 2]);
        }
    }

    #[test]
    fn patient_items_are_counted_whichever_way_they_come_and_go() {
        let one_way = || Incoming { serving: None, ..call(0, 1) };
        type Step = (fn(&mut Todo, Incoming), bool);
        let steps: [Step; 8] = [
            (|todo, it| todo.push(Work::Transaction(it)), true),
            (|todo, it| todo.push_real_time(it), true),
            (|todo, it| todo.push_deferred(Work::Transaction(it)), true),
            (|todo, _| todo.push_call(call(0, 2)), false),
            (|todo, _| _ = todo.pop(), false),
            (|todo, _| _ = todo.take_if(|work| !is_patient(work)), true),
            (|todo, _| _ = todo.take_if(is_patient), true),
            (|todo, _| _ = todo.drain(), true),
        ];
        let mut todo = Todo::default();
        for (nth, (step, alone)) in steps.into_iter().enumerate() {
            step(&mut todo, one_way());
            assert_eq!(todo.is_patient(), alone, "{nth}");
        }
        assert_eq!((todo.len(), todo.n_patient), (0, 0));
    }

    #[test]
    fn no_call_is_overtaken_for_ever() {
        let mut todo = Todo::default();
        todo.push_call(call(19, 1));
        (2..40).for_each(|code| todo.push_call(call(-20, code)));
        let at = order(&mut todo).iter().position(|code| *code == 1);
        assert_eq!(at, Some(usize::from(QueuePriority::MAX_OVERTAKEN)));
    }
}
