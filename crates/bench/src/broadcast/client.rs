//! How processes of the benchmark send and receive intents: as any program does.

use crate::arrivals;
use crate::broadcast::broadcaster::{Broadcaster, Receive, Sender};
use crate::broadcast::role::{Part, Role};
use crate::rt::processes::N_LOOPERS;
use crate::service::now_ns;
use crate::systems::typed::{CONTEXT, opened, serve};
use baton::Process;
use baton_services::broadcast::BroadcastManager;
use baton_services::broadcast::client::Delivery;
use baton_services::intent::{Intent, IntentFilter, Value};
use std::io;
use std::path::Path;
use std::sync::Arc;

const ACTION: &str = "org.example.TICK";
const MESSAGE: &str = "message";

/// Sends and receives messages as intents.
#[derive(Clone)]
pub struct Intents {
    manager: BroadcastManager,
    /// Of the intents that it sends.
    flags: u32,
}

impl Intents {
    pub fn join(part: &Part) -> io::Result<Box<dyn Broadcaster>> {
        let is_real_time = matches!(part.role, Role::Sender { .. });
        let flags = if is_real_time { part.design.flags() } else { 0 };
        Ok(Box::new(Intents { manager: join(&part.broker)?, flags }))
    }
}

impl Broadcaster for Intents {
    fn sender(&self) -> io::Result<Box<dyn Sender + Send>> {
        Ok(Box::new(self.clone()))
    }

    fn receive(&self, n_receivers: u32, receive: Receive) -> io::Result<()> {
        for _ in 0..n_receivers {
            let receive = Arc::clone(&receive);
            let receive = move |delivery: Delivery| receive(message(delivery.intent()));
            self.manager.register(filter(), None, None, receive).map_err(io::Error::other)?;
        }
        Ok(())
    }
}

impl Sender for Intents {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let mut intent = intent(message);
        intent.flags |= self.flags;
        self.manager.send(&intent).map(drop).map_err(io::Error::other)
    }
}

/// A process that is served, and its access to the broadcast service.
pub fn join(broker: &Path) -> io::Result<BroadcastManager> {
    let process = Process::open(CONTEXT, broker).map_err(opened)?;
    serve(&process, N_LOOPERS);
    BroadcastManager::find(&process).map_err(io::Error::other)
}

/// The filter of the benchmark's receivers.
pub fn filter() -> IntentFilter {
    IntentFilter::new(ACTION)
}

/// An intent that carries a message.
pub fn intent(message: &[u8]) -> Intent {
    let mut intent = Intent::new(ACTION);
    intent.extras.put(MESSAGE, message.to_vec());
    intent
}

/// An intent's message; nothing if it has none.
pub fn message(intent: &Intent) -> &[u8] {
    match intent.extras.get(MESSAGE) {
        Some(Value::ByteArray(message)) => message,
        _ => &[],
    }
}

/// Notes a message. Nothing that is measured goes on after a message that is none.
pub fn note(message: &[u8]) {
    if arrivals::note(message, now_ns()).is_none() {
        eprintln!("a message comes that nobody has sent: {message:?}");
        std::process::exit(1);
    }
}

/// Receives until it is told to say what has come.
pub fn receive(broadcaster: &dyn Broadcaster, n_intents: u32) -> io::Result<()> {
    arrivals::receive(n_intents as usize, || broadcaster.receive(1, Arc::new(note)))
}
