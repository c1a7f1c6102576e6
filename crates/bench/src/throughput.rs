//! Calls a second of one server, by how many clients call at once.

use crate::chart::{Chart, Unit};
use crate::form::{BenchError, progress};
use crate::order::Chunk;
use crate::pair::{ClientGroup, Together};
use crate::payload::SMALL_BYTES;
use crate::plan::Plan;
use crate::report::{Keys, Ratio, RowKey};
use crate::results::{Results, Rounds};
use crate::service::Service;
use crate::system::System::{self, *};
use crate::testbed::Testbed;

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

/// Each client calls a fixed number of times: fewer than alone, since all of them take that much
/// longer, but enough that they meet.
fn chunk(n_calls: u32, n_clients: usize) -> Chunk {
    let n_calls = (n_calls / n_clients.clamp(1, 5) as u32).max(1);
    Chunk::new(None, SMALL_BYTES, (n_calls / 10).max(1), n_calls)
}

/// Measures those systems of the plan that can be.
pub fn measure(plan: &Plan, found: &mut Results) -> Result<(), BenchError> {
    let Some(&most) = plan.clients.last() else { return Ok(()) };
    let testbed = Testbed::start()?;
    let place = testbed.place(Service::Echo);
    let mut groups = found.start(plan.wanted(SYSTEMS), |system| {
        (key(system), ClientGroup::start(system, most, place))
    });
    let progress = progress(plan.clients.len() * plan.rounds as usize);
    for &n_clients in &plan.clients {
        progress.set_message(format!("{n_clients} clients"));
        let chunk = chunk(plan.n_calls, n_clients);
        for _ in 0..plan.rounds {
            groups.retain_mut(|(system, group)| {
                let round = group.measure(n_clients, &chunk);
                found.add(case(n_clients, *system), round, add)
            });
            progress.inc(1);
        }
    }
    Ok(())
}

pub fn add(rounds: &mut Rounds, together: Together) {
    rounds.times.add_round(&together.times_ns.concat());
    rounds.add_value(CALLS, together.calls_per_second());
    if let Some(medians) = together.medians_ns() {
        rounds.add_value(LEAST, medians.least);
        rounds.add_value(GREATEST, medians.greatest);
    }
}

/// Of rounds of many clients, what else than times their rows tell.
pub fn keys(rounds: &Rounds) -> Keys {
    let clients = rounds.spread(LEAST).zip(rounds.spread(GREATEST));
    let Some((calls, (least, greatest))) = rounds.spread(CALLS).zip(clients) else {
        return Keys::new();
    };
    let ends = [calls.least.round(), calls.greatest.round()];
    vec![
        (CALLS, calls.median.round().into()),
        ("calls_per_second_spread", ends.to_vec().into()),
        ("client_p50_spread_ns", vec![least.median, greatest.median].into()),
    ]
}

/// Ours over the stream socket, by the number of clients; and ours with most clients over ours
/// with one.
pub fn ratios(found: &Results) -> Vec<Ratio> {
    let numbers = numbers(found);
    let mut ratios = Vec::new();
    let mut add = |name: String, over, under| {
        let ratio = found.ratio(name, [&over, &under], |rounds| rounds.values(CALLS), None);
        ratios.extend(Some(ratio).filter(|ratio| ratio.value.is_some()));
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
    let rows = found.measured().filter(|(key, _)| key.case == CASE);
    let mut numbers: Vec<usize> = rows.filter_map(|(key, _)| number(key)).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

pub fn chart(found: &Results) -> Option<Chart> {
    let numbers = numbers(found);
    let line = |system: System| {
        let point = |&number: &usize| {
            let calls = found.find(&case(number, system)).ok()?.spread(CALLS)?;
            Some((number, [calls.median, calls.least, calls.greatest]))
        };
        let points: Vec<_> = numbers.iter().filter_map(point).collect();
        (!points.is_empty()).then(|| (system.name(), points))
    };
    let lines: Vec<_> = SYSTEMS.into_iter().filter_map(line).collect();
    let title = "calls a second, by the number of clients".to_owned();
    let calls = Chart::ByNumber { title, unit: Unit::CallsPerSecond, lines };
    (!numbers.is_empty()).then_some(calls)
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
        let more = keys(found.find(&case(2, Unix)).unwrap());
        let more: Vec<_> = more.into_iter().map(|(_, it)| it).collect();
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
        assert_eq!([1, 2, 8, 64].map(|n| chunk(1000, n).n_calls), [1000, 500, 200, 200]);
        assert_eq!(chunk(2, 64).n_calls, 1);
    }
}
