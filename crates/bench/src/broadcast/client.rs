//! How processes of the benchmark send and receive intents: as any program does.

use crate::arrivals;
use crate::child::{forever, order, say, tell};
use crate::rt::caller;
use crate::rt::processes::N_LOOPERS;
use crate::service::now_ns;
use crate::systems::one_way::Sender;
use crate::systems::typed::{CONTEXT, opened};
use baton::Process;
use baton_services::broadcast::BroadcastManager;
use baton_services::broadcast::client::Delivery;
use baton_services::intent::{Intent, IntentFilter, Value};
use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

const ACTION: &str = "org.example.TICK";
const MESSAGE: &str = "message";
/// How long the last intents may take.
const PATIENCE_NS: u64 = 20_000_000_000;
const PAUSE: Duration = Duration::from_millis(5);

/// Sends messages as intents.
pub struct IntentSender(BroadcastManager);

impl IntentSender {
    pub fn boxed(manager: BroadcastManager) -> Box<dyn Sender + Send> {
        Box::new(IntentSender(manager))
    }
}

impl Sender for IntentSender {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.0.send(&intent(message)).map(drop).map_err(failed)
    }
}

pub fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::other(error)
}

/// A process that is served, and its access to the broadcast service.
pub fn join(broker: &Path) -> io::Result<BroadcastManager> {
    let process = Process::open(CONTEXT, broker).map_err(opened)?;
    serve(&process, N_LOOPERS);
    BroadcastManager::find(&process).map_err(failed)
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

/// Notes an intent's message. Nothing that is measured goes on after a message that is none.
pub fn note(intent: &Intent) {
    let message = match intent.extras.get(MESSAGE) {
        Some(Value::ByteArray(message)) => arrivals::note(message, now_ns()),
        _ => None,
    };
    if message.is_none() {
        eprintln!("an intent comes that nobody has sent: {intent:?}");
        std::process::exit(1);
    }
}

/// Receives until it is told to say what has come.
pub fn receive(broker: &Path, n_intents: u32) -> io::Result<()> {
    caller::stay_in_memory();
    arrivals::expect(n_intents as usize);
    let manager = join(broker)?;
    let receive = |delivery: Delivery| note(delivery.intent());
    manager.register(filter(), None, None, receive).map_err(failed)?;
    say("ready")?;
    order()?;
    tell(&wait_for_all()?)?;
    forever()
}

/// Waits for the last intents. What was noted of each.
pub fn wait_for_all() -> io::Result<Vec<u64>> {
    let deadline_ns = now_ns() + PATIENCE_NS;
    while arrivals::noted().is_err() && now_ns() < deadline_ns {
        thread::sleep(PAUSE);
    }
    arrivals::noted()
}

/// Threads that serve a process.
pub fn serve(process: &Process, n_loopers: usize) {
    for _ in 0..n_loopers {
        let process = process.clone();
        std::thread::spawn(move || process.serve());
    }
}
