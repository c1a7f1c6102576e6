//! What the `rt` benchmark must hold.

use crate::distribution::divide;
use crate::report::{Bar, Ratio};
use crate::results::{MAX, MEAN, P99, P999, Rounds, median, median_in, ratio};
use crate::rt::case::{Bound, Case, Inversion, Leg, Resource};
use crate::rt::misuse::{Aim, Harm, Misuse};
use crate::rt::one_way::OneWay;
use crate::rt::results::{RtResults, TAKEN};
use crate::system::System;
use strum::VariantArray;

/// How many real-time callers one is compared with, as in the thesis.
const SEVEN: usize = 7;

/// Every ratio that has a bar, and others that a reader asks for.
pub fn of(results: &RtResults) -> Vec<Ratio> {
    let mut ratios = of_calls(results, results.most_callers);
    ratios.extend(of_one_way(results));
    ratios.extend(of_inversion(results));
    ratios.extend(Resource::ALL.map(|resource| of_steady(results, resource)));
    ratios.extend(Misuse::VARIANTS.iter().flat_map(|&it| of_misuse(results, it)));
    ratios
}

fn of_calls(results: &RtResults, most: usize) -> Vec<Ratio> {
    use Bound::{Both, Caller, Nobody};
    use System::{BatonTyped, KernelBinder, Mqueue, RsbinderRpc, Unix};
    let (at_least, at_most) = (|bar| Some(Bar::AtLeast(bar)), |bar| Some(Bar::AtMost(bar)));
    let one = |system, callers| Case::one(system, results.level, callers);
    let find = |case: Case, leg| results.found.find(&case.key(leg));
    // On its way to the handler.
    let call = |system, callers| find(one(system, callers).bound(Caller), Leg::Call);
    let (idle, loaded) = (|| call(BatonTyped, 0), || call(BatonTyped, most));
    let kernel = call(KernelBinder, most);
    // Nothing is wrong where the kernel has no Binder driver.
    let kernel_bar = results.has_kernel_binder.then_some(Bar::AtLeast(3.0));
    // Of one among the most others.
    let whole = |system, bound| find(one(system, most).bound(bound), Leg::Whole);
    let typed = || whole(BatonTyped, Caller);
    let (unix, rpc) = (|| whole(Unix, Caller), whole(RsbinderRpc, Caller));
    // Its server has the better of its two places; beside that, each of the two.
    let (free, beside) = (whole(Mqueue, Caller), whole(Mqueue, Both));
    let better = free.clone().and_then(|free| Ok(better_of(free, beside.clone()?)));
    let over_queue = |name: &str, queue, bar| ratio(name, typed(), queue, P99, bar);
    let [typed_unbound, queue_unbound] = [BatonTyped, Mqueue].map(|it| whole(it, Nobody));
    let wake_up = results.found.find(&results.wake_up(most));
    let several =
        |real_time_callers| find(Case { real_time_callers, ..one(BatonTyped, most) }, Leg::Call);
    vec![
        ratio("loaded_p99_over_idle", loaded(), idle(), P99, at_most(2.0)),
        ratio("loaded_p999_over_idle", loaded(), idle(), P999, at_most(3.0)),
        ratio("unix_p99_over_typed", unix(), typed(), P99, at_least(3.0)),
        ratio("unix_max_over_typed", unix(), typed(), MAX, at_least(3.0)),
        ratio("socket_rpc_p99_over_typed", rpc, typed(), P99, at_least(10.0)),
        over_queue("typed_p99_over_tuned_mqueue", better, at_most(1.0)),
        over_queue("typed_p99_over_mqueue_anywhere", free, None),
        over_queue("typed_p99_over_mqueue_beside_its_caller", beside, None),
        ratio("typed_p99_over_mqueue_nobody_bound", typed_unbound, queue_unbound, P99, None),
        ratio("kernel_p999_over_typed", kernel, loaded(), P999, kernel_bar),
        ratio("typed_max_over_cyclictest", typed(), wake_up, MAX, None),
        ratio("seven_callers_over_one", several(SEVEN), several(1), MEAN, at_most(1.3)),
    ]
}

/// A one-way message among the most others.
fn of_one_way(results: &RtResults) -> Vec<Ratio> {
    let find = |system, senders| {
        results.found.find(&OneWay { system, level: results.level, senders }.key())
    };
    let loaded = |system| find(system, results.most_callers);
    let ours = |system, name, what, most| {
        ratio(name, loaded(system), find(system, 0), what, Some(Bar::AtMost(most)))
    };
    let kernel_bar = results.has_kernel_binder.then_some(Bar::AtLeast(3.0));
    let over =
        |name, system, bar| ratio(name, loaded(system), loaded(System::BatonTyped), P999, bar);
    let (typed, raw) = (System::BatonTyped, System::BatonUapiLibc);
    vec![
        ours(typed, "one_way_loaded_p99_over_idle", P99, 2.0),
        ours(typed, "one_way_loaded_p999_over_idle", P999, 3.0),
        ours(raw, "one_way_loaded_p99_over_idle_raw", P99, 2.0),
        ours(raw, "one_way_loaded_p999_over_idle_raw", P999, 3.0),
        over("one_way_kernel_p999_over_typed", System::KernelBinder, kernel_bar),
        over("one_way_datagram_p999_over_typed", System::Unix, None),
        over("one_way_mqueue_p999_over_typed", System::Mqueue, None),
    ]
}

