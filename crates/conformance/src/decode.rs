//! Decodes returns into a canonical text, which contains everything on which two drivers have to
//! agree.
//!
//! | on the wire | in the text |
//! |---|---|
//! | process id of a sender | the actor's name |
//! | address in the receive buffer | offset from its beginning |
//! | number of a received descriptor | its pipe, which end, and whether it closes on exec |
//! | debug ids | left out |
//!
//! Handles, node addresses, cookies, sizes, flags, error numbers and the order of returns are
//! unchanged.

use crate::world::{Buffer, Call, World, target};
use baton_abi::uapi::*;
use bytemuck::{AnyBitPattern, pod_read_unaligned};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Decodes the returns that a thread has read.
pub struct Decoder<'a> {
    /// The observations so far, which grow.
    pub world: &'a mut World,
    /// The process.
    pub process: usize,
    /// The thread.
    pub thread: usize,
}

impl Decoder<'_> {
    /// The text of all returns in `bytes`.
    pub fn returns(&mut self, mut bytes: &[u8]) -> String {
        let mut text = String::new();
        while let Some((command, rest)) = bytes.split_first_chunk() {
            let command = u32::from_ne_bytes(*command);
            let size = (command >> 16 & 0x3fff) as usize;
            let Some((payload, rest)) = rest.split_at_checked(size) else { break };
            if !text.is_empty() {
                text.push_str(", ");
            }
            text.push_str(return_name(command).strip_prefix("BR_").unwrap_or("unknown"));
            self.one(command, payload, &mut text);
            bytes = rest;
        }
        if !bytes.is_empty() {
            let _ = write!(text, " and {} bytes {bytes:02x?}", bytes.len());
        }
        text
    }

    fn one(&mut self, command: u32, payload: &[u8], text: &mut String) {
        let process = &mut self.world.processes[self.process];
        let thread = &mut process.threads[self.thread];
        match command {
            BR_NOOP | BR_SPAWN_LOOPER | BR_OK => {}
            BR_TRANSACTION_COMPLETE | BR_ONEWAY_SPAM_SUSPECT | BR_TRANSACTION_PENDING_FROZEN => {}
            BR_DEAD_REPLY | BR_FAILED_REPLY | BR_FROZEN_REPLY => {
                thread.is_refused();
            }
            BR_ERROR => {
                let _ = write!(text, " {}", part::<i32>(payload, 0));
            }
            BR_INCREFS | BR_ACQUIRE | BR_RELEASE | BR_DECREFS => {
                let node: PtrCookie = part(payload, 0);
                let _ = write!(text, " {:x}:{:x}", node.ptr, node.cookie);
                match command {
                    BR_INCREFS => process.owed.push((false, node.ptr, node.cookie)),
                    BR_ACQUIRE => process.owed.push((true, node.ptr, node.cookie)),
                    _ => {}
                }
            }
            BR_DEAD_BINDER | BR_CLEAR_DEATH_NOTIFICATION_DONE => {
                let cookie = part(payload, 0);
                let _ = write!(text, " {cookie:x}");
                if command == BR_DEAD_BINDER {
                    process.told.push(cookie);
                }
            }
            BR_TRANSACTION | BR_REPLY => {
                let data = part(payload, 0);
                self.transaction(command == BR_REPLY, &data, text);
            }
            BR_TRANSACTION_SEC_CTX => {
                let data = part(payload, 0);
                self.transaction(false, &data, text);
                let label: u64 = part(payload, size_of::<TransactionData>());
                let _ = write!(text, " label at {}", self.offset(label));
            }
            _ => {
                let _ = write!(text, " {command:#x} {payload:02x?}");
            }
        }
    }

    fn offset(&self, address: u64) -> String {
        match self.world.processes[self.process].offset(address) {
            Some(offset) => format!("+{offset:x}"),
            None if address == 0 => "null".to_owned(),
            None => "outside".to_owned(),
        }
    }

    fn transaction(&mut self, reply: bool, data: &TransactionData, text: &mut String) {
        let thread = &mut self.world.processes[self.process].threads[self.thread];
        if reply {
            thread.is_answered();
        } else {
            if data.flags & TF_ONE_WAY == 0 {
                thread.stack.push(Call::In);
            }
            let _ = write!(text, " {:x}:{:x}", data.target, data.cookie);
        }
        let from = match self.world.by_pid(data.sender_pid) {
            Some(process) => format!("p{process}"),
            None if data.sender_pid == 0 => "nobody".to_owned(),
            None => "a stranger".to_owned(),
        };
        // SAFETY: a system call without arguments.
        let own = data.sender_euid == unsafe { libc::geteuid() };
        let user = if own { "own".to_owned() } else { data.sender_euid.to_string() };
        let _ = write!(
            text,
            " code {:x} flags {:x} from {from} user {user} at {} {}+{} bytes",
            data.code,
            data.flags,
            self.offset(data.buffer),
            data.data_size,
            data.offsets_size,
        );
        let process = &mut self.world.processes[self.process];
        process.buffers.push(Buffer { address: data.buffer, freed: false });
        self.payload(data, text);
    }

    fn payload(&mut self, data: &TransactionData, text: &mut String) {
        if data.data_size == 0 && data.offsets_size == 0 {
            return;
        }
        let pid = self.world.processes[self.process].pid;
        let read = |address, bytes: u64| crate::peek::peek(pid, address, bytes as usize);
        let (Some(mut bytes), Some(offsets)) =
            (read(data.buffer, data.data_size), read(data.offsets, data.offsets_size))
        else {
            text.push_str(" unreadable");
            return;
        };
        let offsets = offsets.chunks_exact(8).map(|at| part::<u64>(at, 0) as usize);
        let offsets: Vec<_> = offsets.collect();
        let mut contents: Contents = BTreeMap::new();
        let mut lengths = Vec::new();
        for (index, &at) in offsets.iter().enumerate() {
            let Some(object) = bytes.get(at..) else { continue };
            if object.len() < 4 {
                continue;
            }
            let length = self.object(index as u64, object, data.buffer, &mut contents, text);
            lengths.push((at, length));
        }
        for (at, length) in lengths {
            let end = (at + length).min(bytes.len());
            bytes[at..end].fill(0);
        }
        let _ = write!(text, " #{:x}", hash(&bytes));
        for content in contents.values() {
            let _ = write!(text, " #{:x}", hash(content));
        }
    }

    /// The text and the length of an object. Contents of buffers are collected by index, because
    /// later objects say where the driver has put descriptors and addresses in them.
    fn object(
        &mut self,
        index: u64,
        bytes: &[u8],
        transaction: u64,
        contents: &mut Contents,
        text: &mut String,
    ) -> usize {
        match part::<u32>(bytes, 0) {
            kind @ (BINDER_TYPE_BINDER | BINDER_TYPE_WEAK_BINDER) => {
                let object: FlatObject = part(bytes, 0);
                let weak = if kind == BINDER_TYPE_WEAK_BINDER { "weak " } else { "" };
                let (ptr, cookie) = (object.binder, object.cookie);
                let _ = write!(text, " [{weak}binder {ptr:x}:{cookie:x} {:x}]", object.flags);
                size_of::<FlatObject>()
            }
            kind @ (BINDER_TYPE_HANDLE | BINDER_TYPE_WEAK_HANDLE) => {
                let object: FlatObject = part(bytes, 0);
                let weak = if kind == BINDER_TYPE_WEAK_HANDLE { "weak " } else { "" };
                let (handle, cookie) = (object.binder, object.cookie);
                let _ = write!(text, " [{weak}handle {handle} {cookie:x} {:x}]", object.flags);
                let process = &mut self.world.processes[self.process];
                process.handles.insert(handle as u32);
                if handle == 0 {
                    process.first_manager.get_or_insert(self.world.n_managers);
                }
                size_of::<FlatObject>()
            }
            BINDER_TYPE_FD => {
                let object: FdObject = part(bytes, 0);
                let name = self.file(object.fd as i32);
                let high = object.fd >> 32;
                let _ = write!(text, " [file {name} {high:x} {:x}]", object.cookie);
                size_of::<FdObject>()
            }
            BINDER_TYPE_PTR => {
                let object: BufferObject = part(bytes, 0);
                let pid = self.world.processes[self.process].pid;
                let at = self.offset(object.buffer);
                let (length, flags) = (object.length, object.flags);
                let (parent, offset) = (object.parent, object.parent_offset);
                let _ = write!(text, " [buffer {at} {length} {flags:x} {parent} {offset}]");
                let content = crate::peek::peek(pid, object.buffer, length as usize);
                if flags & BUFFER_FLAG_HAS_PARENT != 0
                    && let Some(place) = place(contents, parent, offset, 8)
                {
                    // As a distance from the beginning of the transaction.
                    let address: u64 = part(place, 0);
                    place.copy_from_slice(&address.wrapping_sub(transaction).to_ne_bytes());
                }
                contents.insert(index, content.unwrap_or_else(|| b"unreadable".to_vec()));
                size_of::<BufferObject>()
            }
            BINDER_TYPE_FDA => {
                let object: FdArrayObject = part(bytes, 0);
                self.array(&object, contents, text);
                size_of::<FdArrayObject>()
            }
            kind => {
                let _ = write!(text, " [type {kind:x}]");
                4
            }
        }
    }

    fn array(&mut self, object: &FdArrayObject, contents: &mut Contents, text: &mut String) {
        let _ = write!(text, " [array {} {}", object.parent, object.parent_offset);
        for at in 0..object.num_fds {
            let offset = object.parent_offset + at * 4;
            let Some(place) = place(contents, object.parent, offset, 4) else { break };
            let fd = part::<i32>(place, 0);
            place.fill(0);
            let name = self.file(fd);
            let _ = write!(text, " {name}");
        }
        text.push(']');
    }

    fn file(&mut self, fd: i32) -> String {
        let pid = self.world.processes[self.process].pid;
        self.world.processes[self.process].add_file(fd);
        describe_file(self.world, pid, fd)
    }
}

