//! Two kernels, each on a processor of its own, whose threads call each other; and two threads of
//! the system that wake each other there.

use super::ipc::{Measured, call_in_batches, echo, found, stop};
use baton_nucleus::variant::Variant;
use baton_nucleus::{Cluster, Kernel, Membership, Options, ThreadId, Timeout};
use std::io;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// What a kernel does that has nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Idle {
    Sleeps,
    /// It looks for letters for longer than a call takes.
    Spins,
}

const BATCH: u64 = 50;

fn kernel<K: Variant>(
    membership: Membership,
    idle: Idle,
    processor: usize,
) -> io::Result<Box<Kernel<K>>> {
    let spin = match idle {
        Idle::Sleeps => Duration::ZERO,
        Idle::Spins => Duration::from_micros(100),
    };
    Kernel::join(
        membership,
        Options { tick: None, processor: Some(processor), spin, ..Options::default() },
    )
}

/// A client calls a server of the other kernel, of the same priority; each time is that of one IPC,
/// half a call.
pub fn ping_pong<K: Variant>(
    idle: Idle,
    processors: [usize; 2],
    n_batches: u64,
) -> io::Result<Vec<u64>> {
    let mut memberships = Cluster::memberships(2, 1)?.into_iter();
    let (Some(here), Some(there)) = (memberships.next(), memberships.next()) else {
        return Ok(Vec::new());
    };
    let (tell, told) = sync_channel(1);
    let server = std::thread::spawn(move || serve::<K>(there, idle, processors[1], &tell));
    let times = call::<K>(here, idle, processors[0], n_batches, &told);
    server.join().map_err(|_| io::Error::other("the server has panicked"))??;
    times
}

fn serve<K: Variant>(
    membership: Membership,
    idle: Idle,
    processor: usize,
    tell: &SyncSender<ThreadId>,
) -> io::Result<()> {
    let mut kernel = kernel::<K>(membership, idle, processor)?;
    let server = kernel.spawn(100, echo)?;
    tell.send(server).map_err(io::Error::other)?;
    kernel.run();
    Ok(())
}

fn call<K: Variant>(
    membership: Membership,
    idle: Idle,
    processor: usize,
    n_batches: u64,
    told: &Receiver<ThreadId>,
) -> io::Result<Vec<u64>> {
    let mut kernel = kernel::<K>(membership, idle, processor)?;
    let server = told.recv().map_err(io::Error::other)?;
    let times = Measured::default();
    let ours = Rc::clone(&times);
    kernel.spawn(100, move |mut here| {
        call_in_batches(&mut here, server, 8, (n_batches + 1, BATCH), &ours);
        let _ = here.send(server, Timeout::Never, &stop());
    })?;
    kernel.run();
    Ok(found(&times))
}
