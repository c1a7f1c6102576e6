//! A small Binder program: what a client library does for a call, and nothing around it.
//!
//! It knows nothing of Baton: it opens `/dev/binder`, maps it, and makes one `BINDER_WRITE_READ`
//! after the other, each of which writes all that there is to write and reads what comes. So it is
//! what runs on the kernel's driver, too.

use crate::service::Service;
use crate::system::{Client, Server};
use baton_abi::uapi::*;
use bytemuck::{bytes_of, pod_read_unaligned};
use libc::{c_int, c_long, c_void};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Size of the receive buffer, as libbinder has it.
const RECEIVE_BYTES: usize = (1 << 20) - 8192;
/// Most bytes of a call, and why not more.
pub const MOST_BYTES: (usize, &str) = (RECEIVE_BYTES, "a receive buffer has 1 MiB - 8 KiB");
/// Room for returns, as libbinder has it.
const READ_BYTES: usize = 256;
/// How long a manager before may take to end.
const PATIENCE: Duration = Duration::from_secs(2);
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
    answer: Answer,
}

pub struct Caller {
    device: Device,
}

/// The answering program, a context manager with one looper.
pub struct Manager {
    device: Device,
    answer: Answer,
    /// A copy of the request, which must outlive the reply's command.
    reply: Vec<u8>,
}

/// Writes what the server answers; false if that was no request.
pub type Answer = Arc<dyn Fn(&[u8], &mut Vec<u8>) -> bool + Send + Sync>;

fn answer_of(service: Service) -> Answer {
    Arc::new(move |request, reply| {
        let answer = service.answer(request);
        reply.extend_from_slice(answer.as_deref().unwrap_or_default());
        answer.is_some()
    })
}

fn os_result(value: c_int) -> io::Result<c_int> {
    if value < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

#[cfg(target_arch = "x86_64")]
fn inline_ioctl(fd: c_int, request: u32, argument: *mut c_void) -> c_long {
    let mut result = libc::SYS_ioctl;
    // SAFETY: the caller passes what the request takes, and the kernel keeps all registers but
    // the three named.
    unsafe {
        std::arch::asm!("syscall", inlateout("rax") result, in("rdi") fd as c_long,
            in("rsi") u64::from(request), in("rdx") argument,
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

#[cfg(target_arch = "aarch64")]
fn inline_ioctl(fd: c_int, request: u32, argument: *mut c_void) -> c_long {
    let mut result = fd as c_long;
    // SAFETY: the caller passes what the request takes, and the kernel keeps all registers.
    unsafe {
        std::arch::asm!("svc 0", in("x8") libc::SYS_ioctl, inlateout("x0") result,
            in("x1") u64::from(request), in("x2") argument, options(nostack));
    }
    result
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
                let result = inline_ioctl(self.fd, request, argument);
                if result < 0 {
                    return Err(io::Error::from_raw_os_error(-result as i32));
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
fn looper(mut device: Device, comes: u32, answer: Answer) -> io::Result<Manager> {
    device.queue(comes, &[]);
    device.exchange(0)?;
    Ok(Manager { device, answer, reply: Vec::new() })
}

pub fn listen(form: Form, service: Service) -> io::Result<Manager> {
    looper(manager(form)?, BC_ENTER_LOOPER, answer_of(service))
}

pub fn pool(form: Form, n_loopers: usize) -> io::Result<Pool> {
    pool_of(form, n_loopers, 0, answer_of(Service::Echo))
}

/// A pool of so many loopers, and of so many more as the driver asks for.
pub fn pool_of(form: Form, n_loopers: usize, mut more: u32, answer: Answer) -> io::Result<Pool> {
    let device = manager(form)?;
    device.ioctl(BINDER_SET_MAX_THREADS, &mut more)?;
    let loopers = Arc::new(Loopers { device, answer });
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
            let served = looper(own, comes, Arc::clone(&loopers.answer)).and_then(|mut own| {
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
        if !(self.answer)(request, &mut self.reply) {
            return Err(io::ErrorKind::InvalidData.into());
        }
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