/// Contents of a transaction's buffers, by the indices of their objects.
type Contents = BTreeMap<u64, Vec<u8>>;

/// Bytes of a buffer.
fn place(contents: &mut Contents, index: u64, offset: u64, bytes: usize) -> Option<&mut [u8]> {
    let at = usize::try_from(offset).ok()?;
    contents.get_mut(&index)?.get_mut(at..at.checked_add(bytes)?)
}

/// Describes the pipe and the end that a descriptor belongs to.
fn describe_file(world: &World, pid: u32, fd: i32) -> String {
    let target = target(pid, fd);
    if target.is_empty() {
        return "closed".to_owned();
    }
    let name = match world.pipes.iter().position(|pipe| *pipe == target) {
        Some(number) => format!("pipe{number}"),
        None => "another".to_owned(),
    };
    let flags = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).unwrap_or_default();
    let flags = flags.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok()).unwrap_or(0);
    let end = if flags & libc::O_ACCMODE == libc::O_RDONLY { "out" } else { "in" };
    let cloexec = if flags & libc::O_CLOEXEC != 0 { "" } else { " inherited" };
    format!("{name} {end}{cloexec}")
}

fn part<T: AnyBitPattern>(bytes: &[u8], at: usize) -> T {
    let mut whole = vec![0; size_of::<T>()];
    let there = &bytes[at.min(bytes.len())..];
    let n = there.len().min(whole.len());
    whole[..n].copy_from_slice(&there[..n]);
    pod_read_unaligned(&whole)
}

/// The FNV-1a hash.
pub fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}
