//! What the `rt` benchmark must hold.

use crate::distribution::{Distribution, Spread, Summary};
use crate::report::{Bar, Ratio, Times, Value};
use crate::rt::RtArgs;
use crate::rt::misuse::{Aim, Harm, Misuse};
use crate::rt::results::{Bound, Case, Inversion, Leg, RtResults};
use crate::rt::steady::Resource;
use crate::rt::way::Way;
use strum::VariantArray;

/// How many real-time callers one is compared with, as in the thesis.
const SEVEN: usize = 7;

type Quantile = fn(&Summary) -> f64;

const P99: Quantile = |round| round.p99 as f64;
const P999: Quantile = |round| round.p999 as f64;
const MAX: Quantile = |round| round.max as f64;
const MEAN: Quantile = |round| round.mean;

struct Bars<'a> {
    found: &'a RtResults,
    level: u8,
    most: usize,
}

/// Every ratio that has a bar, and others that a reader asks for.
pub fn of(found: &RtResults, args: &RtArgs) -> Vec<Ratio> {
    let most = args.callers.iter().copied().max().unwrap_or(0);
    let bars = Bars { found, level: found.level, most };
    let mut ratios = bars.of_calls();
    ratios.extend(bars.of_inversion());
    ratios.extend(Resource::ALL.map(|resource| bars.of_steady(resource)));
    ratios.extend(Misuse::VARIANTS.iter().flat_map(|&it| bars.of_misuse(it)));
    ratios
}

