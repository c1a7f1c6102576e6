//! A program of the raw interface, in this process: command buffers in, command buffers out. It
//! maps nothing: what lies in its receive buffer it reads from the file behind it.
#![allow(dead_code, reason = "each test has a use for a part of it")]

use baton_abi::uapi::*;
use baton_driver::device::Device;
use bytemuck::{Zeroable, bytes_of, pod_read_unaligned};
use rustix::io::Errno;
use std::path::Path;
use std::sync::Arc;

/// Where the program says that it has mapped its receive buffer.
pub const BASE: usize = 0x7000_0000_0000;
pub const RECEIVE_BYTES: usize = (1 << 20) - 8192;
const READ_BYTES: usize = 256;

#[derive(Clone)]
pub struct Program {
    pub device: Arc<Device>,
}

/// Commands for one exchange. Payloads stay where they are until it is dropped.
#[derive(Default)]
pub struct Commands {
    bytes: Vec<u8>,
    payloads: Vec<Vec<u8>>,
}

impl Commands {
    pub fn put(mut self, command: u32, payload: &[u8]) -> Commands {
        self.bytes.extend_from_slice(&command.to_ne_bytes());
        self.bytes.extend_from_slice(payload);
        self
    }

    pub fn send(self, command: u32, target: u64, flags: u32, data: &[u8]) -> Commands {
        self.send_objects(command, target, flags, data, &[])
    }

    /// A call of this code, without data.
    pub fn send_code(mut self, target: u64, code: u32) -> Commands {
        let buffer = self.keep(&[]);
        let call =
            TransactionData { target, code, buffer, offsets: buffer, ..TransactionData::zeroed() };
        self.put(BC_TRANSACTION, bytes_of(&call))
    }

    pub fn send_objects(
        mut self,
        command: u32,
        target: u64,
        flags: u32,
        data: &[u8],
        offsets: &[u64],
    ) -> Commands {
        let offsets: Vec<u8> = offsets.iter().flat_map(|offset| offset.to_ne_bytes()).collect();
        let transaction = TransactionData {
            target,
            cookie: 0,
            code: 7,
            flags,
            sender_pid: 0,
            sender_euid: 0,
            data_size: data.len() as u64,
            offsets_size: offsets.len() as u64,
            buffer: self.keep(data),
            offsets: self.keep(&offsets),
        };
        self.put(command, bytes_of(&transaction))
    }

    pub fn call(self, target: u64, data: &[u8]) -> Commands {
        self.send(BC_TRANSACTION, target, 0, data)
    }

    pub fn reply(self, data: &[u8]) -> Commands {
        self.send(BC_REPLY, 0, 0, data)
    }

    pub fn free(self, message: &Message) -> Commands {
        self.put(BC_FREE_BUFFER, &message.transaction.buffer.to_ne_bytes())
    }

    /// Those after the first `bytes` bytes.
    pub fn after(mut self, bytes: usize) -> Commands {
        self.bytes.drain(..bytes);
        self
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// These commands, and then the others.
    pub fn and(mut self, others: Commands) -> Commands {
        self.bytes.extend(others.bytes);
        self.payloads.extend(others.payloads);
        self
    }

    fn keep(&mut self, data: &[u8]) -> u64 {
        self.payloads.push(data.to_vec());
        self.payloads.last().map_or(0, |data| data.as_ptr() as u64)
    }
}

/// A transaction or a reply that has come in.
#[derive(Clone, Debug)]
pub struct Message {
    pub transaction: TransactionData,
    pub data: Vec<u8>,
}

/// What one exchange has given.
#[derive(Clone, Debug)]
pub struct Returned {
    /// As it lay in the read buffer.
    pub bytes: Vec<u8>,
    pub messages: Vec<Message>,
    /// Bytes of the commands that the driver has taken: all, unless a refusal is unread.
    pub consumed: usize,
}

impl Returned {
    /// Its bytes, but for where messages lie.
    pub fn without_addresses(&self) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        let mut at = 0;
        while at < bytes.len() {
            let command: u32 = pod_read_unaligned(&bytes[at..at + 4]);
            let end = at + 4 + payload_bytes(command);
            if matches!(command, BR_TRANSACTION | BR_REPLY) {
                bytes[end - 16..end].fill(0);
            }
            at = end;
        }
        bytes
    }

