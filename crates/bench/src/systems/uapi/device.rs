//! An opened and mapped Binder device, as a program without a library uses it: one
//! `BINDER_WRITE_READ` after the other, each of which writes all that there is to write and reads
//! what comes.

use super::nodes::Nodes;
use crate::system::{Consume, RECEIVE_BYTES};
use baton_abi::uapi::*;
use bytemuck::{bytes_of, pod_read_unaligned};
use libc::{c_int, c_void};
use rustix::fd::{BorrowedFd, FromRawFd, OwnedFd};
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode};
use std::ffi::CString;
use std::io;
use std::sync::Arc;

/// Room for returns, as libbinder has it.
const READ_BYTES: usize = 256;

/// How the program makes its `ioctl` calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Libc,
    /// By a system call of its own.
    Trap,
}

/// How a program comes to its device.
#[derive(Clone, Debug)]
pub struct Access {
    pub form: Form,
    pub device: CString,
}

/// An opened and mapped device, with the commands that go with the next exchange.
pub struct Device {
    fd: c_int,
    form: Form,
    map: usize,
    commands: Vec<u8>,
    returns: [u8; READ_BYTES],
    /// Starts another looper when the driver wants one.
    pub spawn_looper: Option<Arc<dyn Fn() + Send + Sync>>,
    /// Objects of this program, of whose references the driver tells.
    pub nodes: Option<Arc<Nodes>>,
}

/// A transaction to be written.
#[derive(Clone, Copy)]
pub struct Outgoing<'a> {
    pub code: u32,
    pub flags: u32,
    pub data: &'a [u8],
    /// Where its objects stand.
    pub offsets: &'a [u64],
}

/// A transaction or reply that has come. Its data lies where it is until it is freed.
#[derive(Clone, Copy)]
pub struct Message(TransactionData);

/// A device of which nobody has a message any more, and which no other thread has.
pub struct UsedDevice(Device);

/// A return's number and its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Return<'a> {
    pub command: u32,
    pub payload: &'a [u8],
}

fn os_result(value: c_int) -> io::Result<c_int> {
    if value < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// An `ioctl` call that rustix makes by a system call of its own.
struct InlineIoctl(u32, *mut c_void);

// SAFETY: every caller passes what its request takes.
unsafe impl Ioctl for InlineIoctl {
    type Output = ();
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        self.0 as Opcode
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.1
    }

    unsafe fn output_from_ptr(_: IoctlOutput, _: *mut c_void) -> rustix::io::Result<()> {
        Ok(())
    }
}

impl<'a> Return<'a> {
    /// The first of these returns. `None` if it is cut off.
    pub fn read(returns: &'a [u8]) -> Option<Return<'a>> {
        let (command, rest) = returns.split_first_chunk::<4>()?;
        let command = u32::from_ne_bytes(*command);
        Some(Return { command, payload: rest.get(..payload_bytes(command))? })
    }

    /// Bytes that it takes among others.
    fn bytes(&self) -> usize {
        size_of::<u32>() + self.payload.len()
    }
}

impl Message {
    pub fn data(&self) -> &'static [u8] {
        let (at, bytes) = (self.0.buffer as *const u8, self.0.data_size as usize);
        // SAFETY: the driver says that the message's data lies there, in the map, which stays;
        // nobody writes to it before this program frees it, after its last use.
        unsafe { std::slice::from_raw_parts(at, bytes) }
    }

    pub fn code(&self) -> u32 {
        self.0.code
    }

    pub fn is_one_way(&self) -> bool {
        self.0.flags & TF_ONE_WAY != 0
    }

    /// The only object that came. `None` if there is not exactly one.
    pub fn object(&self) -> Option<FlatObject> {
        if self.0.offsets_size as usize != size_of::<u64>() {
            return None;
        }
        // SAFETY: as `data`; the driver says that there is one offset.
        let at = unsafe { (self.0.offsets as *const u64).read_unaligned() } as usize;
        let object = self.data().get(at..at + size_of::<FlatObject>())?;
        Some(pod_read_unaligned(object))
    }
}

