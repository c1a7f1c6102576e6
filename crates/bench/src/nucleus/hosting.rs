//! Two services that call each other: as threads of a host's kernel, and as processes; and a
//! process that calls a hosted service. In turn, on one processor.

use super::batch::batches;
use crate::form::BenchError;
use crate::pair::{Chunk, Pair, PairError};
use crate::payload;
use crate::processors::{Placement, Processors};
use crate::service::Service;
use crate::system::System;
use crate::systems::{hosted, typed};
use crate::testbed::Testbed;
use baton::{CallError, Parcel};
use baton_host::{Call, Host, Running};
use rustix::io::Errno;
use std::fmt::Display;
use std::io;
use std::path::Path;

/// A call inside of a host, as rows name it.
pub const INSIDE: &str = "baton-hosted-inside";
/// What calls between processes are beside.
const OUTSIDE: [System; 3] = [System::BatonTyped, System::BatonHosted, System::BatonHostedLeaving];
const CALLER: &str = "caller";
const CALLEE: &str = "callee";
/// Calls whose time is taken together.
const BATCH: u64 = 100;

/// The services, as long as the run lasts.
pub struct Hosting {
    pairs: Vec<(System, Result<Pair, PairError>)>,
    inside: io::Result<Running>,
    _testbed: Testbed,
}

impl Hosting {
    /// Starts them.
    ///
    /// # Errors
    /// There is no place for them.
    pub fn start() -> Result<Hosting, BenchError> {
        let testbed = Testbed::start()?;
        let place = testbed.place(Service::Echo);
        let pairs = OUTSIDE.map(|system| (system, Pair::start(system, place))).into();
        let inside = host(place.broker);
        Ok(Hosting { pairs, inside, _testbed: testbed })
    }

    /// What a call of so many bytes took by each system, in picoseconds.
    pub fn measure(
        &mut self,
        payload_bytes: usize,
        n_batches: u64,
        at: &Processors,
    ) -> Vec<(&'static str, io::Result<Vec<u64>>)> {
        let failed = |error: &dyn Display| io::Error::other(error.to_string());
        let inside = self.inside.as_ref().map_err(|error| failed(error));
        let inside = inside.and_then(|running| measure(running, payload_bytes, n_batches));
        let n_calls = n_batches as u32 * 10;
        let chunk = Chunk::new(Placement::Same, payload_bytes, n_calls / 10, n_calls);
        let outside = self.pairs.iter_mut().map(|(system, pair)| {
            let pair = pair.as_mut().map_err(|error| failed(error));
            let times_ns = pair.and_then(|pair| pair.measure(&chunk, at).map_err(io::Error::other));
            let picoseconds = |times_ns: Vec<u64>| times_ns.iter().map(|ns| ns * 1000).collect();
            (system.name(), times_ns.map(picoseconds))
        });
        [(INSIDE, inside)].into_iter().chain(outside).collect()
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
    let mut request = vec![0; call.data().len()];
    let n_batches = u64::from(call.code());
    let target = call.find(CALLEE).ok().flatten().ok_or(Errno::NOENT)?;
    let times = batches(n_batches, BATCH, |batch| {
        for number in batch * BATCH..(batch + 1) * BATCH {
            payload::fill(&mut request, number as u32);
            let parcel = Parcel::from(&request[..]);
            let answer = call.call(&target, 1, &parcel).map_err(|_| Errno::IO)?;
            if answer.data() != request {
                return Err(Errno::BADMSG);
            }
        }
        Ok(())
    })?;
    let mut told = Parcel::new();
    for time_ps in times {
        told.write(&time_ps.to_ne_bytes());
    }
    Ok(told)
}

fn measure(running: &Running, payload_bytes: usize, n_batches: u64) -> io::Result<Vec<u64>> {
    let answer = running.call(CALLER, n_batches as u32, &vec![0; payload_bytes]);
    let answer = answer.map_err(|error: CallError| io::Error::other(error))?;
    let time = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
    Ok(answer.data().chunks_exact(8).map(time).collect())
}
