//! Broadcasts to a thousand receivers of one process, one after the other: the time until all have
//! it.

use crate::arrivals::{self, UNNOTED};
use crate::broadcast::broadcaster::Broadcaster;
use crate::broadcast::client;
use crate::broadcast::designs::Design;
use crate::broadcast::processes::Processes;
use crate::broadcast::role::Role;
use crate::child::{await_begin, forever, tell};
use crate::report::RowKey;
use crate::service::now_ns;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

/// As many as a user may have.
pub const N_RECEIVERS: u32 = 1000;
/// How long one broadcast may take.
const PATIENCE_NS: u64 = 20_000_000_000;
const PAUSE: Duration = Duration::from_millis(100);
const N_WARM_UP: u32 = 3;

pub fn key(design: Design) -> RowKey {
    RowKey::new(design.into(), "fan-out")
        .with("receivers", N_RECEIVERS)
        .heading(format!("an ordinary intent until {N_RECEIVERS} receivers have it"))
}

/// A round of so many intents.
pub fn measure(design: Design, n_intents: u32) -> io::Result<Vec<u64>> {
    let mut processes = Processes::new(design)?;
    processes.start(Role::Service)?;
    let process = processes.start(Role::FanOut(n_intents))?;
    Ok(processes.get(process).ask("send", Duration::ZERO)?)
}

/// Registers the receivers and sends.
pub fn run(broadcaster: &dyn Broadcaster, n_intents: u32) -> io::Result<()> {
    let thread = thread::current();
    let received = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&received);
    let receive = move |message: &[u8]| {
        client::note(message);
        if (counted.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(N_RECEIVERS) {
            thread.unpark();
        }
    };
    broadcaster.receive(N_RECEIVERS, Arc::new(receive))?;
    let mut sender = broadcaster.sender()?;
    await_begin()?;
    let mut wanted = 0;
    let mut send = || {
        wanted += N_RECEIVERS;
        let begin_ns = now_ns();
        sender.send(&arrivals::message(begin_ns, UNNOTED))?;
        while received.load(Ordering::Relaxed) < wanted {
            if now_ns() - begin_ns > PATIENCE_NS {
                let n_received = received.load(Ordering::Relaxed);
                return Err(io::Error::other(format!("{n_received} of {wanted} intents came")));
            }
            thread::park_timeout(PAUSE);
        }
        Ok(now_ns() - begin_ns)
    };
    for _ in 0..N_WARM_UP {
        send()?;
    }
    tell(&(0..n_intents).map(|_| send()).collect::<io::Result<Vec<u64>>>()?)?;
    forever()
}
