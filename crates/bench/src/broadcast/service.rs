//! The process that delivers broadcasts, in one of the designs.

use crate::broadcast::client::{failed, serve};
use crate::broadcast::designs::{self, Design};
use crate::child::{forever, say};
use crate::rt::caller;
use crate::rt::processes::N_LOOPERS;
use crate::systems::typed::{CONTEXT, opened};
use baton::{Process, ServiceManager};
use baton_manager::{Manager, Policy, Release};
use baton_services::broadcast::{NAME, Server, Settings};
use std::io;
use std::path::Path;

/// Serves until the process is killed.
pub fn run(design: Design, broker: &Path) -> io::Result<()> {
    caller::stay_in_memory();
    let open = || Process::open(CONTEXT, broker).map_err(opened);
    let (context, process) = (open()?, open()?);
    let _manager = Manager::start(&context, Release::Sixteen, Policy::Everyone)?;
    serve(&context, 1);
    let server = match design {
        Design::Ours => Some(ours(&process)?),
        Design::Thesis | Design::Android => None,
    };
    let object = server.as_ref().map_or_else(|| designs::add(&process, design), Server::object);
    serve(&process, N_LOOPERS);
    ServiceManager::find(&process).and_then(|it| it.publish(NAME, object)).map_err(failed)?;
    say("ready")?;
    forever()
}

/// The service as it is shipped, with a journal in memory that no other service reads.
fn ours(process: &Process) -> io::Result<Server> {
    let directory = crate::log::setup::directory()?;
    let journal = Some(directory.path().join("journal"));
    Server::start(process, Settings { journal, ..Settings::default() })
}
