//! Detects when no thread of a cluster can run any more: every kernel is idle, and no inbox holds a
//! change.
//!
//! **Invariant**: a kernel that is recorded as idle sends nothing. It reports that it is busy
//! before it does anything else, so "all are idle" stays true once it is found.

use crate::sync::Mutex;

/// The next step of an idle kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdleOutcome {
    /// It sleeps until another kernel wakes it.
    Sleep,
    /// It returns: no kernel will wake another one. `is_first`: this kernel has just found out, and
    /// wakes the others.
    Terminated { is_first: bool },
}

#[derive(Debug)]
struct Presence {
    /// Kernels that have not left, by bits.
    present: u64,
    idle: u64,
    is_over: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct TerminationDetector(Mutex<Presence>);

impl TerminationDetector {
    pub(crate) fn new(n_kernels: usize) -> TerminationDetector {
        let present = u64::MAX >> (64 - n_kernels);
        TerminationDetector(Mutex::new(Presence { present, idle: 0, is_over: false }))
    }

    fn with<R>(&self, act: impl FnOnce(&mut Presence) -> R) -> R {
        // No code that can panic runs under the lock.
        act(&mut self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    /// Records that a kernel has nothing to do. `is_quiet` says whether the inboxes of all kernels
    /// of a set are empty.
    pub(crate) fn report_idle(
        &self,
        kernel: u8,
        is_quiet: impl FnOnce(u64) -> bool,
    ) -> IdleOutcome {
        self.with(|presence| {
            presence.idle |= 1 << kernel;
            presence.find_end(is_quiet)
        })
    }

    /// Records that a kernel goes on, unless the cluster has terminated.
    pub(crate) fn report_busy(&self, kernel: u8) -> IdleOutcome {
        self.with(|presence| {
            if presence.is_over {
                return IdleOutcome::Terminated { is_first: false };
            }
            presence.idle &= !(1 << kernel);
            IdleOutcome::Sleep
        })
    }

    /// Records that a kernel begins to run, for the first time or again.
    pub(crate) fn begin(&self, kernel: u8) {
        self.with(|presence| {
            presence.is_over = false;
            presence.idle &= !(1 << kernel);
        });
    }

    /// Records that a kernel leaves for good. The outcome says whether the others are all idle.
    pub(crate) fn leave(&self, kernel: u8, is_quiet: impl FnOnce(u64) -> bool) -> IdleOutcome {
        self.with(|presence| {
            presence.present &= !(1 << kernel);
            presence.idle &= !(1 << kernel);
            presence.find_end(is_quiet)
        })
    }
}

impl Presence {
    fn find_end(&mut self, is_quiet: impl FnOnce(u64) -> bool) -> IdleOutcome {
        if self.idle != self.present || !is_quiet(self.present) {
            return IdleOutcome::Sleep;
        }
        let is_first = !std::mem::replace(&mut self.is_over, true);
        IdleOutcome::Terminated { is_first }
    }
}
