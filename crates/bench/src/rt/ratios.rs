//! What the `rt` benchmark must hold.

use crate::distribution::{Distribution, Spread, Summary};
use crate::report::{Bar, Ratio};
use crate::rt::RtArgs;
use crate::rt::found::{Case, Found, Inversion, Leg};
use crate::rt::way::Way;
use std::cmp::Reverse;

/// How many real-time callers one is compared with, as in the thesis.
const SEVEN: usize = 7;

type Value = fn(&Summary) -> f64;

const P99: Value = |round| round.p99 as f64;
const P999: Value = |round| round.p999 as f64;
const MAX: Value = |round| round.max as f64;
const MEAN: Value = |round| round.mean;

/// Of which cases ratios are.
struct Bars<'a> {
    found: &'a Found,
    level: u8,
    most: usize,
}

/// Every ratio that has a bar, and others that a reader asks for.
pub fn of(found: &Found, args: &RtArgs) -> Vec<Ratio> {
    let most = args.callers.iter().copied().max().unwrap_or(0);
    let bars = Bars { found, level: found.level, most };
    let mut ratios = bars.of_load().to_vec();
    ratios.extend(bars.of_peers());
    ratios.push(bars.of_seven());
    ratios.extend(bars.of_inversion());
    ratios
}

impl Bars<'_> {
    fn leg(&self, way: Way, callers: usize, leg: Leg) -> Result<&Distribution, String> {
        let case = Case { real_time_callers: 1, level: Reverse(self.level), callers, way };
        self.found.leg(&case, leg)
    }

    /// What ordinary callers do to a real-time call on its way to the handler.
    fn of_load(&self) -> [Ratio; 2] {
        [("loaded_p99_over_idle", P99, 2.0), ("loaded_p999_over_idle", P999, 3.0)].map(
            |(name, value, bar)| {
                let of = |callers| self.leg(Way::BatonTyped, callers, Leg::Call);
                divide(name, of(self.most), of(0), value, Some(Bar::AtMost(bar)))
            },
        )
    }

    /// Whole calls, among the most ordinary callers.
    fn of_peers(&self) -> Vec<Ratio> {
        let of = |way| self.leg(way, self.most, Leg::Whole);
        let typed = || of(Way::BatonTyped);
        let at_least = |bar| Some(Bar::AtLeast(bar));
        let mqueue = "typed_p99_over_tuned_mqueue";
        let mut ratios = vec![
            divide("unix_p99_over_typed", of(Way::Unix), typed(), P99, at_least(3.0)),
            divide("unix_max_over_typed", of(Way::Unix), typed(), MAX, at_least(3.0)),
            divide("socket_rpc_p99_over_typed", of(Way::RsbinderRpc), typed(), P99, at_least(10.0)),
            divide(mqueue, typed(), of(Way::Mqueue), P99, Some(Bar::AtMost(1.0))),
        ];
        let wake_up = match self.found.wake_ups.get(&self.most) {
            Some(measured) => measured.as_ref().map_err(|why| format!("cyclictest: {why}")),
            None => Err("cyclictest was not measured".to_owned()),
        };
        ratios.push(divide("typed_max_over_cyclictest", typed(), wake_up, MAX, None));
        ratios
    }

    /// Mean T_CALL of seven real-time callers, and of one.
    fn of_seven(&self) -> Ratio {
        let of = |real_time_callers| {
            let level = Reverse(self.level);
            let case = Case { real_time_callers, level, callers: self.most, way: Way::BatonTyped };
            self.found.leg(&case, Leg::Call)
        };
        divide("seven_callers_over_one", of(SEVEN), of(1), MEAN, Some(Bar::AtMost(1.3)))
    }

    /// The longest delay of a round, in microseconds; and what it is where the priority may not come with the call.
    fn of_inversion(&self) -> [Ratio; 2] {
        [("inversion_delay_us", true), ("inversion_without_inheritance_delay_us", false)].map(
            |(name, allowed)| {
                let inversion = Inversion { way: Way::BatonTyped, allowed };
                let times = match self.found.inversions.get(&inversion) {
                    Some(measured) => measured.as_ref().map_err(String::clone),
                    None => Err("inversion was not measured".to_owned()),
                };
                let longest_us = |times: &Distribution| -> Option<Spread> {
                    times.over_rounds(|round| round.max as f64 / 1e3)
                };
                let value =
                    times.and_then(|times| longest_us(times).ok_or_else(|| "no round".to_owned()));
                let value = value.map(|spread| (spread.median, Some(spread)));
                Ratio::new(name.to_owned(), value, allowed.then_some(Bar::AtMost(1000.0)))
            },
        )
    }
}