impl<'a> Bars<'a> {
    /// Of one caller.
    fn leg(&self, way: Way, callers: usize, bound: Bound, leg: Leg) -> Times<'a> {
        self.found.leg(&Case::one(way, self.level, callers).bound(bound), leg)
    }

    fn of_calls(&self) -> Vec<Ratio> {
        use Bound::{Both, Caller, Nobody};
        use Way::{BatonTyped, KernelBinder, Mqueue, RsbinderRpc, Unix};
        let (at_least, at_most) = (|bar| Some(Bar::AtLeast(bar)), |bar| Some(Bar::AtMost(bar)));
        // On its way to the handler.
        let call = |way, callers| self.leg(way, callers, Caller, Leg::Call);
        // Of one among the most others.
        let whole = |way, bound| self.leg(way, self.most, bound, Leg::Whole);
        let typed = || whole(BatonTyped, Caller);
        let over_typed = |name: &str, way, value, bar| {
            Ratio::divide(name, whole(way, Caller), typed(), value, at_least(bar))
        };
        // Its server has the better of its two places; beside that, each of the two.
        let (free, beside) = (whole(Mqueue, Caller), whole(Mqueue, Both));
        let better = free.clone().and_then(|free| Ok(better_of(free, beside.clone()?)));
        let over_queue = |name: &str, queue, bar| Ratio::divide(name, typed(), queue, P99, bar);
        let nobody = [BatonTyped, Mqueue].map(|way| whole(way, Nobody));
        let [typed_unbound, queue_unbound] = nobody;
        // Nothing is wrong where the kernel has no Binder driver.
        let kernel_bar = self.found.has_kernel_binder.then_some(Bar::AtLeast(3.0));
        let wake_up = match self.found.wake_ups.get(&self.most) {
            Some(measured) => measured.as_ref().map_err(|why| format!("cyclictest: {why}")),
            None => Err("cyclictest was not measured".to_owned()),
        };
        let several = |real_time_callers| {
            let one = Case::one(BatonTyped, self.level, self.most);
            self.found.leg(&Case { real_time_callers, ..one }, Leg::Call)
        };
        let (idle, loaded) = (|| call(BatonTyped, 0), || call(BatonTyped, self.most));
        vec![
            Ratio::divide("loaded_p99_over_idle", loaded(), idle(), P99, at_most(2.0)),
            Ratio::divide("loaded_p999_over_idle", loaded(), idle(), P999, at_most(3.0)),
            over_typed("unix_p99_over_typed", Unix, P99, 3.0),
            over_typed("unix_max_over_typed", Unix, MAX, 3.0),
            over_typed("socket_rpc_p99_over_typed", RsbinderRpc, P99, 10.0),
            over_queue("typed_p99_over_tuned_mqueue", better, at_most(1.0)),
            over_queue("typed_p99_over_mqueue_anywhere", free, None),
            over_queue("typed_p99_over_mqueue_beside_its_caller", beside, None),
            Ratio::divide(
                "typed_p99_over_mqueue_nobody_bound",
                typed_unbound,
                queue_unbound,
                P99,
                None,
            ),
            Ratio::divide(
                "kernel_p999_over_typed",
                call(KernelBinder, self.most),
                loaded(),
                P999,
                kernel_bar,
            ),
            Ratio::divide("typed_max_over_cyclictest", typed(), wake_up, MAX, None),
            Ratio::divide("seven_callers_over_one", several(SEVEN), several(1), MEAN, at_most(1.3)),
        ]
    }

    /// The longest delay of a round, in microseconds; and what it is where the priority may not
    /// come with the call.
    fn of_inversion(&self) -> [Ratio; 2] {
        let kinds =
            [("inversion_delay_us", true), ("inversion_without_inheritance_delay_us", false)];
        kinds.map(|(name, allowed)| {
            let value =
                match self.found.inversions.get(&Inversion { way: Way::BatonTyped, allowed }) {
                    Some(Ok(times)) => median(times.over_rounds(|round| round.max as f64 / 1e3)),
                    Some(Err(why)) => Err(why.clone()),
                    None => Err("inversion was not measured".to_owned()),
                };
            Ratio::new(name, value, allowed.then_some(Bar::AtMost(1000.0)))
        })
    }

    /// What one call takes, of both sides together.
    fn of_steady(&self, resource: Resource) -> Ratio {
        let (name, most) = match resource {
            Resource::Allocations => ("steady_call_allocations", 0.0),
            Resource::SystemCalls => ("steady_call_syscalls", 4.0),
        };
        let value = match self.found.steady.get(&resource) {
            Some(Ok(taken)) => median(Spread::of(taken.iter().copied())),
            Some(Err(why)) => Err(why.clone()),
            None => Err("steady calls were not measured".to_owned()),
        };
        Ratio::new(name, value, Some(Bar::AtMost(most)))
    }

    /// The whole call of a bound caller beside one who wants to hurt it, over the call beside one
    /// who hurts somebody else, and over the call alone; the first by the raw interface, too.
    fn of_misuse(&self, misuse: Misuse) -> [Ratio; 3] {
        let of = |way, misuse| {
            let alone = Case::one(way, self.level, 0).bound(Bound::Caller);
            self.found.leg(&Case { misuse, ..alone }, Leg::Whole)
        };
        let at = |way, aim| of(way, Some(Harm { misuse, aim }));
        let over = |under: &str, way, bar| {
            let name = format!("misuse_{}_p99_over_{under}", misuse.name());
            let under = match under {
                "idle" => of(way, None),
                _ => at(way, Aim::Elsewhere),
            };
            Ratio::divide(name, at(way, Aim::Here), under, P99, bar)
        };
        let bar = Bar::AtMost(2.0);
        // A quick run leaves it out.
        let raw_bar = at(Way::BatonUapi, Aim::Here).is_ok().then_some(bar);
        [
            over("elsewhere", Way::BatonTyped, Some(bar)),
            over("elsewhere_raw", Way::BatonUapi, raw_bar),
            over("idle", Way::BatonTyped, None),
        ]
    }
}

fn median(spread: Option<Spread>) -> Value {
    let spread = spread.ok_or_else(|| "no round".to_owned())?;
    Ok((spread.median, Some(spread)))
}

/// Whose median p99 is less.
fn better_of<'a>(one: &'a Distribution, other: &'a Distribution) -> &'a Distribution {
    let p99 = |times: &Distribution| times.over_rounds(P99).map(|p99| p99.median);
    if p99(one) <= p99(other) { one } else { other }
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
        found: &mut RtResults,
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

    fn found() -> RtResults {
        let mut found = RtResults { level: 80, has_kernel_binder: true, ..RtResults::default() };
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
        let nowhere = of(&RtResults::default(), &Words::parse_from(["rt"]).args);
        let kernel = nowhere.iter().find(|ratio| ratio.name == "kernel_p999_over_typed").unwrap();
        assert_eq!((kernel.value, kernel.holds), (None, None), "a machine without one");
    }
}
