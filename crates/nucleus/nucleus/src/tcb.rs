//! Thread control blocks (TCBs), which the kernel keeps, and user-level TCBs (UTCBs), which a
//! thread and its kernel share.
//!
//! ```text
//!  Tcb, two cache lines                                 Utcb
//!  +-----------------------------------------------+    +--------------------------+
//!  | stack, resume, id, gate, partner, status, ... |--->| 64 message registers     |
//!  +-----------------------------------------------+    | tag, peer, receive, ...  |
//!  | timeslice, deadline, notices, interrupts, ... |    | request                  |
//!  +-----------------------------------------------+    +--------------------------+
//! ```
//!
//! The assembly fast paths use only the first line, by `offset_of!`.
//!
//! **Invariant**: a `gate` that is not `SHUT` tells a sender everything: the thread is `Receiving`
//! from the source that the gate names, without a deadline, and not suspended.

use crate::grant::RawGrant;
use crate::list::Slot;
use crate::message::{Ipc, N_WORDS, Tag};
use crate::request::{Request, TrustedRequest};
use crate::thread_id::{ThreadId, raw};
use std::ops::{Index, IndexMut};

/// The state of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Status {
    /// The slot has no thread.
    Free,
    /// The thread has not been started.
    Created,
    /// The thread runs, or would run if the scheduler chose it.
    Ready,
    /// The thread waits until its partner takes its message.
    Sending,
    /// The thread waits for a message.
    Receiving,
}

/// Whether a blocked thread lends its priority to its partner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Lending {
    /// The thread lends nothing.
    Nothing,
    /// The thread calls its partner and lends it its priority until the answer.
    Priority,
}

/// The thread control block: everything that the kernel knows of a thread.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(128))]
pub struct Tcb {
    /// The stack pointer and the next instruction of a thread that does not run.
    pub(crate) stack_pointer: usize,
    pub(crate) resume: usize,
    /// The control words of the floating-point unit that the thread uses.
    pub(crate) float_control: [u32; 2],
    /// The address of the thread's `Utcb`.
    pub(crate) utcb: usize,
    pub(crate) id: ThreadId,
    /// The thread to which this one sends, or the source from which it receives.
    pub(crate) partner: u32,
    pub(crate) status: Status,
    pub(crate) lending: Lending,
    /// Unused: the assembly writes all bytes from `status` to `gate` at once.
    pub(crate) spare: u16,
    /// The source from which the fast path may deliver a message; `SHUT`: none.
    pub(crate) gate: u32,
    /// The number of threads in this thread's send queue, and the bits `INBOX_INTERRUPTS` and
    /// `INBOX_NOTICES`.
    pub(crate) inbox: u32,
    /// A caller from the fast path that `State::adopt_caller` has not put among the lenders yet.
    pub(crate) caller: u32,
    /// The priority by which the thread is scheduled: the higher one of `floor` and `caller`'s.
    pub(crate) priority: u8,
    /// The highest priority of the thread itself and its lenders.
    pub(crate) floor: u8,
    pub(crate) base_priority: u8,
    /// The thread is on the ready queue.
    pub(crate) queued: bool,
    /// The thread's message was taken, and its receive phase is still to come.
    pub(crate) continues: bool,
    pub(crate) suspended: bool,
    /// Ticks that are left of the thread's timeslice, and ticks of a whole timeslice.
    pub(crate) slice_left_ticks: u32,
    pub(crate) slice_ticks: u32,
    /// The thread has an entry in the heap of deadlines.
    pub(crate) timed: bool,
    /// The kernel may take the processor from the thread outside of system calls.
    pub(crate) preemptible: bool,
    pub(crate) notices: u64,
    pub(crate) accepted_notices: u64,
    pub(crate) interrupts: u64,
    pub(crate) user_word: u64,
}

const _: () = assert!(size_of::<Tcb>() == 128 && std::mem::offset_of!(Tcb, floor) < 64);

/// The thread has interrupts to receive.
pub(crate) const INBOX_INTERRUPTS: u32 = 1 << 31;
/// The thread has notices to receive that it accepts.
pub(crate) const INBOX_NOTICES: u32 = 1 << 30;
/// The thread has interrupts or notices to receive.
pub(crate) const INBOX_SIGNALS: u32 = INBOX_INTERRUPTS | INBOX_NOTICES;

