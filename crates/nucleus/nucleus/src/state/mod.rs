//! The state of a kernel, and everything that can happen to it. Time, interrupts and requests come
//! in as calls. The results are the thread that runs (`current`), and words in UTCBs. Stacks, the
//! clock and I/O are in `kernel`.
//!
//! ```text
//!            enqueue, dequeue, swap
//!  ipc -------------------------------> scheduler ---> ready queue ---> current
//!   |  \                                    ^
//!   |   send queues                         |
//!   v                                       |
//!  UTCBs        time, notices, threads -----+
//! ```
//!
//! **Invariants** of all variants: a thread that is `Ready` and not suspended runs or is on the
//! ready queue. A thread is in the send queue of its partner exactly while it is `Sending`. In a
//! strict kernel, `current` has no lower priority than any thread that could run.

mod cluster_link;
mod grants;
mod inheritance;
mod ipc;
mod notices;
mod open;
mod proxies;
mod remote;
mod scheduler;
mod threads;
mod time;

use crate::cluster::Membership;
use crate::heap::IndexedHeap;
use crate::list::Slot;
use crate::message::{Ipc, IpcError, Tag, result_of_word, result_word};
use crate::ready_queue::ReadyQueue;
use crate::send_queue::{Bitmap, SendQueues};
use crate::statistics::{Event, Statistics};
use crate::tcb::{INBOX_INTERRUPTS, INBOX_NOTICES, Status, Tcbs, Utcb};
use crate::thread_id::{MAX_THREADS, Sender, ThreadId, raw};
use crate::variant::{Inheritance, Variant};
use cluster_link::ClusterLink;

/// The result of the scheduler, and the bound that it uses next time. The assembly knows the
/// layout.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Decision {
    /// The thread that runs. While a thread is outside of the kernel or in a fast path, only
    /// `EntryPoints::current_tcb` is true.
    pub(crate) current: Slot,
    /// An upper bound of the priorities of all threads that could run, except the current one; -1:
    /// there are none. It is exact in kernels whose queue is exact.
    pub(crate) ceiling: i32,
}

/// The state of one kernel.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct State<K: Variant> {
    pub(crate) decision: Decision,
    pub(crate) tcbs: Tcbs,
    pub(crate) utcbs: Box<[Utcb]>,
    ready: ReadyQueue,
    send_queues: SendQueues<K::SendQueue>,
    /// The threads that lend their priority, by the server to which they lend it.
    lenders: SendQueues<Bitmap>,
    deadlines: IndexedHeap<u64>,
    deadline_positions: Box<[u16]>,
    /// The handler of each interrupt.
    handlers: [Option<ThreadId>; 64],
    slice_ticks: u32,
    statistics: K::Statistics,
    /// `None`: the kernel is in no cluster.
    link: Option<ClusterLink>,
}

impl<K: Variant> State<K> {
    /// A kernel without threads. `n_threads`: 1 to 4,096. `slice_ticks`: a timeslice in ticks.
    pub fn new(n_threads: usize, slice_ticks: u32) -> State<K> {
        assert!((1..=MAX_THREADS).contains(&n_threads));
        State::with_tables(Tcbs::new(0, 1, n_threads), n_threads, slice_ticks, None)
    }

    /// A kernel without threads in a cluster, which says how many threads there may be.
    pub fn in_cluster(membership: &Membership, slice_ticks: u32) -> State<K> {
        let (n_kernels, n_threads) =
            (membership.cluster().n_kernels(), membership.cluster().n_threads());
        let tcbs = Tcbs::new(membership.kernel().into(), n_kernels, n_threads);
        State::with_tables(tcbs, n_threads, slice_ticks, Some(ClusterLink::new(membership)))
    }

    fn with_tables(
        tcbs: Tcbs,
        n_threads: usize,
        slice_ticks: u32,
        link: Option<ClusterLink>,
    ) -> State<K> {
        let n_slots = tcbs.0.len();
        let n_servers = match K::INHERITANCE {
            Inheritance::None => 0,
            Inheritance::ThroughCalls => n_threads,
        };
        State {
            decision: Decision { current: Slot::NONE, ceiling: -1 },
            tcbs,
            utcbs: vec![Utcb::default(); n_threads].into(),
            ready: ReadyQueue::new(n_threads),
            send_queues: SendQueues::new(n_threads, n_slots),
            lenders: SendQueues::new(n_servers, n_slots),
            deadlines: IndexedHeap::default(),
            deadline_positions: vec![0; n_threads].into(),
            handlers: [None; 64],
            slice_ticks,
            statistics: K::Statistics::default(),
            link,
        }
    }

