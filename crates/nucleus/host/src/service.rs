//! The interface of a service, hosted or not.

use crate::call::Call;
use crate::incoming::Incoming;
use baton::android::Write;
use baton::{Object, Parcel, Process};
use baton_shm::lock::Lock;
use rustix::io::Errno;

/// A service. It answers one call at a time.
///
/// A service does not know whether it is hosted. [`Host::add`](crate::Host::add) makes it a thread
/// of a kernel; with [`add_object`] the loopers of a process call it. A closure is a service
/// without an interface descriptor.
pub trait Service: Send + 'static {
    /// The interface descriptor, which the service tells to clients that ask for it.
    fn interface(&self) -> &str {
        ""
    }

    /// Whether the service waits for nothing outside of its host: it calls only services that stay,
    /// too, and never uses [`Call::run_blocking`]. By default it does not stay. A looper runs the
    /// kernel itself for a call of a service that stays, if no other thread runs it. Such a call
    /// takes little longer than one of a service that is not hosted.
    fn stays(&self) -> bool {
        false
    }

    /// Answers a call. An error becomes a failed reply. A panic ends a hosted service, whose
    /// clients get dead replies and death notifications.
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

/// The transactions that every object answers: a ping, and the question for its interface.
const PING: u32 = special(*b"_PNG");
const INTERFACE: u32 = special(*b"_NTF");

/// Answers a call for the service if it is one that every object answers, or by the service.
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

/// Adds an object that calls this service, without a host. Any looper of the process may call it,
/// one at a time.
pub fn add_object(process: &Process, service: impl Service) -> Object {
    let service = Lock::new(service);
    process
        .object(move |request| {
            let process = request.received.process().ok_or(Errno::BADF)?;
            let incoming = Incoming::Transaction(request);
            answer(&mut *service.lock(), &mut Call::alone(&incoming, &process))
        })
        .add()
}
