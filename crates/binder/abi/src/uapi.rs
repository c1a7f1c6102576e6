//! Binder's uapi, protocol version 8 with 64-bit pointers, as in Linux 6.12's
//! `linux/android/binder.h` and `binderfs.h`. Names of constants are the header's.
use bytemuck::{Pod, Zeroable};

/// The answer of BINDER_VERSION.
pub const PROTOCOL_VERSION: i32 = 8;

const NONE: u32 = 0;
const WRITE: u32 = 1;
const READ: u32 = 2;

/// The kernel's `_IOC` encoding: direction, type, number, size.
const fn ioc(direction: u32, kind: u8, number: u32, bytes: u32) -> u32 {
    direction << 30 | bytes << 16 | (kind as u32) << 8 | number
}

/// Size in bytes of what follows a command or return, from its number.
pub const fn payload_bytes(command: u32) -> usize {
    (command >> 16 & 0x3fff) as usize
}

const fn object_kind(first: u8, second: u8) -> u32 {
    (first as u32) << 24 | (second as u32) << 16 | (b'*' as u32) << 8 | 0x85
}

/// A strong reference to an object of the sender's.
pub const BINDER_TYPE_BINDER: u32 = object_kind(b's', b'b');
/// A weak reference to an object of the sender's.
pub const BINDER_TYPE_WEAK_BINDER: u32 = object_kind(b'w', b'b');
/// A strong reference through a handle of the sender's.
pub const BINDER_TYPE_HANDLE: u32 = object_kind(b's', b'h');
/// A weak reference through a handle of the sender's.
pub const BINDER_TYPE_WEAK_HANDLE: u32 = object_kind(b'w', b'h');
/// A file descriptor.
pub const BINDER_TYPE_FD: u32 = object_kind(b'f', b'd');
/// An array of file descriptors within a buffer.
pub const BINDER_TYPE_FDA: u32 = object_kind(b'f', b'd') & !0xff00 | (b'a' as u32) << 8;
/// A scatter-gather buffer.
pub const BINDER_TYPE_PTR: u32 = object_kind(b'p', b't');

/// Minimum priority of a node.
pub const FLAT_BINDER_FLAG_PRIORITY_MASK: u32 = 0xff;
/// The node takes file descriptors.
pub const FLAT_BINDER_FLAG_ACCEPTS_FDS: u32 = 0x100;
/// Minimum scheduling policy of a node.
pub const FLAT_BINDER_FLAG_SCHED_POLICY_MASK: u32 = 0x600;
/// Shift of [`FLAT_BINDER_FLAG_SCHED_POLICY_MASK`].
pub const FLAT_BINDER_FLAG_SCHED_POLICY_SHIFT: u32 = 9;
/// The node is served at a real-time caller's priority.
pub const FLAT_BINDER_FLAG_INHERIT_RT: u32 = 0x800;
/// The node's owner receives the sender's security label.
pub const FLAT_BINDER_FLAG_TXN_SECURITY_CTX: u32 = 0x1000;

/// Another object contains a pointer to the PTR object.
pub const BUFFER_FLAG_HAS_PARENT: u32 = 1;

/// The transaction expects no reply.
pub const TF_ONE_WAY: u32 = 0x01;
/// The reply may carry file descriptors.
pub const TF_ACCEPT_FDS: u32 = 0x10;
/// The driver wipes the buffer when it is freed.
pub const TF_CLEAR_BUF: u32 = 0x20;
/// The transaction replaces an outdated one-way transaction to a frozen target.
pub const TF_UPDATE_TXN: u32 = 0x40;

