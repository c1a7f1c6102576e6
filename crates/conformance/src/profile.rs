//! The profiles of random scenarios, by family.

/// A kind of step that a generator can choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads.
    Read,
    /// A two-way transaction.
    Call,
    /// A one-way transaction.
    OneWay,
    /// A reply.
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
    /// Ioctls that return information.
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
    /// Bytes that are no commands, and commands that are cut.
    Malformed,
    /// A pipe, or a file closed.
    File,
    /// `O_NONBLOCK` changes.
    Nonblocking,
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
    /// Whether devices are opened with `O_NONBLOCK`.
    pub nonblocking: bool,
    /// Sizes of the receive buffers in bytes: the first process's, and the others'.
    pub map_bytes: [&'static [u32]; 2],
    /// The kinds of steps and their frequencies.
    pub weights: &'static [(Kind, u32)],
    /// The kind of contents of parcels.
    pub cargo: Cargo,
    /// One in `wrong` choices is wrong on purpose; 0: none.
    pub wrong: u64,
}

/// The kind of contents of parcels.
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
const SMALL: &[u32] = &[PAGE, 2 * PAGE, 4 * PAGE];

const BASE: Profile = Profile {
    name: "",
    processes: 3,
    threads: 2,
    nonblocking: true,
    map_bytes: [USUAL, USUAL],
    weights: &[],
    cargo: Cargo::Bytes,
    wrong: 30,
};

