//! A small Binder program: what a client library does for a call, and nothing around it.
//!
//! The program knows nothing of Baton: it opens `/dev/binder`, or a mounted device, and maps it. So
//! it runs on the kernel's driver, too.
//!
//! - [`device`]: the device; [`nodes`]: its objects; [`objects`]: calls that carry them.

mod device;
mod nodes;
pub mod objects;

use crate::service::{Service, patiently};
use crate::system::{Client, Consume, Sender, Server};
use baton_abi::uapi::*;
use device::{Device, Outgoing};
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

pub use device::{Access, Form};

/// How long a manager before may take to end.
const PATIENCE: Duration = Duration::from_secs(2);
/// Most threads of a pool, as libbinder has it: 15 that the driver asks for, and the first.
pub const MOST_LOOPERS: usize = 16;
const MANAGER: u32 = 0;
const ECHO: u32 = 1;

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

fn echo(data: &[u8]) -> Outgoing<'_> {
    Outgoing { code: ECHO, flags: 0, data, offsets: &[] }
}

pub fn connect(access: &Access) -> io::Result<Caller> {
    Ok(Caller { device: Device::open(access)? })
}

pub fn callers(access: &Access, n_callers: usize) -> io::Result<Vec<Caller>> {
    let device = Device::open(access)?;
    Ok((0..n_callers).map(|_| Caller { device: device.of_another_thread() }).collect())
}

fn manager(access: &Access) -> io::Result<Device> {
    let device = Device::open(access)?;
    become_manager(&device, |device| device.ioctl(BINDER_SET_CONTEXT_MGR, &mut 0i32))?;
    Ok(device)
}

fn become_manager(device: &Device, ask: impl Fn(&Device) -> io::Result<()>) -> io::Result<()> {
    // The manager of another group has ended: the kernel lets go of it a moment later.
    let is_busy = |error: &io::Error| error.raw_os_error() == Some(libc::EBUSY);
    patiently(PATIENCE, is_busy, || ask(device))
}

/// The looper of the thread that calls.
pub fn listen(access: &Access, service: Service) -> io::Result<Manager> {
    let mut device = manager(access)?;
    device.queue(BC_ENTER_LOOPER, &[]);
    device.write()?;
    Ok(Manager { device, service, reply: Vec::new() })
}

/// Starts a pool of so many loopers, and of more if the driver asks for them.
pub fn pool(access: &Access, service: Service, n_loopers: usize) -> io::Result<()> {
    let device = manager(access)?;
    let mut more = MOST_LOOPERS.saturating_sub(n_loopers) as u32;
    device.ioctl(BINDER_SET_MAX_THREADS, &mut more)?;
    (0..n_loopers).for_each(|_| enlist(&device, BC_ENTER_LOOPER, &serves(service)));
    Ok(())
}

/// The work of a looper, which ends by a failure.
type Serve = Arc<dyn Fn(Device) -> io::Result<Infallible> + Send + Sync>;

fn serves(service: Service) -> Serve {
    Arc::new(move |device| {
        let mut manager = Manager { device, service, reply: Vec::new() };
        loop {
            manager.serve_one()?
        }
    })
}

/// Starts a looper, which comes of itself or because it was asked for. Its failure is the
/// program's.
fn enlist(device: &Device, comes: u32, serve: &Serve) {
    let [mut own, another] = [(); 2].map(|()| device.of_another_thread());
    let [serve, more] = [(); 2].map(|()| Arc::clone(serve));
    own.spawn_looper = Some(Arc::new(move || enlist(&another, BC_REGISTER_LOOPER, &more)));
    own.queue(comes, &[]);
    std::thread::spawn(move || {
        let Err(error) = serve(own);
        eprintln!("a looper: {error}");
        std::process::exit(1);
    });
}

impl Manager {
    /// Sends the answer to the request before, and makes the next one ready.
    fn serve_one(&mut self) -> io::Result<()> {
        let request = self.device.await_message(BR_TRANSACTION)?;
        self.reply.clear();
        let answered = self.service.answer(request.data(), |it| self.reply.extend_from_slice(it));
        answered.ok_or(io::ErrorKind::InvalidData)?;
        self.device.queue_free(&request);
        if !request.is_one_way() {
            self.device.queue_message(BC_REPLY, 0, echo(&self.reply));
        }
        Ok(())
    }
}

impl Sender for Caller {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let outgoing = Outgoing { flags: TF_ONE_WAY, ..echo(message) };
        self.device.queue_message(BC_TRANSACTION, MANAGER, outgoing);
        self.device.await_return(BR_TRANSACTION_COMPLETE).map(drop)
    }
}

impl Client for Caller {
    fn call(&mut self, request: &[u8], consume: Consume<'_>) -> io::Result<()> {
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
            self.serve_one()?;
        }
        self.device.write()
    }
}
