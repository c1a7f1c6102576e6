//! Where an OS thread that serves and the kernel's OS thread hand a call to each other.
//!
//! ```text
//!            looper                                     kernel
//!  FREE  --- claims, fills --->  AT_KERNEL  --- answers ---------------> DONE
//!                                   |   ^
//!                            away   v   |  has done it
//!                                  AWAY
//! ```
//!
//! The looper sleeps while the call is at the kernel. An ordinary one sleeps on the stage; a
//! real-time one on `owner`, a priority-inheriting futex that names the kernel's OS thread, which
//! so runs at the looper's priority.
//!
//! **Invariant**: the errand is the looper's, but while the stage is `AT_KERNEL` or `SLEEPING` the
//! kernel's. What it points to lives at least as long: a looper returns from neither stage, and a
//! thread of the kernel waits while the stage is `AWAY`.
//!
//! Memory order: whoever changes the stage releases, and whoever waits for that acquires it.

use crate::call::Asked;
use baton::{CallError, Parcel};
use baton_nucleus::ThreadId;
use baton_shm::futex::{self, Lent};
use baton_shm::sync::{AtomicU32, Ordering};
use std::cell::UnsafeCell;
use std::fmt;
use std::time::Duration;

const FREE: u32 = 0;
const AT_KERNEL: u32 = 1;
/// The same, and the looper sleeps on the stage.
const SLEEPING: u32 = 2;
const AWAY: u32 = 3;
const DONE: u32 = 4;

/// A wait for the kernel has no bound of its own; the futex asks for one.
const SLICE: Duration = Duration::from_secs(60);

/// Work for a looper's own OS thread.
pub(crate) type Work<'a> = dyn FnMut() + 'a;

/// What is to be done.
pub(crate) struct Errand {
    /// Of which service, by number.
    pub(crate) service: usize,
    /// At which of the kernel's priorities.
    pub(crate) priority: u8,
    asked: *const Asked<'static>,
    /// What came of it.
    pub(crate) answer: Option<Result<Parcel, CallError>>,
    /// Services that are at it, by their numbers: a call back to one of them would wait for itself.
    pub(crate) occupied: u128,
    /// Services that were found dead meanwhile.
    pub(crate) dead: u128,
    work: Option<*mut Work<'static>>,
    /// Who waits for the work to be done.
    pub(crate) waits: Option<ThreadId>,
}

impl Errand {
    const NONE: Errand = Errand {
        service: 0,
        priority: 0,
        asked: std::ptr::null(),
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
    errand: UnsafeCell<Errand>,
}

// SAFETY: the errand is used by one thread at a time: the invariant. What it points to is `Sync`
// (`Asked`) or `Send` (the work, see `send_away`).
unsafe impl Sync for Slot {}
// SAFETY: the same.
unsafe impl Send for Slot {}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("stage", &self.stage.load(Ordering::Relaxed)).finish()
    }
}

/// What the looper is to do next.
pub(crate) enum Next {
    /// Some work of a service's, and then the kernel has the errand again.
    Work,
    /// Take the answer.
    Done,
}

impl Slot {
    pub(crate) fn new() -> Slot {
        let (stage, owner) = (AtomicU32::new(FREE), AtomicU32::new(0));
        Slot { stage, owner, errand: UnsafeCell::new(Errand::NONE) }
    }

    /// The errand, at the kernel.
    ///
    /// # Safety
    /// The kernel has it, the caller runs there, and has no other such reference.
    #[expect(clippy::mut_from_ref, reason = "it is the caller's alone")]
    pub(crate) unsafe fn errand(&self) -> &mut Errand {
        debug_assert!(matches!(self.stage.load(Ordering::Relaxed), AT_KERNEL | SLEEPING));
        // SAFETY: the caller's promise.
        unsafe { &mut *self.errand.get() }
    }