/// [`WriteRead`].
pub const BINDER_WRITE_READ: u32 = ioc(READ | WRITE, b'b', 1, 48);
/// Never supported.
pub const BINDER_SET_IDLE_TIMEOUT: u32 = ioc(WRITE, b'b', 3, 8);
/// u32: loopers to ask for beyond those that entered by themselves.
pub const BINDER_SET_MAX_THREADS: u32 = ioc(WRITE, b'b', 5, 4);
/// Never supported.
pub const BINDER_SET_IDLE_PRIORITY: u32 = ioc(WRITE, b'b', 6, 4);
/// i32, ignored.
pub const BINDER_SET_CONTEXT_MGR: u32 = ioc(WRITE, b'b', 7, 4);
/// i32, ignored: the calling thread is done with the driver.
pub const BINDER_THREAD_EXIT: u32 = ioc(WRITE, b'b', 8, 4);
/// i32 out: [`PROTOCOL_VERSION`].
pub const BINDER_VERSION: u32 = ioc(READ | WRITE, b'b', 9, 4);
/// [`NodeDebugInfo`].
pub const BINDER_GET_NODE_DEBUG_INFO: u32 = ioc(READ | WRITE, b'b', 11, 24);
/// [`NodeInfoForRef`].
pub const BINDER_GET_NODE_INFO_FOR_REF: u32 = ioc(READ | WRITE, b'b', 12, 24);
/// [`FlatObject`].
pub const BINDER_SET_CONTEXT_MGR_EXT: u32 = ioc(WRITE, b'b', 13, 24);
/// [`FreezeInfo`].
pub const BINDER_FREEZE: u32 = ioc(WRITE, b'b', 14, 12);
/// [`FrozenStatusInfo`].
pub const BINDER_GET_FROZEN_INFO: u32 = ioc(READ | WRITE, b'b', 15, 12);
/// u32: 0 or 1.
pub const BINDER_ENABLE_ONEWAY_SPAM_DETECTION: u32 = ioc(WRITE, b'b', 16, 4);
/// [`ExtendedError`].
pub const BINDER_GET_EXTENDED_ERROR: u32 = ioc(READ | WRITE, b'b', 17, 12);
/// [`BinderfsDevice`], on binderfs' `binder-control`.
pub const BINDER_CTL_ADD: u32 = ioc(READ | WRITE, b'b', 1, 264);

/// i32: a negative errno.
pub const BR_ERROR: u32 = ioc(READ, b'r', 0, 4);
/// Nothing.
pub const BR_OK: u32 = ioc(NONE, b'r', 1, 0);
/// [`TransactionDataSecctx`]: a transaction with its sender's security label.
pub const BR_TRANSACTION_SEC_CTX: u32 = ioc(READ, b'r', 2, 72);
/// [`TransactionData`]: a transaction.
pub const BR_TRANSACTION: u32 = ioc(READ, b'r', 2, 64);
/// [`TransactionData`]: an answer.
pub const BR_REPLY: u32 = ioc(READ, b'r', 3, 64);
/// The target is gone.
pub const BR_DEAD_REPLY: u32 = ioc(NONE, b'r', 5, 0);
/// The last transaction or reply was taken.
pub const BR_TRANSACTION_COMPLETE: u32 = ioc(NONE, b'r', 6, 0);
/// [`PtrCookie`]: take a weak reference.
pub const BR_INCREFS: u32 = ioc(READ, b'r', 7, 16);
/// [`PtrCookie`]: take a strong reference.
pub const BR_ACQUIRE: u32 = ioc(READ, b'r', 8, 16);
/// [`PtrCookie`]: drop the strong reference.
pub const BR_RELEASE: u32 = ioc(READ, b'r', 9, 16);
/// [`PtrCookie`]: drop the weak reference.
pub const BR_DECREFS: u32 = ioc(READ, b'r', 10, 16);
/// Nothing; opens every read.
pub const BR_NOOP: u32 = ioc(NONE, b'r', 12, 0);
/// Start one more looper; in place of the NOOP.
pub const BR_SPAWN_LOOPER: u32 = ioc(NONE, b'r', 13, 0);
/// u64 cookie: the node is dead.
pub const BR_DEAD_BINDER: u32 = ioc(READ, b'r', 15, 8);
/// u64 cookie: no death notification will come.
pub const BR_CLEAR_DEATH_NOTIFICATION_DONE: u32 = ioc(READ, b'r', 16, 8);
/// The transaction failed.
pub const BR_FAILED_REPLY: u32 = ioc(NONE, b'r', 17, 0);
/// The target is frozen.
pub const BR_FROZEN_REPLY: u32 = ioc(NONE, b'r', 18, 0);
/// Taken, but the caller floods the target.
pub const BR_ONEWAY_SPAM_SUSPECT: u32 = ioc(NONE, b'r', 19, 0);
/// Taken, but the target is frozen.
pub const BR_TRANSACTION_PENDING_FROZEN: u32 = ioc(NONE, b'r', 20, 0);
/// [`FrozenStateInfo`]: the node's owner was frozen or thawed.
pub const BR_FROZEN_BINDER: u32 = ioc(READ, b'r', 21, 16);
/// u64 cookie: no freeze notification will come.
pub const BR_CLEAR_FREEZE_NOTIFICATION_DONE: u32 = ioc(READ, b'r', 22, 8);