type Times<'a> = Result<&'a Distribution, String>;

/// Of the medians of the rounds' values.
fn divide(name: &str, over: Times<'_>, under: Times<'_>, value: Value, bar: Option<Bar>) -> Ratio {
    let divided = over.and_then(|over| Ok(Distribution::ratio_of(over, under?, value)));
    Ratio::new(name.to_owned(), divided, bar)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        args: RtArgs,
    }

    fn add(
        found: &mut Found,
        way: Way,
        callers: usize,
        real_time_callers: usize,
        times_ns: [u64; 3],
    ) {
        let case = Case { real_time_callers, level: Reverse(80), callers, way };
        let legs = times_ns.map(|time_ns| {
            let mut leg = Distribution::default();
            leg.add_round(&[time_ns]);
            leg
        });
        found.calls.insert(case, Ok(legs));
    }

    fn found() -> Found {
        let mut found = Found { level: 80, ..Found::default() };
        add(&mut found, Way::BatonTyped, 0, 1, [500, 250, 750]);
        add(&mut found, Way::BatonTyped, 100, 1, [1000, 300, 1300]);
        add(&mut found, Way::BatonTyped, 100, 7, [1350, 300, 1650]);
        add(&mut found, Way::Unix, 100, 1, [1, 1, 3900]);
        add(&mut found, Way::Mqueue, 100, 1, [1, 1, 1300]);
        let missing =
            Case { real_time_callers: 1, level: Reverse(80), callers: 100, way: Way::RsbinderRpc };
        found.calls.insert(missing, Err("not there".to_owned()));
        for (allowed, delay_ns) in [(true, 999_000), (false, 45_000_000)] {
            let mut times = Distribution::default();
            times.add_round(&[1, delay_ns]);
            found.inversions.insert(Inversion { way: Way::BatonTyped, allowed }, Ok(times));
        }
        found
    }

    fn ratio(name: &str) -> Ratio {
        let args = Words::parse_from(["rt"]).args;
        of(&found(), &args).into_iter().find(|ratio| ratio.name == name).unwrap()
    }

    #[test]
    fn each_is_of_its_own_leg() {
        for (name, value, holds) in [
            ("loaded_p99_over_idle", 2.0, Some(true)),
            ("loaded_p999_over_idle", 2.0, Some(true)),
            ("unix_p99_over_typed", 3.0, Some(true)),
            ("unix_max_over_typed", 3.0, Some(true)),
            ("typed_p99_over_tuned_mqueue", 1.0, Some(true)),
            ("seven_callers_over_one", 1.35, Some(false)),
            ("inversion_delay_us", 999.0, Some(true)),
            ("inversion_without_inheritance_delay_us", 45_000.0, None),
        ] {
            let ratio = ratio(name);
            assert_eq!((ratio.value, ratio.holds), (Some(value), holds), "{name}");
        }
    }

    #[test]
    fn what_is_missing_is_said() {
        let rpc = ratio("socket_rpc_p99_over_typed");
        assert_eq!((rpc.value, rpc.holds), (None, Some(false)));
        assert_eq!(rpc.why.as_deref(), Some("rsbinder-rpc: not there"));
        assert!(ratio("typed_max_over_cyclictest").why.is_some());
    }
}
