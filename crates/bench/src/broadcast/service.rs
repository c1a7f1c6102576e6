//! The process that delivers broadcasts, in one of the designs.

use crate::broadcast::designs::{self, Design};
use crate::broadcast::role::Part;
use crate::rt::processes::N_LOOPERS;
use crate::systems::typed::{CONTEXT, opened, serve};
use baton::{Process, ServiceManager};
use baton_manager::{Manager, Policy, Release};
use baton_services::broadcast::{NAME, Server, Settings};
use std::any::Any;
use std::io;

/// Serves as long as the value is kept.
pub fn start(&Part { design, ref broker, .. }: &Part) -> io::Result<Box<dyn Any>> {
    let open = || Process::open(CONTEXT, broker).map_err(opened);
    let (context, process) = (open()?, open()?);
    let manager = Manager::start(&context, Release::Sixteen, Policy::Everyone)?;
    serve(&context, 1);
    let server = match design {
        Design::Ours => Some(ours(&process)?),
        _ => None,
    };
    let object = server.as_ref().map_or_else(|| designs::add(&process, design), Server::object);
    serve(&process, N_LOOPERS);
    ServiceManager::find(&process)
        .and_then(|it| it.publish(NAME, object))
        .map_err(io::Error::other)?;
    Ok(Box::new((manager, server)))
}

/// The service as it is shipped, with a journal in memory that no other service reads.
fn ours(process: &Process) -> io::Result<Server> {
    let directory = crate::log::setup::directory()?;
    let journal = Some(directory.path().join("journal"));
    Server::start(process, Settings { journal, ..Settings::default() })
}
