//! What a call costs that sleeps at both ends, where the looper follows its caller's processor and
//! where it does not.
//!
//! Both ends are put on different processors, for a few calls. Then the server is let go, wherever
//! it and the kernel like; the client stays. Spinning is switched off: a looper follows instead.

use crate::chart::{self, Chart};
use crate::form::BenchError;
use crate::pair::{Chunk, Pair, PairError, Place};
use crate::processors::Placement;
use crate::ratios::SMALL_BYTES;
use crate::report::{Bar, Detail, Outcome, Ratio, Row};
use crate::results::Results;
use crate::service::Service;
use crate::system::System;
use crate::testbed::{Setting, Testbed};

const CASE: &str = "follow";
const SYSTEM: System = System::BatonTyped;
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

/// By the sleep between calls, and whether the looper follows.
pub type Affinity = Results<(u64, bool)>;

/// Measures, in turn with and without.
pub fn measure(setting: &Setting, rounds: u32, n_calls: u32) -> Result<Affinity, BenchError> {
    let mut found = Affinity::default();
    if setting.processors.other.is_none() {
        found.ok(SYSTEM.name(), Err::<(), _>("there is one processor"));
        return Ok(found);
    }
    let testbeds = [Testbed::start()?, Testbed::start()?];
    let done = take(&mut found, &testbeds, setting, rounds, n_calls);
    found.ok(SYSTEM.name(), done);
    Ok(found)
}

fn take(
    found: &mut Affinity,
    testbeds: &[Testbed; 2],
    setting: &Setting,
    rounds: u32,
    n_calls: u32,
) -> Result<(), PairError> {
    let mut pairs = Vec::new();
    for ((follows, environment), testbed) in SETTINGS.into_iter().zip(testbeds) {
        let place = Place { environment, ..testbed.place(Service::Echo) };
        pairs.push((follows, Pair::start(SYSTEM, place)?));
    }
    let apart = Chunk::new(Placement::Different, SMALL_BYTES, 1, N_APART - 1);
    for (delay_us, fewer, ..) in DELAYS {
        let n_calls = (n_calls / fewer).max(1);
        let free = Chunk { n_warm_up: (n_calls / 2).max(1), n_calls, delay_us, ..apart };
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

pub fn rows(found: &Affinity) -> Vec<Row> {
    let measured = found.measured.iter().filter_map(|(&(delay_us, follows), times)| {
        let row = Row::new(SYSTEM.name(), CASE, Outcome::of(times)?);
        Some(row.bytes(SMALL_BYTES).detail(Detail::Follow { follows, delay_us }))
    });
    let missing = found.missing_rows(CASE).map(|row| row.bytes(SMALL_BYTES));
    measured.chain(missing).collect()
}

/// With over without: no worse where the kernel brings both together by itself, which after a
/// sleep it mostly does.
pub fn ratios(found: &Affinity) -> Vec<Ratio> {
    let ratio = |(delay_us, _, name, bar): (u64, u32, &str, Option<Bar>)| {
        let find = |follows| found.find(&(delay_us, follows), SYSTEM.name());
        Ratio::of(name, find(true), find(false), bar)
    };
    DELAYS.map(ratio).into()
}

pub fn charts(found: &Affinity) -> impl Iterator<Item = Chart> {
    DELAYS.into_iter().filter_map(|(delay_us, ..)| {
        let cases = found.measured.iter().filter(move |(case, _)| case.0 == delay_us);
        let name = |follows| if follows { "follows" } else { "follows-not" };
        let title = format!("blocking, following and not, {delay_us} us between calls");
        chart::percentiles(title, cases.map(|(case, times)| (name(case.1), times)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn following_is_told_over_not_following() {
        let mut found = Affinity::default();
        for (follows, time_ns) in [(false, 1_000), (true, 100)] {
            found.measured.entry((200, follows)).or_default().add_round(&[time_ns]);
        }
        let [blocking, delayed] = &ratios(&found)[..] else { panic!("one for each delay") };
        assert_eq!((blocking.value, delayed.value), (None, Some(0.1)));
    }
}
