//! Counts of the commands and returns of a mount's clients, and their last transactions.
//!
//! A mount without logs keeps neither. Stand-ins write them; no call of the driver does.

use baton_abi::uapi::*;
use bytemuck::pod_read_unaligned;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Transactions that each of the two lists has, as in the kernel.
const LAST: usize = 32;

/// Names of commands, by their numbers.
pub const COMMANDS: [&str; 22] = [
    "BC_TRANSACTION",
    "BC_REPLY",
    "BC_ACQUIRE_RESULT",
    "BC_FREE_BUFFER",
    "BC_INCREFS",
    "BC_ACQUIRE",
    "BC_RELEASE",
    "BC_DECREFS",
    "BC_INCREFS_DONE",
    "BC_ACQUIRE_DONE",
    "BC_ATTEMPT_ACQUIRE",
    "BC_REGISTER_LOOPER",
    "BC_ENTER_LOOPER",
    "BC_EXIT_LOOPER",
    "BC_REQUEST_DEATH_NOTIFICATION",
    "BC_CLEAR_DEATH_NOTIFICATION",
    "BC_DEAD_BINDER_DONE",
    "BC_TRANSACTION_SG",
    "BC_REPLY_SG",
    "BC_REQUEST_FREEZE_NOTIFICATION",
    "BC_CLEAR_FREEZE_NOTIFICATION",
    "BC_FREEZE_NOTIFICATION_DONE",
];
/// Names of returns, by their numbers.
pub const RETURNS: [&str; 23] = [
    "BR_ERROR",
    "BR_OK",
    "BR_TRANSACTION",
    "BR_REPLY",
    "BR_ACQUIRE_RESULT",
    "BR_DEAD_REPLY",
    "BR_TRANSACTION_COMPLETE",
    "BR_INCREFS",
    "BR_ACQUIRE",
    "BR_RELEASE",
    "BR_DECREFS",
    "BR_ATTEMPT_ACQUIRE",
    "BR_NOOP",
    "BR_SPAWN_LOOPER",
    "BR_FINISHED",
    "BR_DEAD_BINDER",
    "BR_CLEAR_DEATH_NOTIFICATION_DONE",
    "BR_FAILED_REPLY",
    "BR_FROZEN_REPLY",
    "BR_ONEWAY_SPAM_SUSPECT",
    "BR_TRANSACTION_PENDING_FROZEN",
    "BR_FROZEN_BINDER",
    "BR_CLEAR_FREEZE_NOTIFICATION_DONE",
];

/// Counts of commands and returns.
#[derive(Debug, Default)]
pub struct Counts {
    commands: [AtomicU64; COMMANDS.len()],
    returns: [AtomicU64; RETURNS.len()],
}

impl Counts {
    /// Those that are not 0, with their names.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let named = |(name, count): (&&'static str, &AtomicU64)| {
            // Relaxed: the counts are figures.
            (*name, count.load(Ordering::Relaxed))
        };
        let commands = COMMANDS.iter().zip(&self.commands).map(named);
        let returns = RETURNS.iter().zip(&self.returns).map(named);
        commands.chain(returns).filter(|(_, count)| *count > 0)
    }
}

/// The number of a command or return among those of its kind.
fn place(number: u32) -> usize {
    (number & 0xff) as usize
}

fn count(counts: &[AtomicU64], number: u32) {
    if let Some(count) = counts.get(place(number)) {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// The kind of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A call, which has an answer.
    Call,
    /// A one-way transaction.
    OneWay,
    /// An answer.
    Reply,
}

/// A transaction that a client has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The number, which no other transaction of the mount has.
    pub number: u64,
    /// The kind.
    pub kind: Kind,
    /// The sender's pid and tid.
    pub from: (u32, u32),
    /// The caller's pid, of a reply.
    pub caller: u32,
    /// The node, by its owner and the owner's name for it, if the handle has one.
    pub node: Option<(u64, u64)>,
    /// The broker's name of the context.
    pub context: String,
    /// The handle.
    pub handle: u32,
    /// Bytes of data and of offsets.
    pub sizes: (u64, u64),
    /// The return that told of a failure, and its errno.
    pub failure: (u32, i32),
}

/// The traffic of all clients of a mount.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Counts of commands and returns.
    pub counts: Counts,
    last_number: AtomicU64,
    sent: Mutex<VecDeque<Sent>>,
    failed: Mutex<VecDeque<Sent>>,
}

fn lock(list: &Mutex<VecDeque<Sent>>) -> MutexGuard<'_, VecDeque<Sent>> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}

fn push(list: &Mutex<VecDeque<Sent>>, sent: Sent) {
    let mut list = lock(list);
    if list.len() == LAST {
        list.pop_front();
    }
    list.push_back(sent);
}

impl Traffic {
    /// The last transactions, oldest first.
    pub fn sent(&self) -> Vec<Sent> {
        lock(&self.sent).iter().cloned().collect()
    }

