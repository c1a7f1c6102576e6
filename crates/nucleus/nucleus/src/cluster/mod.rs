//! Kernels of one process whose threads send messages to each other. The kernels share the
//! structures of this module; no kernel touches any other memory of another kernel.
//!
//! ```text
//!   kernel 0                        kernel 1
//!   +----------------+              +----------------+
//!   | State          |   writes     | inbox  <-------|--- changes: look at this thread
//!   |   own threads -|------------->| wakeup         |
//!   |   proxies      |   and reads  | envelopes      |--- a thread's message and its wait
//!   +----------------+              +----------------+
//! ```
//!
//! - [`envelope`]: one for each thread, with the message that it offers or the wait that it is in.
//! - [`inbox`]: the envelopes that a kernel has to look at. [`wakeup`]: wakes a kernel for them.
//! - [`termination`]: detects when no thread of the cluster can run any more.
//!
//! All memory is allocated when the cluster is made. A kernel waits for another one only while that
//! one copies one message (`envelope`).

pub(crate) mod envelope;
pub(crate) mod inbox;
#[cfg(all(test, loom))]
mod models;
pub(crate) mod termination;
pub(crate) mod wakeup;

use crate::list::Slot;
use crate::thread_id::{MAX_KERNELS, MAX_THREADS, ThreadId};
use envelope::Envelope;
use inbox::{Change, Inbox};
use std::io;
use std::sync::Arc;
use termination::{IdleOutcome, TerminationDetector};
use wakeup::Wakeup;

/// The structures that the other kernels use of one kernel.
#[derive(Debug)]
struct Member {
    inbox: Inbox,
    wakeup: Wakeup,
    envelopes: Box<[Envelope]>,
}

/// Kernels whose threads reach each other. A cluster lives as long as one of its memberships.
#[derive(Debug)]
pub struct Cluster {
    members: Box<[Member]>,
    n_threads: usize,
    termination: TerminationDetector,
}

/// The right to make one kernel of a cluster ([`Kernel::join`](crate::Kernel::join)). It may be
/// sent to the OS thread that is to run the kernel. The other kernels do not wait for the kernel of
/// a membership that is dropped unused.
#[derive(Debug)]
pub struct Membership {
    cluster: Arc<Cluster>,
    kernel: u8,
}

impl Cluster {
    /// Makes a cluster and returns the memberships of its kernels, by their numbers.
    ///
    /// `n_kernels` is 1 to 64. `n_threads`, of each kernel, is rounded up to a power of two: at
    /// most 4,096 in a kernel and 65,535 in the cluster.
    ///
    /// # Errors
    /// `InvalidInput`: a number is out of these bounds. Else the system's error: it has no more
    /// eventfds for this process.
    pub fn memberships(n_kernels: usize, n_threads: usize) -> io::Result<Vec<Membership>> {
        let n_threads = n_threads.next_power_of_two();
        let is_possible = (1..=MAX_KERNELS).contains(&n_kernels)
            && n_threads <= MAX_THREADS
            && n_kernels * n_threads <= Slot::MAX_SLOTS;
        if !is_possible {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let member = |_| {
            let envelopes = (0..n_threads).map(|_| Envelope::new()).collect();
            let inbox = Inbox::new(n_kernels, n_threads);
            Ok(Member { inbox, wakeup: Wakeup::new()?, envelopes })
        };
        let members = (0..n_kernels).map(member).collect::<io::Result<_>>()?;
        let termination = TerminationDetector::new(n_kernels);
        let cluster = Arc::new(Cluster { members, n_threads, termination });
        let membership =
            |kernel| Membership { cluster: Arc::clone(&cluster), kernel: kernel as u8 };
        Ok((0..n_kernels).map(membership).collect())
    }

    pub(crate) fn n_kernels(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn n_threads(&self) -> usize {
        self.n_threads
    }

    pub(crate) fn inbox(&self, kernel: u8) -> &Inbox {
        &self.members[usize::from(kernel)].inbox
    }

    pub(crate) fn envelope(&self, kernel: u8, number: usize) -> &Envelope {
        &self.members[usize::from(kernel)].envelopes[number]
    }

    /// The envelope of a thread. `None`: the cluster has no such number.
    pub(crate) fn envelope_of(&self, id: ThreadId) -> Option<&Envelope> {
        self.members.get(usize::from(id.kernel()))?.envelopes.get(id.slot().index())
    }

    /// Puts a change into a kernel's inbox. Says whether the kernel has to be woken.
    pub(crate) fn post(&self, to: u8, change: Change) -> bool {
        self.members[usize::from(to)].inbox.put(change)
    }

    /// Wakes the kernels of this set of bits.
    pub(crate) fn wake(&self, mut kernels: u64) {
        while kernels != 0 {
            self.members[kernels.trailing_zeros() as usize].wakeup.wake();
            kernels &= kernels - 1;
        }
    }

    fn is_quiet(&self, present: u64) -> bool {
        let has_changes = |(kernel, member): (usize, &Member)| {
            present >> kernel & 1 == 1 && !member.inbox.is_empty()
        };
        !self.members.iter().enumerate().any(has_changes)
    }
}

impl Membership {
    /// The kernel's number in its cluster, from 0.
    pub fn kernel(&self) -> u8 {
        self.kernel
    }

    pub(crate) fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    pub(crate) fn wakeup(&self) -> &Wakeup {
        &self.cluster.members[usize::from(self.kernel)].wakeup
    }

    pub(crate) fn has_changes(&self) -> bool {
        !self.cluster.inbox(self.kernel).is_empty()
    }

    /// Like `has_changes`, for a kernel that has announced its sleep.
    pub(crate) fn has_changes_at_rest(&self) -> bool {
        !self.cluster.inbox(self.kernel).is_empty_at_rest()
    }

    /// Reports that the kernel is idle and only another kernel can change that. Says whether one
    /// could.
    pub(crate) fn report_idle(&self) -> bool {
        let is_quiet = |present| self.cluster.is_quiet(present);
        let outcome = self.cluster.termination.report_idle(self.kernel, is_quiet);
        self.goes_on(outcome)
    }

    /// Reports that the kernel is busy again. `false`: the cluster has terminated meanwhile.
    pub(crate) fn report_busy(&self) -> bool {
        self.goes_on(self.cluster.termination.report_busy(self.kernel))
    }

    pub(crate) fn begin(&self) {
        self.cluster.termination.begin(self.kernel);
    }

    fn goes_on(&self, outcome: IdleOutcome) -> bool {
        if let IdleOutcome::Terminated { is_first: true } = outcome {
            self.cluster.wake(u64::MAX >> (64 - self.cluster.n_kernels()) & !(1 << self.kernel));
        }
        outcome == IdleOutcome::Sleep
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let is_quiet = |present| self.cluster.is_quiet(present);
        let outcome = self.cluster.termination.leave(self.kernel, is_quiet);
        self.goes_on(outcome);
    }
}
