//! The orders of a run to the ends of a system, the ends' reports, and the loop by which an end
//! obeys.

use crate::case::Case;
use crate::child::{self, say, tell};
use crate::processors;
use crate::service::{Service, now_ns};
use crate::start_barrier;
use crate::system::System;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
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

/// Does what this process is told, order by order, and tells what it has found.
pub(crate) fn obey(mut act: impl FnMut(&Order) -> io::Result<Measured>) -> io::Result<()> {
    say("ready")?;
    for order in orders() {
        let order = order?;
        processors::go_to(order.cpu)?;
        tell(&act(&order)?)?;
    }
    Ok(())
}

pub(crate) fn orders() -> impl Iterator<Item = io::Result<Order>> {
    child::orders().map(|line| Ok(serde_json::from_str(&line?)?))
}

impl Order {
    /// Makes the calls, one after the other. A call returns when it was at each of three points,
    /// of which the last ones count.
    pub fn measure(
        &self,
        n_points: usize,
        mut call: impl FnMut(u32) -> io::Result<[u64; 3]>,
    ) -> io::Result<Measured> {
        // Written once before, so that no time has a page fault of its own record in it.
        let mut points = vec![vec![u64::MAX; self.n_calls as usize]; n_points];
        points.iter_mut().for_each(Vec::clear);
        for number in 0..self.n_warm_up {
            call(number)?;
        }
        if let Some((place, number)) = &self.barrier {
            say("ready")?;
            start_barrier::wait(place, *number)?;
        }
        let begin_ns = now_ns();
        for number in self.n_warm_up..self.n_warm_up + self.n_calls {
            if self.delay_us > 0 {
                std::thread::sleep(Duration::from_micros(self.delay_us));
            }
            let times_ns = call(number)?;
            for (point, time_ns) in points.iter_mut().zip(&times_ns[3 - n_points..]) {
                point.push(*time_ns);
            }
        }
        Ok(Measured { points, span_ns: [begin_ns, now_ns()], wrong: None })
    }
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
