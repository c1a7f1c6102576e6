//! Calls a second of one server, by how many clients call at once.

use crate::chart::{Chart, Unit, point};
use crate::form::BenchError;
use crate::pair::{Chunk, ClientGroup, Together, start_each};
use crate::payload::SMALL_BYTES;
use crate::report::{Ratio, Row, RowKey};
use crate::results::{Results, Rounds, ratio};
use crate::service::Service;
use crate::system::System::{self, *};
use crate::testbed::Testbed;
use crate::turns::each_step;

/// Systems that are measured, if the run measures them at all. An inline system call costs what it
/// costs a single client, and systems that spin need a processor for each client.
const SYSTEMS: [System; 7] =
    [BatonTyped, BatonUapiLibc, KernelBinder, Futex, Pipe, Unix, UnixSeqpacket];
const CASE: &str = "throughput";

/// Values of a round: calls a second of all clients, from the first one's beginning to the last
/// one's end; the least and the greatest of the clients' own medians.
pub const CALLS: &str = "calls_per_second";
const LEAST: &str = "least_client_p50_ns";
const GREATEST: &str = "greatest_client_p50_ns";

fn key(system: System) -> RowKey {
    RowKey::new(system.name(), CASE).bytes(SMALL_BYTES)
}

fn case(n_clients: usize, system: System) -> RowKey {
    let title = format!("clients at once: {n_clients}");
    key(system).with("clients", n_clients).heading(title)
}

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
pub fn measure(systems: &[System], plan: &Plan) -> Result<Results, BenchError> {
    let mut found = Results::default();
    let Some(&most) = plan.clients.last() else { return Ok(found) };
    let testbed = Testbed::start()?;
    let systems = SYSTEMS.into_iter().filter(|system| systems.contains(system));
    let start = |system| ClientGroup::start(system, most, testbed.place(Service::Echo));
    let mut groups = start_each(systems, &mut found, key, start);
    let title = |n: &usize| format!("{n} clients");
    each_step(plan.rounds, &plan.clients, title, |&n_clients| {
        let chunk = plan.chunk(n_clients);
        groups.retain(|&system, group| {
            found.add(case(n_clients, system), group.measure(n_clients, &chunk), add)
        });
    });
    Ok(found)
}

pub fn add(rounds: &mut Rounds, together: Together) {
    rounds.times.add_round(&together.times_ns.concat());
    rounds.add_value(CALLS, together.calls_per_second());
    if let Some(medians) = together.medians_ns() {
        rounds.add_value(LEAST, medians.least);
        rounds.add_value(GREATEST, medians.greatest);
    }
}

/// All, by the number of clients.
pub fn rows(found: &Results) -> Vec<Row> {
    found.rows(|_, rounds| {
        let clients = rounds.spread(LEAST).zip(rounds.spread(GREATEST));
        let Some((calls, (least, greatest))) = rounds.spread(CALLS).zip(clients) else {
            return Vec::new();
        };
        let ends = [calls.least.round(), calls.greatest.round()];
        vec![
            (CALLS, calls.median.round().into()),
            ("calls_per_second_spread", ends.to_vec().into()),
            ("client_p50_spread_ns", vec![least.median, greatest.median].into()),
        ]
    })
}

/// Ours over the stream socket, by the number of clients; and ours with most clients over ours
/// with one.
pub fn ratios(found: &Results) -> Vec<Ratio> {
    let numbers = numbers(found);
    let mut ratios = Vec::new();
    let mut add = |name: String, over, under| {
        let both = found.find(&over).and_then(|over| Ok((over, found.find(&under)?)));
        ratios.extend(both.map(|(over, under)| {
            ratio(name, Ok(over), Ok(under), |rounds| rounds.values(CALLS), None)
        }));
    };
    for system in [BatonTyped, BatonUapiLibc] {
        let key = system.key().replace("baton_", "");
        for &n in &numbers {
            add(format!("throughput_{n}_{key}_over_unix"), case(n, system), case(n, Unix));
        }
        if let [least, .., most] = numbers[..] {
            let name = format!("throughput_{key}_{most}_over_{least}");
            add(name, case(most, system), case(least, system));
        }
    }
    ratios
}

/// How many clients called: ascending.
fn numbers(found: &Results) -> Vec<usize> {
    let number = |key: &RowKey| Some(key.more.first()?.1.as_u64()? as usize);
    let mut numbers: Vec<usize> = found.measured().filter_map(|(key, _)| number(key)).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

pub fn charts(found: &Results) -> Vec<Chart> {
    let numbers = numbers(found);
    let line = |system: System| {
        let at = |&number: &usize| {
            Some(point(number, found.find(&case(number, system)).ok()?.spread(CALLS)?))
        };
        let points: Vec<_> = numbers.iter().filter_map(at).collect();
        (!points.is_empty()).then(|| (system.name(), points))
    };
    let lines: Vec<_> = SYSTEMS.into_iter().filter_map(line).collect();
    let title = "calls a second, by the number of clients".to_owned();
    let calls = Chart::ByNumber { title, unit: Unit::CallsPerSecond, lines };
    (!numbers.is_empty()).then_some(calls).into_iter().chain(found.charts()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add_rounds(found: &mut Results, key: RowKey, rounds: &[u64]) {
        for &duration_ns in rounds {
            let times_ns = vec![vec![100, 200, 300], vec![400]];
            found.add(key.clone(), Ok::<_, String>(Together { times_ns, duration_ns }), add);
        }
    }

    #[test]
    fn of_rounds_the_median_is_said() {
        let mut found = Results::default();
        add_rounds(&mut found, case(2, Unix), &[4_000, 8_000, 2_000]);
        let more: Vec<_> = rows(&found)[0].more.iter().map(|(_, it)| it.clone()).collect();
        assert_eq!(serde_json::json!(more), serde_json::json!([1e6, [5e5, 2e6], [200.0, 400.0]]));
    }

    #[test]
    fn more_calls_a_second_are_more_than_one() {
        let mut found = Results::default();
        for (key, duration_ns) in
            [(case(1, BatonTyped), 2_000), (case(1, Unix), 4_000), (case(8, BatonTyped), 1_000)]
        {
            add_rounds(&mut found, key, &[duration_ns; 3]);
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