/// [`TransactionData`].
pub const BC_TRANSACTION: u32 = ioc(WRITE, b'c', 0, 64);
/// [`TransactionData`].
pub const BC_REPLY: u32 = ioc(WRITE, b'c', 1, 64);
/// Never supported.
pub const BC_ACQUIRE_RESULT: u32 = ioc(WRITE, b'c', 2, 4);
/// u64: address of a received buffer.
pub const BC_FREE_BUFFER: u32 = ioc(WRITE, b'c', 3, 8);
/// u32 handle.
pub const BC_INCREFS: u32 = ioc(WRITE, b'c', 4, 4);
/// u32 handle.
pub const BC_ACQUIRE: u32 = ioc(WRITE, b'c', 5, 4);
/// u32 handle.
pub const BC_RELEASE: u32 = ioc(WRITE, b'c', 6, 4);
/// u32 handle.
pub const BC_DECREFS: u32 = ioc(WRITE, b'c', 7, 4);
/// [`PtrCookie`].
pub const BC_INCREFS_DONE: u32 = ioc(WRITE, b'c', 8, 16);
/// [`PtrCookie`].
pub const BC_ACQUIRE_DONE: u32 = ioc(WRITE, b'c', 9, 16);
/// Never supported.
pub const BC_ATTEMPT_ACQUIRE: u32 = ioc(WRITE, b'c', 10, 8);
/// Nothing.
pub const BC_REGISTER_LOOPER: u32 = ioc(NONE, b'c', 11, 0);
/// Nothing.
pub const BC_ENTER_LOOPER: u32 = ioc(NONE, b'c', 12, 0);
/// Nothing.
pub const BC_EXIT_LOOPER: u32 = ioc(NONE, b'c', 13, 0);
/// [`HandleCookie`].
pub const BC_REQUEST_DEATH_NOTIFICATION: u32 = ioc(WRITE, b'c', 14, 12);
/// [`HandleCookie`].
pub const BC_CLEAR_DEATH_NOTIFICATION: u32 = ioc(WRITE, b'c', 15, 12);
/// u64 cookie.
pub const BC_DEAD_BINDER_DONE: u32 = ioc(WRITE, b'c', 16, 8);
/// [`TransactionDataSg`].
pub const BC_TRANSACTION_SG: u32 = ioc(WRITE, b'c', 17, 72);
/// [`TransactionDataSg`].
pub const BC_REPLY_SG: u32 = ioc(WRITE, b'c', 18, 72);
/// [`HandleCookie`].
pub const BC_REQUEST_FREEZE_NOTIFICATION: u32 = ioc(WRITE, b'c', 19, 12);
/// [`HandleCookie`].
pub const BC_CLEAR_FREEZE_NOTIFICATION: u32 = ioc(WRITE, b'c', 20, 12);
/// u64 cookie.
pub const BC_FREEZE_NOTIFICATION_DONE: u32 = ioc(WRITE, b'c', 21, 8);

/// `struct flat_binder_object`: BINDER, WEAK_BINDER, HANDLE, WEAK_HANDLE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct FlatObject {
    /// `hdr.type`.
    pub kind: u32,
    /// `FLAT_BINDER_FLAG_*`.
    pub flags: u32,
    /// Address of the local object, or a handle with zero high bits.
    pub binder: u64,
    /// Owner's word; zero beside a handle.
    pub cookie: u64,
}
const _: () = assert!(size_of::<FlatObject>() == 24);

