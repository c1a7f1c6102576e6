//! What the run and the ends of a system tell each other, and what each end does with an order.

use crate::case::Case;
use crate::child::{self, say};
use crate::processors::{self, Placement};
use crate::service::{Service, now_ns};
use crate::shared_map;
use crate::system::System;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
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
}

/// Where a client of a server with many finds its thread.
pub(crate) fn place(directory: &Path, client: usize) -> PathBuf {
    directory.join(client.to_string())
}

/// What is measured at once.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Chunk {
    /// `None` for wherever the kernel likes.
    pub placement: Option<Placement>,
    /// What each call carries beside bytes.
    pub case: Case,
    /// Bytes there and, of an echo, back.
    pub payload_bytes: usize,
    /// Calls whose times are forgotten.
    pub n_warm_up: u32,
    /// Calls whose times count.
    pub n_calls: u32,
    /// Sleep between two calls, in microseconds.
    pub delay_us: u64,
}

impl Chunk {
    pub fn new(
        placement: impl Into<Option<Placement>>,
        payload_bytes: usize,
        n_warm_up: u32,
        n_calls: u32,
    ) -> Chunk {
        let placement = placement.into();
        Chunk { placement, payload_bytes, n_warm_up, n_calls, ..Chunk::default() }
    }
}

/// What an end is to do.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Order {
    /// Where: a processor's number; `None` for wherever the kernel likes.
    pub cpu: Option<usize>,
    pub chunk: Chunk,
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
    pub wrong: Option<String>,
}

/// Does in an end, order by order, what it is told, on the processor where it is told to.
pub(crate) fn obey(mut act: impl FnMut(&Order) -> io::Result<()>) -> io::Result<()> {
    say("ready")?;
    child::orders().try_for_each(|line| {
        let order: Order = serde_json::from_str(&line?)?;
        processors::go_to(order.cpu)?;
        act(&order)
    })
}

/// Makes the calls of an order, one after the other. `call` makes that of a number, and says when
/// it was at each point.
pub(crate) fn measure<const N: usize>(
    order: &Order,
    mut call: impl FnMut(u32) -> io::Result<[u64; N]>,
) -> io::Result<Measured> {
    let Chunk { n_warm_up, n_calls, delay_us, .. } = order.chunk;
    // Written once before, so that no time has a page fault of its own record in it.
    let mut points = vec![vec![u64::MAX; n_calls as usize]; N];
    points.iter_mut().for_each(Vec::clear);
    for number in 0..n_warm_up {
        call(number)?;
    }
    if let Some((place, number)) = &order.barrier {
        say("ready")?;
        shared_map::wait(place, *number)?;
    }
    let begin_ns = now_ns();
    for number in n_warm_up..n_warm_up + n_calls {
        if delay_us > 0 {
            thread::sleep(Duration::from_micros(delay_us));
        }
        for (point, time_ns) in points.iter_mut().zip(call(number)?) {
            point.push(time_ns);
        }
    }
    Ok(Measured { points, span_ns: [begin_ns, now_ns()], wrong: None })
}
