//! What a scenario is made of: steps, each one act of one thread.
//!
//! A step names what it uses by what the scenario can see (the third buffer that this process
//! received, its second file), so that a scenario from which steps have been taken out is one too.

use serde::{Deserialize, Serialize};

/// One act of one thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Number of the process.
    pub process: u8,
    /// Number of the thread in it.
    pub thread: u8,
    /// What it does.
    pub act: Act,
}

/// What a thread does, or what is done to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Act {
    /// The process begins, with so many threads and nothing open.
    Start {
        /// How many.
        threads: u8,
    },
    /// Opens the device.
    Open {
        /// `O_NONBLOCK`.
        nonblocking: bool,
    },
    /// Maps the receive buffer.
    Map {
        /// Length.
        bytes: u32,
        /// With `PROT_WRITE`.
        writable: bool,
    },
    /// Unmaps it.
    Unmap,
    /// Closes the device.
    Close,
    /// `O_NONBLOCK` on or off.
    Nonblocking(bool),
    /// `_exit`.
    Exit,
    /// `execve`, which closes the device.
    Exec,
    /// SIGKILL, from outside.
    Kill,
    /// A signal with a handler, to this thread, from outside.
    Signal,
    /// `BINDER_WRITE_READ`.
    Exchange(Exchange),
    /// Another ioctl.
    Control(Control),
    /// `poll` without waiting.
    Poll,
    /// A pipe: two files.
    Pipe,
    /// Closes a file.
    CloseFile(FileName),
}

/// The two halves of `BINDER_WRITE_READ`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Exchange {
    /// Commands.
    pub write: Vec<Command>,
    /// Bytes that `write_size` falls short of them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cut: u32,
    /// `read_size`.
    pub read: u32,
    /// A bad address in place of a buffer's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bad: Option<BadBuffer>,
}

fn is_zero(value: &u32) -> bool {
    *value == 0
}

/// Which buffer of an exchange has a bad address.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum BadBuffer {
    /// `write_buffer`.
    Write,
    /// `read_buffer`.
    Read,
}

/// A `BC_` command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// `BC_TRANSACTION` or `BC_TRANSACTION_SG`.
    Transaction {
        /// Handle.
        handle: u32,
        /// Code.
        code: u32,
        /// `TF_*`.
        flags: u32,
        /// What it carries.
        parcel: Parcel,
    },
    /// `BC_REPLY` or `BC_REPLY_SG`.
    Reply {
        /// Code: the driver carries it, whatever it means.
        code: u32,
        /// `TF_*`.
        flags: u32,
        /// What it carries.
        parcel: Parcel,
    },
    /// `BC_FREE_BUFFER`.
    Free(BufferName),
    /// `BC_INCREFS`, `BC_ACQUIRE`, `BC_RELEASE`, `BC_DECREFS`.
    Count(Count, u32),
    /// `BC_INCREFS_DONE` or `BC_ACQUIRE_DONE`.
    Acknowledge {
        /// The latter.
        strong: bool,
        /// Node.
        ptr: u64,
        /// Its cookie.
        cookie: u64,
    },
    /// `BC_REGISTER_LOOPER`.
    Register,
    /// `BC_ENTER_LOOPER`.
    Enter,
    /// `BC_EXIT_LOOPER`.
    Leave,
    /// `BC_REQUEST_DEATH_NOTIFICATION`.
    RequestDeath(u32, u64),
    /// `BC_CLEAR_DEATH_NOTIFICATION`.
    ClearDeath(u32, u64),
    /// `BC_DEAD_BINDER_DONE`.
    DeathDone(u64),
    /// Any bytes.
    Raw(Vec<u8>),
}

/// A command that changes a handle's counts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Count {
    /// `BC_INCREFS`.
    Increfs,
    /// `BC_ACQUIRE`.
    Acquire,
    /// `BC_RELEASE`.
    Release,
    /// `BC_DECREFS`.
    Decrefs,
}

/// A buffer of the process.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum BufferName {
    /// The n-th that it received.
    Received(u32),
    /// An address so far from the map's beginning.
    At(i64),
}

/// A file of the process.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum FileName {
    /// The n-th that it made or received.
    Known(u32),
    /// A number.
    Number(i32),
}

/// What a transaction carries.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Parcel {
    /// In the order in which they lie in the data.
    pub items: Vec<Item>,
    /// `Some` for the `_SG` form: what `buffers_size` is more than the buffers need.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scatter: Option<i64>,
    /// What is wrong with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quirk: Option<Quirk>,
}

