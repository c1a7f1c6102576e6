//! The interrupt request line of a kernel: signal handlers, other kernels and other OS threads ask
//! the kernel through it to look for interrupts and for changes of other kernels.
//!
//! The assembly looks at `pending` whenever a thread enters or leaves the kernel. A preemptible
//! thread may do neither for a long time: for its sake the OS thread gets the kernel's signal, too.
//!
//! **Invariant**: a raise first sets `pending` and then reads `n_preemptible` and `os_thread`. The
//! kernel's OS thread first writes one of these two and then reads `pending`. A fence is between
//! both steps at either end, so one end sees the other's write: the raise sends a signal, or the OS
//! thread looks.

use crate::sync::{AtomicI32, AtomicU32, Ordering, fence};
use crate::timer::SIGNAL;

/// See the module.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct InterruptLine {
    /// Not 0: the kernel has to look. The assembly knows the offset of this field.
    pub(crate) pending: AtomicU32,
    /// Threads of the kernel that may be interrupted anywhere.
    pub(crate) n_preemptible: AtomicU32,
    /// The OS thread that runs the kernel; 0 while no OS thread does.
    pub(crate) os_thread: AtomicI32,
}

impl InterruptLine {
    /// Makes the kernel look. A kernel that does not run looks when it runs again.
    pub(crate) fn raise(&self) {
        let os_thread = self.os_thread_to_signal();
        if os_thread != 0 {
            signal(os_thread);
        }
    }

    /// Sets `pending`, and says which OS thread has to get the signal; 0: none.
    pub(crate) fn os_thread_to_signal(&self) -> i32 {
        // Release: pairs with the swap in `kernel::take_interrupts`, after which the kernel reads
        // its inbox and its external interrupts.
        let was_pending = self.pending.swap(1, Ordering::AcqRel) != 0;
        // Pairs with the fences of `add_preemptible` and `begin`.
        fence(Ordering::SeqCst);
        if was_pending || self.n_preemptible.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        self.os_thread.load(Ordering::Relaxed)
    }

    /// Counts one more preemptible thread, which then asks whether something is `pending`.
    pub(crate) fn add_preemptible(&self) {
        self.n_preemptible.fetch_add(1, Ordering::Relaxed);
        // Pairs with the fence of `raise`.
        fence(Ordering::SeqCst);
    }

    /// Says which OS thread runs the kernel from now on. It then takes what is `pending`.
    pub(crate) fn begin(&self, os_thread: i32) {
        self.os_thread.store(os_thread, Ordering::Relaxed);
        // Pairs with the fence of `raise`.
        fence(Ordering::SeqCst);
    }
}

/// Sends the kernel's signal to one thread of this process, or to nobody if the thread has ended.
fn signal(os_thread: i32) {
    let process = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: the call takes three numbers; outside of preemptible threads the handler of this
    // signal only sets `pending`.
    unsafe { libc::syscall(libc::SYS_tgkill, process, os_thread, SIGNAL) };
}
