//! Calls a second of one server, by how many clients call at once.

use crate::crowd::{Crowd, Together};
use crate::distribution::{Distribution, Spread};
use crate::form::{BenchError, progress};
use crate::pair::{Chunk, PairError};
use crate::ratios::SMALL_BYTES;
use crate::report::{Detail, Figures, Outcome, Ratio, Row, Throughput};
use crate::service::Service;
use crate::stage::Stage;
use crate::system::System;
use std::collections::BTreeMap;

/// How many clients call, unless the run says otherwise.
pub const CLIENTS: [usize; 4] = [1, 2, 8, 64];
/// Who calls them is measured, if the run measures it at all. An inline system call costs what it
/// costs a single client, and whoever spins needs a processor for each client.
const SYSTEMS: [System; 7] = [
    System::BatonTyped,
    System::BatonUapiLibc,
    System::KernelBinder,
    System::Futex,
    System::Pipe,
    System::Unix,
    System::UnixSeqpacket,
];
const CASE: &str = "throughput";

/// All rounds of one system with one number of clients.
#[derive(Clone, Debug, Default)]
pub struct Load {
    /// Times that clients saw.
    pub times: Distribution,
    calls_per_second: Vec<f64>,
    medians_ns: Vec<Spread>,
}

/// What was measured, and why the rest was not.
#[derive(Debug, Default)]
pub struct Throughputs {
    /// By the number of clients.
    pub measured: BTreeMap<(usize, System), Load>,
    missing: BTreeMap<System, String>,
}

/// How much is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many clients call: ascending.
    pub clients: Vec<usize>,
    /// Rounds.
    pub rounds: u32,
    /// Calls of a single client.
    pub n_calls: u32,
}

impl Plan {
    /// Each client calls a fixed number of times: fewer than alone, since all of them take
    /// that much longer, but enough that they meet.
    fn chunk(&self, n_clients: usize) -> Chunk {
        let n_calls = (self.n_calls / n_clients.clamp(1, 5) as u32).max(1);
        let n_warm_up = (n_calls / 10).max(1);
        Chunk { placement: None, payload_bytes: SMALL_BYTES, n_warm_up, n_calls, delay_us: 0 }
    }
}

