//! A small Binder program whose calls carry objects and descriptors: it takes and gives up
//! references as libbinder does.
//!
//! A client and the owner of a service have a looper beside the thread that calls, which hears of
//! their objects' references while nobody calls.

use super::device::{Access, Device, Message, Outgoing, UsedDevice};
use super::nodes::Nodes;
use super::{MANAGER, MOST_LOOPERS, Serve, become_manager, enlist, serves};
use crate::case::{Carried, Case, Code, Counts, Ends, Receiver};
use crate::object_client::{self, ObjectClient, SENT_BYTES, wrong};
use crate::payload;
use crate::service::Service;
use crate::system::Consume;
use baton_abi::uapi::*;
use bytemuck::bytes_of;
use rustix::fd::{AsRawFd, OwnedFd};
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Where an object stands in its message: behind the bytes.
const OFFSETS: [u64; 1] = [SENT_BYTES as u64];

/// What all threads of a server share.
struct Program {
    device: Device,
    nodes: Arc<Nodes>,
    /// The object that it gives away.
    own: PtrCookie,
    kept: RwLock<Vec<u32>>,
    /// Handle of the service, 0 for none.
    service: AtomicU32,
    received: AtomicU64,
}

/// A thread that serves.
struct ObjectLooper<'a> {
    device: Device,
    program: &'a Program,
    /// What must outlive the reply's command.
    reply: Vec<u8>,
}

/// What a looper has done for a request.
#[derive(Default)]
struct Done {
    /// To be answered with.
    object: Option<FlatObject>,
    /// A handle to be dropped once the request is freed.
    dropped: Option<u32>,
}

/// The program that calls.
struct ObjectCaller {
    access: Access,
    device: Device,
    nodes: Arc<Nodes>,
    data: Vec<u8>,
    /// The object that the case sends.
    own: Option<PtrCookie>,
    /// Handle of the object that it keeps.
    kept: Option<u32>,
    descriptor: OwnedFd,
    received: u64,
    /// What the last call has opened.
    opened: Option<UsedDevice>,
}

fn own_object(node: PtrCookie) -> FlatObject {
    let PtrCookie { ptr, cookie } = node;
    FlatObject {
        kind: BINDER_TYPE_BINDER,
        flags: FLAT_BINDER_FLAG_ACCEPTS_FDS,
        binder: ptr,
        cookie,
    }
}

fn reference(handle: u32) -> FlatObject {
    let binder = u64::from(handle);
    FlatObject { kind: BINDER_TYPE_HANDLE, flags: 0, binder, cookie: 0 }
}

fn take(device: &mut Device, handle: u32) {
    device.queue(BC_INCREFS, &handle.to_ne_bytes());
    device.queue(BC_ACQUIRE, &handle.to_ne_bytes());
}

fn release(device: &mut Device, handle: u32) {
    device.queue(BC_RELEASE, &handle.to_ne_bytes());
    device.queue(BC_DECREFS, &handle.to_ne_bytes());
}

/// What a message brings beside an object.
fn bytes_of_message(message: &Message) -> io::Result<&'static [u8]> {
    message.data().get(..SENT_BYTES).ok_or_else(|| wrong("too few bytes"))
}

/// The handle that a message brings.
fn handle_of(message: &Message) -> io::Result<u32> {
    let object = message.object().filter(|object| object.kind == BINDER_TYPE_HANDLE);
    object.map(|object| object.binder as u32).ok_or_else(|| wrong("no handle came"))
}

/// Queues a message of bytes and an object, which lie in `data`.
fn queue(
    device: &mut Device,
    (command, target, code): (u32, u32, u32),
    data: &mut Vec<u8>,
    (bytes, object): (&[u8], Option<FlatObject>),
) {
    data.clear();
    data.extend_from_slice(bytes);
    data.extend_from_slice(object.as_ref().map_or(&[], bytes_of));
    let offsets = if object.is_some() { &OFFSETS[..] } else { &[] };
    device.queue_message(command, target, Outgoing { code, flags: TF_ACCEPT_FDS, data, offsets });
}

