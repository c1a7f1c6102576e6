//! Broadcasts to a thousand receivers of one process, one after the other: the time until all have
//! it.

use crate::arrivals::{self, UNNOTED};
use crate::broadcast::client::{self, failed};
use crate::broadcast::designs::Design;
use crate::broadcast::processes::Processes;
use crate::broadcast::role::Role;
use crate::child::{forever, order, say, tell};
use crate::report::RowKey;
use crate::service::now_ns;
use baton_services::broadcast::client::Delivery;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// As many as a user may have.
pub const N_RECEIVERS: u64 = 1000;
/// How long one broadcast may take.
const PATIENCE_NS: u64 = 20_000_000_000;
const PAUSE: Duration = Duration::from_millis(100);
const N_WARM_UP: u32 = 3;

pub fn key() -> RowKey {
    RowKey::new("baton", "fan-out")
        .with("receivers", N_RECEIVERS)
        .heading(format!("an ordinary intent until {N_RECEIVERS} receivers have it"))
}

/// A round of so many intents.
pub fn measure(n_intents: u32) -> io::Result<Vec<u64>> {
    let mut processes = Processes::new()?;
    processes.start(Role::Service(Design::Ours))?;
    let process = processes.start(Role::FanOut(n_intents))?;
    processes.get(process).tell("send")?;
    Ok(processes.get(process).found(Duration::ZERO)?)
}

/// Registers the receivers and sends.
pub fn run(broker: &Path, n_intents: u32) -> io::Result<()> {
    let manager = client::join(broker)?;
    let sender = thread::current();
    let received = Arc::new(AtomicU64::new(0));
    for _ in 0..N_RECEIVERS {
        let (received, sender) = (Arc::clone(&received), sender.clone());
        let receive = move |delivery: Delivery| {
            client::note(delivery.intent());
            if (received.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(N_RECEIVERS) {
                sender.unpark();
            }
        };
        manager.register(client::filter(), None, None, receive).map_err(failed)?;
    }
    say("ready")?;
    order()?;
    let mut wanted = 0;
    let mut send = || {
        wanted += N_RECEIVERS;
        let begin_ns = now_ns();
        manager.send(&client::intent(&arrivals::message(begin_ns, UNNOTED))).map_err(failed)?;
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