/// `struct binder_fd_object`: FD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct FdObject {
    /// `hdr.type`.
    pub kind: u32,
    /// Unused.
    pub pad_flags: u32,
    /// Descriptor in the low 32 bits.
    pub fd: u64,
    /// Sender's word.
    pub cookie: u64,
}
const _: () = assert!(size_of::<FdObject>() == 24);

/// `struct binder_buffer_object`: PTR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BufferObject {
    /// `hdr.type`.
    pub kind: u32,
    /// [`BUFFER_FLAG_HAS_PARENT`].
    pub flags: u32,
    /// Address of the bytes.
    pub buffer: u64,
    /// Number of bytes.
    pub length: u64,
    /// Index, in the offsets, of the PTR that points here.
    pub parent: u64,
    /// Offset of the pointer in the parent's bytes.
    pub parent_offset: u64,
}
const _: () = assert!(size_of::<BufferObject>() == 40);

/// `struct binder_fd_array_object`: FDA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct FdArrayObject {
    /// `hdr.type`.
    pub kind: u32,
    /// Unused.
    pub pad: u32,
    /// Number of u32 descriptors.
    pub num_fds: u64,
    /// Index, in the offsets, of the PTR that contains the descriptors.
    pub parent: u64,
    /// Offset of the descriptors in the parent's bytes.
    pub parent_offset: u64,
}
const _: () = assert!(size_of::<FdArrayObject>() == 32);

/// `struct binder_write_read`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct WriteRead {
    /// Bytes of commands.
    pub write_size: u64,
    /// Bytes of commands that the driver has taken, in this call and before.
    pub write_consumed: u64,
    /// Address of the commands.
    pub write_buffer: u64,
    /// Room for returns.
    pub read_size: u64,
    /// Bytes of returns that the driver has written, in this call and before.
    pub read_consumed: u64,
    /// Address of the room for returns.
    pub read_buffer: u64,
}
const _: () = assert!(size_of::<WriteRead>() == 48);

/// `struct binder_transaction_data`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct TransactionData {
    /// Handle (low 32 bits) of a command, node address of a return.
    pub target: u64,
    /// Cookie of the node, in a return.
    pub cookie: u64,
    /// Code of the requested function.
    pub code: u32,
    /// `TF_*`.
    pub flags: u32,
    /// Sender's process of a two-way transaction, in a return.
    pub sender_pid: i32,
    /// Sender's effective user id, in a return.
    pub sender_euid: u32,
    /// Bytes of data.
    pub data_size: u64,
    /// Bytes of offsets, 8 for each object.
    pub offsets_size: u64,
    /// Address of the data.
    pub buffer: u64,
    /// Address of the offsets.
    pub offsets: u64,
}
const _: () = assert!(size_of::<TransactionData>() == 64);

impl TransactionData {
    /// A transaction to a handle, or a reply: its target is 0 then. The driver reads the data and
    /// the offsets, which outlive its call.
    pub fn outgoing(target: u32, code: u32, flags: u32, data: &[u8], offsets: &[u64]) -> Self {
        TransactionData {
            target: target.into(),
            cookie: 0,
            code,
            flags,
            sender_pid: 0,
            sender_euid: 0,
            data_size: data.len() as u64,
            offsets_size: size_of_val(offsets) as u64,
            buffer: data.as_ptr().expose_provenance() as u64,
            offsets: offsets.as_ptr().expose_provenance() as u64,
        }
    }
}

/// `struct binder_transaction_data_secctx`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct TransactionDataSecctx {
    /// The transaction.
    pub transaction: TransactionData,
    /// Address of the sender's label, zero-terminated.
    pub secctx: u64,
}
const _: () = assert!(size_of::<TransactionDataSecctx>() == 72);

/// `struct binder_transaction_data_sg`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct TransactionDataSg {
    /// The transaction.
    pub transaction: TransactionData,
    /// Bytes of all PTR buffers, each padded to 8.
    pub buffers_size: u64,
}
const _: () = assert!(size_of::<TransactionDataSg>() == 72);

