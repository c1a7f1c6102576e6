//! A server that manages the context, with one looper, and clients of it.
use super::support::Broker;
use baton::{Handle, Parcel, Process, Request};
use rustix::io::Errno;

pub fn manage(
    broker: &Broker,
    handler: impl Fn(&Request<'_>) -> Result<Parcel, Errno> + Send + Sync + 'static,
) -> Process {
    let server = Process::open("binder", &broker.socket).unwrap();
    let object = server.object(handler).add();
    server.become_context_manager(object).unwrap();
    let serving = server.clone();
    std::thread::spawn(move || serving.serve());
    server
}

/// A client, and its handle to who manages the context.
pub fn client_of(broker: &Broker) -> (Process, Handle) {
    let client = Process::open("binder", &broker.socket).unwrap();
    let manager = client.context_manager().unwrap();
    (client, manager)
}
