//! Thread control blocks, and what a thread shares with its kernel.
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
//! The first line is all that the assembly fast paths touch; they know it by `offset_of!`.
//!
//! **Invariant**: a gate that is not shut says all that a sender must know: the thread is
//! `Receiving`, from whom the gate says, without a deadline and not suspended.

use crate::grant::RawGrant;
use crate::list::Slot;
use crate::message::{Ipc, N_WORDS, Tag};
use crate::request::{Request, TrustedRequest};
use crate::thread_id::{ThreadId, raw};
use std::ops::{Index, IndexMut};

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Status {
    /// There is no such thread.
    Free,
    /// It has not been started.
    Created,
    /// It runs, or would if it were chosen.
    Ready,
    /// Its message has not been taken.
    Sending,
    /// It waits for a message.
    Receiving,
}

/// Whether a thread that is blocked lends its priority to its partner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Lending {
    /// It does not.
    Nothing,
    /// It calls its partner, and waits for the answer of nobody else.
    Priority,
}

/// What the kernel knows of a thread.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(128))]
pub struct Tcb {
    /// Where its stack ends and where it goes on; of a thread that runs, nothing.
    pub(crate) stack_pointer: usize,
    pub(crate) resume: usize,
    /// The control words of its floating-point unit, as it was last seen with them.
    pub(crate) float_control: [u32; 2],
    /// The address of its `Utcb`.
    pub(crate) utcb: usize,
    pub(crate) id: ThreadId,
    /// Whom it sends to or receives from.
    pub(crate) partner: u32,
    pub(crate) status: Status,
    pub(crate) lending: Lending,
    /// Means nothing: the assembly writes all from the status to the gate at once.
    pub(crate) spare: u16,
    /// Whose message the fast path may hand over.
    pub(crate) gate: u32,
    /// How many threads wait to send to it; the upper bits: interrupts or notices are there.
    pub(crate) inbox: u32,
    /// A caller that the fast path brought, and that has no place among the lenders yet.
    pub(crate) caller: u32,
    /// The priority that it is scheduled by: the highest of `floor` and `caller`'s.
    pub(crate) priority: u8,
    /// The highest of its own and its lenders'.
    pub(crate) floor: u8,
    pub(crate) base_priority: u8,
    /// It is on the ready queue.
    pub(crate) queued: bool,
    /// It has sent, and has yet to look for what it is to receive.
    pub(crate) continues: bool,
    pub(crate) suspended: bool,
    /// What is left of its timeslice, and all of it.
    pub(crate) slice_left_ticks: u32,
    pub(crate) slice_ticks: u32,
    /// It has a deadline: its place is in the heap of deadlines.
    pub(crate) timed: bool,
    /// The tick may take the processor from it outside of the kernel.
    pub(crate) preemptible: bool,
    pub(crate) notices: u64,
    pub(crate) accepted_notices: u64,
    pub(crate) interrupts: u64,
    pub(crate) user_word: u64,
}

const _: () = assert!(size_of::<Tcb>() == 128 && std::mem::offset_of!(Tcb, floor) < 64);

/// Interrupts are there.
pub(crate) const INBOX_INTERRUPTS: u32 = 1 << 31;
/// Notices are there that the thread accepts.
pub(crate) const INBOX_NOTICES: u32 = 1 << 30;
/// One or the other.
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

    /// Makes a free one that of a new thread.
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

/// The threads of a kernel, by number; and after them its proxies of those of other kernels, of
/// which it uses what a partner has: status, partner, priority, lending.
#[derive(Clone, Debug)]
pub(crate) struct Tcbs(pub(crate) Box<[Tcb]>);

impl Tcbs {
    /// Those of the kernel `own` first, and the others' in a circle from there.
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

/// What a thread and its kernel hand each other: the arguments of an IPC, and then its result.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Utcb {
    /// The message registers.
    pub words: [u64; N_WORDS],
    /// Length and label of the message.
    pub tag: u64,
    /// To whom, with the timeout; then from whom, with the error.
    pub peer: u64,
    /// From whom, with the timeout.
    pub receive: u64,
    /// When a send is given up.
    pub send_deadline_ns: u64,
    /// When a receive is given up.
    pub receive_deadline_ns: u64,
    /// What else is wanted of the kernel; then its answer.
    pub request: Request,
    /// The memory that the thread grants while it waits for one partner.
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