/// All families with a generator.
pub const PROFILES: &[Profile] = &[
    Profile {
        name: "calls",
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
        ..BASE
    },
    Profile {
        name: "nesting",
        threads: 3,
        weights: &[
            (Kind::Read, 40),
            (Kind::Call, 30),
            (Kind::Reply, 14),
            (Kind::Free, 6),
            (Kind::Acknowledge, 6),
            (Kind::ThreadExit, 1),
            (Kind::Ask, 1),
        ],
        cargo: Cargo::References,
        wrong: 60,
        ..BASE
    },
    Profile {
        name: "waiting",
        threads: 3,
        nonblocking: false,
        weights: &[
            (Kind::Read, 12),
            (Kind::Call, 24),
            (Kind::OneWay, 8),
            (Kind::Reply, 24),
            (Kind::Free, 8),
            (Kind::Looper, 6),
            (Kind::Signal, 4),
            (Kind::ThreadExit, 1),
            (Kind::Ask, 1),
        ],
        ..BASE
    },
    Profile {
        name: "references",
        weights: &[
            (Kind::Read, 30),
            (Kind::Call, 12),
            (Kind::OneWay, 6),
            (Kind::Reply, 12),
            (Kind::Free, 10),
            (Kind::Acknowledge, 14),
            (Kind::Count, 20),
            (Kind::Ask, 3),
        ],
        cargo: Cargo::References,
        wrong: 20,
        ..BASE
    },
    Profile {
        name: "deaths",
        weights: &[
            (Kind::Read, 36),
            (Kind::Call, 10),
            (Kind::OneWay, 4),
            (Kind::Reply, 10),
            (Kind::Free, 6),
            (Kind::Acknowledge, 8),
            (Kind::Count, 8),
            (Kind::Death, 24),
            (Kind::End, 2),
            (Kind::Start, 1),
        ],
        cargo: Cargo::References,
        ..BASE
    },
    Profile {
        name: "one-way",
        // Rule `reply-without-room`: what callers get fits.
        map_bytes: [SMALL, &[1024 * 1024]],
        weights: &[
            (Kind::Read, 30),
            (Kind::OneWay, 30),
            (Kind::Call, 6),
            (Kind::Reply, 6),
            (Kind::Free, 16),
            (Kind::Acknowledge, 4),
        ],
        cargo: Cargo::Heavy,
        ..BASE
    },
    Profile {
        name: "floods",
        // Rule `spam-by-sender`: one sender.
        processes: 2,
        // Rule `reply-without-room`: what callers get fits.
        map_bytes: [SMALL, &[1024 * 1024]],
        weights: &[
            (Kind::Read, 30),
            (Kind::OneWay, 30),
            (Kind::Call, 6),
            (Kind::Reply, 6),
            (Kind::Free, 16),
            (Kind::Spam, 2),
            (Kind::Acknowledge, 4),
        ],
        cargo: Cargo::Heavy,
        ..BASE
    },
    Profile {
        name: "objects",
        weights: &[
            (Kind::Read, 36),
            (Kind::Call, 16),
            (Kind::OneWay, 6),
            (Kind::Reply, 18),
            (Kind::Free, 8),
            (Kind::Acknowledge, 6),
            (Kind::File, 8),
            (Kind::Ask, 2),
        ],
        cargo: Cargo::Everything,
        wrong: 12,
        ..BASE
    },
    Profile {
        name: "loopers",
        threads: 4,
        nonblocking: false,
        weights: &[
            (Kind::Read, 20),
            (Kind::Call, 10),
            (Kind::OneWay, 14),
            (Kind::Reply, 14),
            (Kind::Free, 6),
            (Kind::Looper, 20),
            (Kind::MaxThreads, 4),
            (Kind::Signal, 8),
            (Kind::ThreadExit, 4),
        ],
        ..BASE
    },
    Profile {
        name: "contexts",
        weights: &[
            (Kind::Read, 24),
            (Kind::Call, 12),
            (Kind::OneWay, 4),
            (Kind::Reply, 8),
            (Kind::Free, 4),
            (Kind::Acknowledge, 6),
            (Kind::Count, 6),
            (Kind::Death, 6),
            (Kind::Manage, 14),
            (Kind::End, 5),
            (Kind::Start, 5),
            (Kind::Ask, 2),
        ],
        cargo: Cargo::References,
        ..BASE
    },
    Profile {
        name: "freezing",
        weights: &[
            (Kind::Read, 30),
            (Kind::Call, 14),
            (Kind::OneWay, 14),
            (Kind::Reply, 12),
            (Kind::Free, 6),
            (Kind::Acknowledge, 4),
            (Kind::Freeze, 16),
        ],
        cargo: Cargo::References,
        ..BASE
    },
    Profile {
        name: "endings",
        weights: &[
            (Kind::Read, 30),
            (Kind::Call, 16),
            (Kind::OneWay, 8),
            (Kind::Reply, 10),
            (Kind::Free, 4),
            (Kind::Acknowledge, 6),
            (Kind::Count, 4),
            (Kind::Death, 6),
            (Kind::End, 8),
            (Kind::Start, 6),
            (Kind::ThreadExit, 3),
        ],
        cargo: Cargo::References,
        ..BASE
    },
    Profile {
        name: "killing",
        threads: 3,
        nonblocking: false,
        weights: &[
            (Kind::Read, 16),
            (Kind::Call, 20),
            (Kind::OneWay, 8),
            (Kind::Reply, 14),
            (Kind::Free, 4),
            (Kind::Looper, 6),
            (Kind::End, 4),
            (Kind::Start, 4),
            (Kind::Signal, 3),
        ],
        ..BASE
    },
    Profile {
        name: "polling",
        weights: &[
            (Kind::Poll, 30),
            (Kind::Read, 20),
            (Kind::Call, 14),
            (Kind::OneWay, 6),
            (Kind::Reply, 12),
            (Kind::Free, 4),
            (Kind::Acknowledge, 4),
            (Kind::Looper, 6),
            (Kind::Nonblocking, 2),
            (Kind::End, 1),
            (Kind::Death, 4),
        ],
        cargo: Cargo::References,
        ..BASE
    },
    Profile {
        name: "malformed",
        weights: &[
            (Kind::Malformed, 30),
            (Kind::Read, 30),
            (Kind::Call, 8),
            (Kind::OneWay, 4),
            (Kind::Reply, 6),
            (Kind::Free, 6),
            (Kind::Acknowledge, 4),
            (Kind::Count, 4),
            (Kind::Death, 4),
            (Kind::Ask, 2),
        ],
        cargo: Cargo::References,
        wrong: 6,
        ..BASE
    },
];
