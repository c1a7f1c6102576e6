//! Baton's typed API: calls that carry objects, handles and descriptors.
//!
//! A client and the owner of a service have a thread that serves beside the one that calls, as
//! programs have whose objects are called.

use super::typed::{self, CONTEXT, opened, serve};
use crate::case::{Carried, Case, Code, Counts, Ends, Receiver};
use crate::object_client::{self, ObjectClient, SENT_BYTES, wrong};
use crate::payload;
use crate::system::Consume;
use baton::{CountedObject, Errno, Handle, Object, Parcel, Process, Received, Request};
use rustix::fd::{AsFd, OwnedFd};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// What all threads of a server share.
struct Program {
    /// The object that it gives away.
    own: Object,
    kept: RwLock<Vec<Handle>>,
    service: RwLock<Option<Handle>>,
    received: AtomicU64,
}

/// The program that calls.
struct ObjectCaller {
    broker: PathBuf,
    process: Process,
    manager: Handle,
    own: Object,
    kept: Option<Handle>,
    descriptor: OwnedFd,
    received: u64,
    /// Every new object that has not ended has one more.
    lent: Arc<()>,
    /// What the last call has opened.
    opened: Option<Process>,
}

fn echo(request: &Request<'_>) -> Result<Parcel, Errno> {
    payload::check(request.data()).map(|_| Parcel::from(request.data())).ok_or(Errno::BADMSG)
}

pub fn connect(broker: &Path) -> io::Result<Box<dyn ObjectClient>> {
    let (process, manager) = typed::reach(broker, CONTEXT)?;
    serve(&process, 1);
    Ok(Box::new(ObjectCaller {
        broker: broker.to_owned(),
        own: process.object(echo).add(),
        process,
        manager,
        kept: None,
        descriptor: object_client::descriptor()?,
        received: 0,
        lent: Arc::default(),
        opened: None,
    }))
}

pub fn listen(broker: &Path, n_loopers: usize) -> io::Result<Process> {
    let process = Process::open(CONTEXT, broker).map_err(opened)?;
    let program = Program::new(&process);
    let object = process.object(move |request| program.serve(request)).add();
    typed::manage(process, object, n_loopers)
}

/// A program with a service, which it has added to the server's; whoever keeps what is returned
/// keeps it.
pub fn own(broker: &Path) -> io::Result<Process> {
    let (process, manager) = typed::reach(broker, CONTEXT)?;
    serve(&process, 1);
    let program = Program::new(&process);
    let service = process.object(move |request| program.serve(request)).add();
    let mut request = Parcel::from(&[0; SENT_BYTES][..]);
    request.write_object(service);
    manager.call(Code::AddService as u32, &request).map_err(io::Error::other)?;
    Ok(process)
}

impl Program {
    fn new(process: &Process) -> Program {
        // An object comes home with its handle's flags, and an object with others is not equal to
        // it.
        let own = process.object(echo).accepts_descriptors(false).add();
        let (kept, service) = (RwLock::default(), RwLock::default());
        Program { own, kept, service, received: AtomicU64::new(0) }
    }

    fn serve(&self, request: &Request<'_>) -> Result<Parcel, Errno> {
        let code = Code::from_repr(request.code()).ok_or(Errno::NOSYS)?;
        let bytes = request.data().get(..SENT_BYTES).ok_or(Errno::BADMSG)?;
        payload::check(bytes).ok_or(Errno::BADMSG)?;
        let mut answer = Parcel::from(bytes);
        self.obey(code, request, &mut answer)?;
        if code.is_counted() {
            self.received.fetch_add(1, Ordering::Relaxed);
        }
        Ok(answer)
    }

    fn obey(&self, code: Code, request: &Request<'_>, answer: &mut Parcel) -> Result<(), Errno> {
        let handle = || request.received.handle(0).ok_or(Errno::BADMSG);
        let service = || self.service.read().unwrap_or_else(PoisonError::into_inner);
        match code {
            Code::Echo => {}
            Code::Count => {
                let counts = self.count().map_err(|_| Errno::IO)?;
                *answer = Parcel::from(&counts.bytes()[..]);
            }
            Code::Give => _ = answer.write_object(self.own),
            Code::GetService => {
                answer.write_handle(service().as_ref().ok_or(Errno::NOENT)?);
            }
            Code::CallService => {
                let service = service().clone().ok_or(Errno::NOENT)?;
                service.call(Code::Echo as u32, answer).map_err(|_| Errno::IO)?;
            }
            Code::AddService => {
                let added = handle()?;
                *self.service.write().unwrap_or_else(PoisonError::into_inner) = Some(added);
            }
            Code::Forget => {
                let forgotten = handle()?;
                let mut kept = self.kept.write().unwrap_or_else(PoisonError::into_inner);
                let at = kept.iter().position(|kept| *kept == forgotten).ok_or(Errno::NOENT)?;
                let released = kept.swap_remove(at);
                drop((kept, released));
            }
            Code::Keep => self.keep(handle()?),
            Code::Drop => drop(handle()?),
            Code::TakeHome => {
                let home = request.received.own_object(0).filter(|home| *home == self.own);
                home.ok_or(Errno::BADMSG)?;
            }
            Code::CloseDescriptor => drop(request.received.take_fd(0).ok_or(Errno::BADMSG)?),
        }
        Ok(())
    }