    /// The last ones that failed, oldest first.
    pub fn failed(&self) -> Vec<Sent> {
        lock(&self.failed).iter().cloned().collect()
    }
}

/// A thread of a client.
#[derive(Clone, Copy, Debug)]
pub struct Client<'a> {
    /// The pid and tid.
    pub thread: (u32, u32),
    /// The broker's name of the context.
    pub context: &'a str,
    /// The counts of its open device.
    pub counts: &'a Counts,
}

/// A command or return, and what follows its number.
pub type Item<'a> = (u32, &'a [u8]);

/// The transactions of one thread of a client, as far as they have not been told of yet.
#[derive(Debug, Default)]
pub struct ThreadTraffic {
    /// Sent by the ioctl under way, each with where its command ends.
    under_way: Vec<(u64, Sent)>,
    /// The last one, until a return has told how it went.
    untold: Option<Sent>,
    /// The callers that the thread owes answers, innermost last.
    callers: Vec<u32>,
}

impl ThreadTraffic {
    /// The thread is about to give the driver these commands. `node_of` finds a handle's node.
    pub fn begin<'a>(
        &mut self,
        traffic: &Traffic,
        client: Client<'_>,
        commands: impl Iterator<Item = Item<'a>>,
        node_of: impl Fn(u32) -> Option<(u64, u64)>,
    ) {
        let mut end = 0;
        for (command, body) in commands {
            end += 4 + body.len() as u64;
            let is_reply = matches!(command, BC_REPLY | BC_REPLY_SG);
            if !is_reply && !matches!(command, BC_TRANSACTION | BC_TRANSACTION_SG) {
                continue;
            }
            let told: TransactionData = pod_read_unaligned(&body[..size_of::<TransactionData>()]);
            let kind = match told.flags & TF_ONE_WAY {
                _ if is_reply => Kind::Reply,
                0 => Kind::Call,
                _ => Kind::OneWay,
            };
            let handle = told.target as u32;
            let sent = Sent {
                number: traffic.last_number.fetch_add(1, Ordering::Relaxed) + 1,
                kind,
                from: client.thread,
                caller: if is_reply { self.callers.last().copied().unwrap_or(0) } else { 0 },
                node: if is_reply { None } else { node_of(handle) },
                context: client.context.to_owned(),
                handle,
                sizes: (told.data_size, told.offsets_size),
                failure: (0, 0),
            };
            push(&traffic.sent, sent.clone());
            self.under_way.push((end, sent));
        }
    }

    /// The driver has taken these commands, which are so many bytes.
    pub fn take<'a>(
        &mut self,
        traffic: &Traffic,
        client: Client<'_>,
        commands: impl Iterator<Item = Item<'a>>,
        bytes: u64,
    ) {
        for (command, _) in commands {
            count(&traffic.counts.commands, command);
            count(&client.counts.commands, command);
        }
        for (end, sent) in self.under_way.drain(..) {
            if end <= bytes {
                if sent.kind == Kind::Reply {
                    self.callers.pop();
                }
                self.untold = Some(sent);
            } else {
                // The client gives it again once it has read of the failure before it.
                lock(&traffic.sent).retain(|other| other.number != sent.number);
            }
        }
    }

    /// The driver has given these returns. `failure` is the errno of the thread's last failure.
    pub fn get<'a>(
        &mut self,
        traffic: &Traffic,
        client: Client<'_>,
        returns: impl Iterator<Item = Item<'a>>,
        failure: impl Fn() -> i32,
    ) {
        for (number, body) in returns {
            count(&traffic.counts.returns, number);
            count(&client.counts.returns, number);
            match number {
                BR_TRANSACTION | BR_TRANSACTION_SEC_CTX => {
                    let front = &body[..size_of::<TransactionData>()];
                    let told: TransactionData = pod_read_unaligned(front);
                    if told.flags & TF_ONE_WAY == 0 {
                        self.callers.push(told.sender_pid.cast_unsigned());
                    }
                }
                BR_FAILED_REPLY | BR_DEAD_REPLY | BR_FROZEN_REPLY => {
                    if let Some(sent) = self.untold.take() {
                        push(&traffic.failed, Sent { failure: (number, failure()), ..sent });
                    }
                }
                BR_TRANSACTION_COMPLETE
                | BR_ONEWAY_SPAM_SUSPECT
                | BR_TRANSACTION_PENDING_FROZEN
                | BR_REPLY => self.untold = None,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytemuck::bytes_of;

    fn transaction(handle: u32, flags: u32) -> TransactionData {
        TransactionData::outgoing(handle, 1, flags, &[0; 12], &[])
    }

    #[test]
    fn names_stand_at_the_numbers_of_their_commands_and_returns() {
        for (command, name) in [
            (BC_TRANSACTION, "BC_TRANSACTION"),
            (BC_EXIT_LOOPER, "BC_EXIT_LOOPER"),
            (BC_REPLY_SG, "BC_REPLY_SG"),
            (BC_FREEZE_NOTIFICATION_DONE, "BC_FREEZE_NOTIFICATION_DONE"),
        ] {
            assert_eq!(COMMANDS[place(command)], name);
        }
        for (number, name) in [
            (BR_ERROR, "BR_ERROR"),
            (BR_TRANSACTION_SEC_CTX, "BR_TRANSACTION"),
            (BR_FAILED_REPLY, "BR_FAILED_REPLY"),
            (BR_CLEAR_FREEZE_NOTIFICATION_DONE, "BR_CLEAR_FREEZE_NOTIFICATION_DONE"),
        ] {
            assert_eq!(RETURNS[place(number)], name);
        }
    }

    #[test]
    fn transactions_are_listed_with_how_they_went() {
        let (traffic, counts) = (Traffic::default(), Counts::default());
        let client = Client { thread: (5, 6), context: "binder", counts: &counts };
        let mut thread = ThreadTraffic::default();
        let (call, one_way) = (transaction(3, 0), transaction(4, TF_ONE_WAY));
        let commands = [(BC_TRANSACTION, bytes_of(&call)), (BC_TRANSACTION, bytes_of(&one_way))];
        let node_of = |handle| (handle == 3).then_some((1, 9));
        thread.begin(&traffic, client, commands.into_iter(), node_of);
        let sent = traffic.sent();
        let told: Vec<_> =
            sent.iter().map(|it| (it.kind, it.handle, it.node, it.from, it.sizes)).collect();
        assert_eq!(
            told,
            [
                (Kind::Call, 3, Some((1, 9)), (5, 6), (12, 0)),
                (Kind::OneWay, 4, None, (5, 6), (12, 0)),
            ]
        );
        // The first one fails, and the second one is not taken.
        thread.take(&traffic, client, commands[..1].iter().copied(), 68);
        thread.get(&traffic, client, [(BR_FAILED_REPLY, &[][..])].into_iter(), || -22);
        assert_eq!(traffic.sent(), sent[..1]);
        assert_eq!(traffic.failed(), [Sent { failure: (BR_FAILED_REPLY, -22), ..sent[0].clone() }]);
        // One that was taken does not count as failed when its receiver dies.
        thread.begin(&traffic, client, commands[..1].iter().copied(), node_of);
        thread.take(&traffic, client, commands[..1].iter().copied(), 68);
        let returns = [(BR_TRANSACTION_COMPLETE, &[][..]), (BR_DEAD_REPLY, &[][..])];
        thread.get(&traffic, client, returns.into_iter(), || 0);
        assert_eq!((traffic.sent().len(), traffic.failed().len()), (2, 1));
        let all: Vec<_> = counts.all().collect();
        assert_eq!(
            all,
            [
                ("BC_TRANSACTION", 2),
                ("BR_DEAD_REPLY", 1),
                ("BR_TRANSACTION_COMPLETE", 1),
                ("BR_FAILED_REPLY", 1)
            ]
        );
    }

    #[test]
    fn a_reply_goes_to_the_innermost_caller() {
        let (traffic, counts) = (Traffic::default(), Counts::default());
        let client = Client { thread: (5, 6), context: "binder", counts: &counts };
        let mut thread = ThreadTraffic::default();
        let called = |sender_pid| TransactionData { sender_pid, ..transaction(0, 0) };
        for caller in [70, 71] {
            let told = called(caller);
            let returns = [(BR_TRANSACTION, bytes_of(&told))];
            thread.get(&traffic, client, returns.into_iter(), || 0);
        }
        let reply = transaction(0, 0);
        for _ in 0..3 {
            let commands = [(BC_REPLY, bytes_of(&reply))];
            thread.begin(&traffic, client, commands.into_iter(), |_| None);
            thread.take(&traffic, client, commands.into_iter(), 68);
        }
        let callers: Vec<_> = traffic.sent().iter().map(|sent| sent.caller).collect();
        assert_eq!(callers, [71, 70, 0]);
        assert!(traffic.sent().iter().all(|sent| sent.kind == Kind::Reply));
    }

    #[test]
    fn the_lists_have_the_last_transactions() {
        let traffic = Traffic::default();
        let counts = Counts::default();
        let client = Client { thread: (5, 6), context: "binder", counts: &counts };
        let call = transaction(0, 0);
        for _ in 0..LAST + 2 {
            let mut thread = ThreadTraffic::default();
            let commands = [(BC_TRANSACTION, bytes_of(&call))];
            thread.begin(&traffic, client, commands.into_iter(), |_| None);
        }
        let numbers: Vec<_> = traffic.sent().iter().map(|sent| sent.number).collect();
        assert_eq!(numbers, (3..=LAST as u64 + 2).collect::<Vec<_>>());
    }
}