/// `struct binder_ptr_cookie`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct PtrCookie {
    /// Node address.
    pub ptr: u64,
    /// Node cookie.
    pub cookie: u64,
}
const _: () = assert!(size_of::<PtrCookie>() == 16);

/// `struct binder_node_debug_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct NodeDebugInfo {
    /// In: the previous node. Out: the next one, 0 at the end.
    pub ptr: u64,
    /// Cookie of the node.
    pub cookie: u64,
    /// Whether the owner was told of a strong reference.
    pub has_strong_ref: u32,
    /// Whether the owner was told of a weak reference.
    pub has_weak_ref: u32,
}
const _: () = assert!(size_of::<NodeDebugInfo>() == 24);

/// `struct binder_node_info_for_ref`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct NodeInfoForRef {
    /// In.
    pub handle: u32,
    /// Strong references of all processes.
    pub strong_count: u32,
    /// Weak references of all processes.
    pub weak_count: u32,
    /// Zero.
    pub reserved1: u32,
    /// Zero.
    pub reserved2: u32,
    /// Zero.
    pub reserved3: u32,
}
const _: () = assert!(size_of::<NodeInfoForRef>() == 24);

/// `struct binder_freeze_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct FreezeInfo {
    /// The process to freeze or thaw.
    pub pid: u32,
    /// 1 to freeze.
    pub enable: u32,
    /// Time to wait for transactions that the process is serving.
    pub timeout_ms: u32,
}
const _: () = assert!(size_of::<FreezeInfo>() == 12);

/// `struct binder_frozen_status_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct FrozenStatusInfo {
    /// The process.
    pub pid: u32,
    /// Bit 0: a two-way transaction came since the freeze. Bit 1: one is pending.
    pub sync_recv: u32,
    /// Whether a one-way transaction came since the freeze.
    pub async_recv: u32,
}
const _: () = assert!(size_of::<FrozenStatusInfo>() == 12);

/// `struct binder_frozen_state_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct FrozenStateInfo {
    /// Cookie of the notification.
    pub cookie: u64,
    /// Whether the node's owner is frozen.
    pub is_frozen: u32,
    /// Zero.
    pub reserved: u32,
}
const _: () = assert!(size_of::<FrozenStateInfo>() == 16);

/// `struct binder_extended_error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct ExtendedError {
    /// Debug id of the failed transaction.
    pub id: u32,
    /// The BR_ code of the failure; BR_OK without one.
    pub command: u32,
    /// A negative errno.
    pub param: i32,
}
const _: () = assert!(size_of::<ExtendedError>() == 12);

/// `struct binderfs_device`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BinderfsDevice {
    /// Zero-terminated.
    pub name: [u8; 256],
    /// Out.
    pub major: u32,
    /// Out.
    pub minor: u32,
}
const _: () = assert!(size_of::<BinderfsDevice>() == 264);

/// `struct binder_handle_cookie`, packed in the header: 12 bytes.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, packed)]
pub struct HandleCookie {
    /// The handle.
    pub handle: u32,
    /// Listener's word.
    pub cookie: u64,
}
const _: () = assert!(size_of::<HandleCookie>() == 12);

/// The header's name of a return, for messages.
pub const fn return_name(command: u32) -> &'static str {
    match command {
        BR_ERROR => "BR_ERROR",
        BR_OK => "BR_OK",
        BR_TRANSACTION_SEC_CTX => "BR_TRANSACTION_SEC_CTX",
        BR_TRANSACTION => "BR_TRANSACTION",
        BR_REPLY => "BR_REPLY",
        BR_DEAD_REPLY => "BR_DEAD_REPLY",
        BR_TRANSACTION_COMPLETE => "BR_TRANSACTION_COMPLETE",
        BR_INCREFS => "BR_INCREFS",
        BR_ACQUIRE => "BR_ACQUIRE",
        BR_RELEASE => "BR_RELEASE",
        BR_DECREFS => "BR_DECREFS",
        BR_NOOP => "BR_NOOP",
        BR_SPAWN_LOOPER => "BR_SPAWN_LOOPER",
        BR_DEAD_BINDER => "BR_DEAD_BINDER",
        BR_CLEAR_DEATH_NOTIFICATION_DONE => "BR_CLEAR_DEATH_NOTIFICATION_DONE",
        BR_FAILED_REPLY => "BR_FAILED_REPLY",
        BR_FROZEN_REPLY => "BR_FROZEN_REPLY",
        BR_ONEWAY_SPAM_SUSPECT => "BR_ONEWAY_SPAM_SUSPECT",
        BR_TRANSACTION_PENDING_FROZEN => "BR_TRANSACTION_PENDING_FROZEN",
        BR_FROZEN_BINDER => "BR_FROZEN_BINDER",
        BR_CLEAR_FREEZE_NOTIFICATION_DONE => "BR_CLEAR_FREEZE_NOTIFICATION_DONE",
        _ => "unknown BR",
    }
}