/// Opens a device of a program that has objects.
fn open(access: &Access) -> io::Result<(Device, Arc<Nodes>)> {
    let mut device = Device::open(access)?;
    let nodes = Arc::new(Nodes::new());
    device.nodes = Some(Arc::clone(&nodes));
    Ok((device, nodes))
}

pub fn connect(access: &Access) -> io::Result<Box<dyn ObjectClient>> {
    let (device, nodes) = open(access)?;
    enlist(&device, BC_ENTER_LOOPER, &serves(Service::Echo));
    Ok(Box::new(ObjectCaller {
        access: access.clone(),
        device,
        nodes,
        data: Vec::new(),
        own: None,
        kept: None,
        descriptor: object_client::descriptor()?,
        received: 0,
        opened: None,
    }))
}

/// A context manager with so many loopers, which answer by themselves, and more if the driver asks
/// for them.
pub fn pool(access: &Access, n_loopers: usize) -> io::Result<()> {
    let program = Program::open(access)?;
    let flags = FLAT_BINDER_FLAG_ACCEPTS_FDS;
    let manager = FlatObject { kind: BINDER_TYPE_BINDER, flags, binder: 0, cookie: 0 };
    become_manager(&program.device, |device| {
        device.ioctl(BINDER_SET_CONTEXT_MGR_EXT, &mut manager.clone())
    })?;
    if n_loopers > 1 {
        let mut more = MOST_LOOPERS.saturating_sub(n_loopers) as u32;
        program.device.ioctl(BINDER_SET_MAX_THREADS, &mut more)?;
    }
    (0..n_loopers).for_each(|_| program.enlist());
    Ok(())
}

/// Starts a program with a service, and adds that to the server's.
pub fn own(access: &Access) -> io::Result<()> {
    let program = Program::open(access)?;
    program.enlist();
    let mut device = program.device.of_another_thread();
    let service = own_object(program.nodes.take()?);
    let call = (BC_TRANSACTION, MANAGER, Code::AddService as u32);
    let mut data = Vec::new();
    queue(&mut device, call, &mut data, (&[0; SENT_BYTES], Some(service)));
    let reply = device.await_message(BR_REPLY)?;
    device.queue_free(&reply);
    device.write()
}

impl Program {
    /// Without a looper yet.
    fn open(access: &Access) -> io::Result<Arc<Program>> {
        let (device, nodes) = open(access)?;
        let own = nodes.take()?;
        let (kept, service) = (RwLock::default(), AtomicU32::new(0));
        let received = AtomicU64::new(0);
        Ok(Arc::new(Program { device, nodes, own, kept, service, received }))
    }

    /// Starts a looper.
    fn enlist(self: &Arc<Program>) {
        let program = Arc::clone(self);
        let serve: Serve = Arc::new(move |device| {
            let mut looper = ObjectLooper { device, program: &program, reply: Vec::new() };
            loop {
                looper.serve_one()?
            }
        });
        enlist(&self.device, BC_ENTER_LOOPER, &serve);
    }

    fn keeps(&self, handle: u32) -> bool {
        self.kept.read().unwrap_or_else(PoisonError::into_inner).contains(&handle)
    }

    fn count(&self) -> io::Result<Counts> {
        let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner).len() as u64;
        let received = self.received.load(Ordering::Relaxed);
        let descriptors = object_client::open_descriptors()?;
        Ok(Counts { received, kept, lent: self.nodes.references(), descriptors })
    }
}

