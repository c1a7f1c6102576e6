//! Memory that the director shares with all actors, at the same address in each.
//!
//! ```text
//!   page 0    number of orders that have been answered
//!   slots     one for each thread: an order, and room for the memory of its system calls
//! ```
//!
//! The director writes a slot while its thread is idle, the thread while it is busy. The store of
//! `turn` by one side (release) pairs with the load by the other (acquire). The driver under test
//! reads and writes the buffers of a system call meanwhile, so only atomics here are Rust
//! references.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Most processes at one time.
pub const PROCESSES: usize = 8;
/// Most threads of a process.
pub const THREADS: usize = 8;
/// Bytes of a slot for memory that commands point to.
pub const ROOM: usize = 1 << 20;
/// Address of the arena in every run. It is fixed because a receiver may see addresses of a
/// sender's buffers.
const PLACE: usize = 0x1000_0000_0000;
const HEADER: usize = 4096;
const SLOT: usize = HEADER + ROOM;

/// An order to a thread, and its result.
#[repr(C)]
pub struct Slot {
    turn: AtomicU32,
    /// Id of the thread, once it runs.
    pub tid: AtomicU32,
    /// The [`crate::actor::Order`].
    pub order: AtomicU32,
    /// The order's arguments.
    pub arguments: [AtomicU64; 4],
    /// A result, or a negative errno.
    pub result: AtomicI64,
}

const IDLE: u32 = 0;
const ORDERED: u32 = 1;
const ANSWERED: u32 = 2;

/// The shared memory.
#[derive(Clone, Copy)]
pub struct Arena {
    base: usize,
}

impl Arena {
    /// Maps the memory. Children of `fork` have it at the same address.
    pub fn new() -> Arena {
        let bytes = HEADER + PROCESSES * THREADS * SLOT;
        let flags = libc::MAP_SHARED
            | libc::MAP_ANONYMOUS
            | libc::MAP_NORESERVE
            | libc::MAP_FIXED_NOREPLACE;
        let place = PLACE as *mut libc::c_void;
        // SAFETY: a new mapping at a free address.
        let base =
            unsafe { libc::mmap(place, bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED, "no memory for the arena");
        Arena { base: base as usize }
    }

    /// Number of answered orders, modulo 2^32.
    pub fn answered(&self) -> &'static AtomicU32 {
        // SAFETY: within the mapping, which is never unmapped. The word is only used as this
        // atomic.
        unsafe { &*(self.base as *const AtomicU32) }
    }

    /// The slot of a thread.
    pub fn slot(&self, process: usize, thread: usize) -> &'static Slot {
        assert!(process < PROCESSES && thread < THREADS);
        // SAFETY: within the map, aligned to a page, made of atomics only.
        unsafe { &*((self.base + HEADER + (process * THREADS + thread) * SLOT) as *const Slot) }
    }
}

impl Slot {
    /// Address of the room for commands' memory.
    pub fn room(&self) -> u64 {
        std::ptr::from_ref(self) as u64 + HEADER as u64
    }

    /// Writes into the room, while the thread is idle.
    pub fn put(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= ROOM, "what a step needs does not fit its room");
        // SAFETY: within the slot, by the assertion. No other code uses it while the thread is
        // idle.
        unsafe {
            let to = (self.room() as usize + offset) as *mut u8;
            to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }

    /// Reads from the room, while the thread is idle.
    pub fn take(&self, offset: usize, bytes: usize) -> Vec<u8> {
        assert!(offset + bytes <= ROOM);
        let mut copy = vec![0; bytes];
        // SAFETY: as in `put`.
        unsafe {
            let from = (self.room() as usize + offset) as *const u8;
            copy.as_mut_ptr().copy_from_nonoverlapping(from, bytes);
        }
        copy
    }

    /// Resets the slot. Called by the director.
    pub fn reset(&self) {
        self.tid.store(0, Ordering::Relaxed);
        self.turn.store(IDLE, Ordering::Release);
    }

    /// Orders the thread to act. Called by the director.
    pub fn give(&self, order: u32, arguments: [u64; 4]) {
        self.order.store(order, Ordering::Relaxed);
        for (place, argument) in self.arguments.iter().zip(arguments) {
            place.store(argument, Ordering::Relaxed);
        }
        self.turn.store(ORDERED, Ordering::Release);
        wake(&self.turn);
    }

    /// The result of the order, if there is one. Called by the director.
    pub fn answer(&self) -> Option<i64> {
        if self.turn.load(Ordering::Acquire) != ANSWERED {
            return None;
        }
        self.turn.store(IDLE, Ordering::Relaxed);
        Some(self.result.load(Ordering::Relaxed))
    }

    /// Waits for an order. Called by the actor.
    pub fn await_order(&self) {
        loop {
            let turn = self.turn.load(Ordering::Acquire);
            if turn == ORDERED {
                return;
            }
            wait(&self.turn, turn, None);
        }
    }

    /// Stores the result of an order. Called by the actor.
    pub fn answer_with(&self, result: i64, answered: &AtomicU32) {
        self.result.store(result, Ordering::Relaxed);
        self.turn.store(ANSWERED, Ordering::Release);
        answered.fetch_add(1, Ordering::Release);
        wake(answered);
    }
}

/// Sleeps while the word has this value, for at most `longest`.
pub fn wait(word: &AtomicU32, value: u32, longest: Option<Duration>) {
    let time = longest.map(|longest| libc::timespec {
        tv_sec: longest.as_secs() as i64,
        tv_nsec: longest.subsec_nanos().into(),
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the word and the time live for the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, time) };
}

fn wake(word: &AtomicU32) {
    // SAFETY: the word lives for the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}