    /// Looper: a new errand. `kernel` is the OS thread that is to inherit the caller's priority, or
    /// 0.
    ///
    /// # Safety
    /// The caller has claimed the slot, and does not let go of `asked` before `take`.
    pub(crate) unsafe fn fill(
        &self,
        service: usize,
        priority: u8,
        occupied: u128,
        asked: &Asked<'_>,
    ) {
        // SAFETY: claimed, so nobody else's.
        let errand = unsafe { &mut *self.errand.get() };
        let asked = std::ptr::from_ref(asked).cast();
        *errand = Errand { service, priority, asked, occupied, ..Errand::NONE };
    }

    /// Looper: the kernel may have it from here on.
    pub(crate) fn begin(&self, kernel: u32) {
        self.owner.store(kernel, Ordering::Relaxed);
        self.stage.store(AT_KERNEL, Ordering::Release);
    }

    /// Looper: waits until the kernel has handed it back.
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
        // The kernel lets go of the word after the stage: the next errand must not begin before.
        while lends && self.owner.load(Ordering::Acquire) != 0 {
            std::thread::yield_now();
        }
        self.next()
    }

    fn next(&self) -> Next {
        let is_away = self.stage.load(Ordering::Acquire) == AWAY;
        if is_away { Next::Work } else { Next::Done }
    }

    /// False if the system cannot.
    fn wait_lending(&self) -> bool {
        loop {
            match futex::lend(&self.owner, SLICE) {
                Lent::Over => break,
                Lent::Late => {}
                Lent::Refused => return self.owner.load(Ordering::Acquire) == 0,
            }
        }
        // It was the kernel's until it had changed the stage, and is the calling thread's now.
        futex::give_back(&self.owner, baton_shm::thread::id());
        true
    }

    /// Looper: does what it was sent away for. The services that are at this errand meanwhile are
    /// told to
    /// `around`.
    pub(crate) fn do_work(&self, around: impl FnOnce(u128, &mut Work<'_>)) {
        // SAFETY: the stage is `AWAY`, so the errand is the looper's, and who made the work waits.
        let (occupied, work) = unsafe {
            let errand = &mut *self.errand.get();
            (errand.occupied, &mut *errand.work.take().expect("sent away with work"))
        };
        around(occupied, work);
    }

    /// Looper: the answer, and which services have died. The slot is free for whoever claims it.
    pub(crate) fn take(&self) -> (Result<Parcel, CallError>, u128) {
        // SAFETY: the stage is `DONE`, so the errand is the looper's.
        let errand = unsafe { &mut *self.errand.get() };
        let answer = errand.answer.take().expect("done with an answer");
        let dead = errand.dead;
        self.stage.store(FREE, Ordering::Relaxed);
        (answer, dead)
    }

    /// Kernel: what is asked.
    ///
    /// # Safety
    /// The kernel has the errand, for as long as the value is used.
    pub(crate) unsafe fn asked<'a>(&self) -> &'a Asked<'a> {
        // SAFETY: the looper keeps it until it has the answer: the invariant.
        unsafe { &*(*self.errand.get()).asked.cast() }
    }

    /// Kernel: the answer is there.
    pub(crate) fn finish(&self) {
        self.hand_back(DONE);
    }

    /// Kernel: the looper is to do some work.
    ///
    /// # Safety
    /// The kernel has the errand; the work may be done on another OS thread, and lives until the
    /// thread of the kernel that is named is told that it is done.
    pub(crate) unsafe fn send_away(&self, waits: ThreadId, work: &mut Work<'_>) {
        // SAFETY: the caller's promise: the lifetime is longer than the work's use.
        let work: *mut Work<'static> = unsafe { std::mem::transmute(std::ptr::from_mut(work)) };
        // SAFETY: the kernel has it.
        let errand = unsafe { &mut *self.errand.get() };
        (errand.work, errand.waits) = (Some(work), Some(waits));
        self.hand_back(AWAY);
    }

    fn hand_back(&self, stage: u32) {
        let lends = self.owner.load(Ordering::Relaxed) != 0;
        if self.stage.swap(stage, Ordering::AcqRel) == SLEEPING {
            futex::wake(&self.stage, 1);
        }
        // Last: a looper that lends waits for this.
        if lends {
            futex::give_back(&self.owner, baton_shm::thread::id());
        }
    }
}
