//! Amounts that the runner shares out among users: descriptors, and room for waiting events.
//!
//! | amount | of all | a user's share |
//! |---|---|---|
//! | descriptors that the broker holds | RLIMIT_NOFILE, less 64 | [`Quota`] |
//! | descriptors in unread events | half of RLIMIT_NOFILE | [`Quota`], by the reader |
//! | descriptors in events for one user | a fourth of RLIMIT_NOFILE | [`Quota`], by the cause |
//! | events that wait for one process | [`Limits::queued_bytes`] | [`Quota`], by the cause |
//! | events that wait for one user | [`Limits::queued_bytes_per_user`] | [`Quota`], by the cause |

use crate::limits::Limits;
use baton_abi::quota::{Exceeded, Quota, QuotaClass};
use std::collections::BTreeMap;

/// Descriptors that the broker keeps for itself: epoll, listener, log, and those in use for a
/// moment. At limits a fourth of all.
const OWN_DESCRIPTORS: u64 = 64;

/// The fewest descriptors with which a broker serves anybody: 12 of its own, and room for a few
/// clients.
pub(crate) const LEAST_DESCRIPTORS: u64 = 32;

/// The user of the engine, and the class in which that user takes from shared amounts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader {
    pub user: u32,
    pub quota_class: QuotaClass,
}

/// The parts of the shared amounts that each user has.
pub(crate) struct Ledger {
    /// Descriptors that the broker holds, by the user for whom it holds them.
    pub descriptors: Quota,
    /// Descriptors that were sent and not read yet, by the reader's user.
    pub unread: Quota,
    /// Events that wait for a user's processes, by that user.
    queued: BTreeMap<u32, Queued>,
    limits: QueueLimits,
}

/// Events that wait for one user, by the users that caused them.
#[derive(Clone, Debug)]
struct Queued {
    bytes: Quota,
    descriptors: Quota,
}

/// Limits of the events that may wait.
#[derive(Clone, Copy, Debug)]
struct QueueLimits {
    bytes_for_process: u64,
    bytes_for_user: u64,
    descriptors_for_user: u64,
}

impl Queued {
    fn new(limits: QueueLimits) -> Queued {
        let descriptors = Quota::new(limits.descriptors_for_user);
        Queued { bytes: Quota::new(limits.bytes_for_user), descriptors }
    }
}

/// The events that one request would add to those that wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addition {
    /// The user that causes the events, and its class with the reader's user.
    pub cause: (u32, QuotaClass),
    pub bytes: u64,
    pub descriptors: u64,
}

impl Ledger {
    /// Whether the broker may soon have no descriptor left: half of them are taken. The other half
    /// has room for those of unread events, which are not counted here, and for the broker's own.
    pub fn may_lack_descriptors(&self) -> bool {
        self.descriptors.taken() >= self.descriptors.limit() / 2
    }

    /// An empty ledger. `descriptors` is the number that the broker may have open.
    pub fn new(limits: &Limits, descriptors: u64) -> Ledger {
        Ledger {
            descriptors: Quota::new(descriptors - OWN_DESCRIPTORS.min(descriptors / 4)),
            unread: Quota::new(descriptors / 2),
            queued: BTreeMap::new(),
            limits: QueueLimits {
                bytes_for_process: limits.queued_bytes,
                bytes_for_user: limits.queued_bytes_per_user,
                descriptors_for_user: descriptors / 4,
            },
        }
    }

    /// Whether `more` may wait for a process beside `waiting`: the bytes that already wait for it,
    /// by causing user.
    pub fn check_queue(
        &self,
        reader: Reader,
        waiting: &BTreeMap<u32, u64>,
        more: Addition,
    ) -> Result<(), Exceeded> {
        let Addition { cause: (cause, quota_class), bytes, descriptors } = more;
        let mut of_process = Quota::new(self.limits.bytes_for_process);
        waiting.iter().for_each(|(user, bytes)| of_process.take(*user, *bytes));
        of_process.check(cause, quota_class, bytes)?;
        let nothing = Queued::new(self.limits);
        let queued = self.queued.get(&reader.user).unwrap_or(&nothing);
        queued.bytes.check(cause, quota_class, bytes)?;
        queued.descriptors.check(cause, quota_class, descriptors)?;
        self.descriptors.check(reader.user, reader.quota_class, descriptors)
    }

    /// Books an event that begins to wait for a process of user `reader`.
    pub fn enqueue(&mut self, reader: u32, cause: u32, bytes: u64, descriptors: usize) {
        let limits = self.limits;
        let queued = self.queued.entry(reader).or_insert_with(|| Queued::new(limits));
        queued.bytes.take(cause, bytes);
        queued.descriptors.take(cause, descriptors as u64);
        self.descriptors.take(reader, descriptors as u64);
    }

    /// Books an event that waits no more.
    pub fn dequeue(&mut self, reader: u32, cause: u32, bytes: u64, descriptors: usize) {
        let queued = self.queued.get_mut(&reader).expect("it was enqueued");
        queued.bytes.give_back(cause, bytes);
        queued.descriptors.give_back(cause, descriptors as u64);
        if queued.bytes.taken() == 0 {
            self.queued.remove(&reader);
        }
        self.descriptors.give_back(reader, descriptors as u64);
    }

    /// Bytes of events that wait for a user's processes.
    pub fn queued_for(&self, reader: u32) -> u64 {
        self.queued.get(&reader).map_or(0, |queued| queued.bytes.taken())
    }

    /// The limits bytes of events that may wait for one user.
    pub fn queue_limit(&self) -> u64 {
        self.limits.bytes_for_user
    }
}
