//! Steps, of which scenarios consist: each is one act of one thread.
//!
//! A step names objects by their order in the scenario (the third buffer that this process
//! received, its second file). So a scenario is still one when steps are removed.

use serde::{Deserialize, Serialize};

/// One act of one thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Number of the process.
    pub process: u8,
    /// Number of the thread in it.
    pub thread: u8,
    /// The act.
    pub act: Act,
}

/// An act of a thread, or on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Act {
    /// The process starts, with threads and without an open device.
    Start {
        /// Number of threads.
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
    /// Unmaps the receive buffer.
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
    /// Difference of `write_size` to the length of the commands.
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

/// The buffer of an exchange that has a bad address.
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
        /// Contents of the transaction.
        parcel: Parcel,
    },
    /// `BC_REPLY` or `BC_REPLY_SG`.
    Reply {
        /// Code, which the driver passes on unchanged.
        code: u32,
        /// `TF_*`.
        flags: u32,
        /// Contents of the transaction.
        parcel: Parcel,
    },
    /// `BC_FREE_BUFFER`.
    Free(BufferName),
    /// `BC_INCREFS`, `BC_ACQUIRE`, `BC_RELEASE`, `BC_DECREFS`.
    Count(Count, u32),
    /// `BC_INCREFS_DONE` or `BC_ACQUIRE_DONE`.
    Acknowledge {
        /// `BC_ACQUIRE_DONE`.
        strong: bool,
        /// Node.
        ptr: u64,
        /// Cookie of the node.
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
    /// The n-th buffer that the process received.
    Received(u32),
    /// An address at this distance from the mapping's beginning.
    At(i64),
}

/// A file of the process.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum FileName {
    /// The n-th file that the process made or received.
    Known(u32),
    /// A descriptor by its number.
    Number(i32),
}

/// The contents of a transaction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Parcel {
    /// Parts, in the order of the data.
    pub items: Vec<Item>,
    /// `Some` for the `_SG` form: the excess of `buffers_size` over the buffers' size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scatter: Option<i64>,
    /// Defect of the parcel, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quirk: Option<Quirk>,
}

/// A part of a parcel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Item {
    /// Bytes of a pattern.
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
        /// Content of the buffer.
        content: Content,
        /// Index of the parent among the objects, and offset of the pointer in the parent.
        parent: Option<(u64, u64)>,
    },
    /// Descriptors in a buffer.
    Array {
        /// Number of descriptors.
        n_files: u64,
        /// Index of the buffer among the objects.
        parent: u64,
        /// Offset of the descriptors in the buffer.
        offset: u64,
    },
    /// An object with this type and length, filled with a pattern.
    Object(u32, u32),
}

/// The content of a scattered buffer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Content {
    /// A pattern.
    Bytes(u32),
    /// Descriptors, four bytes each.
    Files(Vec<FileName>),
    /// A bad address.
    Nowhere(u32),
}

/// A defect of a parcel as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Quirk {
    /// The data's address is bad.
    BadData,
    /// The offsets' address is bad.
    BadOffsets,
    /// Difference of `data_size` to the data's length.
    DataSize(i64),
    /// Difference of `offsets_size` to the offsets' length.
    OffsetsSize(i64),
    /// One more offset, with this value.
    Offset(u64),
    /// The last offset is wrong by this amount.
    Shifted(i64),
    /// The offsets are in reverse order.
    Reversed,
    /// The last offset appears twice.
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
        /// Whether to freeze or to thaw.
        enable: bool,
        /// Time to wait.
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
    /// The sender's nodes in the parcel.
    pub fn nodes(&self) -> impl Iterator<Item = (u64, u64)> {
        self.items.iter().filter_map(|item| match item {
            Item::Binder { ptr, cookie, .. } => Some((*ptr, *cookie)),
            _ => None,
        })
    }
}

impl Command {
    /// Size of the command in a command buffer.
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
