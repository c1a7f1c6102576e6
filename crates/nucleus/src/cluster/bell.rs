//! How a kernel is told that there are letters for it.
//!
//! | it | then |
//! |---|---|
//! | sleeps in the system | a descriptor becomes readable |
//! | runs a thread | its `pending` is set: the thread looks at entry and exit, as for a signal |
//! | runs, and has threads that are preemptible | the signal is sent as well |
//!
//! **Invariant**: a kernel that lies down says so and then asks whether there are letters
//! (`Inbox::is_empty_at_rest`); who sends one puts it there and then looks whether the kernel
//! sleeps. Both use read-modify-writes of the inbox, so the later one sees what the other has done
//! before.

use super::lent::Lent;
use crate::sync::{AtomicU32, Ordering};
use crate::timer::SIGNAL;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;
use std::sync::atomic::{self, AtomicI32, Ordering::Relaxed};

/// What of a kernel's entry_points is lent to those who ring.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Knocker {
    /// The kernel looks what has come when this is not 0. The assembly knows it.
    pub(crate) pending: atomic::AtomicU32,
    /// How many of its threads may be interrupted anywhere.
    pub(crate) n_preemptible: atomic::AtomicU32,
    /// Its OS thread, while it runs.
    pub(crate) os_thread: AtomicI32,
}

impl Knocker {
    pub(crate) fn knock(&self) {
        // Release: pairs with the swap in `take_interrupts`, which is followed by a look into the
        // inbox.
        if self.pending.swap(1, Ordering::AcqRel) != 0 || self.n_preemptible.load(Relaxed) == 0 {
            return;
        }
        let os_thread = self.os_thread.load(Relaxed);
        if os_thread != 0 {
            signal(os_thread);
        }
    }
}

/// The kernel's own signal to a thread of this process. If the thread has gone, to nobody.
fn signal(os_thread: i32) {
    let process = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: takes three numbers; the signal is one whose handler only notes that it has come
    // wherever it must not do more.
    unsafe { libc::syscall(libc::SYS_tgkill, process, os_thread, SIGNAL) };
}

/// Whether a kernel sleeps.
#[derive(Debug)]
pub(crate) struct Sleep(AtomicU32);

impl Sleep {
    pub(crate) fn new() -> Sleep {
        Sleep(AtomicU32::new(0))
    }

    pub(crate) fn lie_down(&self) {
        // After whatever a late `disturb` does: it changes nothing any more, and is not seen
        // instead.
        self.0.swap(1, Ordering::AcqRel);
    }

    /// Says whether somebody has rung, or does now.
    pub(crate) fn rise(&self) -> bool {
        self.0.swap(0, Ordering::AcqRel) == 0
    }

    /// Says whether the kernel sleeps and has to be rung for, by the caller and nobody else.
    pub(crate) fn disturb(&self) -> bool {
        self.0.load(Ordering::Acquire) == 1 && self.0.swap(0, Ordering::AcqRel) == 1
    }
}

/// See the module.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Bell {
    pub(crate) sleep: Sleep,
    descriptor: OwnedFd,
    pub(crate) knocker: Lent<Knocker>,
}

impl Bell {
    pub(crate) fn new() -> io::Result<Bell> {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Bell { sleep: Sleep::new(), descriptor, knocker: Lent::nothing() })
    }

    pub(crate) fn ring(&self) {
        if self.sleep.disturb() {
            // Fails only if nobody has read it 2^64 times.
            let _ = rustix::io::write(&self.descriptor, &1_u64.to_ne_bytes());
        } else {
            self.knocker.with(Knocker::knock);
        }
    }

    /// Becomes readable when a kernel that sleeps is rung for.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// After `lie_down`.
    pub(crate) fn rise(&self) {
        if self.sleep.rise() {
            // Waits for who has said that it rings, if it has not yet done so.
            let _ = rustix::io::read(&self.descriptor, &mut [0; 8]);
        }
    }
}
