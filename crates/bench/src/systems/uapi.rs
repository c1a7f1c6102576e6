//! A small Binder program: what a client library does for a call, and nothing around it.
//!
//! It knows nothing of Baton: it opens `/dev/binder`, maps it, and makes one `BINDER_WRITE_READ`
//! after the other, each of which writes all that there is to write and reads what comes. So it is
//! what runs on the kernel's driver, too.

use crate::service::Service;
use crate::system::{Client, RECEIVE_BYTES, Server};
use baton_abi::uapi::*;
use bytemuck::{bytes_of, pod_read_unaligned};
use libc::{c_int, c_void};
use rustix::fd::BorrowedFd;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Room for returns, as libbinder has it.
const READ_BYTES: usize = 256;
/// How long a manager before may take to end.
const PATIENCE: Duration = Duration::from_secs(2);
/// Most threads of a pool, as libbinder has it: 15 that the driver asks for, and the first.
const MOST_LOOPERS: usize = 16;
const MANAGER: u64 = 0;
const ECHO: u32 = 1;

/// How the program makes its `ioctl` calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Libc,
    /// By a system call of its own.
    Trap,
}

/// An opened and mapped device, with the commands that go with the next exchange.
struct Device {
    fd: c_int,
    form: Form,
    commands: Vec<u8>,
    returns: [u8; READ_BYTES],
    /// Who has another looper when the driver wants one.
    loopers: Option<Arc<Loopers>>,
    /// Nobody waits for an answer to the message that came last.
    was_one_way: bool,
}

struct Loopers {
    device: Device,
    service: Service,
}

pub struct Caller {
    device: Device,
}

/// The answering program, a context manager with one looper.
pub struct Manager {
    device: Device,
    service: Service,
    /// A copy of the request, which must outlive the reply's command.
    reply: Vec<u8>,
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

impl Device {
    fn open(form: Form) -> io::Result<Device> {
        // SAFETY: a constant C string.
        let fd = os_result(unsafe {
            libc::open(c"/dev/binder".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC)
        })?;
        let (protection, flags) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_NORESERVE);
        // SAFETY: a fresh map at an address of the kernel's choice, which is never unmapped.
        let map =
            unsafe { libc::mmap(std::ptr::null_mut(), RECEIVE_BYTES, protection, flags, fd, 0) };
        if map == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Device::on(fd, form))
    }

    /// The same device, with the commands and returns of another thread.
    fn of_another_thread(&self) -> Device {
        let (fd, form) = (self.fd, self.form);
        Device::on(fd, form)
    }

    fn on(fd: c_int, form: Form) -> Device {
        let (commands, returns) = (Vec::new(), [0; READ_BYTES]);
        Device { fd, form, commands, returns, loopers: None, was_one_way: false }
    }

    fn ioctl<T>(&self, request: u32, argument: &mut T) -> io::Result<()> {
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

    fn queue(&mut self, command: u32, payload: &[u8]) {
        self.commands.extend_from_slice(&command.to_ne_bytes());
        self.commands.extend_from_slice(payload);
    }

    fn queue_message(&mut self, command: u32, target: u64, data: &[u8]) {
        let message = TransactionData {
            target,
            cookie: 0,
            code: ECHO,
            flags: 0,
            sender_pid: 0,
            sender_euid: 0,
            data_size: data.len() as u64,
            offsets_size: 0,
            buffer: data.as_ptr() as u64,
            offsets: 0,
        };
        self.queue(command, bytes_of(&message));
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

    /// Exchanges until a message comes: its data, which lies where it is until it is freed.
    /// Answers what else comes.
    fn await_message(&mut self, awaited: u32) -> io::Result<&'static [u8]> {
        loop {
            let filled = self.exchange(READ_BYTES)?;
            let mut message = None;
            let mut at = 0;
            while at < filled {
                let command: u32 = pod_read_unaligned(&self.returns[at..at + 4]);
                let bytes = payload_bytes(command);
                let mut payload = [0; 72];
                payload[..bytes].copy_from_slice(&self.returns[at + 4..at + 4 + bytes]);
                at += 4 + bytes;
                match command {
                    _ if command == awaited => {
                        let told: TransactionData = pod_read_unaligned(&payload[..bytes]);
                        self.was_one_way = told.flags & TF_ONE_WAY != 0;
                        message = Some(data(&told));
                    }
                    BR_SPAWN_LOOPER => {
                        self.loopers.iter().for_each(|loopers| loopers.enlist(BC_REGISTER_LOOPER));
                    }
                    BR_INCREFS => self.queue(BC_INCREFS_DONE, &payload[..bytes]),
                    BR_ACQUIRE => self.queue(BC_ACQUIRE_DONE, &payload[..bytes]),
                    BR_DEAD_REPLY | BR_FAILED_REPLY | BR_ERROR => {
                        return Err(io::Error::other("the transaction failed"));
                    }
                    _ => {}
                }
            }
            if let Some(data) = message {
                return Ok(data);
            }
        }
    }

    fn queue_free(&mut self, data: &[u8]) {
        self.queue(BC_FREE_BUFFER, &(data.as_ptr() as u64).to_ne_bytes());
    }
}

