//! What the processes of a measurement are.

use crate::broadcast::designs::Design;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use strum::{IntoStaticStr, VariantArray};

/// What a process is.
#[derive(Clone, Debug, Serialize, Deserialize, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Role {
    /// The process that delivers: the service manager and the broadcast service, or a bus.
    Service,
    /// Receives so many intents that count.
    Receiver(u32),
    /// So many ordinary senders.
    Senders(usize),
    /// A real-time sender, with so many intents and the time from one to the next in microseconds.
    Sender { n_intents: u32, period_us: u64 },
    /// Real-time senders at random priorities, with so many intents of each.
    Racers { n_intents: u32, seed: u64 },
    /// Has many receivers, and sends so many intents to them.
    FanOut(u32),
    /// Sends so many intents within the process.
    Local { local: Local, n_intents: u32 },
}

/// How an intent is sent.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantArray,
)]
#[strum(serialize_all = "kebab-case")]
pub enum Method {
    /// `send` of Android's design.
    Original,
    /// `send`
    Asynchronous,
    /// `send_sync`
    Synchronous,
}

/// One way to send, with so many senders.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Local {
    pub method: Method,
    pub senders: usize,
}

/// The role of a process, and the places of others.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Part {
    /// Its role.
    pub role: Role,
    /// The design that delivers.
    pub design: Design,
    /// The broker's socket.
    pub broker: PathBuf,
    /// Where a bus may have its socket.
    pub directory: PathBuf,
}
