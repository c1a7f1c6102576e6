//! A slot in which a looper and the OS thread of the kernel hand one call to each other.
//!
//! ```text
//!            looper                                     kernel
//!  FREE  --- claims, fills --->  AT_KERNEL  --- answers ---------------> DONE
//!                                   |   ^
//!                             work   v   |  work is done
//!                                  AT_LOOPER
//! ```
//!
//! The looper sleeps while the call is at the kernel. An ordinary looper sleeps on the stage. A
//! real-time looper sleeps on `owner`, a priority-inheriting futex that names the kernel's OS
//! thread: so that thread runs at the looper's priority.
//!
//! **Invariant**: the pending call belongs to the kernel while the stage is `AT_KERNEL` or
//! `SLEEPING`, and to the looper otherwise. The values to which it points live long enough: a
//! looper does not return in these two stages, and a thread of the kernel waits while the stage is
//! `AT_LOOPER`.
//!
//! Memory order: a change of the stage releases, and a wait for it acquires.

use crate::incoming::Incoming;
use baton::{CallError, Parcel};
use baton_nucleus::ThreadId;
use baton_shm::futex::{self, Lent};
use baton_shm::sync::{AtomicU32, Ordering};
use std::cell::UnsafeCell;
use std::fmt;
use std::time::Duration;

const FREE: u32 = 0;
const AT_KERNEL: u32 = 1;
/// The call is at the kernel, and the looper sleeps on the stage.
const SLEEPING: u32 = 2;
const AT_LOOPER: u32 = 3;
const DONE: u32 = 4;

/// The futex needs a timeout. A wait for the kernel has none, so the looper waits again.
const SLICE: Duration = Duration::from_secs(60);

/// Work that a service wants its looper's OS thread to do.
pub(crate) type Work<'a> = dyn FnMut() + 'a;

/// A call that a looper has brought.
pub(crate) struct PendingCall {
    /// The number of the called service.
    pub(crate) service: usize,
    /// The priority of the call in the kernel.
    pub(crate) priority: u8,
    incoming: *const Incoming<'static>,
    /// The result of the call.
    pub(crate) answer: Option<Result<Parcel, CallError>>,
    /// The services that work on this call, by number: a call back to one of them would wait for
    /// itself.
    pub(crate) occupied: u128,
    /// The services that were found dead during this call, by number.
    pub(crate) dead: u128,
    work: Option<*mut Work<'static>>,
    /// The thread of the kernel that waits until the work is done.
    pub(crate) waits: Option<ThreadId>,
}

impl PendingCall {
    const NONE: PendingCall = PendingCall {
        service: 0,
        priority: 0,
        incoming: std::ptr::null(),
        answer: None,
        occupied: 0,
        dead: 0,
        work: None,
        waits: None,
    };
}

/// See the module.
pub(crate) struct Slot {
    stage: AtomicU32,
    owner: AtomicU32,
    pending_call: UnsafeCell<PendingCall>,
}

// SAFETY: one thread at a time uses the pending call (the invariant). Its pointers are to
// `Incoming`, which is `Sync`, and to work that may be done on another OS thread (`send_work`).
unsafe impl Sync for Slot {}
// SAFETY: see `Sync`.
unsafe impl Send for Slot {}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("stage", &self.stage.load(Ordering::Relaxed)).finish()
    }
}

/// The next step of the looper.
pub(crate) enum Next {
    /// It does a service's work, and hands the call back to the kernel.
    Work,
    /// It takes the answer.
    Done,
}

impl Slot {
    pub(crate) fn new() -> Slot {
        let (stage, owner) = (AtomicU32::new(FREE), AtomicU32::new(0));
        Slot { stage, owner, pending_call: UnsafeCell::new(PendingCall::NONE) }
    }

    /// The pending call, for a thread of the kernel.
    ///
    /// # Safety
    /// The pending call is at the kernel, the caller is a thread of it, and no other such reference
    /// lives.
    #[expect(clippy::mut_from_ref, reason = "it is the caller's alone")]
    pub(crate) unsafe fn pending_call(&self) -> &mut PendingCall {
        debug_assert!(matches!(self.stage.load(Ordering::Relaxed), AT_KERNEL | SLEEPING));
        // SAFETY: the caller's promise.
        unsafe { &mut *self.pending_call.get() }
    }

    /// Looper: makes a new pending call.
    ///
    /// # Safety
    /// The caller has claimed the slot, and keeps `incoming` until `take`.
    pub(crate) unsafe fn fill(
        &self,
        service: usize,
        priority: u8,
        occupied: u128,
        incoming: &Incoming<'_>,
    ) {
        // SAFETY: only the claimer of a slot uses it.
        let pending_call = unsafe { &mut *self.pending_call.get() };
        let incoming = std::ptr::from_ref(incoming).cast();
        *pending_call = PendingCall { service, priority, incoming, occupied, ..PendingCall::NONE };
    }