/// The longest delay of a round, in microseconds; and what it is where the priority may not come
/// with the call.
fn of_inversion(results: &RtResults) -> [Ratio; 2] {
    let kinds = [("inversion_delay_us", true), ("inversion_without_inheritance_delay_us", false)];
    kinds.map(|(name, allowed)| {
        let inversion = Inversion { system: System::BatonTyped, allowed };
        let value = median_in(1e3, results.found.find(&inversion.key(results.level)), MAX);
        Ratio::new(name, value, allowed.then_some(Bar::AtMost(1000.0)))
    })
}

/// What one call takes, of both sides together.
fn of_steady(results: &RtResults, resource: Resource) -> Ratio {
    let (name, most) = match resource {
        Resource::Allocations => ("steady_call_allocations", 0.0),
        Resource::SystemCalls => ("steady_call_syscalls", 4.0),
    };
    let value = median(results.found.find(&resource.key()), TAKEN);
    Ratio::new(name, value, Some(Bar::AtMost(most)))
}

/// The whole call of a bound caller beside one who wants to hurt it, over the call beside one who
/// hurts somebody else, and over the call alone; the first by the raw interface, too.
fn of_misuse(results: &RtResults, misuse: Misuse) -> [Ratio; 3] {
    let of = |system, misuse| {
        let alone = Case::one(system, results.level, 0).bound(Bound::Caller);
        results.found.find(&Case { misuse, ..alone }.key(Leg::Whole))
    };
    let at = |system, aim| of(system, Some(Harm { misuse, aim }));
    let over = |under: &str, system, beside, bar| {
        let name = format!("misuse_{}_p99_over_{under}", misuse.name());
        ratio(name, at(system, Aim::Here), beside, P99, bar)
    };
    let (typed, raw) = (System::BatonTyped, System::BatonUapiLibc);
    let bar = Some(Bar::AtMost(2.0));
    // A quick run leaves it out.
    let raw_bar = bar.filter(|_| at(raw, Aim::Here).is_ok());
    [
        over("elsewhere", typed, at(typed, Aim::Elsewhere), bar),
        over("elsewhere_raw", raw, at(raw, Aim::Elsewhere), raw_bar),
        over("idle", typed, of(typed, None), None),
    ]
}

/// Whose median p99 is less.
fn better_of<'a>(one: &'a Rounds, other: &'a Rounds) -> &'a Rounds {
    if divide(&P99(one), &P99(other)).0 <= 1.0 { one } else { other }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rt::caller::Times;
    use std::io;

    fn add(results: &mut RtResults, case: &Case, [call_ns, return_ns]: [u64; 2]) {
        let times = Times { call_ns: vec![call_ns], return_ns: vec![return_ns] };
        results.add_calls(case, Ok(vec![times]));
    }

    fn results() -> RtResults {
        let mut results = RtResults {
            level: 80,
            most_callers: 100,
            has_kernel_binder: true,
            ..RtResults::default()
        };
        for (system, callers, real_time_callers, bound, times_ns) in [
            (System::BatonTyped, 0, 1, Bound::Caller, [500, 250]),
            (System::BatonTyped, 100, 1, Bound::Caller, [1000, 300]),
            (System::BatonTyped, 100, 1, Bound::Nobody, [1000, 600]),
            (System::BatonTyped, 100, 7, Bound::Nobody, [1350, 300]),
            (System::Unix, 100, 1, Bound::Caller, [1, 3899]),
            (System::Unix, 100, 1, Bound::Nobody, [1, 1]),
            (System::Mqueue, 100, 1, Bound::Nobody, [1, 799]),
            (System::KernelBinder, 100, 1, Bound::Caller, [1900, 1]),
            (System::Mqueue, 100, 1, Bound::Caller, [1, 1299]),
            (System::Mqueue, 100, 1, Bound::Both, [1, 649]),
        ] {
            let case = Case { real_time_callers, ..Case::one(system, 80, callers).bound(bound) };
            add(&mut results, &case, times_ns);
        }
        let rpc = Case::one(System::RsbinderRpc, 80, 100).bound(Bound::Caller);
        results.add_calls(&rpc, Err(io::Error::other("not there")));
        for (allowed, delay_ns) in [(true, 999_000), (false, 45_000_000)] {
            let key = Inversion { system: System::BatonTyped, allowed }.key(80);
            results.found.add_times(key, Ok::<_, io::Error>(vec![1, delay_ns]));
        }
        let alone = Case::one(System::BatonTyped, 80, 0).bound(Bound::Caller);
        for (aim, times_ns) in [(Aim::Elsewhere, [1000, 500]), (Aim::Here, [2000, 1000])] {
            let misuse = Some(Harm { misuse: Misuse::Oneway, aim });
            add(&mut results, &Case { misuse, ..alone }, times_ns);
        }
        for taken in [4.0, 4.0, 4.1] {
            let add = |rounds: &mut Rounds, taken| rounds.add_value(TAKEN, taken);
            results.found.add(Resource::SystemCalls.key(), Ok::<_, io::Error>(taken), add);
        }
        results.found.ok(Resource::Allocations.key(), Err::<(), _>("not for us"));
        results
    }

    fn ratio(name: &str) -> Ratio {
        of(&results()).into_iter().find(|ratio| ratio.name == name).unwrap()
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
        assert_eq!(
            ratio("steady_call_allocations").why.as_deref(),
            Some("allocations: not for us")
        );
        assert_eq!(ratio("misuse_garbage_p99_over_elsewhere").holds, Some(false));
        assert!(ratio("typed_max_over_cyclictest").why.is_some());
        let nowhere = of(&RtResults::default());
        let kernel = nowhere.iter().find(|ratio| ratio.name == "kernel_p999_over_typed").unwrap();
        assert_eq!((kernel.value, kernel.holds), (None, None), "a machine without one");
    }
}