    fn keep(&self, handle: Handle) {
        let service = self.service.read().unwrap_or_else(PoisonError::into_inner);
        let is_service = service.as_ref() == Some(&handle);
        let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner);
        if !is_service && !kept.contains(&handle) {
            drop(kept);
            self.kept.write().unwrap_or_else(PoisonError::into_inner).push(handle);
        }
    }

    fn count(&self) -> io::Result<Counts> {
        let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner).len() as u64;
        let received = self.received.load(Ordering::Relaxed);
        let descriptors = object_client::open_descriptors()?;
        Ok(Counts { received, kept, lent: 0, descriptors })
    }
}

/// Keeps the handle that a reply brings. If there is one already, it is the same.
fn keep(kept: &mut Option<Handle>, reply: &Received<'_>) -> io::Result<()> {
    let handle = reply.handle(0).ok_or_else(|| wrong("no handle came"))?;
    match kept {
        None => *kept = Some(handle),
        Some(kept) if *kept == handle => {}
        Some(_) => return Err(wrong("another handle came")),
    }
    Ok(())
}

impl ObjectCaller {
    fn kept(&self) -> io::Result<&Handle> {
        self.kept.as_ref().ok_or_else(|| wrong("no handle is kept"))
    }

    /// An object that ends with its last reference.
    fn new_object(&self) -> CountedObject {
        let lent = Arc::clone(&self.lent);
        let object = self.process.object(move |request| {
            let _ = &lent;
            echo(request)
        });
        object.add_counted()
    }

    fn link(&self) -> io::Result<()> {
        let kept = self.kept()?;
        let link = kept.link_to_death(|| ());
        kept.unlink_to_death(link).then_some(()).ok_or_else(|| wrong("a link is gone"))
    }
}

impl ObjectClient for ObjectCaller {
    fn begin(&mut self, case: Case) -> io::Result<()> {
        let request = Parcel::from(&[0; SENT_BYTES][..]);
        let fetch = |code: Code| self.manager.call(code as u32, &request).map_err(io::Error::other);
        if case == Case::Introduction {
            fetch(Code::CallService)?;
            let service = fetch(Code::GetService)?.handle(0);
            let service = service.ok_or_else(|| wrong("no handle came"))?;
            keep(
                &mut self.kept,
                &service.call(Code::Give as u32, &request).map_err(io::Error::other)?,
            )
        } else if let Some(code) = case.fetched() {
            keep(&mut self.kept, &fetch(code)?)
        } else {
            Ok(())
        }
    }

    fn call(&mut self, case: Case, request: &[u8], consume: Consume<'_>) -> io::Result<()> {
        let mut parcel = Parcel::from(request);
        let Some((code, carried)) = case.request() else {
            if case == Case::LinkUnlink {
                self.link()?;
                consume(request);
                return Ok(());
            }
            let (process, manager) = typed::reach(&self.broker, CONTEXT)?;
            consume(manager.call(Code::Echo as u32, &parcel).map_err(io::Error::other)?.data());
            self.opened = Some(process);
            return Ok(());
        };
        match carried {
            Carried::Nothing => {}
            Carried::OwnObject => _ = parcel.write_object(self.own),
            Carried::NewObject => _ = parcel.write_counted_object(&self.new_object()),
            Carried::KeptHandle => _ = parcel.write_handle(self.kept()?),
            Carried::Descriptor => _ = parcel.write_fd(self.descriptor.as_fd()),
        }
        let reply = self.manager.call(code as u32, &parcel).map_err(io::Error::other)?;
        if case.receiver() == Some(Receiver::Client) {
            keep(&mut self.kept, &reply)?;
            self.received += 1;
        }
        consume(reply.data().get(..SENT_BYTES).ok_or_else(|| wrong("too few bytes"))?);
        Ok(())
    }

    fn clear(&mut self) -> io::Result<()> {
        self.opened.take().iter().for_each(Process::close);
        Ok(())
    }

    fn end(&mut self, case: Case) -> io::Result<()> {
        self.kept = None;
        if case == Case::ObjectKnown {
            let mut parcel = Parcel::from(&[0; SENT_BYTES][..]);
            parcel.write_object(self.own);
            self.manager.call(Code::Forget as u32, &parcel).map_err(io::Error::other)?;
        }
        Ok(())
    }

    fn counts(&mut self) -> io::Result<Option<Ends>> {
        let request = Parcel::from(&[0; SENT_BYTES][..]);
        let reply = self.manager.call(Code::Count as u32, &request).map_err(io::Error::other)?;
        let server = Counts::read(reply.data()).ok_or_else(|| wrong("no counts"))?;
        let (received, kept) = (self.received, u64::from(self.kept.is_some()));
        let lent = Arc::strong_count(&self.lent) as u64 - 1;
        let client = Counts { received, kept, lent, descriptors: 0 };
        Ok(Some(Ends { client, server }))
    }
}