    /// Looper: hands the pending call to the kernel. `kernel`: the OS thread that inherits the
    /// looper's priority, or 0.
    pub(crate) fn begin(&self, kernel: u32) {
        self.owner.store(kernel, Ordering::Relaxed);
        self.stage.store(AT_KERNEL, Ordering::Release);
    }

    /// Looper: waits until the kernel has handed the pending call back.
    pub(crate) fn wait(&self) -> Next {
        let lends = self.owner.load(Ordering::Relaxed) != 0;
        if lends && self.wait_lending() {
            return self.next();
        }
        loop {
            let stage = self.stage.load(Ordering::Acquire);
            if stage != AT_KERNEL && stage != SLEEPING {
                break;
            }
            let (from, to) = (AT_KERNEL, SLEEPING);
            let _ = self.stage.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
            futex::wait(&self.stage, SLEEPING, None);
        }
        // The kernel releases `owner` after the stage. The next use of the slot must not begin
        // before.
        while lends && self.owner.load(Ordering::Acquire) != 0 {
            std::thread::yield_now();
        }
        self.next()
    }

    fn next(&self) -> Next {
        let has_work = self.stage.load(Ordering::Acquire) == AT_LOOPER;
        if has_work { Next::Work } else { Next::Done }
    }

    /// Waits on `owner`. False: the system has no such futexes, and the wait is not over.
    fn wait_lending(&self) -> bool {
        loop {
            match futex::lend(&self.owner, SLICE) {
                Lent::Over => break,
                Lent::Late => {}
                Lent::Refused => return self.owner.load(Ordering::Acquire) == 0,
            }
        }
        // The kernel owned the word until it had changed the stage. Now the calling thread owns it.
        futex::give_back(&self.owner, baton_shm::thread::id());
        true
    }

    /// Looper: does the work of a service through `around`, which gets the services that work on
    /// this call.
    pub(crate) fn do_work(&self, around: impl FnOnce(u128, &mut Work<'_>)) {
        // SAFETY: the stage is `AT_LOOPER`, so the pending call is the looper's, and the maker of
        // the work waits.
        let (occupied, work) = unsafe {
            let pending_call = &mut *self.pending_call.get();
            (
                pending_call.occupied,
                &mut *pending_call.work.take().expect("the kernel has sent work"),
            )
        };
        around(occupied, work);
    }

    /// Looper: takes the answer and the services that have died. The slot can be filled again.
    pub(crate) fn take(&self) -> (Result<Parcel, CallError>, u128) {
        // SAFETY: the stage is `DONE`, so the pending call is the looper's.
        let pending_call = unsafe { &mut *self.pending_call.get() };
        let answer = pending_call.answer.take().expect("the kernel has answered");
        let dead = pending_call.dead;
        self.stage.store(FREE, Ordering::Relaxed);
        (answer, dead)
    }

    /// Kernel: the request of the pending call.
    ///
    /// # Safety
    /// The pending call is at the kernel as long as the value is used.
    pub(crate) unsafe fn incoming<'a>(&self) -> &'a Incoming<'a> {
        // SAFETY: the looper keeps the request until it has the answer (the invariant).
        unsafe { &*(*self.pending_call.get()).incoming.cast() }
    }

    /// Kernel: hands the answer to the looper.
    pub(crate) fn finish(&self) {
        self.hand_back(DONE);
    }

    /// Kernel: hands work to the looper.
    ///
    /// # Safety
    /// The pending call is at the kernel. The work may be done on another OS thread, and lives
    /// until the thread `waits` is told that it is done.
    pub(crate) unsafe fn send_work(&self, waits: ThreadId, work: &mut Work<'_>) {
        // SAFETY: the caller promises that the work lives longer than its use.
        let work: *mut Work<'static> = unsafe { std::mem::transmute(std::ptr::from_mut(work)) };
        // SAFETY: the pending call is at the kernel.
        let pending_call = unsafe { &mut *self.pending_call.get() };
        (pending_call.work, pending_call.waits) = (Some(work), Some(waits));
        self.hand_back(AT_LOOPER);
    }

    fn hand_back(&self, stage: u32) {
        let lends = self.owner.load(Ordering::Relaxed) != 0;
        if self.stage.swap(stage, Ordering::AcqRel) == SLEEPING {
            futex::wake(&self.stage, 1);
        }
        // Last, since a looper that lends its priority waits for this.
        if lends {
            futex::give_back(&self.owner, baton_shm::thread::id());
        }
    }
}