    /// The thread that runs, or `None` if none can.
    pub fn current(&self) -> Option<ThreadId> {
        let current = self.decision.current;
        (current != Slot::NONE).then(|| self.tcbs[current].id)
    }

    /// The counters of the variant.
    pub fn statistics(&self) -> &K::Statistics {
        &self.statistics
    }

    /// The UTCB of a thread. `None`: there is no such thread.
    pub fn utcb(&mut self, id: ThreadId) -> Option<&mut Utcb> {
        self.find(id).map(|slot| &mut self.utcbs[slot.index()])
    }

    /// The status of a thread. `Free`: there is no such thread.
    pub fn status(&self, id: ThreadId) -> Status {
        self.find(id).map_or(Status::Free, |slot| match self.tcbs[slot].status {
            Status::Sending if self.waits_for_answer(slot) => Status::Receiving,
            status => status,
        })
    }

    /// The priority by which a thread is scheduled. -1: there is no such thread.
    pub fn priority(&self, id: ThreadId) -> i32 {
        self.find(id).map_or(-1, |slot| i32::from(self.tcbs[slot].priority))
    }

    /// The number of threads, those included that were not started.
    pub fn n_threads(&self) -> usize {
        let own = &self.tcbs.0[..self.utcbs.len()];
        own.iter().filter(|tcb| tcb.status != Status::Free).count()
    }

    pub(crate) fn find(&self, id: ThreadId) -> Option<Slot> {
        let tcb = self.tcbs.0.get(id.slot().index())?;
        (tcb.id == id && tcb.status != Status::Free).then_some(id.slot())
    }

    /// Writes the result of a thread's IPC into its UTCB.
    fn finish(&mut self, slot: Slot, result: Result<Sender, IpcError>) {
        self.utcbs[slot.index()].peer = result_word(result);
    }

    /// Makes a blocked thread ready. The caller has taken it off its send queue.
    fn unblock(&mut self, slot: Slot) {
        self.cancel_deadline(slot);
        // Before the priority changes, so that `change_priority` looks for the thread in no send
        // queue.
        self.tcbs[slot].status = Status::Ready;
        self.stop_lending(slot);
        let tcb = &mut self.tcbs[slot];
        tcb.gate = raw::SHUT;
        tcb.partner = raw::NOBODY;
    }

    /// Writes an IPC and the words of its message into the current thread's UTCB.
    pub fn set_ipc(&mut self, ipc: Ipc, tag: Tag, words: &[u64]) {
        let utcb = &mut self.utcbs[self.decision.current.index()];
        utcb.set_ipc(ipc, tag);
        utcb.words[..words.len()].copy_from_slice(words);
    }

    /// The result of a thread's last IPC. `None`: it had no receive phase.
    pub fn result(&self, id: ThreadId) -> Result<Option<Sender>, IpcError> {
        result_of_word(self.utcbs[id.slot().index()].peer)
    }

    /// The message that a thread has received.
    pub fn message(&self, id: ThreadId) -> (Tag, &[u64]) {
        let utcb = &self.utcbs[id.slot().index()];
        let tag = Tag::from_raw(utcb.tag);
        (tag, &utcb.words[..usize::from(tag.length())])
    }

    /// Ends a thread's wait with an error.
    fn fail_wait(&mut self, slot: Slot, error: IpcError) {
        self.leave_send_queue(slot);
        self.unblock(slot);
        self.finish(slot, Err(error));
    }

    fn leave_send_queue(&mut self, slot: Slot) {
        if self.tcbs[slot].status == Status::Sending {
            let receiver = ThreadId::from_raw(self.tcbs[slot].partner);
            let receiver = receiver.expect("one who sends has a partner");
            if self.is_foreign(receiver) {
                return;
            }
            let receiver = receiver.slot();
            self.send_queues.remove(receiver, slot);
            self.tcbs[receiver].inbox -= 1;
        }
    }

    /// Updates the bits of a thread's inbox after a change of its interrupts or notices.
    fn update_inbox(&mut self, slot: Slot) {
        let tcb = &mut self.tcbs[slot];
        let bit = |is_there, bit| if is_there { bit } else { 0 };
        tcb.inbox = tcb.inbox & (INBOX_NOTICES - 1)
            | bit(tcb.interrupts != 0, INBOX_INTERRUPTS)
            | bit(tcb.notices & tcb.accepted_notices != 0, INBOX_NOTICES);
    }

    fn count(&mut self, event: Event) {
        self.statistics.count(event);
    }
}
