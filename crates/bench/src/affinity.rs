//! What a call costs that sleeps at both ends, where the looper follows its caller's processor and
//! where it does not.
//!
//! Both ends are put on different processors, for a few calls. Then the server is let go, wherever
//! it and the kernel like; the client stays. Spinning is switched off: a looper follows instead.

use crate::form::BenchError;
use crate::pair::{Chunk, Pair, PairError, Place};
use crate::payload::SMALL_BYTES;
use crate::processors::Placement;
use crate::report::{Bar, Ratio, RowKey};
use crate::results::{P50, Results, ratio};
use crate::service::Service;
use crate::system::System;
use crate::testbed::{Setting, Testbed};

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

fn key() -> RowKey {
    RowKey::new(SYSTEM.name(), "follow").bytes(SMALL_BYTES)
}

fn case(delay_us: u64, follows: bool) -> RowKey {
    let title = format!("blocking, following and not, {delay_us} us between calls");
    let key = key().with("follows", follows).with("delay_us", delay_us);
    key.heading(title).label(if follows { "follows" } else { "follows-not" })
}

/// Measures, in turn with and without.
pub fn measure(setting: &Setting, rounds: u32, n_calls: u32) -> Result<Results, BenchError> {
    let mut found = Results::default();
    if setting.processors.other.is_none() {
        found.ok(key(), Err::<(), _>("there is one processor"));
        return Ok(found);
    }
    let testbeds = [Testbed::start()?, Testbed::start()?];
    let done = take(&mut found, &testbeds, setting, rounds, n_calls);
    found.ok(key(), done);
    Ok(found)
}

fn take(
    found: &mut Results,
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
                found.add_times(case(delay_us, *follows), Ok::<_, PairError>(times_ns));
            }
        }
    }
    Ok(())
}

/// With over without: no worse where the kernel brings both together by itself, which after a
/// sleep it mostly does.
pub fn ratios(found: &Results) -> Vec<Ratio> {
    let over = |(delay_us, _, name, bar): (u64, u32, &str, Option<Bar>)| {
        let find = |follows| found.find(&case(delay_us, follows));
        ratio(name, find(true), find(false), P50, bar)
    };
    DELAYS.map(over).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn following_is_told_over_not_following() {
        let mut found = Results::default();
        for (follows, time_ns) in [(false, 1_000), (true, 100)] {
            found.add_times(case(200, follows), Ok::<_, String>(vec![time_ns]));
        }
        let [blocking, delayed] = &ratios(&found)[..] else { panic!("one for each delay") };
        assert_eq!((blocking.value, delayed.value), (None, Some(0.1)));
    }
}
