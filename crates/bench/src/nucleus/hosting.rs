//! Two services that call each other: as threads of a host's kernel, and as processes; and a
//! process that calls a hosted service. In turn, on one processor.

use super::case::Case;
use super::results::Results;
use crate::form::BenchError;
use crate::pair::{Chunk, Pair, PairError};
use crate::payload;
use crate::processors::{Placement, Processors};
use crate::service::{Service, now_ns};
use crate::stage::Stage;
use crate::system::System;
use crate::systems::{hosted, typed};
use baton::{CallError, Parcel};
use baton_host::{Call, Host, Running};
use rustix::io::Errno;
use std::io;
use std::path::Path;

/// A call inside of a host, as rows name it.
pub const INSIDE: &str = "baton-hosted-inside";
/// What calls between processes are beside.
const OUTSIDE: [System; 3] = [System::BatonTyped, System::BatonHosted, System::BatonHostedLeaving];
const CALLER: &str = "caller";
const CALLEE: &str = "callee";
/// Calls whose time is taken together.
const BATCH: u32 = 100;

/// What a round is to do.
#[derive(Clone, Copy, Debug)]
pub struct Calls {
    /// There, and back.
    pub payload_bytes: usize,
    /// Of [`BATCH`] calls each.
    pub n_batches: u64,
}

/// The services, as long as the run lasts.
pub struct Hosting {
    pairs: Vec<(System, Result<Pair, PairError>)>,
    inside: io::Result<Running>,
    _stage: Stage,
}

impl Hosting {
    /// Starts them.
    ///
    /// # Errors
    /// There is no place for them.
    pub fn start() -> Result<Hosting, BenchError> {
        let stage = Stage::set()?;
        let place = stage.place(Service::Echo);
        let pairs = OUTSIDE.map(|system| (system, Pair::start(system, place))).into();
        let inside = host(place.broker);
        Ok(Hosting { pairs, inside, _stage: stage })
    }

    /// One round of each.
    pub fn add_round(&mut self, results: &mut Results, calls: Calls, at: &Processors) {
        let Calls { payload_bytes, n_batches } = calls;
        let case = Case::ServiceCall { payload_bytes };
        let inside = match &self.inside {
            Ok(running) => measure(running, calls),
            Err(error) => Err(io::Error::other(error.to_string())),
        };
        results.add(case, INSIDE, inside.map(|times| vec![(case, times)]));
        let n_calls = n_batches as u32 * 10;
        let (placement, n_warm_up) = (Some(Placement::Same), n_calls / 10);
        let chunk = Chunk { placement, payload_bytes, n_warm_up, n_calls, delay_us: 0 };
        for (system, pair) in &mut self.pairs {
            let round = match pair {
                Ok(pair) => pair.measure(&chunk, at).map_err(io::Error::other),
                Err(error) => Err(io::Error::other(error.to_string())),
            };
            let picoseconds = |times: Vec<u64>| times.into_iter().map(|ns| ns * 1000).collect();
            results.add(case, system.name(), round.map(|times| vec![(case, picoseconds(times))]));
        }
    }
}

fn host(broker: &Path) -> io::Result<Running> {
    let mut host = Host::new();
    host.add(CALLEE, hosted::echo).map_err(io::Error::other)?;
    host.add(CALLER, call_often).map_err(io::Error::other)?;
    host.start(typed::CONTEXT, broker).map_err(io::Error::other)
}

/// The caller: says how long each of so many batches took, in picoseconds of a call.
fn call_often(call: &mut Call<'_>) -> Result<Parcel, Errno> {
    let payload_bytes = call.data().len();
    let n_batches = call.code();
    let target = call.find(CALLEE).ok().flatten().ok_or(Errno::NOENT)?;
    let mut request = vec![0; payload_bytes];
    let mut times = Parcel::new();
    for batch in 0..=n_batches {
        let start_ns = now_ns();
        for number in batch * BATCH..(batch + 1) * BATCH {
            payload::fill(&mut request, number);
            let parcel = Parcel::from(&request[..]);
            let answer = call.call(&target, 1, &parcel).map_err(|_| Errno::IO)?;
            if answer.data() != request {
                return Err(Errno::BADMSG);
            }
        }
        let time_ps = (now_ns() - start_ns) * 1000 / u64::from(BATCH);
        // The first finds nothing in the caches.
        if batch > 0 {
            times.write(&time_ps.to_ne_bytes());
        }
    }
    Ok(times)
}

fn measure(running: &Running, calls: Calls) -> io::Result<Vec<u64>> {
    let answer = running.call(CALLER, calls.n_batches as u32, &vec![0; calls.payload_bytes]);
    let answer = answer.map_err(|error: CallError| io::Error::other(error))?;
    let time = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
    Ok(answer.data().chunks_exact(8).map(time).collect())
}
