//! The typed API beside itself, in two settings that take turns.
//!
//! - A call while a server's other lanes are idle: as many clients as there are lanes, one of which
//!   calls.
//! - A call that sleeps at both ends, where the looper follows its caller's processor and where it
//!   does not. Both ends are put on different processors, for a few calls. Then the server is let
//!   go, wherever it and the kernel like; the client stays. Spinning is switched off: a looper
//!   follows instead.

use crate::form::BenchError;
use crate::order::{Chunk, Side};
use crate::pair::{Endpoint, Pair, PairError, Place};
use crate::payload::SMALL_BYTES;
use crate::plan::Plan;
use crate::processors::Placement;
use crate::report::{Bar, Ratio, RowKey};
use crate::results::{P50, Results};
use crate::service::Service;
use crate::system::System;
use crate::testbed::Testbed;

const SYSTEM: System = System::BatonTyped;
/// Numbers of lanes, with their curves' names.
const LANES: [(usize, &str); 2] = [(2, "lanes-2"), (256, "lanes-256")];
/// Calls before a round, at least: after 1024 of one client's the others are looked at no more.
const LEAST_WARM_UP: u32 = 2048;
/// How both ends wait: whether the looper follows, and the setting for it.
const SETTINGS: [(bool, &[(&str, &str)]); 2] = [
    (false, &[("BATON_SPIN_US", "0"), ("BATON_FOLLOW", "0")]),
    (true, &[("BATON_SPIN_US", "0"), ("BATON_FOLLOW", "1")]),
];
/// Sleeps between two calls, in microseconds, with how many times fewer calls are then enough; the
/// ratio's name and bar.
const DELAYS: [(u64, u32, &str, Option<Bar>); 2] = [
    (0, 1, "blocking_following_over_not", Some(Bar::AtMost(1.1))),
    (200, 5, "blocking_200us_following_over_not", None),
];
/// Calls on different processors: too few for a looper that thinks of following.
const N_APART: u32 = 4;

fn key(case: &'static str) -> RowKey {
    RowKey::new(SYSTEM.name(), case).bytes(SMALL_BYTES)
}

fn idle_lanes() -> RowKey {
    key("idle-lanes")
}

