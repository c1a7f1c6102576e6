//! Many processes that call one server.
//!
//! All of a crowd are started once, and sleep while others are measured. Those that are to call
//! warm up, wait at a gate, and go together.

use crate::distribution::Spread;
use crate::endpoint::{Measured, Order, Side};
use crate::gate::Gate;
use crate::pair::{Chunk, Endpoint, PairError, Part, Place};
use crate::server_pool;
use crate::system::System;
use std::io;

/// A server and all its clients.
pub struct Crowd {
    clients: Vec<Endpoint>,
    server: Endpoint,
    gate: Gate,
}

/// What clients have found that called together.
#[derive(Clone, Debug, PartialEq)]
pub struct Together {
    /// Of every client, its calls' times in nanoseconds.
    pub times_ns: Vec<Vec<u64>>,
    /// From the first call's beginning to the last one's end.
    pub duration_ns: u64,
}

fn made(what: &'static str) -> impl Fn(io::Error) -> PairError {
    move |error| PairError::System(what, error)
}

impl Crowd {
    /// Starts all.
    pub fn start(system: System, n_clients: usize, place: Place<'_>) -> Result<Crowd, PairError> {
        let directory = place.directory.join(system.name());
        std::fs::create_dir(&directory).map_err(made("mkdir"))?;
        for client in 0..n_clients {
            std::fs::create_dir(server_pool::place(&directory, client)).map_err(made("mkdir"))?;
        }
        let place = Place { directory: &directory, ..place };
        let server = Endpoint::start(&Part { system, side: Side::Server, place, n_clients })?;
        let client = |client| {
            let place = Place { directory: &server_pool::place(&directory, client), ..place };
            Endpoint::start(&Part { system, side: Side::Client, place, n_clients: 1 })
        };
        let clients = (0..n_clients).map(client).collect::<Result<_, _>>()?;
        Ok(Crowd { clients, server, gate: Gate::new().map_err(made("make a gate"))? })
    }

    /// Lets the first `n_clients` call, each as often as the chunk says, wherever the kernel puts
    /// them.
    pub fn measure(&mut self, n_clients: usize, chunk: &Chunk) -> Result<Together, PairError> {
        let &Chunk { payload_bytes, n_warm_up, n_calls, delay_us, .. } = chunk;
        let gate = Some((self.gate.place(), self.gate.next()));
        let order =
            Order { cpu: None, payload_bytes, n_warm_up, n_calls, delay_us, n_clients, gate };
        let clients = &mut self.clients[..n_clients];
        self.server.order(&order)?;
        self.server.is_ready()?;
        for client in clients.iter_mut() {
            client.order(&order)?;
        }
        for client in clients.iter_mut() {
            client.is_ready()?;
        }
        self.gate.open();
        let found = clients.iter_mut().map(Endpoint::hear_found).collect::<Result<Vec<_>, _>>()?;
        self.server.is_ready()?;
        Ok(Together::of(found))
    }
}

impl Together {
    fn of(found: Vec<Measured>) -> Together {
        let begin_ns = found.iter().map(|found| found.span_ns[0]).min().unwrap_or(0);
        let end_ns = found.iter().map(|found| found.span_ns[1]).max().unwrap_or(0);
        let times_ns = found.into_iter().filter_map(|mut found| found.points.pop());
        Together { times_ns: times_ns.collect(), duration_ns: end_ns.saturating_sub(begin_ns) }
    }

    /// Calls a second, of all clients together.
    pub fn calls_per_second(&self) -> f64 {
        let n_calls: usize = self.times_ns.iter().map(Vec::len).sum();
        n_calls as f64 * 1e9 / self.duration_ns.max(1) as f64
    }

    /// The clients' own medians, in nanoseconds.
    pub fn medians_ns(&self) -> Option<Spread> {
        let median = |times_ns: &Vec<u64>| Spread::of(times_ns.iter().map(|&time| time as f64));
        Spread::of(self.times_ns.iter().filter_map(median).map(|times| times.median))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(times_ns: &[u64], span_ns: [u64; 2]) -> Measured {
        Measured { points: vec![times_ns.to_vec()], span_ns }
    }

    #[test]
    fn clients_are_counted_from_the_first_call_to_the_last() {
        let found = vec![found(&[10, 20, 90], [1000, 1300]), found(&[40, 50], [1100, 1500])];
        let together = Together::of(found);
        assert_eq!(together.duration_ns, 500);
        assert_eq!(together.calls_per_second(), 5.0 * 1e9 / 500.0);
        let medians = together.medians_ns().unwrap();
        assert_eq!((medians.least, medians.greatest), (20.0, 45.0));
    }
}
