//! Encodes steps as command buffers, parcels and arguments in the room of the acting thread.
//!
//! ```text
//!   0         the ioctl's argument
//!   WRITE     commands
//!   READ      returns
//!   DATA      what commands point to
//! ```

use crate::arena::Slot;
use crate::step::{Command, Content, Control, Count, Exchange, Item, Parcel, Quirk};
use crate::world::{NOWHERE, Process, World};
use baton_abi::uapi::*;
use bytemuck::{Zeroable, bytes_of};

/// Offset of the commands.
pub const WRITE: usize = 4096;
/// Offset of the returns.
pub const READ: usize = 0x10000;
/// Most bytes of a read.
pub const READ_BYTES: usize = 0x4000;
const DATA: usize = 0x20000;

/// Lays out the memory of one step.
pub struct Layout<'a> {
    slot: &'a Slot,
    process: &'a Process,
    next: usize,
}

impl<'a> Layout<'a> {
    /// An empty layout.
    pub fn new(slot: &'a Slot, process: &'a Process) -> Layout<'a> {
        Layout { slot, process, next: DATA }
    }

    /// Lays out an exchange. Returns the address of its argument.
    pub fn exchange(mut self, exchange: &Exchange) -> u64 {
        let mut commands = Vec::new();
        for command in &exchange.write {
            self.command(command, &mut commands);
        }
        self.slot.put(WRITE, &commands);
        let size = (commands.len() as u64).saturating_sub(exchange.cut.into());
        let mut argument = WriteRead::zeroed();
        argument.write_size = size;
        argument.write_buffer = self.slot.room() + WRITE as u64;
        argument.read_size = u64::from(exchange.read).min(READ_BYTES as u64);
        argument.read_buffer = self.slot.room() + READ as u64;
        match exchange.bad {
            None => {}
            Some(crate::step::BadBuffer::Write) => argument.write_buffer = NOWHERE,
            Some(crate::step::BadBuffer::Read) => argument.read_buffer = NOWHERE,
        }
        self.slot.put(0, bytes_of(&argument));
        self.slot.room()
    }

    fn place(&mut self, bytes: &[u8]) -> u64 {
        let at = self.next;
        self.slot.put(at, bytes);
        self.next = (at + bytes.len()).next_multiple_of(8);
        self.slot.room() + at as u64
    }

    fn command(&mut self, command: &Command, out: &mut Vec<u8>) {
        let mut put = |number: u32, payload: &[u8]| {
            out.extend_from_slice(&number.to_ne_bytes());
            out.extend_from_slice(payload);
        };
        match command {
            Command::Transaction { handle, code, flags, parcel } => {
                let (mut data, buffers_size) = self.parcel(parcel);
                (data.target, data.code, data.flags) = (u64::from(*handle), *code, *flags);
                match buffers_size {
                    None => put(BC_TRANSACTION, bytes_of(&data)),
                    Some(buffers_size) => put(
                        BC_TRANSACTION_SG,
                        bytes_of(&TransactionDataSg { transaction: data, buffers_size }),
                    ),
                }
            }
            Command::Reply { code, flags, parcel } => {
                let (mut data, buffers_size) = self.parcel(parcel);
                (data.code, data.flags) = (*code, *flags);
                match buffers_size {
                    None => put(BC_REPLY, bytes_of(&data)),
                    Some(buffers_size) => put(
                        BC_REPLY_SG,
                        bytes_of(&TransactionDataSg { transaction: data, buffers_size }),
                    ),
                }
            }
            Command::Free(name) => {
                put(BC_FREE_BUFFER, &self.process.buffer(*name).to_ne_bytes());
            }
            Command::Count(count, handle) => put(count.number(), &handle.to_ne_bytes()),
            Command::Acknowledge { strong, ptr, cookie } => {
                let number = if *strong { BC_ACQUIRE_DONE } else { BC_INCREFS_DONE };
                put(number, bytes_of(&PtrCookie { ptr: *ptr, cookie: *cookie }));
            }
            Command::Register => put(BC_REGISTER_LOOPER, &[]),
            Command::Enter => put(BC_ENTER_LOOPER, &[]),
            Command::Leave => put(BC_EXIT_LOOPER, &[]),
            Command::RequestDeath(handle, cookie) => put(
                BC_REQUEST_DEATH_NOTIFICATION,
                bytes_of(&HandleCookie { handle: *handle, cookie: *cookie }),
            ),
            Command::ClearDeath(handle, cookie) => put(
                BC_CLEAR_DEATH_NOTIFICATION,
                bytes_of(&HandleCookie { handle: *handle, cookie: *cookie }),
            ),
            Command::DeathDone(cookie) => put(BC_DEAD_BINDER_DONE, &cookie.to_ne_bytes()),
            Command::Raw(bytes) => out.extend_from_slice(bytes),
        }
    }

    /// Lays out a parcel: what points to it, and `buffers_size` for the form that has one.
    fn parcel(&mut self, parcel: &Parcel) -> (TransactionData, Option<u64>) {
        let (mut data, mut offsets, mut scattered) = (Vec::new(), Vec::new(), 0);
        for item in &parcel.items {
            if !matches!(item, Item::Bytes(_)) {
                data.resize(data.len().next_multiple_of(4), 0);
                offsets.push(data.len() as u64);
            }
            self.item(item, &mut data, &mut scattered);
        }
        match parcel.quirk {
            Some(Quirk::Offset(value)) => offsets.push(value),
            Some(Quirk::Shifted(by)) => {
                if let Some(last) = offsets.last_mut() {
                    *last = last.wrapping_add_signed(by);
                }
            }
            Some(Quirk::Reversed) => offsets.reverse(),
            Some(Quirk::Twice) => offsets.extend(offsets.last().copied()),
            _ => {}
        }
        let mut transaction = TransactionData::zeroed();
        transaction.data_size = data.len() as u64;
        transaction.offsets_size = offsets.len() as u64 * 8;
        transaction.buffer = self.place(&data);
        transaction.offsets = self.place(bytemuck::cast_slice(&offsets));
        match parcel.quirk {
            Some(Quirk::BadData) => transaction.buffer = NOWHERE,
            Some(Quirk::BadOffsets) => transaction.offsets = NOWHERE,
            Some(Quirk::DataSize(by)) => {
                transaction.data_size = transaction.data_size.wrapping_add_signed(by);
            }
            Some(Quirk::OffsetsSize(by)) => {
                transaction.offsets_size = transaction.offsets_size.wrapping_add_signed(by);
            }
            _ => {}
        }
        let buffers_size = parcel.scatter.map(|more| u64::wrapping_add_signed(scattered, more));
        (transaction, buffers_size)
    }

    fn item(&mut self, item: &Item, data: &mut Vec<u8>, scattered: &mut u64) {
        match item {
            Item::Bytes(n) => data.extend(pattern(*n)),
            Item::Binder { weak, ptr, cookie, flags } => {
                let kind = if *weak { BINDER_TYPE_WEAK_BINDER } else { BINDER_TYPE_BINDER };
                let object = FlatObject { kind, flags: *flags, binder: *ptr, cookie: *cookie };
                data.extend_from_slice(bytes_of(&object));
            }
            Item::Handle { weak, handle } => {
                let kind = if *weak { BINDER_TYPE_WEAK_HANDLE } else { BINDER_TYPE_HANDLE };
                let binder = u64::from(*handle);
                data.extend_from_slice(bytes_of(&FlatObject { kind, flags: 0, binder, cookie: 0 }));
            }
            Item::File(name) => {
                let fd = u64::from(self.process.file(*name) as u32);
                let object = FdObject { kind: BINDER_TYPE_FD, pad_flags: 0, fd, cookie: 0x77 };
                data.extend_from_slice(bytes_of(&object));
            }
            Item::Buffer { content, parent } => {
                let (buffer, length) = self.content(content);
                let (flags, (parent, parent_offset)) =
                    parent.map_or((0, (0, 0)), |parent| (BUFFER_FLAG_HAS_PARENT, parent));
                let kind = BINDER_TYPE_PTR;
                let object = BufferObject { kind, flags, buffer, length, parent, parent_offset };
                data.extend_from_slice(bytes_of(&object));
                *scattered += length.next_multiple_of(8);
            }
            Item::Array { n_files, parent, offset } => {
                let object = FdArrayObject {
                    kind: BINDER_TYPE_FDA,
                    pad: 0,
                    num_fds: *n_files,
                    parent: *parent,
                    parent_offset: *offset,
                };
                data.extend_from_slice(bytes_of(&object));
            }
            Item::Object(kind, n) => {
                data.extend_from_slice(&kind.to_ne_bytes());
                data.extend(pattern(n.saturating_sub(4)));
            }
        }
    }

    fn content(&mut self, content: &Content) -> (u64, u64) {
        match content {
            Content::Bytes(n) => (self.place(&pattern(*n).collect::<Vec<_>>()), u64::from(*n)),
            Content::Files(names) => {
                let fds: Vec<_> = names.iter().map(|name| self.process.file(*name)).collect();
                (self.place(bytemuck::cast_slice(&fds)), fds.len() as u64 * 4)
            }
            Content::Nowhere(n) => (NOWHERE, u64::from(*n)),
        }
    }
}

