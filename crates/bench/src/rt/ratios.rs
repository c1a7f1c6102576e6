//! What the `rt` benchmark must hold.

use crate::distribution::{Distribution, Spread, Summary};
use crate::report::{Bar, Ratio};
use crate::rt::RtArgs;
use crate::rt::found::{Bound, Case, Inversion, Leg, Results};
use crate::rt::misuse::{Aim, Harm, Misuse};
use crate::rt::steady::Resource;
use crate::rt::way::Way;

/// How many real-time callers one is compared with, as in the thesis.
const SEVEN: usize = 7;

type Value = fn(&Summary) -> f64;

const P99: Value = |round| round.p99 as f64;
const P999: Value = |round| round.p999 as f64;
const MAX: Value = |round| round.max as f64;
const MEAN: Value = |round| round.mean;

/// Of which cases ratios are.
struct Bars<'a> {
    found: &'a Results,
    level: u8,
    most: usize,
}

/// Every ratio that has a bar, and others that a reader asks for.
pub fn of(found: &Results, args: &RtArgs) -> Vec<Ratio> {
    let most = args.callers.iter().copied().max().unwrap_or(0);
    let bars = Bars { found, level: found.level, most };
    let mut ratios = bars.of_load().to_vec();
    ratios.extend(bars.of_peers());
    ratios.push(bars.of_seven());
    ratios.extend(bars.of_inversion());
    ratios.extend(Resource::ALL.map(|resource| bars.of_steady(resource)));
    ratios.extend(Misuse::ALL.into_iter().flat_map(|misuse| bars.of_misuse(misuse)));
    ratios
}

