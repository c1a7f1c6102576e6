//! What a call costs while a server's other lanes are idle: as many clients as there are lanes,
//! one of which calls.

use crate::form::BenchError;
use crate::order::Side;
use crate::pair::{Chunk, Endpoint, Pair, PairError};
use crate::payload::SMALL_BYTES;
use crate::processors::Placement;
use crate::report::{Bar, Ratio, RowKey};
use crate::results::{P50, Results, ratio};
use crate::service::Service;
use crate::system::System;
use crate::testbed::{Setting, Testbed};
use crate::turns::each_step;

/// Numbers of lanes, with their curves' names.
const LANES: [(usize, &str); 2] = [(2, "lanes-2"), (256, "lanes-256")];
/// Calls before a round, at least: after 1024 of one client's the others are looked at no more.
const LEAST_WARM_UP: u32 = 2048;
const SYSTEM: System = System::BatonTyped;

fn key() -> RowKey {
    RowKey::new(SYSTEM.name(), "idle-lanes").bytes(SMALL_BYTES)
}

fn among(placement: Placement, (lanes, label): (usize, &'static str)) -> RowKey {
    let title = format!("among idle lanes, {}", Placement::title(Some(placement)));
    key().at(placement).with("lanes", lanes).heading(title).label(label)
}

/// A server, one client that calls and others that do not.
fn start(testbed: &Testbed, lanes: usize) -> Result<(Pair, Endpoint), PairError> {
    let place = testbed.place(Service::Echo);
    Ok((Pair::start(SYSTEM, place)?, Endpoint::start(SYSTEM, Side::Idlers, place, lanes - 1)?))
}

/// Measures, in turn among few and among many.
pub fn measure(setting: &Setting, rounds: u32, n_calls: u32) -> Result<Results, BenchError> {
    let mut found = Results::default();
    let testbeds = [Testbed::start()?, Testbed::start()?];
    let mut servers = Vec::new();
    for (lanes, testbed) in LANES.into_iter().zip(&testbeds) {
        let Some(started) = found.ok(key(), start(testbed, lanes.0)) else { return Ok(found) };
        servers.push((lanes, started));
    }
    let n_warm_up = (n_calls / 10).max(LEAST_WARM_UP);
    let title = |placement: &Placement| Placement::title(Some(*placement));
    each_step(rounds, &setting.placements(), title, |&placement| {
        let chunk = Chunk::new(placement, SMALL_BYTES, n_warm_up, n_calls);
        servers.retain_mut(|(lanes, (pair, _))| {
            let times_ns = pair.measure(&chunk, &setting.processors);
            found.add_times(among(placement, *lanes), times_ns)
        });
    });
    Ok(found)
}

/// Many over few: the same, but for what two runs of the same differ by.
pub fn ratios(found: &Results) -> Vec<Ratio> {
    let over = |placement, name| {
        let [few, many] = LANES.map(|lanes| found.find(&among(placement, lanes)));
        ratio(name, many, few, P50, Bar::AtMost(1.1))
    };
    let mut ratios = vec![over(Placement::Same, "idle_lanes_256_over_2")];
    if found.measured().any(|(key, _)| key.placement == Some(Placement::Different)) {
        ratios.push(over(Placement::Different, "idle_lanes_256_over_2_diff"));
    }
    ratios
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_lanes_may_cost_what_few_do() {
        for (many_ns, holds) in [(1_000, true), (1_100, true), (1_110, false)] {
            let mut idle = Results::default();
            for (lanes, time_ns) in LANES.into_iter().zip([1_000, many_ns]) {
                idle.add_times(among(Placement::Same, lanes), Ok::<_, String>(vec![time_ns]));
            }
            let [ratio] = &ratios(&idle)[..] else { panic!("one placement, one ratio") };
            assert_eq!(ratio.holds, Some(holds));
        }
    }

    #[test]
    fn a_missing_server_is_named() {
        let mut idle = Results::default();
        idle.ok(key(), Err::<(), _>("no room"));
        assert_eq!(ratios(&idle)[0].why.as_deref(), Some("baton-typed: no room"));
    }
}
