//! What a service is, hosted or not.

use crate::call::{Asked, Call};
use crate::format::Write;
use baton::{Object, Parcel, Process};
use baton_shm::lock::Lock;
use rustix::io::Errno;

/// A service, which is called by one caller at a time.
///
/// It need not care whether it is hosted: [`Host::add`](crate::Host::add) makes it a thread of a
/// kernel, and [`add_object`] has it served by the threads of a process. A closure is one, without
/// an interface.
pub trait Service: Send + 'static {
    /// The descriptor of its interface, which clients ask for.
    fn interface(&self) -> &str {
        ""
    }

    /// Whether it waits for nobody outside of its host: it calls no service but those that stay,
    /// too, and does not use [`Call::away`]. No unless it says so. A call from outside is then
    /// answered by the OS thread that brings it, if nobody is just at the host, and takes little
    /// longer than one of a service that is not hosted.
    fn stays(&self) -> bool {
        false
    }

    /// Answers a call. An `Err` becomes a failed reply. A panic is the end of a hosted service: its
    /// callers are told that it is dead.
    ///
    /// # Errors
    /// The service's own.
    fn handle(&mut self, call: &mut Call<'_>) -> Result<Parcel, Errno>;
}

impl<F> Service for F
where
    F: FnMut(&mut Call<'_>) -> Result<Parcel, Errno> + Send + 'static,
{
    fn handle(&mut self, call: &mut Call<'_>) -> Result<Parcel, Errno> {
        self(call)
    }
}

/// A service that [stays](Service::stays).
pub struct Stays<S>(pub S);

impl<S: Service> Service for Stays<S> {
    fn interface(&self) -> &str {
        self.0.interface()
    }

    fn stays(&self) -> bool {
        true
    }

    fn handle(&mut self, call: &mut Call<'_>) -> Result<Parcel, Errno> {
        self.0.handle(call)
    }
}

const fn special(letters: [u8; 4]) -> u32 {
    u32::from_be_bytes(letters)
}

/// What every object answers: that it is there, and what its interface is.
const PING: u32 = special(*b"_PNG");
const INTERFACE: u32 = special(*b"_NTF");

/// Answers a call, for the service or by it.
pub(crate) fn answer(service: &mut dyn Service, call: &mut Call<'_>) -> Result<Parcel, Errno> {
    match call.code() {
        PING => Ok(Parcel::new()),
        INTERFACE => {
            let mut reply = Parcel::new();
            reply.write_string(service.interface());
            Ok(reply)
        }
        _ => service.handle(call),
    }
}

/// An object of a process that this service serves, without a host: by whichever thread serves the
/// process, and one at a time.
pub fn add_object(process: &Process, service: impl Service) -> Object {
    let service = Lock::new(service);
    process
        .object(move |request| {
            let process = request.received.process().ok_or(Errno::BADF)?;
            let asked = Asked::Transaction(request);
            answer(&mut *service.lock(), &mut Call::alone(&asked, &process))
        })
        .add()
}