fn among(placement: Placement, (lanes, label): (usize, &'static str)) -> RowKey {
    let title = format!("among idle lanes, {}", Placement::title(Some(placement)));
    idle_lanes().at(placement).with("lanes", lanes).heading(title).label(label)
}

fn blocking(delay_us: u64, follows: bool) -> RowKey {
    let title = format!("blocking, following and not, {delay_us} us between calls");
    let key = key("follow").with("follows", follows).with("delay_us", delay_us);
    key.heading(title).label(if follows { "follows" } else { "follows-not" })
}

/// Measures in turn among few lanes and among many; and then with following and without.
pub fn measure(plan: &Plan, found: &mut Results) -> Result<(), BenchError> {
    measure_idle_lanes(plan, found)?;
    let done = match plan.processors.other {
        Some(_) => measure_following(plan, found),
        None => Err("there is one processor".to_owned()),
    };
    found.ok(key("follow"), done);
    Ok(())
}

fn measure_idle_lanes(plan: &Plan, found: &mut Results) -> Result<(), BenchError> {
    let testbeds = [Testbed::start()?, Testbed::start()?];
    // A server, one client that calls, and others that do not.
    let start = |((lanes, _), testbed): (_, &Testbed)| -> Result<_, PairError> {
        let place = testbed.place(Service::Echo);
        Ok((Pair::start(SYSTEM, place)?, Endpoint::start(SYSTEM, Side::Idlers, place, lanes - 1)?))
    };
    let places = LANES.into_iter().zip(&testbeds);
    let mut servers = found.start(places, |place| (idle_lanes(), start(place)));
    if servers.len() < LANES.len() {
        return Ok(());
    }
    for &placement in &plan.placements {
        let n_warm_up = (plan.n_calls / 10).max(LEAST_WARM_UP);
        let chunk = Chunk::new(placement, SMALL_BYTES, n_warm_up, plan.n_calls);
        for _ in 0..plan.rounds {
            servers.retain_mut(|((lanes, _), (pair, _))| {
                let times_ns = pair.measure(&chunk, &plan.processors);
                found.add_times(among(placement, *lanes), times_ns)
            });
        }
    }
    Ok(())
}

fn measure_following(plan: &Plan, found: &mut Results) -> Result<(), String> {
    let failed = |error: PairError| error.to_string();
    let mut pairs = Vec::new();
    for (follows, environment) in SETTINGS {
        let testbed = Testbed::start().map_err(|error| error.to_string())?;
        let place = Place { environment, ..testbed.place(Service::Echo) };
        pairs.push((follows, Pair::start(SYSTEM, place).map_err(failed)?, testbed));
    }
    let apart = Chunk::new(Placement::Different, SMALL_BYTES, 1, N_APART - 1);
    for (delay_us, fewer, ..) in DELAYS {
        let n_calls = (plan.n_calls / fewer).max(1);
        let free = Chunk { n_warm_up: (n_calls / 2).max(1), n_calls, delay_us, ..apart };
        for _ in 0..plan.rounds {
            for (follows, pair, _) in &mut pairs {
                pair.measure(&apart, &plan.processors).map_err(failed)?;
                let points = pair.find(&free, [Some(plan.processors.client), None]);
                let times_ns = points.map_err(failed)?.pop().unwrap_or_default();
                found.add_times(blocking(delay_us, *follows), Ok::<_, String>(times_ns));
            }
        }
    }
    Ok(())
}

/// Many lanes over few: as much, but for what two equal runs differ by. With following over
/// without: no worse where the kernel brings both together by itself, which after a sleep it mostly
/// does.
pub fn ratios(found: &Results) -> Vec<Ratio> {
    let over = |placement, name| {
        let [few, many] = LANES.map(|lanes| among(placement, lanes));
        found.ratio(name, [&many, &few], P50, Bar::AtMost(1.1))
    };
    let mut ratios = vec![over(Placement::Same, "idle_lanes_256_over_2")];
    if LANES.iter().any(|&lanes| found.find(&among(Placement::Different, lanes)).is_ok()) {
        ratios.push(over(Placement::Different, "idle_lanes_256_over_2_diff"));
    }
    for (delay_us, _, name, bar) in DELAYS {
        let keys = [true, false].map(|follows| blocking(delay_us, follows));
        ratios.push(found.ratio(name, keys.each_ref(), P50, bar));
    }
    ratios
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_lanes_may_cost_what_few_do() {
        for (many_ns, holds) in [(1_000, true), (1_100, true), (1_110, false)] {
            let mut found = Results::default();
            for (lanes, time_ns) in LANES.into_iter().zip([1_000, many_ns]) {
                found.add_times(among(Placement::Same, lanes), Ok::<_, String>(vec![time_ns]));
            }
            let [ratio, _, _] = &ratios(&found)[..] else { panic!("one placement, one ratio") };
            assert_eq!(ratio.holds, Some(holds));
        }
    }

    #[test]
    fn a_missing_server_is_named() {
        let mut found = Results::default();
        found.ok(idle_lanes(), Err::<(), _>("no room"));
        assert_eq!(ratios(&found)[0].why.as_deref(), Some("baton-typed: no room"));
    }

    #[test]
    fn following_is_told_over_not_following() {
        let mut found = Results::default();
        for (follows, time_ns) in [(false, 1_000), (true, 100)] {
            found.add_times(blocking(200, follows), Ok::<_, String>(vec![time_ns]));
        }
        let [_, blocking, delayed] = &ratios(&found)[..] else { panic!("one for each delay") };
        assert_eq!((blocking.value, delayed.value), (None, Some(0.1)));
    }
}
