//! The call slots of a host, and the wake-up of the OS thread that runs its kernel.
//!
//! ```text
//!   looper: claims a slot, fills it, sets its bit in `posted`
//!           signalled = 1, then looks whether the kernel's OS thread is asleep    (Dekker)
//!   kernel: asleep = 1, then looks whether it was signalled
//! ```
//!
//! A looper that runs the kernel itself posts nothing. Only its own slot (`direct_slot`) is
//! admitted meanwhile.
//!
//! Nothing here takes a lock or allocates. Half of the slots are only for real-time callers.

use crate::slot::Slot;
use baton_nucleus::Interrupter;
use baton_shm::futex;
use baton_shm::sync::{AtomicU32, Ordering};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, fence};

/// Calls from loopers at once, at most.
pub(crate) const N_SLOTS: usize = 2 * SET;
const SET: usize = 64;
/// The interrupt that tells the kernel of posted calls.
pub(crate) const CALL_INTERRUPT: u8 = 0;

/// See the module.
#[derive(Debug)]
pub(crate) struct CallQueue {
    slots: Box<[Slot]>,
    /// Free slots, as bits. Real-time callers use both sets, the others only the first.
    free: [AtomicU64; 2],
    posted: [AtomicU64; 2],
    /// Incremented when a slot becomes free while a caller waits for one.
    released: AtomicU32,
    n_waiting: AtomicU32,
    signalled: AtomicU32,
    asleep: AtomicU32,
    /// The id of the kernel's OS thread.
    kernel: AtomicU32,
    interrupter: OnceLock<Interrupter>,
    /// The slot of the looper that runs the kernel, plus one; 0: no looper does. `admitted` has the
    /// same value until the slot was admitted. Only the thread that runs the kernel uses them.
    direct_slot: AtomicU32,
    admitted: AtomicU32,
    closed: AtomicBool,
    ended: AtomicBool,
}

impl CallQueue {
    pub(crate) fn new() -> CallQueue {
        CallQueue {
            slots: (0..N_SLOTS).map(|_| Slot::new()).collect(),
            free: [AtomicU64::new(u64::MAX), AtomicU64::new(u64::MAX)],
            posted: Default::default(),
            released: AtomicU32::new(0),
            n_waiting: AtomicU32::new(0),
            signalled: AtomicU32::new(0),
            asleep: AtomicU32::new(0),
            kernel: AtomicU32::new(0),
            interrupter: OnceLock::new(),
            direct_slot: AtomicU32::new(0),
            admitted: AtomicU32::new(0),
            closed: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        }
    }

    pub(crate) fn slot(&self, number: usize) -> &Slot {
        &self.slots[number]
    }

    /// Claims a slot. Waits while all slots for this kind of caller are in use.
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
            // Acquire pairs with the release by the slot's last user. SeqCst: it precedes the look
            // at `closed`.
            let before = self.free[set].fetch_and(!bit, Ordering::SeqCst);
            if before & bit != 0 {
                return Some(set * SET + bit.trailing_zeros() as usize);
            }
            free = before & !bit;
        }
        None
    }

    /// Frees a claimed slot.
    pub(crate) fn release(&self, number: usize) {
        self.free[number / SET].fetch_or(1 << (number % SET), Ordering::SeqCst);
        if self.is_closed() {
            self.signal();
        }
        if self.n_waiting.load(Ordering::SeqCst) != 0 {
            self.released.fetch_add(1, Ordering::SeqCst);
            futex::wake(&self.released, N_SLOTS as u32);
        }
    }

    /// Hands the pending call of a slot to the kernel.
    pub(crate) fn post(&self, number: usize) {
        self.posted[number / SET].fetch_or(1 << (number % SET), Ordering::Release);
        self.signal();
    }

    /// Takes the slots that the kernel is to admit, as bits.
    pub(crate) fn take_posted(&self) -> u128 {
        if self.direct_slot.load(Ordering::Relaxed) != 0 {
            let slot = self.admitted.swap(0, Ordering::Relaxed).checked_sub(1);
            return slot.map_or(0, |slot| 1 << slot);
        }
        let [low, high] = [0, 1].map(|set| self.posted[set].swap(0, Ordering::Acquire));
        u128::from(high) << SET | u128::from(low)
    }

    /// Takes the interrupts that have come, as bits.
    pub(crate) fn take_interrupts(&self) -> u64 {
        let signalled = match self.direct_slot.load(Ordering::Relaxed) {
            0 => self.signalled.swap(0, Ordering::Acquire),
            _ => u32::from(self.admitted.load(Ordering::Relaxed) != 0),
        };
        u64::from(signalled) << CALL_INTERRUPT
    }

    /// Begins a run of the kernel on the calling looper, for this slot only.
    pub(crate) fn begin_direct_run(&self, number: usize) {
        self.direct_slot.store(number as u32 + 1, Ordering::Relaxed);
        self.admitted.store(number as u32 + 1, Ordering::Relaxed);
    }

    /// Ends the run of the kernel on the calling looper.
    pub(crate) fn end_direct_run(&self) {
        self.direct_slot.store(0, Ordering::Relaxed);
    }

    /// Lets the kernel's OS thread sleep until it is signalled.
    pub(crate) fn sleep(&self) {
        self.asleep.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.signalled.load(Ordering::Relaxed) == 0 {
            futex::wait(&self.asleep, 1, None);
        }
        self.asleep.store(0, Ordering::Relaxed);
    }

    fn signal(&self) {
        self.signalled.store(1, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) == 0 {
            if let Some(interrupter) = self.interrupter.get() {
                interrupter.interrupt();
            }
        } else if self.asleep.swap(0, Ordering::Relaxed) != 0 {
            futex::wake(&self.asleep, 1);
        }
    }

    /// Lets no more calls in.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.signal();
    }

    /// Whether the queue is closed. A caller asks after it has claimed a slot.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Whether the queue is closed and all slots are free. Later claimers find it closed.
    pub(crate) fn is_over(&self) -> bool {
        self.is_closed() && self.free.iter().all(|set| set.load(Ordering::SeqCst) == u64::MAX)
    }

    /// Records that all threads of the kernel have been told to end.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Whether `end` was called. Only the thread that runs the kernel asks.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Makes the calling OS thread the kernel's.
    pub(crate) fn set_kernel_thread(&self, interrupter: Interrupter) {
        self.kernel.store(baton_shm::thread::id(), Ordering::Release);
        let _ = self.interrupter.set(interrupter);
    }

    /// The id of the OS thread that runs the kernel.
    pub(crate) fn kernel(&self) -> u32 {
        self.kernel.load(Ordering::Acquire)
    }
}