fn data(message: &TransactionData) -> &'static [u8] {
    // SAFETY: the driver says that the message's data lies there, in the map, which stays; nobody
    // writes to it before this program frees it, after its last use.
    unsafe { std::slice::from_raw_parts(message.buffer as *const u8, message.data_size as usize) }
}

pub fn connect(form: Form) -> io::Result<Caller> {
    Ok(Caller { device: Device::open(form)? })
}

pub fn callers(form: Form, n_callers: usize) -> io::Result<Vec<Caller>> {
    let device = Device::open(form)?;
    Ok((0..n_callers).map(|_| Caller { device: device.of_another_thread() }).collect())
}

/// A context manager all of whose threads answer by themselves.
pub struct Pool;

fn manager(form: Form) -> io::Result<Device> {
    let device = Device::open(form)?;
    let start = Instant::now();
    loop {
        match device.ioctl(BINDER_SET_CONTEXT_MGR, &mut 0i32) {
            // The manager of another group has ended: the kernel lets go of it a moment later.
            Err(error)
                if error.raw_os_error() == Some(libc::EBUSY) && start.elapsed() < PATIENCE =>
            {
                std::thread::yield_now();
            }
            done => return done.map(|()| device),
        }
    }
}

/// A looper, on the thread that calls.
fn looper(mut device: Device, comes: u32, service: Service) -> io::Result<Manager> {
    device.queue(comes, &[]);
    device.exchange(0)?;
    Ok(Manager { device, service, reply: Vec::new() })
}

pub fn listen(form: Form, service: Service) -> io::Result<Manager> {
    looper(manager(form)?, BC_ENTER_LOOPER, service)
}

/// A pool of so many loopers, and of more if the driver asks for them.
pub fn pool(form: Form, service: Service, n_loopers: usize) -> io::Result<Pool> {
    let device = manager(form)?;
    let mut more = MOST_LOOPERS.saturating_sub(n_loopers) as u32;
    device.ioctl(BINDER_SET_MAX_THREADS, &mut more)?;
    let loopers = Arc::new(Loopers { device, service });
    (0..n_loopers).for_each(|_| loopers.enlist(BC_ENTER_LOOPER));
    Ok(Pool)
}

impl Loopers {
    /// Starts a looper, which comes of itself or because it was asked for.
    fn enlist(self: &Arc<Loopers>, comes: u32) {
        let loopers = Arc::clone(self);
        std::thread::spawn(move || {
            let own = Device {
                loopers: Some(Arc::clone(&loopers)),
                ..loopers.device.of_another_thread()
            };
            let served = looper(own, comes, loopers.service).and_then(|mut own| {
                loop {
                    own.serve_one()?
                }
            });
            let Err::<std::convert::Infallible, _>(error) = served;
            eprintln!("a looper: {error}");
            std::process::exit(1);
        });
    }
}

impl Server for Pool {}

impl Manager {
    /// Sends the answer to the request before, and makes the next one ready.
    fn serve_one(&mut self) -> io::Result<()> {
        let request = self.device.await_message(BR_TRANSACTION)?;
        self.reply.clear();
        let answered = self.service.answer(request, |it| self.reply.extend_from_slice(it));
        answered.ok_or(io::ErrorKind::InvalidData)?;
        self.device.queue_free(request);
        if !self.device.was_one_way {
            self.device.queue_message(BC_REPLY, 0, &self.reply);
        }
        Ok(())
    }
}

impl Client for Caller {
    fn call(&mut self, request: &[u8], consume: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        self.device.queue_message(BC_TRANSACTION, MANAGER, request);
        let reply = self.device.await_message(BR_REPLY)?;
        consume(reply);
        self.device.queue_free(reply);
        Ok(())
    }
}

impl Server for Manager {
    fn serve(&mut self, n_calls: u32, _payload_bytes: usize) -> io::Result<()> {
        for _ in 0..n_calls {
            self.serve_one()?;
        }
        self.device.exchange(0).map(drop)
    }
}