impl Count {
    fn number(self) -> u32 {
        match self {
            Count::Increfs => BC_INCREFS,
            Count::Acquire => BC_ACQUIRE,
            Count::Release => BC_RELEASE,
            Count::Decrefs => BC_DECREFS,
        }
    }
}

/// Never zero, so that what is missing shows.
fn pattern(n: u32) -> impl Iterator<Item = u8> {
    (0..n).map(|at| (at % 251 + 1) as u8)
}

/// Lays out the argument of another ioctl: its request and its address.
pub fn control(control: Control, slot: &Slot, world: &World) -> (u32, u64) {
    let pid = |process: u8| world.processes.get(process as usize).map_or(0, |process| process.pid);
    let mut argument = [0; 64];
    let mut put = |bytes: &[u8]| argument[..bytes.len()].copy_from_slice(bytes);
    let request = match control {
        Control::Version => BINDER_VERSION,
        Control::MaxThreads(n) => {
            put(&n.to_ne_bytes());
            BINDER_SET_MAX_THREADS
        }
        Control::Manage => BINDER_SET_CONTEXT_MGR,
        Control::ManageExt { ptr, cookie, flags } => {
            put(bytes_of(&FlatObject { kind: BINDER_TYPE_BINDER, flags, binder: ptr, cookie }));
            BINDER_SET_CONTEXT_MGR_EXT
        }
        Control::ThreadExit => BINDER_THREAD_EXIT,
        Control::NodeInfo(handle) => {
            put(&handle.to_ne_bytes());
            BINDER_GET_NODE_INFO_FOR_REF
        }
        Control::NodeDebugInfo(ptr) => {
            put(&ptr.to_ne_bytes());
            BINDER_GET_NODE_DEBUG_INFO
        }
        Control::Freeze { process, enable, timeout_ms } => {
            put(bytes_of(&FreezeInfo { pid: pid(process), enable: enable.into(), timeout_ms }));
            BINDER_FREEZE
        }
        Control::FrozenInfo(process) => {
            put(&pid(process).to_ne_bytes());
            BINDER_GET_FROZEN_INFO
        }
        Control::SpamDetection(enable) => {
            put(&enable.to_ne_bytes());
            BINDER_ENABLE_ONEWAY_SPAM_DETECTION
        }
        Control::ExtendedError => BINDER_GET_EXTENDED_ERROR,
        Control::Other(request) => request,
        Control::BadAddress(request) => return (request, NOWHERE),
    };
    slot.put(0, &argument);
    (request, slot.room())
}