/// A part of a parcel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Item {
    /// So many bytes of a pattern.
    Bytes(u32),
    /// A node of the sender.
    Binder {
        /// `BINDER_TYPE_WEAK_BINDER`.
        weak: bool,
        /// Address.
        ptr: u64,
        /// Cookie.
        cookie: u64,
        /// `FLAT_BINDER_FLAG_*`.
        flags: u32,
    },
    /// A handle of the sender.
    Handle {
        /// `BINDER_TYPE_WEAK_HANDLE`.
        weak: bool,
        /// Number.
        handle: u32,
    },
    /// A descriptor.
    File(FileName),
    /// A scattered buffer.
    Buffer {
        /// What lies in it.
        content: Content,
        /// The index of its parent among the objects, and where in it the pointer stands.
        parent: Option<(u64, u64)>,
    },
    /// Descriptors in a buffer.
    Array {
        /// How many.
        n_files: u64,
        /// The index of the buffer among the objects.
        parent: u64,
        /// Where in it they begin.
        offset: u64,
    },
    /// An object with this type and length, otherwise of pattern.
    Object(u32, u32),
}

/// What lies in a scattered buffer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Content {
    /// A pattern.
    Bytes(u32),
    /// Descriptors, four bytes each.
    Files(Vec<FileName>),
    /// A bad address.
    Nowhere(u32),
}

/// What can be wrong with a parcel as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Quirk {
    /// The data's address is bad.
    BadData,
    /// The offsets' address is bad.
    BadOffsets,
    /// `data_size` differs from the data's by this.
    DataSize(i64),
    /// `offsets_size` differs by this.
    OffsetsSize(i64),
    /// One more offset, with this value.
    Offset(u64),
    /// The last offset is this much off.
    Shifted(i64),
    /// The offsets are in reverse.
    Reversed,
    /// The last offset is there twice.
    Twice,
}

/// An ioctl other than `BINDER_WRITE_READ`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Control {
    /// `BINDER_VERSION`.
    Version,
    /// `BINDER_SET_MAX_THREADS`.
    MaxThreads(u32),
    /// `BINDER_SET_CONTEXT_MGR`.
    Manage,
    /// `BINDER_SET_CONTEXT_MGR_EXT`.
    ManageExt {
        /// Node.
        ptr: u64,
        /// Cookie.
        cookie: u64,
        /// Flags.
        flags: u32,
    },
    /// `BINDER_THREAD_EXIT`.
    ThreadExit,
    /// `BINDER_GET_NODE_INFO_FOR_REF`.
    NodeInfo(u32),
    /// `BINDER_GET_NODE_DEBUG_INFO`.
    NodeDebugInfo(u64),
    /// `BINDER_FREEZE`.
    Freeze {
        /// Number of the process.
        process: u8,
        /// Or thaw.
        enable: bool,
        /// How long to wait.
        timeout_ms: u32,
    },
    /// `BINDER_GET_FROZEN_INFO`.
    FrozenInfo(u8),
    /// `BINDER_ENABLE_ONEWAY_SPAM_DETECTION`.
    SpamDetection(u32),
    /// `BINDER_GET_EXTENDED_ERROR`.
    ExtendedError,
    /// Any request, its argument 64 zero bytes.
    Other(u32),
    /// Any request, its argument a bad address.
    BadAddress(u32),
}

impl Parcel {
    /// The sender's nodes in it.
    pub fn nodes(&self) -> impl Iterator<Item = (u64, u64)> {
        self.items.iter().filter_map(|item| match item {
            Item::Binder { ptr, cookie, .. } => Some((*ptr, *cookie)),
            _ => None,
        })
    }
}

impl Command {
    /// How many bytes it takes in a command buffer.
    pub fn bytes(&self) -> u64 {
        let transaction = |parcel: &Parcel| if parcel.scatter.is_some() { 76 } else { 68 };
        match self {
            Command::Transaction { parcel, .. } | Command::Reply { parcel, .. } => {
                transaction(parcel)
            }
            Command::Free(_) | Command::DeathDone(_) => 12,
            Command::Count(..) => 8,
            Command::Acknowledge { .. } => 20,
            Command::Register | Command::Enter | Command::Leave => 4,
            Command::RequestDeath(..) | Command::ClearDeath(..) => 16,
            Command::Raw(bytes) => bytes.len() as u64,
        }
    }
}
