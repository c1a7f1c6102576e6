//! A small Binder program: what a client library does for a call, and nothing around it.
//!
//! It knows nothing of Baton: it opens `/dev/binder` and maps it. So it is what runs on the
//! kernel's driver, too.
//!
//! - [`device`]: the device; [`nodes`]: its objects; [`objects`]: calls that carry them.

mod device;
mod nodes;
pub mod objects;

use crate::service::Service;
use crate::system::{Client, Server};
use baton_abi::uapi::*;
use device::{Device, Message, Outgoing};
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use device::Form;

/// How long a manager before may take to end.
const PATIENCE: Duration = Duration::from_secs(2);
/// Most threads of a pool, as libbinder has it: 15 that the driver asks for, and the first.
const MOST_LOOPERS: usize = 16;
const MANAGER: u64 = 0;
const ECHO: u32 = 1;

/// What all loopers of a program share.
trait Program: Send + Sync + 'static {
    fn device(&self) -> &Device;

    /// Does what a request asks for, and queues its end and the reply.
    fn answer(&self, looper: &mut Looper, request: &Message) -> io::Result<()>;
}

/// A thread that serves.
struct Looper {
    device: Device,
    /// What must outlive the reply's command.
    reply: Vec<u8>,
}

/// A program whose service knows nothing of objects.
struct Serving {
    device: Device,
    service: Service,
}

pub struct Caller {
    device: Device,
}

/// The answering program, a context manager with one looper.
pub struct Manager {
    program: Serving,
    looper: Looper,
}

/// A program all of whose threads answer by themselves.
pub struct Pool;

fn echo(data: &[u8]) -> Outgoing<'_> {
    Outgoing { code: ECHO, flags: 0, data, offsets: &[] }
}

pub fn connect(form: Form) -> io::Result<Caller> {
    Ok(Caller { device: Device::open(form)? })
}

pub fn callers(form: Form, n_callers: usize) -> io::Result<Vec<Caller>> {
    let device = Device::open(form)?;
    Ok((0..n_callers).map(|_| Caller { device: device.of_another_thread() }).collect())
}

fn become_manager(device: &Device, ask: impl Fn(&Device) -> io::Result<()>) -> io::Result<()> {
    let start = Instant::now();
    loop {
        match ask(device) {
            // The manager of another group has ended: the kernel lets go of it a moment later.
            Err(error)
                if error.raw_os_error() == Some(libc::EBUSY) && start.elapsed() < PATIENCE =>
            {
                std::thread::yield_now();
            }
            done => return done,
        }
    }
}

fn manager(form: Form, service: Service) -> io::Result<Serving> {
    let device = Device::open(form)?;
    become_manager(&device, |device| device.ioctl(BINDER_SET_CONTEXT_MGR, &mut 0i32))?;
    Ok(Serving { device, service })
}

pub fn listen(form: Form, service: Service) -> io::Result<Manager> {
    let program = manager(form, service)?;
    let looper = Looper::enter(program.device.of_another_thread(), BC_ENTER_LOOPER)?;
    Ok(Manager { program, looper })
}

pub fn pool(form: Form, service: Service, n_loopers: usize) -> io::Result<Pool> {
    start_pool(&Arc::new(manager(form, service)?), n_loopers, MOST_LOOPERS)
}

/// Starts so many loopers of a program, which starts more, up to the most, if the driver asks for
/// them.
fn start_pool(program: &Arc<impl Program>, n_loopers: usize, most: usize) -> io::Result<Pool> {
    let mut more = most.saturating_sub(n_loopers) as u32;
    program.device().ioctl(BINDER_SET_MAX_THREADS, &mut more)?;
    (0..n_loopers).for_each(|_| start_looper(program, BC_ENTER_LOOPER));
    Ok(Pool)
}

/// Starts a looper, which comes of itself or because it was asked for. Its failure is the
/// program's.
fn start_looper<P: Program>(program: &Arc<P>, comes: u32) {
    let program = Arc::clone(program);
    std::thread::spawn(move || {
        let spawner = Arc::clone(&program);
        let mut device = program.device().of_another_thread();
        device.spawn_looper = Some(Arc::new(move || start_looper(&spawner, BC_REGISTER_LOOPER)));
        let served = Looper::enter(device, comes).and_then(|mut looper| {
            loop {
                looper.serve_one(&*program)?
            }
        });
        let Err::<Infallible, _>(error) = served;
        eprintln!("a looper: {error}");
        std::process::exit(1);
    });
}

impl Looper {
    /// A looper, on the thread that calls.
    fn enter(mut device: Device, comes: u32) -> io::Result<Looper> {
        device.queue(comes, &[]);
        device.write()?;
        Ok(Looper { device, reply: Vec::new() })
    }

    /// Sends the answer to the request before, and makes the next one ready.
    fn serve_one(&mut self, program: &impl Program) -> io::Result<()> {
        let request = self.device.await_message(BR_TRANSACTION)?;
        program.answer(self, &request)
    }
}

impl Program for Serving {
    fn device(&self) -> &Device {
        &self.device
    }

    fn answer(&self, Looper { device, reply }: &mut Looper, request: &Message) -> io::Result<()> {
        reply.clear();
        let answered = self.service.answer(request.data(), |it| reply.extend_from_slice(it));
        answered.ok_or(io::ErrorKind::InvalidData)?;
        device.queue_free(request);
        if !request.is_one_way() {
            device.queue_message(BC_REPLY, 0, echo(reply));
        }
        Ok(())
    }
}

impl Client for Caller {
    fn call(&mut self, request: &[u8], consume: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        self.device.queue_message(BC_TRANSACTION, MANAGER, echo(request));
        let reply = self.device.await_message(BR_REPLY)?;
        consume(reply.data());
        self.device.queue_free(&reply);
        Ok(())
    }
}

impl Server for Manager {
    fn serve(&mut self, n_calls: u32, _payload_bytes: usize) -> io::Result<()> {
        for _ in 0..n_calls {
            self.looper.serve_one(&self.program)?;
        }
        self.looper.device.write()
    }
}

impl Server for Pool {}