impl ObjectLooper<'_> {
    fn serve_one(&mut self) -> io::Result<()> {
        let request = self.device.await_message(BR_TRANSACTION)?;
        let code = Code::from_repr(request.code()).ok_or_else(|| wrong("an unknown request"))?;
        let bytes = bytes_of_message(&request)?;
        payload::check(bytes).ok_or_else(|| wrong("other bytes"))?;
        let reply = (BC_REPLY, 0, 0);
        if code == Code::Count {
            let counts = self.program.count()?.bytes();
            self.device.queue_free(&request);
            queue(&mut self.device, reply, &mut self.reply, (&counts, None));
            return Ok(());
        }
        let Done { object, dropped } = self.obey(code, &request)?;
        if code.is_counted() {
            self.program.received.fetch_add(1, Ordering::Relaxed);
        }
        self.device.queue_free(&request);
        if let Some(handle) = dropped {
            release(&mut self.device, handle);
        }
        // The bytes are copied before the next exchange frees the request.
        queue(&mut self.device, reply, &mut self.reply, (bytes, object));
        Ok(())
    }

    fn obey(&mut self, code: Code, request: &Message) -> io::Result<Done> {
        let (device, program) = (&mut self.device, self.program);
        let service = program.service.load(Ordering::Acquire);
        let mut done = Done::default();
        match code {
            Code::Echo | Code::Count => {}
            Code::Give => done.object = Some(own_object(program.own)),
            Code::GetService => done.object = Some(reference(service)),
            Code::AddService => {
                let handle = handle_of(request)?;
                take(device, handle);
                program.service.store(handle, Ordering::Release);
            }
            Code::CallService => {
                let call = (BC_TRANSACTION, service, Code::Echo as u32);
                queue(device, call, &mut self.reply, (bytes_of_message(request)?, None));
                let reply = device.await_message(BR_REPLY)?;
                device.queue_free(&reply);
            }
            Code::Keep => {
                let handle = handle_of(request)?;
                if handle != service && !program.keeps(handle) {
                    take(device, handle);
                    program.kept.write().unwrap_or_else(PoisonError::into_inner).push(handle);
                }
            }
            Code::Forget => {
                let handle = handle_of(request)?;
                let mut kept = program.kept.write().unwrap_or_else(PoisonError::into_inner);
                let at = kept.iter().position(|&kept| kept == handle);
                kept.swap_remove(at.ok_or_else(|| wrong("a handle that is not kept"))?);
                done.dropped = Some(handle);
            }
            Code::Drop => {
                let handle = handle_of(request)?;
                take(device, handle);
                done.dropped = Some(handle);
            }
            Code::TakeHome => {
                let home = own_object(program.own);
                let came = request.object().map(|object| (object.kind, object.binder));
                if came != Some((home.kind, home.binder)) {
                    return Err(wrong("another object came home"));
                }
            }
            Code::CloseDescriptor => {
                let object = request.object().filter(|object| object.kind == BINDER_TYPE_FD);
                let fd = object.ok_or_else(|| wrong("no descriptor came"))?.binder;
                device.close_received(fd as i32)?;
            }
        }
        Ok(done)
    }
}

impl ObjectCaller {
    /// A call to the server. The reply has to be freed.
    fn transact(
        &mut self,
        code: Code,
        request: &[u8],
        object: Option<FlatObject>,
    ) -> io::Result<Message> {
        let call = (BC_TRANSACTION, MANAGER, code as u32);
        queue(&mut self.device, call, &mut self.data, (request, object));
        self.device.await_message(BR_REPLY)
    }

    /// Keeps the handle that a reply brings. If there is one already, it is the same.
    fn keep(&mut self, reply: &Message) -> io::Result<()> {
        let handle = handle_of(reply)?;
        match self.kept {
            None => {
                take(&mut self.device, handle);
                self.kept = Some(handle);
            }
            Some(kept) if kept == handle => {}
            Some(_) => return Err(wrong("another handle came")),
        }
        Ok(())
    }

    /// Takes an object of the service's owner, to keep it.
    fn fetch_third(&mut self) -> io::Result<()> {
        let reply = self.transact(Code::GetService, &[0; SENT_BYTES], None)?;
        let service = handle_of(&reply)?;
        let call = (BC_TRANSACTION, service, Code::Give as u32);
        queue(&mut self.device, call, &mut self.data, (&[0; SENT_BYTES], None));
        let given = self.device.await_message(BR_REPLY)?;
        self.keep(&given)?;
        self.device.queue_free(&given);
        self.device.queue_free(&reply);
        self.device.write()
    }

    /// A call that is not measured.
    fn tell(&mut self, code: Code, object: Option<FlatObject>) -> io::Result<()> {
        let reply = self.transact(code, &[0; SENT_BYTES], object)?;
        self.device.queue_free(&reply);
        self.device.write()
    }

    fn own(&self) -> io::Result<FlatObject> {
        self.own.map(own_object).ok_or_else(|| wrong("no object"))
    }