/// The header's name of a command, for messages.
pub const fn command_name(command: u32) -> &'static str {
    match command {
        BC_TRANSACTION => "BC_TRANSACTION",
        BC_REPLY => "BC_REPLY",
        BC_ACQUIRE_RESULT => "BC_ACQUIRE_RESULT",
        BC_FREE_BUFFER => "BC_FREE_BUFFER",
        BC_INCREFS => "BC_INCREFS",
        BC_ACQUIRE => "BC_ACQUIRE",
        BC_RELEASE => "BC_RELEASE",
        BC_DECREFS => "BC_DECREFS",
        BC_INCREFS_DONE => "BC_INCREFS_DONE",
        BC_ACQUIRE_DONE => "BC_ACQUIRE_DONE",
        BC_ATTEMPT_ACQUIRE => "BC_ATTEMPT_ACQUIRE",
        BC_REGISTER_LOOPER => "BC_REGISTER_LOOPER",
        BC_ENTER_LOOPER => "BC_ENTER_LOOPER",
        BC_EXIT_LOOPER => "BC_EXIT_LOOPER",
        BC_REQUEST_DEATH_NOTIFICATION => "BC_REQUEST_DEATH_NOTIFICATION",
        BC_CLEAR_DEATH_NOTIFICATION => "BC_CLEAR_DEATH_NOTIFICATION",
        BC_DEAD_BINDER_DONE => "BC_DEAD_BINDER_DONE",
        BC_TRANSACTION_SG => "BC_TRANSACTION_SG",
        BC_REPLY_SG => "BC_REPLY_SG",
        BC_REQUEST_FREEZE_NOTIFICATION => "BC_REQUEST_FREEZE_NOTIFICATION",
        BC_CLEAR_FREEZE_NOTIFICATION => "BC_CLEAR_FREEZE_NOTIFICATION",
        BC_FREEZE_NOTIFICATION_DONE => "BC_FREEZE_NOTIFICATION_DONE",
        _ => "unknown BC",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_headers() {
        // Values as a C compiler prints them for linux/android/binder.h on x86-64.
        for (ours, header) in [
            (BINDER_WRITE_READ, 0xc0306201),
            (BINDER_SET_CONTEXT_MGR_EXT, 0x4018620d),
            (BINDER_GET_EXTENDED_ERROR, 0xc00c6211),
            (BINDER_TYPE_BINDER, 0x73622a85),
            (BINDER_TYPE_WEAK_HANDLE, 0x77682a85),
            (BINDER_TYPE_FDA, 0x66646185),
            (BINDER_TYPE_PTR, 0x70742a85),
            (BR_TRANSACTION_SEC_CTX, 0x80487202),
            (BR_REPLY, 0x80407203),
            (BR_DEAD_BINDER, 0x8008720f),
            (BR_FROZEN_BINDER, 0x80107215),
            (BC_TRANSACTION, 0x40406300),
            (BC_REQUEST_DEATH_NOTIFICATION, 0x400c630e),
            (BC_REPLY_SG, 0x40486312),
            (BC_FREEZE_NOTIFICATION_DONE, 0x40086315),
        ] {
            assert_eq!(ours, header, "{ours:#x}");
        }
    }
}
