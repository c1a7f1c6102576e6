//! Baton's typed API: an object that answers with what it was sent.

use crate::service::Service;
use crate::system::{Client, Consume, Server};
use baton::{Handle, Object, Parcel, Process};
use baton_driver::device::OpenError;
use rustix::io::Errno;
use std::io;
use std::path::Path;

/// Where this system's server is the manager.
pub const CONTEXT: &str = "binder";
const ECHO: u32 = 1;

pub fn opened(error: OpenError) -> io::Error {
    io::Error::new(error.errno().kind(), error)
}

/// A process of a context, and the object that its manager has there.
pub fn reach(broker: &Path, context: &str) -> io::Result<(Process, Handle)> {
    let process = Process::open(context, broker).map_err(opened)?;
    let object = process.context_manager().map_err(io::Error::other)?;
    Ok((process, object))
}

/// A service's answer to a request, if that was one.
pub fn reply(service: Service, request: &[u8]) -> Result<Parcel, Errno> {
    service.answer(request, |answer| Parcel::from(answer)).ok_or(Errno::BADMSG)
}

pub fn listen(broker: &Path, service: Service, n_loopers: usize) -> io::Result<Process> {
    let process = Process::open(CONTEXT, broker).map_err(opened)?;
    let object = process.object(move |request| reply(service, request.data())).add();
    manage(process, object, n_loopers)
}

/// Makes an object its context's manager, and serves it with so many threads.
pub fn manage(process: Process, object: Object, n_loopers: usize) -> io::Result<Process> {
    process.become_context_manager(object)?;
    serve(&process, n_loopers);
    Ok(process)
}

/// Starts so many threads that serve a process.
pub fn serve(process: &Process, n_loopers: usize) {
    for _ in 0..n_loopers {
        let process = process.clone();
        std::thread::spawn(move || process.serve());
    }
}

impl Client for Handle {
    fn call(&mut self, request: &[u8], consume: Consume<'_>) -> io::Result<()> {
        let reply = Handle::call(self, ECHO, &Parcel::from(request)).map_err(io::Error::other)?;
        consume(reply.data());
        Ok(())
    }
}

/// A process whose threads serve as long as it is kept.
impl Server for Process {}
