//! A service of Baton's host: a thread of its kernel, which answers with what it was sent.

use super::typed;
use crate::service::Service;
use crate::system::Server;
use baton::Parcel;
use baton_host::{Call, Host, Running};
use rustix::io::Errno;
use std::io;
use std::path::Path;

const NAME: &str = "echo";

pub fn echo(call: &mut Call<'_>) -> Result<Parcel, Errno> {
    typed::reply(Service::Echo, call.data())
}

/// Hosts it as the manager of its own context.
pub fn listen(
    broker: &Path,
    context: &str,
    service: impl baton_host::Service,
) -> io::Result<Running> {
    let mut host = Host::new();
    host.add(NAME, service).map_err(io::Error::other)?;
    let running = host.start(context, broker).map_err(io::Error::other)?;
    let (process, object) = running.object(NAME).ok_or(io::ErrorKind::NotFound)?;
    process.become_context_manager(object)?;
    Ok(running)
}

/// A host that serves as long as it is kept.
impl Server for Running {}
