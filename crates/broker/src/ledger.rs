//! What the runner shares out between users: its descriptors, and room for events that wait.
//!
//! | amount | of all | a user's share |
//! |---|---|---|
//! | descriptors that the broker holds | RLIMIT_NOFILE, less 64 | [`Quota`] |
//! | descriptors in events that engines have not read | half of RLIMIT_NOFILE | [`Quota`], by the reader |
//! | events that wait for one process | [`Limits::queued_bytes`] | [`Quota`], by the cause |
//! | events that wait for one user | [`Limits::queued_bytes_per_user`] | [`Quota`], by the cause |

use crate::limits::Limits;
use crate::quota::{Exceeded, Quota, Standing};
use std::collections::BTreeMap;

/// The broker's own: epoll, listener, log, and what it has in hand for a moment; at most a fourth of
/// what there is.
const OWN_DESCRIPTORS: u64 = 64;

pub(crate) struct Ledger {
    /// Descriptors that the broker holds, by the users for whom.
    pub descriptors: Quota,
    /// Descriptors that have been sent and not been read, by their readers' users.
    pub unread: Quota,
    /// Bytes of events that wait for a user's processes, by the users that caused them.
    queued: BTreeMap<u32, Quota>,
    most_queued: (u64, u64),
}

impl Ledger {
    /// Nobody has anything. `descriptors` is how many the broker may have.
    pub fn new(limits: &Limits, descriptors: u64) -> Ledger {
        Ledger {
            descriptors: Quota::new(descriptors - OWN_DESCRIPTORS.min(descriptors / 4)),
            unread: Quota::new(descriptors / 2),
            queued: BTreeMap::new(),
            most_queued: (limits.queued_bytes, limits.queued_bytes_per_user),
        }
    }

    /// Whether a user may have so much more wait for a process, of which `waiting` tells what
    /// waits for it already.
    pub fn check_queue(
        &self,
        reader: u32,
        waiting: &BTreeMap<u32, u64>,
        cause: u32,
        standing: Standing,
        bytes: u64,
    ) -> Result<(), Exceeded> {
        let mut of_process = Quota::new(self.most_queued.0);
        waiting.iter().for_each(|(user, bytes)| of_process.take(*user, *bytes));
        of_process.check(cause, standing, bytes)?;
        let nothing = Quota::new(self.most_queued.1);
        self.queued.get(&reader).unwrap_or(&nothing).check(cause, standing, bytes)
    }

    pub fn enqueue(&mut self, reader: u32, cause: u32, bytes: u64, descriptors: usize) {
        let most = self.most_queued.1;
        self.queued.entry(reader).or_insert_with(|| Quota::new(most)).take(cause, bytes);
        self.descriptors.take(reader, descriptors as u64);
    }

    pub fn dequeue(&mut self, reader: u32, cause: u32, bytes: u64, descriptors: usize) {
        let queued = self.queued.get_mut(&reader).expect("it was enqueued");
        queued.give_back(cause, bytes);
        if queued.taken() == 0 {
            self.queued.remove(&reader);
        }
        self.descriptors.give_back(reader, descriptors as u64);
    }

    /// Bytes of events that wait for a user's processes.
    pub fn queued_for(&self, reader: u32) -> u64 {
        self.queued.get(&reader).map_or(0, Quota::taken)
    }

    /// What there is for one user's events that wait.
    pub fn queue_limit(&self) -> u64 {
        self.most_queued.1
    }
}
