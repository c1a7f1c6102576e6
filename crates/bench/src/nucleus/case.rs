//! What is done: each experiment with its sizes, and what a row of the report says of it.

use super::between::{self, Idle};
use super::latency::{self, Load};
use super::play;
use crate::processors::Placement;
use crate::ratios::{COMMON_BYTES, SMALL_BYTES};
use crate::report::Detail;
use baton_nucleus::variant::Variant;
use std::io;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Case {
    /// A bare switch of stacks.
    Switch,
    /// Two threads call each other.
    PingPong { n_words: u8 },
    /// The same, each in a kernel on a processor of its own.
    Between { idle: Idle },
    /// 250 threads hand potatoes round a ring.
    HotPotato { n_potatoes: usize },
    /// Senders wait in one queue.
    Queueing { n_senders: usize },
    /// A service calls another one, and has its answer.
    ServiceCall { payload_bytes: usize },
    /// The highest thread is woken while others keep the kernel busy.
    Latency { load: Load, n_threads: usize, since: Since },
}

/// What a latency begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Since {
    /// The timer's signal: what follows is the kernel's.
    Signal,
    /// The time that the timer was set to.
    Due,
}

const fn latency(load: Load, n_threads: usize) -> Case {
    Case::Latency { load, n_threads, since: Since::Signal }
}

/// Threads of a latency's load: whoever does not grow is the same at both.
pub const FEW: usize = 25;
pub const MANY: usize = 250;

/// So many latencies of a round at least: what 99 of 100 are below is to be that of twenty.
const LATENCIES: u64 = 1500;

/// All, in their order. A latency is measured both ways at once.
pub const CASES: &[Case] = &[
    Case::Switch,
    Case::PingPong { n_words: 0 },
    Case::PingPong { n_words: 8 },
    Case::PingPong { n_words: 16 },
    Case::PingPong { n_words: 64 },
    Case::Between { idle: Idle::Sleeps },
    Case::Between { idle: Idle::Spins },
    Case::HotPotato { n_potatoes: 1 },
    Case::HotPotato { n_potatoes: 50 },
    Case::HotPotato { n_potatoes: 125 },
    Case::HotPotato { n_potatoes: 249 },
    Case::Queueing { n_senders: 1 },
    Case::Queueing { n_senders: 10 },
    Case::Queueing { n_senders: 50 },
    Case::Queueing { n_senders: 100 },
    Case::Queueing { n_senders: 250 },
    Case::ServiceCall { payload_bytes: SMALL_BYTES },
    Case::ServiceCall { payload_bytes: COMMON_BYTES },
    latency(Load::Elevator, FEW),
    latency(Load::Elevator, MANY),
    latency(Load::StartStop, FEW),
    latency(Load::StartStop, MANY),
    latency(Load::Chaining, FEW),
    latency(Load::Chaining, MANY),
];

/// What was found of one case of one kernel, in picoseconds.
pub type Measured = Vec<(Case, Vec<u64>)>;

impl Case {
    /// Its name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Case::Switch => "switch",
            Case::PingPong { .. } => "ping-pong",
            Case::Between { idle: Idle::Sleeps } => "between-sleeping",
            Case::Between { idle: Idle::Spins } => "between-spinning",
            Case::HotPotato { .. } => "hot-potato",
            Case::Queueing { .. } => "queueing",
            Case::ServiceCall { .. } => "service-call",
            Case::Latency { load, since: Since::Signal, .. } => match load {
                Load::Elevator => "elevator-since-signal",
                Load::StartStop => "start-stop-since-signal",
                Load::Chaining => "chaining-since-signal",
            },
            Case::Latency { load, since: Since::Due, .. } => match load {
                Load::Elevator => "elevator-since-due",
                Load::StartStop => "start-stop-since-due",
                Load::Chaining => "chaining-since-due",
            },
        }
    }

    /// Its title over tables and charts.
    pub fn title(self) -> String {
        match self {
            Case::Switch => "switch of stacks".to_owned(),
            Case::PingPong { n_words } => format!("ping-pong, {n_words} words"),
            Case::Between { idle: Idle::Sleeps } => "between kernels that sleep".to_owned(),
            Case::Between { idle: Idle::Spins } => "between kernels that spin".to_owned(),
            Case::HotPotato { n_potatoes } => format!("hot potato, {n_potatoes} of 250"),
            Case::Queueing { n_senders } => format!("queueing, {n_senders} senders"),
            Case::ServiceCall { payload_bytes } => {
                format!("a service's call, {payload_bytes} bytes there and back")
            }
            Case::Latency { load, n_threads, since } => {
                let load = match load {
                    Load::Elevator => "IPC elevator",
                    Load::StartStop => "start/stop",
                    Load::Chaining => "IPC chaining",
                };
                let since = if since == Since::Signal { "signal" } else { "due" };
                format!("{load}, {n_threads} threads, since {since}")
            }
        }
    }

    /// Bytes of its messages, if that is what tells it from others.
    pub fn payload_bytes(self) -> Option<usize> {
        match self {
            Case::PingPong { n_words } => Some(usize::from(n_words) * 8),
            Case::ServiceCall { payload_bytes } => Some(payload_bytes),
            Case::Between { .. } => Some(64),
            _ => None,
        }
    }

    /// What else tells it from others.
    pub fn detail(self) -> Option<Detail> {
        match self {
            Case::Switch
            | Case::PingPong { .. }
            | Case::Between { .. }
            | Case::ServiceCall { .. } => None,
            Case::HotPotato { n_potatoes: parties }
            | Case::Queueing { n_senders: parties }
            | Case::Latency { n_threads: parties, .. } => Some(Detail::Parties { parties }),
        }
    }

    /// Where it runs.
    pub fn placement(self) -> Placement {
        match self {
            Case::Between { .. } => Placement::Different,
            _ => Placement::Same,
        }
    }

    /// One round of it. `pair`: two processors, if there are two.
    pub fn play<K: Variant>(
        self,
        pair: Option<[usize; 2]>,
        n_batches: u64,
    ) -> io::Result<Measured> {
        let times = match self {
            // Of no kernel that could be chosen.
            Case::Switch | Case::ServiceCall { .. } => Vec::new(),
            Case::PingPong { n_words } => play::ping_pong::<K>(n_words, n_batches)?,
            Case::Between { idle } => {
                let pair = pair.ok_or_else(|| io::Error::other("there is one processor"))?;
                between::ping_pong::<K>(idle, pair, n_batches)?
            }
            Case::HotPotato { n_potatoes } => play::hot_potato::<K>(n_potatoes, n_batches / 10)?,
            Case::Queueing { n_senders } => {
                play::queueing::<K>(n_senders, n_batches * 10 / n_senders as u64 + 10)?
            }
            Case::Latency { load, n_threads, .. } => {
                let found = latency::latencies::<K>(load, n_threads, LATENCIES + 4 * n_batches)?;
                let case = |since| Case::Latency { load, n_threads, since };
                return Ok(vec![
                    (case(Since::Signal), found.since_signal),
                    (case(Since::Due), found.since_due),
                ]);
            }
        };
        Ok(vec![(self, times)])
    }
}
