//! A kernel's link to its cluster: the cluster's memory, its own number in it, and the kernels that
//! it has to wake.

use crate::cluster::envelope::{Envelope, StageVersion};
use crate::cluster::inbox::{Change, Cursor, Topic};
use crate::cluster::{Cluster, Membership};
use crate::list::Slot;
use crate::message::Phase;
use crate::thread_id::ThreadId;
use std::sync::Arc;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct ClusterLink {
    pub(super) cluster: Arc<Cluster>,
    pub(super) kernel: u8,
    pub(super) cursor: Cursor,
    /// The offer or wait of its thread that each proxy stands for.
    pub(super) offers: Box<[StageVersion]>,
    /// Kernels that have got changes and have not been woken for them, by bits.
    pub(super) wakeups: u64,
}

/// How a send to a thread of another kernel begins.
pub(super) enum RemoteSend {
    /// The message was delivered to a receiver that waited for it.
    Delivered,
    /// The message waits in the envelope.
    Offered,
    NoPartner,
}

/// The result of cancelling a wait for a thread of another kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cancelled {
    /// The wait is over, in this phase. The thread can run.
    Now(Phase),
    /// The partner is copying from or to the thread's memory. The thread can run after the change
    /// that the partner posts when it is done.
    Later,
    /// The wait has ended otherwise, or is about to: its result is in the envelope.
    TooLate,
}

impl ClusterLink {
    pub(super) fn new(membership: &Membership) -> ClusterLink {
        let cluster = Arc::clone(membership.cluster());
        let n_proxies = (cluster.n_kernels() - 1) * cluster.n_threads();
        let offers = vec![StageVersion::default(); n_proxies].into();
        let kernel = membership.kernel();
        ClusterLink { cluster, kernel, cursor: Cursor::default(), offers, wakeups: 0 }
    }

    /// The envelope of a thread of this kernel.
    pub(super) fn own(&self, slot: Slot) -> &Envelope {
        self.cluster.envelope(self.kernel, slot.index())
    }

    pub(super) fn post(&mut self, to: u8, topic: Topic, number: usize) {
        let change = Change { from: self.kernel, topic, number: number as u16 };
        if self.cluster.post(to, change) {
            self.wakeups |= 1 << to;
        }
    }

    /// Tells the kernel of a thread that the thread's envelope has changed.
    pub(super) fn post_to_receiver(&mut self, id: ThreadId) {
        self.post(id.kernel(), Topic::Receiver, id.slot().index());
    }

    /// Sets the id that a slot has from now on, and tells all other kernels.
    pub(super) fn announce_name(&mut self, slot: Slot, name: Option<ThreadId>) {
        self.own(slot).set_name(name);
        let own = self.kernel;
        for kernel in (0..self.cluster.n_kernels() as u8).filter(|&kernel| kernel != own) {
            self.post(kernel, Topic::Name, slot.index());
        }
    }
}
