//! Calls a second of one server, by how many clients call at once.

use crate::chart::{self, Chart, Unit};
use crate::distribution::{Distribution, Spread};
use crate::form::{BenchError, progress};
use crate::pair::{Chunk, ClientGroup, Together};
use crate::ratios::SMALL_BYTES;
use crate::report::{Detail, Outcome, Ratio, Row, Throughput};
use crate::results::Results;
use crate::service::Service;
use crate::system::System::{self, *};
use crate::testbed::Testbed;
use std::collections::BTreeMap;

/// Systems that are measured, if the run measures them at all. An inline system call costs what it
/// costs a single client, and systems that spin need a processor for each client.
const SYSTEMS: [System; 7] =
    [BatonTyped, BatonUapiLibc, KernelBinder, Futex, Pipe, Unix, UnixSeqpacket];
const CASE: &str = "throughput";

/// All rounds of one system with one number of clients.
#[derive(Clone, Debug, Default)]
pub struct Load {
    pub times: Distribution,
    calls_per_second: Vec<f64>,
    medians_ns: Vec<Spread>,
}

pub type Throughputs = Results<(usize, System), Load>;

#[derive(Clone, Debug)]
pub struct Plan {
    /// How many clients call: ascending.
    pub clients: Vec<usize>,
    pub rounds: u32,
    pub n_calls: u32,
}

impl Plan {
    /// Each client calls a fixed number of times: fewer than alone, since all of them take
    /// that much longer, but enough that they meet.
    fn chunk(&self, n_clients: usize) -> Chunk {
        let n_calls = (self.n_calls / n_clients.clamp(1, 5) as u32).max(1);
        Chunk::new(None, SMALL_BYTES, (n_calls / 10).max(1), n_calls)
    }
}

/// Measures those of `systems` that can be.
pub fn measure(systems: &[System], plan: &Plan) -> Result<Throughputs, BenchError> {
    let mut found = Throughputs::default();
    let Some(&most) = plan.clients.last() else { return Ok(found) };
    let testbed = Testbed::start()?;
    let mut groups = BTreeMap::new();
    for system in SYSTEMS.into_iter().filter(|system| systems.contains(system)) {
        let group = ClientGroup::start(system, most, testbed.place(Service::Echo));
        groups.extend(found.ok(system.name(), group).map(|group| (system, group)));
    }
    let progress = progress(plan.clients.len() * plan.rounds as usize);
    for &n_clients in &plan.clients {
        progress.set_message(format!("{n_clients} clients"));
        let chunk = plan.chunk(n_clients);
        for _ in 0..plan.rounds {
            groups.retain(|&system, group| {
                let round = group.measure(n_clients, &chunk);
                found.add((n_clients, system), system.name(), round, Load::add)
            });
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    Ok(found)
}

impl Load {
    fn add(&mut self, together: Together) {
        self.times.add_round(&together.times_ns.concat());
        self.calls_per_second.push(together.calls_per_second());
        self.medians_ns.extend(together.medians_ns());
    }

    /// Over the rounds. `None` before the first.
    fn throughput(&self) -> Option<Throughput> {
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

/// All, by the number of clients.
pub fn rows(found: &Throughputs) -> Vec<Row> {
    let measured = found.measured.iter().filter_map(|(&(clients, system), load)| {
        let row = Row::new(system.name(), CASE, Outcome::of(&load.times)?).bytes(SMALL_BYTES);
        Some(row.detail(Detail::Clients { clients, throughput: load.throughput() }))
    });
    let missing = found.missing_rows(CASE).map(|row| row.bytes(SMALL_BYTES));
    measured.chain(missing).collect()
}

/// Ours over the stream socket, by the number of clients; and ours with most clients over ours
/// with one.
pub fn ratios(found: &Throughputs) -> Vec<Ratio> {
    let mut ratios = Vec::new();
    let ratio = |name: String, over, under| {
        let (over, under) = (found.measured.get(&over)?, found.measured.get(&under)?);
        let median = |of: &Load| Some(Spread::of(of.calls_per_second.iter().copied())?.median);
        let rounds = over.calls_per_second.iter().zip(&under.calls_per_second);
        let spread = Spread::of(rounds.map(|(over, under)| over / under));
        Some(Ratio::new(name, Ok((median(over)? / median(under)?, spread)), None))
    };
    for system in [BatonTyped, BatonUapiLibc] {
        let key = system.key().replace("baton_", "");
        let clients = || found.measured.keys().filter(|case| case.1 == system).map(|case| case.0);
        for n in clients() {
            ratios.extend(ratio(format!("throughput_{n}_{key}_over_unix"), (n, system), (n, Unix)));
        }
        if let (Some(least), Some(most)) = (clients().min(), clients().max())
            && least < most
        {
            let name = format!("throughput_{key}_{most}_over_{least}");
            ratios.extend(ratio(name, (most, system), (least, system)));
        }
    }
    ratios
}

pub fn charts(found: &Throughputs) -> Vec<Chart> {
    let mut numbers: Vec<usize> = found.measured.keys().map(|case| case.0).collect();
    numbers.dedup();
    let line = |system: System| {
        let point = |&number: &usize| {
            let throughput = found.measured.get(&(number, system))?.throughput()?;
            let [least, greatest] = throughput.calls_per_second_spread;
            Some((number, [throughput.calls_per_second, least, greatest]))
        };
        let points: Vec<_> = numbers.iter().filter_map(point).collect();
        (!points.is_empty()).then(|| (system.name(), points))
    };
    let lines: Vec<_> = SYSTEMS.into_iter().filter_map(line).collect();
    let title = "calls a second, by the number of clients".to_owned();
    let calls = Chart::ByNumber { title, unit: Unit::CallsPerSecond, lines };
    let times = numbers.iter().filter_map(|&number| {
        let loads = found.measured.iter().filter(|(case, _)| case.0 == number);
        let times = loads.map(|(case, load)| (case.1.name(), &load.times));
        chart::percentiles(format!("clients at once: {number}"), times)
    });
    (!numbers.is_empty()).then_some(calls).into_iter().chain(times).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(rounds: &[u64]) -> Load {
        let mut load = Load::default();
        for &duration_ns in rounds {
            let times_ns = vec![vec![100, 200, 300], vec![400]];
            load.add(Together { times_ns, duration_ns });
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
        let ratios = ratios(&found);
        let names: Vec<_> = ratios.iter().map(|ratio| (&ratio.name[..], ratio.value)).collect();
        let expected =
            [("throughput_1_typed_over_unix", Some(2.0)), ("throughput_typed_8_over_1", Some(2.0))];
        assert_eq!(names, expected);
    }

    #[test]
    fn each_client_calls_a_fixed_number_of_times() {
        let plan = Plan { clients: vec![1, 2, 8, 64], rounds: 1, n_calls: 1000 };
        assert_eq!([1, 2, 8, 64].map(|n| plan.chunk(n).n_calls), [1000, 500, 200, 200]);
        assert_eq!(Plan { n_calls: 2, ..plan }.chunk(64).n_calls, 1);
    }
}
