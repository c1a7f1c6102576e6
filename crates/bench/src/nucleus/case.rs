//! What is done: each experiment with its sizes, and what a row of the report says of it.

use super::between::{self, Idle};
use super::ipc;
use super::latency::{self, Load};
use crate::processors::Placement;
use crate::ratios::{COMMON_BYTES, SMALL_BYTES};
use crate::report::Detail;
use baton_nucleus::variant::Variant;
use std::io;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Case {
    Switch,
    PingPong {
        n_words: u8,
    },
    /// The same, each in a kernel on a processor of its own.
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
        since: Since,
    },
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
    /// Its name in rows, and over tables and charts.
    fn names(self) -> (&'static str, String) {
        match self {
            Case::Switch => ("switch", "switch of stacks".to_owned()),
            Case::PingPong { n_words } => ("ping-pong", format!("ping-pong, {n_words} words")),
            Case::Between { idle: Idle::Sleeps } => {
                ("between-sleeping", "between kernels that sleep".to_owned())
            }
            Case::Between { idle: Idle::Spins } => {
                ("between-spinning", "between kernels that spin".to_owned())
            }
            Case::HotPotato { n_potatoes: n } => ("hot-potato", format!("hot potato, {n} of 250")),
            Case::Queueing { n_senders: n } => ("queueing", format!("queueing, {n} senders")),
            Case::ServiceCall { payload_bytes: n } => {
                ("service-call", format!("a service's call, {n} bytes there and back"))
            }
            Case::Latency { load, n_threads, since } => {
                let ([since_signal, since_due], load) = match load {
                    Load::Elevator => {
                        (["elevator-since-signal", "elevator-since-due"], "IPC elevator")
                    }
                    Load::StartStop => {
                        (["start-stop-since-signal", "start-stop-since-due"], "start/stop")
                    }
                    Load::Chaining => {
                        (["chaining-since-signal", "chaining-since-due"], "IPC chaining")
                    }
                };
                let (name, since) = match since {
                    Since::Signal => (since_signal, "signal"),
                    Since::Due => (since_due, "due"),
                };
                (name, format!("{load}, {n_threads} threads, since {since}"))
            }
        }
    }

    pub fn name(self) -> &'static str {
        self.names().0
    }

    pub fn title(self) -> String {
        self.names().1
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

    pub fn detail(self) -> Option<Detail> {
        match self {
            Case::HotPotato { n_potatoes: parties }
            | Case::Queueing { n_senders: parties }
            | Case::Latency { n_threads: parties, .. } => Some(Detail::Parties { parties }),
            _ => None,
        }
    }

    pub fn placement(self) -> Placement {
        match self {
            Case::Between { .. } => Placement::Different,
            _ => Placement::Same,
        }
    }

    /// One round of it. `pair`: two processors, if there are two.
    pub fn measure<K: Variant>(
        self,
        pair: Option<[usize; 2]>,
        n_batches: u64,
    ) -> io::Result<Measured> {
        let times = match self {
            // Of no kernel that could be chosen.
            Case::Switch | Case::ServiceCall { .. } => Vec::new(),
            Case::PingPong { n_words } => ipc::ping_pong::<K>(n_words, n_batches)?,
            Case::Between { idle } => {
                let pair = pair.ok_or_else(|| io::Error::other("there is one processor"))?;
                between::ping_pong::<K>(idle, pair, n_batches)?
            }
            Case::HotPotato { n_potatoes } => ipc::hot_potato::<K>(n_potatoes, n_batches / 10)?,
            Case::Queueing { n_senders } => {
                ipc::queueing::<K>(n_senders, n_batches * 10 / n_senders as u64 + 10)?
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
