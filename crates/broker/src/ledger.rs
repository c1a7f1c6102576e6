//! The runner's own amounts that users share: descriptors, and room for events that wait.
//!
//! | amount | of all | a user's share |
//! |---|---|---|
//! | descriptors that the broker holds | RLIMIT_NOFILE, less 64 | [`Quota`] |
//! | descriptors in unread events | half of RLIMIT_NOFILE | [`Quota`], by the reader |
//! | descriptors in events for one user | a fourth of RLIMIT_NOFILE | [`Quota`], by the cause |
//! | events that wait for one process | [`Limits::queued_bytes`] | [`Quota`], by the cause |
//! | events that wait for one user | [`Limits::queued_bytes_per_user`] | [`Quota`], by the cause |

use crate::limits::Limits;
use crate::outbox::Reader;
use baton_abi::quota::{Exceeded, Quota, Standing};
use std::collections::BTreeMap;

/// The broker's own: epoll, listener, log, and what it has in hand for a moment; at most a fourth
/// of what there is.
const OWN_DESCRIPTORS: u64 = 64;

pub(crate) struct Ledger {
    /// Descriptors that the broker holds, by the users for whom.
    pub descriptors: Quota,
    /// Descriptors that have been sent and not been read, by their readers' users.
    pub unread: Quota,
    /// By reader's user: events that wait for the user's processes.
    queued: BTreeMap<u32, Queued>,
    most: Most,
}

/// Events that wait for one user, by the users that caused them.
#[derive(Clone, Debug)]
struct Queued {
    bytes: Quota,
    descriptors: Quota,
}

/// How much may wait.
#[derive(Clone, Copy, Debug)]
struct Most {
    bytes_for_process: u64,
    bytes_for_user: u64,
    descriptors_for_user: u64,
}

impl Queued {
    fn new(most: Most) -> Queued {
        let descriptors = Quota::new(most.descriptors_for_user);
        Queued { bytes: Quota::new(most.bytes_for_user), descriptors }
    }
}

/// A request's addition to the events that wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct More {
    /// The user that causes it, and where it stands with the reader's user.
    pub cause: (u32, Standing),
    pub bytes: u64,
    pub descriptors: u64,
}

impl Ledger {
    /// Nobody has anything. `descriptors` is how many the broker may have.
    pub fn new(limits: &Limits, descriptors: u64) -> Ledger {
        Ledger {
            descriptors: Quota::new(descriptors - OWN_DESCRIPTORS.min(descriptors / 4)),
            unread: Quota::new(descriptors / 2),
            queued: BTreeMap::new(),
            most: Most {
                bytes_for_process: limits.queued_bytes,
                bytes_for_user: limits.queued_bytes_per_user,
                descriptors_for_user: descriptors / 4,
            },
        }
    }

    /// Whether so much more may wait for a process, of which `waiting` tells what waits for it
    /// already.
    pub fn check_queue(
        &self,
        reader: Reader,
        waiting: &BTreeMap<u32, u64>,
        more: More,
    ) -> Result<(), Exceeded> {
        let More { cause: (cause, standing), bytes, descriptors } = more;
        let mut of_process = Quota::new(self.most.bytes_for_process);
        waiting.iter().for_each(|(user, bytes)| of_process.take(*user, *bytes));
        of_process.check(cause, standing, bytes)?;
        let nothing = Queued::new(self.most);
        let queued = self.queued.get(&reader.user).unwrap_or(&nothing);
        queued.bytes.check(cause, standing, bytes)?;
        queued.descriptors.check(cause, standing, descriptors)?;
        self.descriptors.check(reader.user, reader.standing, descriptors)
    }

    pub fn enqueue(&mut self, reader: u32, cause: u32, bytes: u64, descriptors: usize) {
        let most = self.most;
        let queued = self.queued.entry(reader).or_insert_with(|| Queued::new(most));
        queued.bytes.take(cause, bytes);
        queued.descriptors.take(cause, descriptors as u64);
        self.descriptors.take(reader, descriptors as u64);
    }

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

    /// The most bytes of events that may wait for one user.
    pub fn queue_limit(&self) -> u64 {
        self.most.bytes_for_user
    }
}
