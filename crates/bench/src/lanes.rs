//! What a call costs while a server's other lanes are idle: as many clients as there are lanes,
//! one of which calls.

use crate::chart::{self, Chart};
use crate::endpoint::Side;
use crate::form::BenchError;
use crate::pair::{Chunk, Endpoint, Pair, PairError};
use crate::processors::Placement;
use crate::ratios::SMALL_BYTES;
use crate::report::{Bar, Detail, Outcome, Ratio, Row};
use crate::results::Results;
use crate::service::Service;
use crate::system::System;
use crate::testbed::{Setting, Testbed};

const LANES: [usize; 2] = [2, 256];
const CASE: &str = "idle-lanes";
/// Calls before a round, at least: after 1024 of one client's the others are looked at no more.
const LEAST_WARM_UP: u32 = 2048;
const SYSTEM: System = System::BatonTyped;

/// By how the two sides lie, and the number of lanes.
pub type Idle = Results<(Placement, usize)>;

/// A server, one client that calls and others that do not.
fn start(testbed: &Testbed, lanes: usize) -> Result<(Pair, Endpoint), PairError> {
    let place = testbed.place(Service::Echo);
    Ok((Pair::start(SYSTEM, place)?, Endpoint::start(SYSTEM, Side::Idlers, place, lanes - 1)?))
}

/// Measures, in turn among few and among many.
pub fn measure(setting: &Setting, rounds: u32, n_calls: u32) -> Result<Idle, BenchError> {
    let mut found = Idle::default();
    let testbeds = [Testbed::start()?, Testbed::start()?];
    let mut servers = Vec::new();
    for (lanes, testbed) in LANES.into_iter().zip(&testbeds) {
        let Some(started) = found.ok(SYSTEM.name(), start(testbed, lanes)) else {
            return Ok(found);
        };
        servers.push((lanes, started));
    }
    for placement in setting.placements() {
        let n_warm_up = (n_calls / 10).max(LEAST_WARM_UP);
        let chunk = Chunk::new(placement, SMALL_BYTES, n_warm_up, n_calls);
        for _ in 0..rounds {
            for (lanes, (pair, _)) in &mut servers {
                let times_ns = pair.measure(&chunk, &setting.processors);
                if !found.add_times((placement, *lanes), SYSTEM.name(), times_ns) {
                    return Ok(found);
                }
            }
        }
    }
    Ok(found)
}

pub fn rows(found: &Idle) -> Vec<Row> {
    let row = |outcome| Row::new(SYSTEM.name(), CASE, outcome).bytes(SMALL_BYTES);
    let measured = found.measured.iter().filter_map(|(&(placement, lanes), times)| {
        Some(row(Outcome::of(times)?).at(placement).detail(Detail::Lanes { lanes }))
    });
    let missing = found.missing_rows(CASE).map(|row| row.bytes(SMALL_BYTES));
    measured.chain(missing).collect()
}

/// Many over few: the same, but for what two runs of the same differ by.
pub fn ratios(found: &Idle) -> Vec<Ratio> {
    let ratio = |placement, name| {
        let find = |lanes| found.find(&(placement, lanes), SYSTEM.name());
        Ratio::of(name, find(LANES[1]), find(LANES[0]), Some(Bar::AtMost(1.1)))
    };
    let mut ratios = vec![ratio(Placement::Same, "idle_lanes_256_over_2")];
    if found.measured.keys().any(|case| case.0 == Placement::Different) {
        ratios.push(ratio(Placement::Different, "idle_lanes_256_over_2_diff"));
    }
    ratios
}

pub fn charts(found: &Idle) -> impl Iterator<Item = Chart> {
    Placement::BOTH.into_iter().filter_map(|placement| {
        let cases = found.measured.iter().filter(|(case, _)| case.0 == placement);
        let name = |lanes| if lanes == LANES[0] { "lanes-2" } else { "lanes-256" };
        let title = format!("among 2 and 256 lanes, {}", Placement::title(Some(placement)));
        chart::percentiles(title, cases.map(|(case, times)| (name(case.1), times)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_lanes_may_cost_what_few_do() {
        for (many_ns, holds) in [(1_000, true), (1_100, true), (1_110, false)] {
            let mut idle = Idle::default();
            for (lanes, time_ns) in [(2, 1_000), (256, many_ns)] {
                idle.measured.entry((Placement::Same, lanes)).or_default().add_round(&[time_ns]);
            }
            let [ratio] = &ratios(&idle)[..] else { panic!("one placement, one ratio") };
            assert_eq!(ratio.holds, Some(holds));
        }
    }

    #[test]
    fn a_missing_server_is_named() {
        let mut idle = Idle::default();
        idle.missing.insert(SYSTEM.name(), "no room".to_owned());
        assert_eq!(ratios(&idle)[0].why.as_deref(), Some("baton-typed: no room"));
        assert!(matches!(&rows(&idle)[0].outcome, Outcome::Missing { why } if why == "no room"));
    }
}
