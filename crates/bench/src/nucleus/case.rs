//! What is done: each experiment with its sizes, and what a row of the report says of it.

use super::between::{self, Idle};
use super::ipc;
use super::latency::{self, Load};
use crate::payload::{COMMON_BYTES, SMALL_BYTES};
use crate::processors::Placement;
use crate::report::{RowKey, Scale};
use baton_nucleus::variant::Variant;
use std::io;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    Switch,
    PingPong {
        n_words: u8,
    },
    /// Ping-pong of eight words, each thread in a kernel on a processor of its own.
    Between {
        idle: Idle,
    },
    /// 250 threads hand potatoes round a ring.
    HotPotato {
        n_potatoes: usize,
    },
    Queueing {
        n_senders: usize,
    },
    /// A service calls another one, and has its answer.
    ServiceCall {
        payload_bytes: usize,
    },
    /// The highest thread is woken while others keep the kernel busy.
    Latency {
        load: Load,
        n_threads: usize,
    },
}

use Case::*;

/// Threads of a latency's load: whoever does not grow is the same at both.
pub const FEW: usize = 25;
pub const MANY: usize = 250;

/// So many latencies of a round at least: what 99 of 100 are below is to be that of twenty.
const LATENCIES: u64 = 1500;

/// All, in their order.
pub const CASES: &[Case] = &[
    Switch,
    PingPong { n_words: 0 },
    PingPong { n_words: 8 },
    PingPong { n_words: 16 },
    PingPong { n_words: 64 },
    Between { idle: Idle::Sleeps },
    Between { idle: Idle::Spins },
    HotPotato { n_potatoes: 1 },
    HotPotato { n_potatoes: 50 },
    HotPotato { n_potatoes: 125 },
    HotPotato { n_potatoes: 249 },
    Queueing { n_senders: 1 },
    Queueing { n_senders: 10 },
    Queueing { n_senders: 50 },
    Queueing { n_senders: 100 },
    Queueing { n_senders: 250 },
    ServiceCall { payload_bytes: SMALL_BYTES },
    ServiceCall { payload_bytes: COMMON_BYTES },
    Latency { load: Load::Elevator, n_threads: FEW },
    Latency { load: Load::Elevator, n_threads: MANY },
    Latency { load: Load::StartStop, n_threads: FEW },
    Latency { load: Load::StartStop, n_threads: MANY },
    Latency { load: Load::Chaining, n_threads: FEW },
    Latency { load: Load::Chaining, n_threads: MANY },
];

impl Case {
    /// Its name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Switch => "switch",
            PingPong { .. } => "ping-pong",
            Between { idle: Idle::Sleeps } => "between-sleeping",
            Between { idle: Idle::Spins } => "between-spinning",
            HotPotato { .. } => "hot-potato",
            Queueing { .. } => "queueing",
            ServiceCall { .. } => "service-call",
            Latency { load: Load::Elevator, .. } => "elevator-since-signal",
            Latency { load: Load::StartStop, .. } => "start-stop-since-signal",
            Latency { load: Load::Chaining, .. } => "chaining-since-signal",
        }
    }

    /// A system's row.
    pub fn key(self, system: &'static str) -> RowKey {
        let key = RowKey::new(system, self.name());
        let same = RowKey { scale: Scale::Picoseconds, ..key.at(Placement::Same) };
        match self {
            Switch => same.heading("switch of stacks"),
            PingPong { n_words } => {
                let title = format!("ping-pong, {n_words} words");
                same.bytes(usize::from(n_words) * 8).heading(title)
            }
            Between { idle } => {
                let what = if idle == Idle::Sleeps { "sleep" } else { "spin" };
                let title = format!("between kernels that {what}");
                same.bytes(64).at(Placement::Different).heading(title)
            }
            HotPotato { n_potatoes: n } => {
                same.with("parties", n).heading(format!("hot potato, {n} of 250"))
            }
            Queueing { n_senders: n } => {
                same.with("parties", n).heading(format!("queueing, {n} senders"))
            }
            ServiceCall { payload_bytes: n } => {
                let title = format!("a service's call, {n} bytes there and back");
                same.bytes(n).heading(title)
            }
            Latency { n_threads: n, .. } => {
                let title = format!("{}, {n} threads", self.name().replace('-', " "));
                let key = same.with("parties", n).heading(title);
                RowKey { scale: Scale::Histogram, ..key }
            }
        }
    }

    /// The row of latencies since the time that the timer was set to, beside those since its
    /// signal, which are the kernel's.
    pub fn since_due(self, system: &'static str) -> Option<RowKey> {
        let Latency { load, n_threads } = self else { return None };
        let (case, title) = match load {
            Load::Elevator => ("elevator-since-due", "elevator since due"),
            Load::StartStop => ("start-stop-since-due", "start stop since due"),
            Load::Chaining => ("chaining-since-due", "chaining since due"),
        };
        let key = self.key(system).heading(format!("{title}, {n_threads} threads"));
        Some(RowKey { case, scale: Scale::NoChart, ..key })
    }

    /// One round of it, in picoseconds. Of a latency there are two: see [`Case::since_due`].
    /// `pair`: two processors, if there are two.
    pub fn measure<K: Variant>(
        self,
        pair: Option<[usize; 2]>,
        n_batches: u64,
    ) -> io::Result<[Vec<u64>; 2]> {
        let times = match self {
            // Of no kernel that could be chosen.
            Switch | ServiceCall { .. } => Vec::new(),
            PingPong { n_words } => ipc::ping_pong::<K>(n_words, n_batches)?,
            Between { idle } => {
                let pair = pair.ok_or_else(|| io::Error::other("there is one processor"))?;
                between::ping_pong::<K>(idle, pair, n_batches)?
            }
            HotPotato { n_potatoes } => ipc::hot_potato::<K>(n_potatoes, n_batches / 10)?,
            Queueing { n_senders } => {
                ipc::queueing::<K>(n_senders, n_batches * 10 / n_senders as u64 + 10)?
            }
            Latency { load, n_threads } => {
                return latency::latencies::<K>(load, n_threads, LATENCIES + 4 * n_batches);
            }
        };
        Ok([times, Vec::new()])
    }
}