impl UsedDevice {
    /// Frees what is left, unmaps and closes the device.
    pub fn close(mut self) -> io::Result<()> {
        self.0.write()?;
        let Device { fd, map, .. } = self.0;
        // SAFETY: the map is this device's, and nobody looks at it any more.
        os_result(unsafe { libc::munmap(map as *mut c_void, RECEIVE_BYTES) })?;
        // SAFETY: the descriptor is this device's alone.
        os_result(unsafe { libc::close(fd) }).map(drop)
    }
}

impl Device {
    pub fn open(access: &Access) -> io::Result<Device> {
        // SAFETY: a C string.
        let fd = os_result(unsafe {
            libc::open(access.device.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC)
        })?;
        let (protection, flags) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_NORESERVE);
        // SAFETY: a fresh map at an address of the kernel's choice, which `UsedDevice::close` alone
        // unmaps.
        let map =
            unsafe { libc::mmap(std::ptr::null_mut(), RECEIVE_BYTES, protection, flags, fd, 0) };
        if map == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Device::on(fd, access.form, map as usize))
    }

    /// The same device, with the commands and returns of another thread.
    pub fn of_another_thread(&self) -> Device {
        let nodes = self.nodes.clone();
        Device { nodes, ..Device::on(self.fd, self.form, self.map) }
    }

    fn on(fd: c_int, form: Form, map: usize) -> Device {
        let (commands, returns) = (Vec::new(), [0; READ_BYTES]);
        Device { fd, form, map, commands, returns, spawn_looper: None, nodes: None }
    }

    /// Opens a device and makes one call by it. `consume` is shown the answer.
    pub fn open_for_one_call(
        access: &Access,
        target: u32,
        outgoing: Outgoing<'_>,
        consume: Consume<'_>,
    ) -> io::Result<UsedDevice> {
        let mut device = Device::open(access)?;
        device.queue_message(BC_TRANSACTION, target, outgoing);
        let reply = device.await_message(BR_REPLY)?;
        consume(reply.data());
        device.queue_free(&reply);
        Ok(UsedDevice(device))
    }

    /// Closes a descriptor that a message brought.
    pub fn close_received(&self, fd: c_int) -> io::Result<()> {
        match self.form {
            Form::Libc => {
                // SAFETY: the driver has made the descriptor for this program.
                os_result(unsafe { libc::close(fd) }).map(drop)
            }
            Form::Trap => {
                // SAFETY: the driver has made the descriptor for this program.
                drop(unsafe { OwnedFd::from_raw_fd(fd) });
                Ok(())
            }
        }
    }

    pub fn ioctl<T>(&self, request: u32, argument: &mut T) -> io::Result<()> {
        let argument = std::ptr::from_mut(argument).cast::<c_void>();
        match self.form {
            Form::Libc => {
                // SAFETY: every caller here passes what its request takes.
                os_result(unsafe { libc::ioctl(self.fd, request as _, argument) })?;
            }
            Form::Trap => {
                // SAFETY: the device stays open, and the request gets what it takes.
                unsafe {
                    let fd = BorrowedFd::borrow_raw(self.fd);
                    rustix::ioctl::ioctl(fd, InlineIoctl(request, argument))?;
                }
            }
        }
        Ok(())
    }

    pub fn queue(&mut self, command: u32, payload: &[u8]) {
        self.commands.extend_from_slice(&command.to_ne_bytes());
        self.commands.extend_from_slice(payload);
    }

    /// Its data and offsets must outlive the exchange.
    pub fn queue_message(&mut self, command: u32, target: u32, outgoing: Outgoing<'_>) {
        let Outgoing { code, flags, data, offsets } = outgoing;
        let message = TransactionData::outgoing(target, code, flags, data, offsets);
        self.queue(command, bytes_of(&message));
    }

    pub fn queue_free(&mut self, message: &Message) {
        self.queue(BC_FREE_BUFFER, &message.0.buffer.to_ne_bytes());
    }

    /// Writes what is queued and reads up to `read_bytes` of returns, waiting for one if there
    /// is room for any.
    fn exchange(&mut self, read_bytes: usize) -> io::Result<usize> {
        let mut exchange = WriteRead {
            write_size: self.commands.len() as u64,
            write_consumed: 0,
            write_buffer: self.commands.as_ptr() as u64,
            read_size: read_bytes as u64,
            read_consumed: 0,
            read_buffer: self.returns.as_mut_ptr() as u64,
        };
        self.ioctl(BINDER_WRITE_READ, &mut exchange)?;
        self.commands.clear();
        Ok(exchange.read_consumed as usize)
    }

    /// Writes what is queued.
    pub fn write(&mut self) -> io::Result<()> {
        self.exchange(0).map(drop)
    }

    /// Exchanges until a message comes.
    pub fn await_message(&mut self, awaited: u32) -> io::Result<Message> {
        let message = self.await_return(awaited)?;
        Ok(Message(pod_read_unaligned(message.payload)))
    }

    /// Exchanges until a certain return comes. Answers what else comes.
    pub fn await_return(&mut self, awaited: u32) -> io::Result<Return<'_>> {
        loop {
            let filled = self.exchange(READ_BYTES)?;
            let mut found = None;
            let mut at = 0;
            while at < filled {
                let come = Return::read(&self.returns[at..filled]);
                let come = come.ok_or(io::ErrorKind::InvalidData)?;
                let (command, bytes) = (come.command, come.bytes());
                match command {
                    _ if command == awaited => found = Some(at),
                    BR_INCREFS | BR_ACQUIRE | BR_RELEASE | BR_DECREFS => {
                        let node = pod_read_unaligned(come.payload);
                        self.hear_of(command, node)?;
                    }
                    BR_SPAWN_LOOPER => self.spawn_looper.iter().for_each(|spawn| spawn()),
                    BR_DEAD_REPLY | BR_FAILED_REPLY | BR_ERROR => {
                        let wrong = format!("the transaction failed: {}", return_name(command));
                        return Err(io::Error::other(wrong));
                    }
                    _ => {}
                }
                at += bytes;
            }
            if let Some(at) = found {
                return Ok(Return::read(&self.returns[at..]).expect("it has been read before"));
            }
        }
    }

    /// Notes what becomes of a reference to an object of this program, and acknowledges a new one.
    fn hear_of(&mut self, command: u32, node: PtrCookie) -> io::Result<()> {
        if let Some(nodes) = &self.nodes {
            nodes.note(command, node)?;
        }
        match command {
            BR_INCREFS => self.queue(BC_INCREFS_DONE, bytes_of(&node)),
            BR_ACQUIRE => self.queue(BC_ACQUIRE_DONE, bytes_of(&node)),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_are_read_one_after_the_other() {
        let node = PtrCookie { ptr: 7, cookie: 9 };
        let mut returns = BR_NOOP.to_ne_bytes().to_vec();
        returns.extend([&BR_ACQUIRE.to_ne_bytes(), bytes_of(&node)].concat());
        returns.extend(BR_TRANSACTION_COMPLETE.to_ne_bytes());
        let mut rest = &returns[..];
        let mut found = Vec::new();
        while let Some(come) = Return::read(rest) {
            found.push((come.command, come.payload));
            rest = &rest[come.bytes()..];
        }
        let expected =
            [(BR_NOOP, &[][..]), (BR_ACQUIRE, bytes_of(&node)), (BR_TRANSACTION_COMPLETE, &[])];
        assert_eq!(found, expected);
        assert!(rest.is_empty());
    }

    #[test]
    fn what_is_cut_off_is_no_return() {
        let reply = [&BR_REPLY.to_ne_bytes()[..], &[0; 63]].concat();
        let unknown = 0x3fff_7200_u32.to_ne_bytes();
        for wrong in [&[][..], &reply[..3], &reply, &unknown] {
            assert!(Return::read(wrong).is_none(), "{wrong:?}");
        }
    }
}
