//! All slots of a host, and how its kernel's OS thread is woken.
//!
//! ```text
//!   looper: claims a slot, fills it, sets its bit in `posted`
//!           rung = 1, then looks whether the kernel's OS thread is asleep    (Dekker)
//!   kernel: asleep = 1, then looks whether it was rung for
//! ```
//!
//! A looper that runs the kernel itself posts nothing: its slot alone is admitted meanwhile
//! (`borrower`).
//!
//! Nothing here takes a lock or memory. Half of the slots are for real-time callers alone.

use crate::slot::Slot;
use baton_nucleus::Interrupter;
use baton_shm::futex;
use baton_shm::sync::{AtomicU32, Ordering};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, fence};

/// Calls from outside at once, at most.
pub(crate) const N_SLOTS: usize = 2 * SET;
const SET: usize = 64;
/// Which interrupt the bell is.
pub(crate) const BELL: u8 = 0;

/// See the module.
#[derive(Debug)]
pub(crate) struct Desk {
    slots: Box<[Slot]>,
    /// Bits of those that nobody has claimed: the first set is for everybody.
    free: [AtomicU64; 2],
    posted: [AtomicU64; 2],
    /// Grows when a slot becomes free that somebody may wait for.
    released: AtomicU32,
    n_waiting: AtomicU32,
    rung: AtomicU32,
    asleep: AtomicU32,
    /// The kernel's OS thread.
    kernel: AtomicU32,
    interrupter: OnceLock<Interrupter>,
    /// While a looper runs the kernel, its slot and one; and the same until that has been admitted.
    /// Whoever runs the kernel uses them.
    borrower: AtomicU32,
    admitted: AtomicU32,
    closed: AtomicBool,
    ended: AtomicBool,
}

impl Desk {
    pub(crate) fn new() -> Desk {
        Desk {
            slots: (0..N_SLOTS).map(|_| Slot::new()).collect(),
            free: [AtomicU64::new(u64::MAX), AtomicU64::new(u64::MAX)],
            posted: Default::default(),
            released: AtomicU32::new(0),
            n_waiting: AtomicU32::new(0),
            rung: AtomicU32::new(0),
            asleep: AtomicU32::new(0),
            kernel: AtomicU32::new(0),
            interrupter: OnceLock::new(),
            borrower: AtomicU32::new(0),
            admitted: AtomicU32::new(0),
            closed: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        }
    }

    pub(crate) fn slot(&self, number: usize) -> &Slot {
        &self.slots[number]
    }

    /// A slot of one's own. Waits if there are as many calls as there may be.
    pub(crate) fn claim(&self, is_real_time: bool) -> usize {
        let sets = if is_real_time { &[1, 0][..] } else { &[0] };
        let any = || sets.iter().find_map(|&set| self.claim_in(set));
        loop {
            if let Some(number) = any() {
                return number;
            }
            self.n_waiting.fetch_add(1, Ordering::SeqCst);
            let released = self.released.load(Ordering::SeqCst);
            let number = any();
            if number.is_none() {
                futex::wait(&self.released, released, None);
            }
            self.n_waiting.fetch_sub(1, Ordering::Relaxed);
            if let Some(number) = number {
                return number;
            }
        }
    }

    fn claim_in(&self, set: usize) -> Option<usize> {
        let mut free = self.free[set].load(Ordering::Relaxed);
        while free != 0 {
            let bit = free & free.wrapping_neg();
            // Acquire pairs with the release of who had it before; and before the look at `closed`.
            let before = self.free[set].fetch_and(!bit, Ordering::SeqCst);
            if before & bit != 0 {
                return Some(set * SET + bit.trailing_zeros() as usize);
            }
            free = before & !bit;
        }
        None
    }

    /// The opposite.
    pub(crate) fn release(&self, number: usize) {
        self.free[number / SET].fetch_or(1 << (number % SET), Ordering::SeqCst);
        if self.is_closed() {
            self.ring();
        }
        if self.n_waiting.load(Ordering::SeqCst) != 0 {
            self.released.fetch_add(1, Ordering::SeqCst);
            futex::wake(&self.released, N_SLOTS as u32);
        }
    }

    /// The kernel finds the slot's errand.
    pub(crate) fn post(&self, number: usize) {
        self.posted[number / SET].fetch_or(1 << (number % SET), Ordering::Release);
        self.ring();
    }

    /// The kernel: numbers of slots that are to be admitted, as bits.
    pub(crate) fn take_posted(&self) -> u128 {
        if self.borrower.load(Ordering::Relaxed) != 0 {
            let slot = self.admitted.swap(0, Ordering::Relaxed).checked_sub(1);
            return slot.map_or(0, |slot| 1 << slot);
        }
        let [low, high] = [0, 1].map(|set| self.posted[set].swap(0, Ordering::Acquire));
        u128::from(high) << SET | u128::from(low)
    }

    /// The kernel: interrupts that have come.
    pub(crate) fn take_interrupts(&self) -> u64 {
        let rung = match self.borrower.load(Ordering::Relaxed) {
            0 => self.rung.swap(0, Ordering::Acquire),
            _ => u32::from(self.admitted.load(Ordering::Relaxed) != 0),
        };
        u64::from(rung) << BELL
    }

    /// The calling OS thread runs the kernel for this slot alone, until `give_back`.
    pub(crate) fn borrow(&self, number: usize) {
        self.borrower.store(number as u32 + 1, Ordering::Relaxed);
        self.admitted.store(number as u32 + 1, Ordering::Relaxed);
    }

    /// The opposite.
    pub(crate) fn give_back(&self) {
        self.borrower.store(0, Ordering::Relaxed);
    }

    /// The kernel's OS thread has nothing to do: it sleeps until it is rung for.
    pub(crate) fn sleep(&self) {
        self.asleep.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.rung.load(Ordering::Relaxed) == 0 {
            futex::wait(&self.asleep, 1, None);
        }
        self.asleep.store(0, Ordering::Relaxed);
    }

    fn ring(&self) {
        self.rung.store(1, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) == 0 {
            if let Some(interrupter) = self.interrupter.get() {
                interrupter.interrupt();
            }
        } else if self.asleep.swap(0, Ordering::Relaxed) != 0 {
            futex::wake(&self.asleep, 1);
        }
    }

    /// No call comes in any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.ring();
    }

    /// Whether it was closed: to be asked after a slot was claimed.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Whether it was closed, and nobody is in. Who claims a slot after that finds it closed.
    pub(crate) fn is_over(&self) -> bool {
        self.is_closed() && self.free.iter().all(|set| set.load(Ordering::SeqCst) == u64::MAX)
    }

    /// All threads of the kernel have been told that it is over.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Whether they have. For who runs the kernel.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// The calling OS thread is the kernel's.
    pub(crate) fn serve(&self, interrupter: Interrupter) {
        self.kernel.store(baton_shm::thread::id(), Ordering::Release);
        let _ = self.interrupter.set(interrupter);
    }

    /// Which OS thread runs the kernel.
    pub(crate) fn kernel(&self) -> u32 {
        self.kernel.load(Ordering::Acquire)
    }
}