    /// The returns' numbers, in order.
    pub fn commands(&self) -> Vec<u32> {
        returns(&self.bytes).map(|(command, _)| command).collect()
    }
}

/// The returns of a read buffer, each with its payload.
pub fn returns(bytes: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let command = pod_read_unaligned(bytes.get(at..at + 4)?);
        let payload = &bytes[at + 4..at + 4 + payload_bytes(command)];
        at += 4 + payload.len();
        Some((command, payload))
    })
}

impl Program {
    pub fn open(socket: &Path) -> Program {
        Program::open_with(socket, RECEIVE_BYTES)
    }

    pub fn open_with(socket: &Path, receive_bytes: usize) -> Program {
        let device = Device::open("binder", socket).unwrap();
        device.mapped(BASE, receive_bytes);
        Program { device }
    }

    pub fn become_manager(&self) {
        self.device.ioctl(BINDER_SET_CONTEXT_MGR, 0, false).unwrap();
    }

    pub fn leave(&self) {
        self.device.ioctl(BINDER_THREAD_EXIT, 0, false).unwrap();
    }

    /// One BINDER_WRITE_READ, which takes all commands.
    pub fn exchange(&self, commands: Commands) -> Result<Returned, Errno> {
        let returned = self.try_exchange(&commands)?;
        assert_eq!(returned.consumed, commands.bytes.len());
        Ok(returned)
    }

    /// One BINDER_WRITE_READ.
    pub fn try_exchange(&self, commands: &Commands) -> Result<Returned, Errno> {
        let mut read = [0u8; READ_BYTES];
        let (consumed, filled) = self.write_read(commands, &mut read)?;
        let bytes = read[..filled].to_vec();
        let message = |(command, payload): (u32, &[u8])| {
            let is_one = matches!(command, BR_TRANSACTION | BR_REPLY);
            is_one.then(|| self.message(pod_read_unaligned(payload)))
        };
        let messages = returns(&bytes).filter_map(message).collect();
        Ok(Returned { bytes, messages, consumed })
    }

    /// As [`Program::exchange`], with a read buffer of the caller's: how much of it was filled.
    pub fn exchange_in(&self, commands: &Commands, read: &mut [u8]) -> Result<usize, Errno> {
        let (consumed, filled) = self.write_read(commands, read)?;
        assert_eq!(consumed, commands.bytes.len());
        Ok(filled)
    }

    /// One BINDER_WRITE_READ: the bytes that were consumed, and those that were filled.
    pub fn write_read(
        &self,
        commands: &Commands,
        read: &mut [u8],
    ) -> Result<(usize, usize), Errno> {
        let mut exchange = WriteRead {
            write_size: commands.bytes.len() as u64,
            write_consumed: 0,
            write_buffer: commands.bytes.as_ptr() as u64,
            read_size: read.len() as u64,
            read_consumed: 0,
            read_buffer: read.as_mut_ptr() as u64,
        };
        self.device.ioctl(BINDER_WRITE_READ, std::ptr::from_mut(&mut exchange) as usize, false)?;
        Ok((exchange.write_consumed as usize, exchange.read_consumed as usize))
    }

    fn message(&self, transaction: TransactionData) -> Message {
        let mut data = vec![0; transaction.data_size as usize];
        let offset = transaction.buffer - BASE as u64;
        rustix::io::pread(self.device.file(), &mut data, offset).unwrap();
        Message { transaction, data }
    }

    /// Where a message's data has objects.
    pub fn offsets(&self, message: &Message) -> Vec<u64> {
        let transaction = &message.transaction;
        let mut bytes = vec![0; transaction.offsets_size as usize];
        let at = transaction.offsets - BASE as u64;
        rustix::io::pread(self.device.file(), &mut bytes, at).unwrap();
        bytes.chunks_exact(8).map(pod_read_unaligned).collect()
    }

    /// Exchanges until a message comes.
    pub fn await_message(&self, commands: Commands) -> Message {
        let mut returned = self.exchange(commands).unwrap();
        while returned.messages.is_empty() {
            returned = self.exchange(Commands::default()).unwrap();
        }
        returned.messages.remove(0)
    }
}