    fn kept(&self) -> io::Result<u32> {
        self.kept.ok_or_else(|| wrong("no handle is kept"))
    }

    fn link(&mut self, request: &[u8], consume: Consume<'_>) -> io::Result<()> {
        let number = payload::check(request).ok_or_else(|| wrong("no request"))?;
        let notice = HandleCookie { handle: self.kept()?, cookie: u64::from(number) };
        self.device.queue(BC_REQUEST_DEATH_NOTIFICATION, bytes_of(&notice));
        self.device.write()?;
        self.device.queue(BC_CLEAR_DEATH_NOTIFICATION, bytes_of(&notice));
        let done = self.device.await_return(BR_CLEAR_DEATH_NOTIFICATION_DONE)?;
        consume(&done.payload[..SENT_BYTES]);
        Ok(())
    }
}

impl ObjectClient for ObjectCaller {
    fn begin(&mut self, case: Case) -> io::Result<()> {
        if matches!(case.request(), Some((_, Carried::OwnObject))) {
            self.own = Some(self.nodes.take()?);
        }
        if case == Case::Introduction {
            self.tell(Code::CallService, None)?;
            return self.fetch_third();
        }
        let Some(code) = case.fetched() else { return Ok(()) };
        if case == Case::LinkUnlink {
            // The driver tells a looper's own thread that its notice is cleared, else the pool.
            self.device.queue(BC_ENTER_LOOPER, &[]);
        }
        let reply = self.transact(code, &[0; SENT_BYTES], None)?;
        self.keep(&reply)?;
        self.device.queue_free(&reply);
        self.device.write()
    }

    fn call(&mut self, case: Case, request: &[u8], consume: Consume<'_>) -> io::Result<()> {
        let Some((code, carried)) = case.request() else {
            if case == Case::LinkUnlink {
                return self.link(request, consume);
            }
            let (code, flags) = (Code::Echo as u32, TF_ACCEPT_FDS);
            let echo = Outgoing { code, flags, data: request, offsets: &[] };
            let used = Device::open_for_one_call(&self.access, MANAGER, echo, consume)?;
            self.opened = Some(used);
            return Ok(());
        };
        if carried == Carried::NewObject {
            self.own = Some(self.nodes.take()?);
        }
        let object = match carried {
            Carried::Nothing => None,
            Carried::OwnObject | Carried::NewObject => Some(self.own()?),
            Carried::KeptHandle => Some(reference(self.kept()?)),
            Carried::Descriptor => {
                let binder = self.descriptor.as_raw_fd() as u64;
                Some(FlatObject { kind: BINDER_TYPE_FD, flags: 0, binder, cookie: 0 })
            }
        };
        let reply = self.transact(code, request, object)?;
        if let Some(node) = self.own.take_if(|_| carried == Carried::NewObject) {
            self.nodes.put(node)?;
        }
        if case.receiver() == Some(Receiver::Client) {
            self.keep(&reply)?;
            self.received += 1;
        }
        consume(bytes_of_message(&reply)?);
        self.device.queue_free(&reply);
        Ok(())
    }

    fn clear(&mut self) -> io::Result<()> {
        self.opened.take().map_or(Ok(()), UsedDevice::close)
    }

    fn end(&mut self, case: Case) -> io::Result<()> {
        if let Some(node) = self.own.take() {
            if case == Case::ObjectKnown {
                self.tell(Code::Forget, Some(own_object(node)))?;
            }
            self.nodes.put(node)?;
        }
        if let Some(handle) = self.kept.take() {
            release(&mut self.device, handle);
        }
        self.device.write()
    }

    fn counts(&mut self) -> io::Result<Option<Ends>> {
        let reply = self.transact(Code::Count, &[0; SENT_BYTES], None)?;
        let server = Counts::read(reply.data()).ok_or_else(|| wrong("no counts"));
        self.device.queue_free(&reply);
        self.device.write()?;
        let client = Counts {
            received: self.received,
            kept: u64::from(self.kept.is_some()),
            lent: self.nodes.references(),
            descriptors: 0,
        };
        Ok(Some(Ends { client, server: server? }))
    }
}