/// Measures those of `systems` that can be.
pub fn measure(systems: &[System], plan: &Plan) -> Result<Throughputs, BenchError> {
    let mut found = Throughputs::default();
    let Some(&most) = plan.clients.last() else { return Ok(found) };
    let stage = Stage::set()?;
    let mut crowds = BTreeMap::new();
    for system in SYSTEMS.into_iter().filter(|system| systems.contains(system)) {
        match Crowd::start(system, most, stage.place(Service::Echo)) {
            Ok(crowd) => drop(crowds.insert(system, crowd)),
            Err(why) => found.miss(system, &why),
        }
    }
    let progress = progress(plan.clients.len() * plan.rounds as usize);
    for &n_clients in &plan.clients {
        progress.set_message(format!("{n_clients} clients"));
        let chunk = plan.chunk(n_clients);
        for _ in 0..plan.rounds {
            crowds.retain(|&system, crowd| match crowd.measure(n_clients, &chunk) {
                Ok(together) => {
                    found.measured.entry((n_clients, system)).or_default().add(&together);
                    true
                }
                Err(why) => {
                    found.miss(system, &why);
                    false
                }
            });
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    Ok(found)
}

impl Load {
    /// Adds a round.
    pub fn add(&mut self, together: &Together) {
        self.times.add_round(&together.times_ns.concat());
        self.calls_per_second.push(together.calls_per_second());
        self.medians_ns.extend(together.medians_ns());
    }

    /// Over the rounds. `None` before the first.
    pub fn throughput(&self) -> Option<Throughput> {
        let calls = Spread::of(self.calls_per_second.iter().copied())?;
        let of = |end: fn(&Spread) -> f64| Spread::of(self.medians_ns.iter().map(end));
        let (least, greatest) = (of(|medians| medians.least)?, of(|medians| medians.greatest)?);
        Some(Throughput {
            calls_per_second: calls.median.round(),
            calls_per_second_spread: [calls.least.round(), calls.greatest.round()],
            client_p50_spread_ns: [least.median, greatest.median],
        })
    }
}

impl Throughputs {
    fn miss(&mut self, system: System, why: &PairError) {
        self.missing.insert(system, why.to_string());
    }

    /// All, by the number of clients.
    pub fn rows(&self) -> Vec<Row> {
        let measured = self.measured.iter().filter_map(|(&(clients, system), load)| {
            Some(Row {
                system: system.name(),
                case: CASE,
                payload_bytes: Some(SMALL_BYTES),
                placement: None,
                detail: Some(Detail::Clients { clients, throughput: load.throughput() }),
                outcome: Outcome::Measured(Figures::of(&load.times)?),
            })
        });
        let missing = self.missing.iter().map(|(system, why)| Row {
            system: system.name(),
            case: CASE,
            payload_bytes: Some(SMALL_BYTES),
            placement: None,
            detail: None,
            outcome: Outcome::Missing { why: why.clone() },
        });
        measured.chain(missing).collect()
    }

    /// Ours over the stream socket, by the number of clients; and ours with most clients over ours
    /// with one.
    pub fn ratios(&self) -> Vec<Ratio> {
        let ours = [System::BatonTyped, System::BatonUapiLibc];
        let mut ratios = Vec::new();
        for system in ours {
            let key = system.key().replace("baton_", "");
            let clients =
                || self.measured.keys().filter(|case| case.1 == system).map(|case| case.0);
            for n_clients in clients() {
                let (over, under) = ((n_clients, system), (n_clients, System::Unix));
                ratios.extend(self.ratio(
                    format!("throughput_{n_clients}_{key}_over_unix"),
                    over,
                    under,
                ));
            }
            if let (Some(least), Some(most)) = (clients().min(), clients().max())
                && least < most
            {
                let name = format!("throughput_{key}_{most}_over_{least}");
                ratios.extend(self.ratio(name, (most, system), (least, system)));
            }
        }
        ratios
    }

    fn ratio(&self, name: String, over: (usize, System), under: (usize, System)) -> Option<Ratio> {
        let (over, under) = (self.measured.get(&over)?, self.measured.get(&under)?);
        let median = |of: &Load| Some(Spread::of(of.calls_per_second.iter().copied())?.median);
        let rounds = over.calls_per_second.iter().zip(&under.calls_per_second);
        let spread = Spread::of(rounds.map(|(over, under)| over / under));
        Some(Ratio::new(name, Ok((median(over)? / median(under)?, spread)), None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(rounds: &[u64]) -> Load {
        let mut load = Load::default();
        for &duration_ns in rounds {
            let times_ns = vec![vec![100, 200, 300], vec![400]];
            load.add(&Together { times_ns, duration_ns });
        }
        load
    }

    #[test]
    fn of_rounds_the_median_is_said() {
        let throughput = load(&[4_000, 8_000, 2_000]).throughput().unwrap();
        assert_eq!(throughput.calls_per_second, 1e6);
        assert_eq!(throughput.calls_per_second_spread, [5e5, 2e6]);
        assert_eq!(throughput.client_p50_spread_ns, [200.0, 400.0]);
        assert_eq!(Load::default().throughput(), None);
    }

    #[test]
    fn more_calls_a_second_are_more_than_one() {
        let mut found = Throughputs::default();
        for (case, duration_ns) in [
            ((1, System::BatonTyped), 2_000),
            ((1, System::Unix), 4_000),
            ((8, System::BatonTyped), 1_000),
        ] {
            found.measured.insert(case, load(&[duration_ns; 3]));
        }
        let ratios = found.ratios();
        let names: Vec<_> = ratios.iter().map(|ratio| (&ratio.name[..], ratio.value)).collect();
        let expected =
            [("throughput_1_typed_over_unix", Some(2.0)), ("throughput_typed_8_over_1", Some(2.0))];
        assert_eq!(names, expected);
    }

    #[test]
    fn each_client_calls_a_fixed_number_of_times() {
        let plan = Plan { clients: CLIENTS.to_vec(), rounds: 1, n_calls: 1000 };
        assert_eq!(CLIENTS.map(|n| plan.chunk(n).n_calls), [1000, 500, 200, 200]);
        assert_eq!(Plan { n_calls: 2, ..plan }.chunk(64).n_calls, 1);
    }
}