impl Bars<'_> {
    /// Of one caller.
    fn leg(&self, way: Way, callers: usize, bound: Bound, leg: Leg) -> Times<'_> {
        self.found.leg(&Case::one(way, self.level, callers).bound(bound), leg)
    }

    /// The whole call of one among the most others.
    fn whole(&self, way: Way, bound: Bound) -> Times<'_> {
        self.leg(way, self.most, bound, Leg::Whole)
    }

    /// What ordinary callers do to a real-time call on its way to the handler.
    fn of_load(&self) -> [Ratio; 2] {
        [("loaded_p99_over_idle", P99, 2.0), ("loaded_p999_over_idle", P999, 3.0)].map(
            |(name, value, bar)| {
                let of = |callers| self.leg(Way::BatonTyped, callers, Bound::Caller, Leg::Call);
                divide(name, of(self.most), of(0), value, Some(Bar::AtMost(bar)))
            },
        )
    }

    /// Whole calls of bound callers, among the most ordinary ones.
    fn of_peers(&self) -> Vec<Ratio> {
        let of = |way| self.whole(way, Bound::Caller);
        let typed = || of(Way::BatonTyped);
        let at_least = |bar| Some(Bar::AtLeast(bar));
        let mut ratios = vec![
            divide("unix_p99_over_typed", of(Way::Unix), typed(), P99, at_least(3.0)),
            divide("unix_max_over_typed", of(Way::Unix), typed(), MAX, at_least(3.0)),
            divide("socket_rpc_p99_over_typed", of(Way::RsbinderRpc), typed(), P99, at_least(10.0)),
        ];
        ratios.extend(self.of_mqueue());
        ratios.push(self.of_kernel());
        let wake_up = match self.found.wake_ups.get(&self.most) {
            Some(measured) => measured.as_ref().map_err(|why| format!("cyclictest: {why}")),
            None => Err("cyclictest was not measured".to_owned()),
        };
        ratios.push(divide("typed_max_over_cyclictest", typed(), wake_up, MAX, None));
        ratios
    }

    /// Nothing is wrong where the kernel has no Binder driver.
    fn of_kernel(&self) -> Ratio {
        let of = |way| self.leg(way, self.most, Bound::Caller, Leg::Call);
        let bar = self.found.has_kernel_binder.then_some(Bar::AtLeast(3.0));
        let (kernel, typed) = (of(Way::KernelBinder), of(Way::BatonTyped));
        divide("kernel_p999_over_typed", kernel, typed, P999, bar)
    }

    /// The queue's server has the better of its two places; beside that, each of the two, and
    /// nobody bound.
    fn of_mqueue(&self) -> [Ratio; 4] {
        let typed = |bound| self.whole(Way::BatonTyped, bound);
        let queue = |bound| self.whole(Way::Mqueue, bound);
        let (free, beside) = (queue(Bound::Caller), queue(Bound::Both));
        let better = free.clone().and_then(|free| Ok(better_of(free, beside.clone()?)));
        let bar = Some(Bar::AtMost(1.0));
        let bound = |name, queue, bar| divide(name, typed(Bound::Caller), queue, P99, bar);
        [
            bound("typed_p99_over_tuned_mqueue", better, bar),
            bound("typed_p99_over_mqueue_anywhere", free, None),
            bound("typed_p99_over_mqueue_beside_its_caller", beside, None),
            divide(
                "typed_p99_over_mqueue_nobody_bound",
                typed(Bound::Nobody),
                queue(Bound::Nobody),
                P99,
                None,
            ),
        ]
    }

    /// Mean T_CALL of seven real-time callers, and of one.
    fn of_seven(&self) -> Ratio {
        let of = |real_time_callers| {
            let one = Case::one(Way::BatonTyped, self.level, self.most);
            self.found.leg(&Case { real_time_callers, ..one }, Leg::Call)
        };
        divide("seven_callers_over_one", of(SEVEN), of(1), MEAN, Some(Bar::AtMost(1.3)))
    }

    /// The longest delay of a round, in microseconds; and what it is where the priority may not
    /// come with the call.
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

    /// What one call takes, of both sides together.
    fn of_steady(&self, resource: Resource) -> Ratio {
        let (name, most) = match resource {
            Resource::Allocations => ("steady_call_allocations", 0.0),
            Resource::SystemCalls => ("steady_call_syscalls", 4.0),
        };
        let taken = match self.found.steady.get(&resource) {
            Some(taken) => taken.as_ref().map_err(String::clone),
            None => Err("steady calls were not measured".to_owned()),
        };
        let spread = taken.and_then(|taken| {
            Spread::of(taken.iter().copied()).ok_or_else(|| "no round".to_owned())
        });
        let value = spread.map(|spread| (spread.median, Some(spread)));
        Ratio::new(name.to_owned(), value, Some(Bar::AtMost(most)))
    }

    /// The whole call of a bound caller beside one who wants to hurt it, beside the same who hurts
    /// somebody else, and alone; the first by the raw interface, too.
    fn of_misuse(&self, misuse: Misuse) -> [Ratio; 3] {
        let of = |way, misuse| {
            let alone = Case::one(way, self.level, 0).bound(Bound::Caller);
            self.found.leg(&Case { misuse, ..alone }, Leg::Whole)
        };
        let at = |way, aim| of(way, Some(Harm { misuse, aim }));
        let name = |under| format!("misuse_{}_p99_over_{under}", misuse.name());
        let over_elsewhere = |name: &str, way, bar| {
            divide(name, at(way, Aim::Here), at(way, Aim::Elsewhere), P99, bar)
        };
        let (typed, raw, idle) = (name("elsewhere"), name("elsewhere_raw"), name("idle"));
        let bar = Bar::AtMost(2.0);
        // A quick run leaves it out.
        let raw_bar = at(Way::BatonUapi, Aim::Here).is_ok().then_some(bar);
        [
            over_elsewhere(&typed, Way::BatonTyped, Some(bar)),
            over_elsewhere(&raw, Way::BatonUapi, raw_bar),
            divide(&idle, at(Way::BatonTyped, Aim::Here), of(Way::BatonTyped, None), P99, None),
        ]
    }
}

type Times<'a> = Result<&'a Distribution, String>;

