//! What a call costs that sleeps at both ends, where the looper follows its caller and where it
//! does not.
//!
//! Both ends are put on different processors, for a few calls. Then the server is let go, wherever
//! it and the kernel like; the client stays. Spinning is switched off: it is what a looper follows
//! instead of.

use crate::distribution::Distribution;
use crate::form::BenchError;
use crate::html;
use crate::pair::{Chunk, Pair, PairError, Place};
use crate::processors::Placement;
use crate::ratios::SMALL_BYTES;
use crate::report::{Bar, Detail, Figures, Outcome, Ratio, Row};
use crate::service::Service;
use crate::stage::{Setting, Stage};
use crate::system::System;
use std::collections::BTreeMap;

const CASE: &str = "follow";
const SYSTEM: System = System::BatonTyped;
/// How both ends wait: whether the looper follows, and what says so.
const WAYS: [(bool, &[(&str, &str)]); 2] = [
    (false, &[("BATON_SPIN_US", "0"), ("BATON_FOLLOW", "0")]),
    (true, &[("BATON_SPIN_US", "0"), ("BATON_FOLLOW", "1")]),
];
/// Sleeps between two calls, in microseconds, and how many times fewer calls are then enough.
const DELAYS: [(u64, u32); 2] = [(0, 1), (200, 5)];
/// Calls on different processors: too few for a looper that thinks of following.
const N_APART: u32 = 4;

/// What was measured, or why not.
#[derive(Debug, Default)]
pub struct Following {
    /// By the sleep between calls, and whether the looper follows.
    pub measured: BTreeMap<(u64, bool), Distribution>,
    missing: Option<String>,
}

/// Measures, in turn with and without.
pub fn measure(setting: &Setting, rounds: u32, n_calls: u32) -> Result<Following, BenchError> {
    let mut found = Following::default();
    if setting.processors.other.is_none() {
        found.missing = Some("there is one processor".to_owned());
        return Ok(found);
    }
    let stages = [Stage::set()?, Stage::set()?];
    if let Err(why) = take(&mut found, &stages, setting, rounds, n_calls) {
        found.missing = Some(why.to_string());
    }
    Ok(found)
}

fn take(
    found: &mut Following,
    stages: &[Stage; 2],
    setting: &Setting,
    rounds: u32,
    n_calls: u32,
) -> Result<(), PairError> {
    let mut pairs = Vec::new();
    for ((follows, environment), stage) in WAYS.into_iter().zip(stages) {
        let place = Place { environment, ..stage.place(Service::Echo) };
        pairs.push((follows, Pair::start(SYSTEM, place)?));
    }
    let apart = Chunk {
        placement: Some(Placement::Different),
        payload_bytes: SMALL_BYTES,
        n_warm_up: 1,
        n_calls: N_APART - 1,
        delay_us: 0,
    };
    for (delay_us, fewer) in DELAYS {
        let n_calls = (n_calls / fewer).max(1);
        let n_warm_up = (n_calls / 2).max(1);
        let free = Chunk { n_warm_up, n_calls, delay_us, ..apart };
        for _ in 0..rounds {
            for (follows, pair) in &mut pairs {
                pair.measure(&apart, &setting.processors)?;
                let times_ns = pair.measure_free_server(&free, &setting.processors)?;
                found.measured.entry((delay_us, *follows)).or_default().add_round(&times_ns);
            }
        }
    }
    Ok(())
}

impl Following {
    /// All, by the sleep between calls.
    pub fn rows(&self) -> Vec<Row> {
        let measured = self.measured.iter().filter_map(|(&(delay_us, follows), distribution)| {
            let outcome = Outcome::Measured(Figures::of(distribution)?);
            Some(row(Some(Detail::Follow { follows, delay_us }), outcome))
        });
        let missing =
            self.missing.iter().map(|why| row(None, Outcome::Missing { why: why.clone() }));
        measured.chain(missing).collect()
    }

    /// With over without: no worse where the kernel brings both together by itself, which after a
    /// sleep it mostly does.
    pub fn ratios(&self) -> Vec<Ratio> {
        let kinds = [
            ("blocking_following_over_not", Some(Bar::AtMost(1.1))),
            ("blocking_200us_following_over_not", None),
        ];
        let ratios = DELAYS.into_iter().zip(kinds);
        ratios.map(|((delay_us, _), (name, bar))| self.ratio(delay_us, name, bar)).collect()
    }

    fn ratio(&self, delay_us: u64, name: &str, bar: Option<Bar>) -> Ratio {
        let find = |follows| {
            let why = || self.missing.clone().unwrap_or_else(|| "not measured".to_owned());
            self.measured.get(&(delay_us, follows)).ok_or_else(why)
        };
        let value = find(true).and_then(|follows| Ok(Distribution::ratio(follows, find(false)?)));
        Ratio::new(name.to_owned(), value, bar)
    }

    /// As charts.
    pub fn charts(&self) -> String {
        let name = |follows| if follows { "follows" } else { "follows-not" };
        let chart = |(delay_us, _)| {
            let cases = self.measured.iter().filter(move |(case, _)| case.0 == delay_us);
            let named = cases.map(|(case, times)| (name(case.1), times));
            let title = format!("blocking, following and not, {delay_us} us between calls");
            html::chart(&title, named)
        };
        DELAYS.into_iter().map(chart).collect()
    }
}

fn row(detail: Option<Detail>, outcome: Outcome) -> Row {
    Row {
        system: SYSTEM.name(),
        case: CASE,
        payload_bytes: Some(SMALL_BYTES),
        placement: None,
        detail,
        outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn following_is_told_over_not_following() {
        let mut found = Following::default();
        for (follows, time_ns) in [(false, 1_000), (true, 100)] {
            found.measured.entry((200, follows)).or_default().add_round(&[time_ns]);
        }
        let [blocking, delayed] = &found.ratios()[..] else { panic!("one for each delay") };
        assert_eq!((blocking.value, delayed.value), (None, Some(0.1)));
    }

    #[test]
    fn what_is_missing_is_said() {
        let found = Following { missing: Some("no room".to_owned()), ..Following::default() };
        assert_eq!(found.ratios()[1].why.as_deref(), Some("no room"));
        assert!(matches!(&found.rows()[0].outcome, Outcome::Missing { why } if why == "no room"));
    }
}
