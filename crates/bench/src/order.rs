//! What the run and the ends of a system tell each other.

use crate::case::Case;
use crate::service::Service;
use crate::system::System;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use strum::IntoStaticStr;

/// Which end of what a process is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EndpointRole {
    /// The system.
    pub system: System,
    /// Which end.
    pub side: Side,
    /// Where the two ends find each other.
    pub directory: PathBuf,
    /// The broker's socket.
    pub broker: PathBuf,
    /// What the server does.
    pub service: Service,
    /// Priority of all its threads, whose memory stays in place then.
    pub priority: Option<String>,
    /// Clients of a server, threads of a pool, or idle clients.
    pub n_clients: usize,
}

/// An end of a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Side {
    /// Calls.
    Client,
    /// Answers one client.
    Server,
    /// Answers a number of clients, each with a thread of its own.
    Threads,
    /// Answers as many clients as come with a pool of threads.
    Pool,
    /// Calls once as each of many clients, and keeps all of them.
    Idlers,
    /// Has a service, which it adds to the server's.
    Owner,
    /// Has the file system in which the other ends find their device.
    Mount,
}

/// Where a client of a server with many finds its thread.
pub(crate) fn place(directory: &Path, client: usize) -> PathBuf {
    directory.join(client.to_string())
}

/// What both ends are to do.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Order {
    /// Where: a processor's number; `None` for wherever the kernel likes.
    pub cpu: Option<usize>,
    /// What a call carries beside bytes.
    #[serde(default)]
    pub case: Case,
    /// Bytes that a call carries.
    pub payload_bytes: usize,
    /// Calls whose times are forgotten.
    pub n_warm_up: u32,
    /// Calls whose times count.
    pub n_calls: u32,
    /// Sleep between two calls, in microseconds.
    pub delay_us: u64,
    /// Where clients wait for each other, and for which number.
    pub barrier: Option<(PathBuf, u32)>,
}

/// What a client has found.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// For each point on a call's way, and each call, how long after its beginning it was there,
    /// in nanoseconds. The last point is the call's end.
    pub points: Vec<Vec<u64>>,
    /// CLOCK_MONOTONIC before the first and after the last call, in nanoseconds.
    pub span_ns: [u64; 2],
    /// Why nothing was found.
    #[serde(default)]
    pub wrong: Option<String>,
}