/// Whose median p99 is less.
fn better_of<'a>(one: &'a Distribution, other: &'a Distribution) -> &'a Distribution {
    let p99 = |times: &Distribution| times.over_rounds(P99).map(|p99| p99.median);
    if p99(one) <= p99(other) { one } else { other }
}

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
        found: &mut Results,
        way: Way,
        callers: usize,
        real_time_callers: usize,
        bound: Bound,
        times_ns: [u64; 3],
    ) {
        let case = Case { real_time_callers, ..Case::one(way, 80, callers).bound(bound) };
        let legs = times_ns.map(|time_ns| {
            let mut leg = Distribution::default();
            leg.add_round(&[time_ns]);
            leg
        });
        found.calls.insert(case, Ok(legs));
    }

    fn found() -> Results {
        let mut found = Results { level: 80, has_kernel_binder: true, ..Results::default() };
        for (way, callers, real_time_callers, bound, times_ns) in [
            (Way::BatonTyped, 0, 1, Bound::Caller, [500, 250, 750]),
            (Way::BatonTyped, 100, 1, Bound::Caller, [1000, 300, 1300]),
            (Way::BatonTyped, 100, 1, Bound::Nobody, [1000, 600, 1600]),
            (Way::BatonTyped, 100, 7, Bound::Nobody, [1350, 300, 1650]),
            (Way::Unix, 100, 1, Bound::Caller, [1, 1, 3900]),
            (Way::Unix, 100, 1, Bound::Nobody, [1, 1, 1]),
            (Way::Mqueue, 100, 1, Bound::Nobody, [1, 1, 800]),
            (Way::KernelBinder, 100, 1, Bound::Caller, [1900, 1, 1]),
            (Way::Mqueue, 100, 1, Bound::Caller, [1, 1, 1300]),
            (Way::Mqueue, 100, 1, Bound::Both, [1, 1, 650]),
        ] {
            add(&mut found, way, callers, real_time_callers, bound, times_ns);
        }
        let rpc = Case::one(Way::RsbinderRpc, 80, 100).bound(Bound::Caller);
        found.calls.insert(rpc, Err("not there".to_owned()));
        for (allowed, delay_ns) in [(true, 999_000), (false, 45_000_000)] {
            let mut times = Distribution::default();
            times.add_round(&[1, delay_ns]);
            found.inversions.insert(Inversion { way: Way::BatonTyped, allowed }, Ok(times));
        }
        let alone = Case::one(Way::BatonTyped, 80, 0).bound(Bound::Caller);
        let hurt = found.calls[&alone].clone().map(|legs| legs.map(|leg| twice(&leg)));
        let misuse = |aim| Some(Harm { misuse: Misuse::Oneway, aim });
        found.calls.insert(Case { misuse: misuse(Aim::Elsewhere), ..alone }, hurt.clone());
        let more = hurt.map(|legs| legs.map(|leg| twice(&leg)));
        found.calls.insert(Case { misuse: misuse(Aim::Here), ..alone }, more);
        found.steady.insert(Resource::SystemCalls, Ok(vec![4.0, 4.0, 4.1]));
        found.steady.insert(Resource::Allocations, Err("not for us".to_owned()));
        found
    }

    fn twice(leg: &Distribution) -> Distribution {
        let mut twice = Distribution::default();
        twice.add_round(&[2 * leg.max_ns()]);
        twice
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
            ("typed_p99_over_tuned_mqueue", 2.0, Some(false)),
            ("kernel_p999_over_typed", 1.9, Some(false)),
            ("typed_p99_over_mqueue_anywhere", 1.0, None),
            ("typed_p99_over_mqueue_beside_its_caller", 2.0, None),
            ("typed_p99_over_mqueue_nobody_bound", 2.0, None),
            ("seven_callers_over_one", 1.35, Some(false)),
            ("misuse_oneway_p99_over_elsewhere", 2.0, Some(true)),
            ("misuse_oneway_p99_over_idle", 4.0, None),
            ("steady_call_syscalls", 4.0, Some(true)),
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
        assert_eq!(ratio("steady_call_allocations").why.as_deref(), Some("not for us"));
        assert_eq!(ratio("misuse_garbage_p99_over_elsewhere").holds, Some(false));
        assert!(ratio("typed_max_over_cyclictest").why.is_some());
        let nowhere = of(&Results::default(), &Words::parse_from(["rt"]).args);
        let kernel = nowhere.iter().find(|ratio| ratio.name == "kernel_p999_over_typed").unwrap();
        assert_eq!((kernel.value, kernel.holds), (None, None), "a machine without one");
    }
}
