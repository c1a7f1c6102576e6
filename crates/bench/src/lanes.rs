//! What a call costs while a server's other lanes are idle: as many clients as there are lanes,
//! one of which calls.

use crate::distribution::Distribution;
use crate::endpoint::Side;
use crate::form::BenchError;
use crate::pair::{Chunk, Endpoint, Pair, PairError, Part};
use crate::processors::Placement;
use crate::ratios::SMALL_BYTES;
use crate::report::{Bar, Detail, Figures, Outcome, Ratio, Row};
use crate::service::Service;
use crate::stage::{Setting, Stage};
use crate::system::System;
use std::collections::BTreeMap;

/// Lanes, all but one idle.
const LANES: [usize; 2] = [2, 256];
const CASE: &str = "idle-lanes";
/// Calls before a round, at least: after 1024 of one client's the others are looked at no more.
const LEAST_WARM_UP: u32 = 2048;
const SYSTEM: System = System::BatonTyped;

/// What was measured, or why not.
#[derive(Debug, Default)]
pub struct Idle {
    /// By how the two sides lie, and the number of lanes.
    pub measured: BTreeMap<(Placement, usize), Distribution>,
    missing: Option<String>,
}

/// A server, one client that calls and others that do not.
struct Among {
    pair: Pair,
    _idlers: Endpoint,
    _stage: Stage,
}

impl Among {
    fn start(lanes: usize) -> Result<Result<Among, PairError>, BenchError> {
        let stage = Stage::set()?;
        let place = stage.place(Service::Echo);
        let started = Pair::start(SYSTEM, place).and_then(|pair| {
            let n_clients = lanes - 1;
            let part = Part { system: SYSTEM, side: Side::Idlers, place, n_clients };
            Ok((pair, Endpoint::start(&part)?))
        });
        Ok(started.map(|(pair, idlers)| Among { pair, _idlers: idlers, _stage: stage }))
    }
}

/// Measures, in turn among few and among many.
pub fn measure(setting: &Setting, rounds: u32, n_calls: u32) -> Result<Idle, BenchError> {
    let mut found = Idle::default();
    if let Err(why) = take(&mut found, setting, rounds, n_calls)? {
        found.missing = Some(why.to_string());
    }
    Ok(found)
}

fn take(
    found: &mut Idle,
    setting: &Setting,
    rounds: u32,
    n_calls: u32,
) -> Result<Result<(), PairError>, BenchError> {
    let mut servers = Vec::new();
    for lanes in LANES {
        match Among::start(lanes)? {
            Ok(among) => servers.push((lanes, among)),
            Err(why) => return Ok(Err(why)),
        }
    }
    for placement in setting.placements() {
        let n_warm_up = (n_calls / 10).max(LEAST_WARM_UP);
        let (payload_bytes, delay_us) = (SMALL_BYTES, 0);
        let placed = Some(placement);
        let chunk = Chunk { placement: placed, payload_bytes, n_warm_up, n_calls, delay_us };
        for _ in 0..rounds {
            for (lanes, among) in &mut servers {
                let times_ns = match among.pair.measure(&chunk, &setting.processors) {
                    Ok(times_ns) => times_ns,
                    Err(why) => return Ok(Err(why)),
                };
                found.measured.entry((placement, *lanes)).or_default().add_round(&times_ns);
            }
        }
    }
    Ok(Ok(()))
}

impl Idle {
    /// All, by the number of lanes.
    pub fn rows(&self) -> Vec<Row> {
        let measured = self.measured.iter().filter_map(|(&(placement, lanes), distribution)| {
            let outcome = Outcome::Measured(Figures::of(distribution)?);
            Some(row(Some(placement), Some(Detail::Lanes { lanes }), outcome))
        });
        let missing =
            self.missing.iter().map(|why| row(None, None, Outcome::Missing { why: why.clone() }));
        measured.chain(missing).collect()
    }

    /// Many over few: the same, but for what two runs of the same differ by.
    pub fn ratios(&self) -> Vec<Ratio> {
        let mut ratios = vec![self.ratio(Placement::Same, "idle_lanes_256_over_2")];
        if self.measured.keys().any(|case| case.0 == Placement::Different) {
            ratios.push(self.ratio(Placement::Different, "idle_lanes_256_over_2_diff"));
        }
        ratios
    }

    fn ratio(&self, placement: Placement, name: &str) -> Ratio {
        let find = |lanes| {
            let why = || self.missing.clone().unwrap_or_else(|| "not measured".to_owned());
            self.measured.get(&(placement, lanes)).ok_or_else(why)
        };
        let [few, many] = LANES;
        let value = find(many).and_then(|many| Ok(Distribution::ratio(many, find(few)?)));
        Ratio::new(name.to_owned(), value, Some(Bar::AtMost(1.1)))
    }
}

/// As a chart names it.
pub fn curve_name(lanes: usize) -> &'static str {
    if lanes == LANES[0] { "lanes-2" } else { "lanes-256" }
}

fn row(placement: Option<Placement>, detail: Option<Detail>, outcome: Outcome) -> Row {
    Row {
        system: SYSTEM.name(),
        case: CASE,
        payload_bytes: Some(SMALL_BYTES),
        placement,
        detail,
        outcome,
    }
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
            let [ratio] = &idle.ratios()[..] else { panic!("one placement, one ratio") };
            assert_eq!(ratio.holds, Some(holds));
        }
    }

    #[test]
    fn what_is_missing_is_said() {
        let idle = Idle { missing: Some("no room".to_owned()), ..Idle::default() };
        assert_eq!(idle.ratios()[0].why.as_deref(), Some("no room"));
        assert!(matches!(&idle.rows()[0].outcome, Outcome::Missing { why } if why == "no room"));
    }
}