impl Tcb {
    fn free(id: ThreadId) -> Tcb {
        Tcb {
            stack_pointer: 0,
            resume: 0,
            float_control: [0; 2],
            utcb: 0,
            id,
            partner: raw::NOBODY,
            status: Status::Free,
            lending: Lending::Nothing,
            spare: 0,
            gate: raw::SHUT,
            inbox: 0,
            caller: 0,
            priority: 0,
            floor: 0,
            base_priority: 0,
            queued: false,
            continues: false,
            suspended: false,
            slice_left_ticks: 0,
            slice_ticks: 0,
            timed: false,
            preemptible: false,
            notices: 0,
            accepted_notices: 0,
            interrupts: 0,
            user_word: 0,
        }
    }

    /// Turns a free TCB into that of a new thread.
    pub(crate) fn create(&mut self, priority: u8, slice_ticks: u32) {
        let Tcb { id, utcb, inbox, .. } = *self;
        debug_assert_eq!((self.status, inbox), (Status::Free, 0));
        *self = Tcb {
            utcb,
            id,
            status: Status::Created,
            priority,
            floor: priority,
            base_priority: priority,
            slice_left_ticks: slice_ticks,
            slice_ticks,
            ..Tcb::free(id)
        };
    }

    #[inline]
    pub(crate) fn is_runnable(&self) -> bool {
        self.status == Status::Ready && !self.suspended
    }
}

/// The TCBs of a kernel: first those of its own threads, by number, then a proxy for each thread of
/// the other kernels. A proxy uses only `status`, `partner`, `priority` and `lending`.
#[derive(Clone, Debug)]
pub(crate) struct Tcbs(pub(crate) Box<[Tcb]>);

impl Tcbs {
    /// The TCBs of kernel `own`; the proxies of kernel `own + 1` come first, then those of the next
    /// ones, modulo the number of kernels.
    pub(crate) fn new(own: usize, n_kernels: usize, n_threads: usize) -> Tcbs {
        let tcb = |index: usize| {
            let kernel = (own + index / n_threads) % n_kernels;
            Tcb::free(ThreadId::new(kernel as u8, Slot::new((index % n_threads) as u16), 1))
        };
        Tcbs((0..n_kernels * n_threads).map(tcb).collect())
    }
}

impl Index<Slot> for Tcbs {
    type Output = Tcb;

    #[inline]
    fn index(&self, slot: Slot) -> &Tcb {
        &self.0[slot.index()]
    }
}

impl IndexMut<Slot> for Tcbs {
    #[inline]
    fn index_mut(&mut self, slot: Slot) -> &mut Tcb {
        &mut self.0[slot.index()]
    }
}

/// The words that a thread and its kernel exchange: the arguments of an IPC, and then its result.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Utcb {
    /// The message registers.
    pub words: [u64; N_WORDS],
    /// The tag of the message: see [`Tag`].
    pub tag: u64,
    /// The destination and its timeout; after the IPC the sender and the error.
    pub peer: u64,
    /// The source and its timeout.
    pub receive: u64,
    /// The deadline of the send phase, in nanoseconds of the kernel's clock.
    pub send_deadline_ns: u64,
    /// The deadline of the receive phase, in nanoseconds of the kernel's clock.
    pub receive_deadline_ns: u64,
    /// A request besides IPC, and then the kernel's answer.
    pub request: Request,
    /// The memory that the thread grants to its partner while it waits for this partner alone.
    pub(crate) grant: RawGrant,
    pub(crate) trusted_request: TrustedRequest,
}

impl Utcb {
    pub(crate) fn set_ipc(&mut self, ipc: Ipc, tag: Tag) {
        (self.peer, self.receive) = ipc.raw();
        self.tag = tag.raw();
        self.send_deadline_ns = ipc.send.map_or(0, |(_, timeout)| timeout.deadline_ns());
        self.receive_deadline_ns = ipc.receive.map_or(0, |(_, timeout)| timeout.deadline_ns());
    }
}

impl Default for Utcb {
    fn default() -> Self {
        Utcb {
            words: [0; N_WORDS],
            tag: 0,
            peer: 0,
            receive: 0,
            send_deadline_ns: 0,
            receive_deadline_ns: 0,
            request: Request::None,
            grant: RawGrant::default(),
            trusted_request: TrustedRequest::None,
        }
    }
}
