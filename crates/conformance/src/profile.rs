//! What random scenarios of each family are made of.

/// A kind of step that a generator can choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads.
    Read,
    /// A transaction with an answer.
    Call,
    /// One without.
    OneWay,
    /// Answers.
    Reply,
    /// Frees a buffer.
    Free,
    /// `BC_INCREFS_DONE` and `BC_ACQUIRE_DONE`.
    Acknowledge,
    /// `BC_ACQUIRE` and its kin.
    Count,
    /// Death notifications.
    Death,
    /// `BC_ENTER_LOOPER` and its kin.
    Looper,
    /// `BINDER_SET_MAX_THREADS`.
    MaxThreads,
    /// `BINDER_SET_CONTEXT_MGR`.
    Manage,
    /// Ioctls that tell something.
    Ask,
    /// `BINDER_FREEZE`.
    Freeze,
    /// `BINDER_ENABLE_ONEWAY_SPAM_DETECTION`.
    Spam,
    /// `poll`.
    Poll,
    /// SIGKILL, `_exit`, `execve`, or closing the device.
    End,
    /// `BINDER_THREAD_EXIT`.
    ThreadExit,
    /// Another process begins.
    Start,
    /// A signal.
    Signal,
    /// Bytes that are no commands, and cut ones.
    Malformed,
    /// A pipe, or a file closed.
    File,
    /// `O_NONBLOCK` changes.
    Nonblocking,
    /// `munmap`.
    Unmap,
}

/// A family's generator.
#[derive(Debug)]
pub struct Profile {
    /// The family.
    pub name: &'static str,
    /// Processes at the beginning.
    pub processes: u8,
    /// Threads of each.
    pub threads: u8,
    /// The device is opened so that it does not wait.
    pub nonblocking: bool,
    /// Bytes of the receive buffers.
    pub map_bytes: &'static [u32],
    /// What is chosen, and how often.
    pub weights: &'static [(Kind, u32)],
    /// What parcels have in them.
    pub cargo: Cargo,
    /// One in so many things is wrong; 0: none.
    pub wrong: u64,
}

/// What parcels have in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cargo {
    /// Few bytes.
    Bytes,
    /// Nodes and handles.
    References,
    /// Descriptors, buffers and arrays too.
    Everything,
    /// Many bytes.
    Heavy,
}

const PAGE: u32 = 4096;
const USUAL: &[u32] = &[1024 * 1024 - 2 * PAGE, 16 * PAGE];

/// All families with a generator.
pub const PROFILES: &[Profile] = &[
    Profile {
        name: "calls",
        processes: 3,
        threads: 2,
        nonblocking: true,
        map_bytes: USUAL,
        weights: &[
            (Kind::Read, 40),
            (Kind::Call, 16),
            (Kind::OneWay, 4),
            (Kind::Reply, 16),
            (Kind::Free, 10),
            (Kind::Acknowledge, 4),
            (Kind::Ask, 2),
            (Kind::Looper, 2),
        ],
        cargo: Cargo::References,
        wrong: 30,
    },
];
