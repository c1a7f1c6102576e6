//! Two kernels, each on a processor of its own, whose threads call each other; and two threads of
//! the system that wake each other there.

use super::ipc::{Measured, call_in_batches, echo, found, stop};
use baton_nucleus::variant::Variant;
use baton_nucleus::{Cluster, Kernel, Options, Timeout};
use std::io;
use std::rc::Rc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

/// What a kernel does that has nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Idle {
    Sleeps,
    /// It looks for letters for longer than a call takes.
    Spins,
}

const BATCH: u64 = 50;

/// A client calls a server of the other kernel, of the same priority; each time is that of one IPC,
/// half a call.
pub fn ping_pong<K: Variant>(
    idle: Idle,
    processors: [usize; 2],
    n_batches: u64,
) -> io::Result<Vec<u64>> {
    let spin = match idle {
        Idle::Sleeps => Duration::ZERO,
        Idle::Spins => Duration::from_micros(100),
    };
    let join = move |membership, at: usize| {
        let processor = Some(processors[at]);
        Kernel::<K>::join(membership, Options { tick: None, processor, spin, ..Options::default() })
    };
    let mut memberships = Cluster::memberships(2, 1)?.into_iter();
    let (Some(here), Some(there)) = (memberships.next(), memberships.next()) else {
        return Ok(Vec::new());
    };
    let (tell, told) = sync_channel(1);
    let serve = move || -> io::Result<()> {
        let mut kernel = join(there, 1)?;
        tell.send(kernel.spawn(100, echo)?).map_err(io::Error::other)?;
        kernel.run();
        Ok(())
    };
    let server = std::thread::spawn(serve);
    let call = || -> io::Result<Vec<u64>> {
        let mut kernel = join(here, 0)?;
        let server = told.recv().map_err(io::Error::other)?;
        let times = Measured::default();
        let ours = Rc::clone(&times);
        kernel.spawn(100, move |mut here| {
            let measured = call_in_batches(&mut here, server, 8, (n_batches, BATCH));
            *ours.borrow_mut() = measured.unwrap_or_default();
            let _ = here.send(server, Timeout::Never, &stop());
        })?;
        kernel.run();
        Ok(found(&times))
    };
    let times = call();
    server.join().map_err(|_| io::Error::other("the server has panicked"))??;
    times
}
