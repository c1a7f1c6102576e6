//! All that was measured, and why the rest was not, beside the thesis's figures: as rows and
//! charts, and as the ratios that the benchmark must hold.
//!
//! The figures are of I. Kalkov, RWTH Aachen 2018, chapter 6.3: a Samsung Exynos 5250 with Linux
//! 3.4.5-rt15, one caller at priority 80 among 100 ordinary ones in another application, 2,500
//! calls.

use crate::chart::{Chart, Unit, point};
use crate::distribution::{Spread, divide};
use crate::latency::wake_up::CYCLICTEST;
use crate::report::{Bar, Keys, Ratio, Row, RowKey};
use crate::results::{MAX, MEAN, P99, P999, Results, Rounds, median, ratio};
use crate::rt::caller::Times;
use crate::rt::case::{Bound, Case, Inversion, Leg, Resource};
use crate::rt::misuse::{Aim, Harm, Misuse};
use crate::system::System;
use std::io;
use strum::VariantArray;

/// What a steady call takes in a round.
pub const TAKEN: &str = "taken";

/// As rows name the unmodified Binder, and the one with priority inheritance.
const STANDARD: &str = "thesis-standard";
const INHERITING: &str = "thesis-inheriting";
/// The shortest and the longest time of a leg, in microseconds.
const THESIS: [(&str, Leg, Option<f64>, f64, &str); 4] = [
    (STANDARD, Leg::Call, None, 42_300.0, "I. Kalkov, RWTH Aachen 2018, figure 6.5(a)"),
    (STANDARD, Leg::Return, None, 44_500.0, "I. Kalkov, RWTH Aachen 2018, figure 6.5(a)"),
    (INHERITING, Leg::Call, Some(51.0), 75.0, "I. Kalkov, RWTH Aachen 2018, figure 6.5(b)"),
    (INHERITING, Leg::Return, Some(41.0), 70.0, "I. Kalkov, RWTH Aachen 2018, figure 6.5(b)"),
];
/// Mean T_CALL of one real-time caller and of seven, in microseconds.
const THESIS_MEANS: [(usize, f64); 2] = [(1, 55.0), (7, 319.0)];

#[derive(Debug, Default)]
pub struct RtResults {
    pub found: Results,
    /// The first of the callers' priorities: that of all but some calls.
    pub level: u8,
    /// The most ordinary callers.
    pub most_callers: usize,
    /// Whether there is one to be measured.
    pub has_kernel_binder: bool,
}

impl RtResults {
    /// Adds the times of all callers of a round.
    pub fn add_calls(&mut self, case: &Case, round: io::Result<Vec<Times>>) {
        let callers = match round {
            Ok(callers) => callers,
            Err(why) => {
                for leg in Leg::ALL {
                    self.found.ok(case.key(leg), Err::<(), _>(&why));
                }
                return;
            }
        };
        let there: Vec<u64> = callers.iter().flat_map(|times| &times.call_ns).copied().collect();
        let back: Vec<u64> = callers.iter().flat_map(|times| &times.return_ns).copied().collect();
        let whole: Vec<u64> = there.iter().zip(&back).map(|(there, back)| there + back).collect();
        for (leg, times_ns) in Leg::ALL.into_iter().zip([there, back, whole]) {
            self.found.add_times(case.key(leg), Ok::<_, io::Error>(times_ns));
        }
    }

    pub fn is_missing(&self, case: &Case) -> bool {
        self.found.is_missing(&case.key(Leg::Call))
    }

    /// cyclictest's wake-ups beside so many ordinary callers: with T_CALL of a bound caller.
    pub fn wake_up(&self, callers: usize) -> RowKey {
        let case = Case::one(System::BatonTyped, self.level, callers);
        let title = case.bound(Bound::Caller).title(Leg::Call);
        case.key_of(CYCLICTEST, "wake-up").heading(title)
    }

    /// Adds the thesis's figures.
    pub fn quote(&mut self) {
        let of = |system, leg: Leg, real_time_callers| {
            let case = Case::one(System::BatonTyped, 80, 100);
            let case = Case { real_time_callers, ..case };
            case.key_of(system, leg.into()).heading(case.title(leg))
        };
        let ns = |time_us: f64| time_us * 1e3;
        for (system, leg, min_us, max_us, source) in THESIS {
            self.found.quote(of(system, leg, 1), source, [min_us.map(ns), None, Some(ns(max_us))]);
        }
        for (callers, mean_us) in THESIS_MEANS {
            let source = "I. Kalkov, RWTH Aachen 2018, figure 6.6";
            let key = of(INHERITING, Leg::Call, callers);
            self.found.quote(key, source, [None, Some(ns(mean_us)), None]);
        }
    }

    pub fn rows(&self) -> Vec<Row> {
        let mut rows = self.found.rows(|_, _| Keys::new());
        rows.retain(|row| Resource::ALL.iter().all(|resource| resource.key() != row.key));
        rows
    }

    pub fn charts(&self) -> Vec<Chart> {
        self.found.charts().into_iter().chain(self.by_real_time_callers()).collect()
    }

    /// The mean T_CALL of callers that are not bound, by their number.
    fn by_real_time_callers(&self) -> Option<Chart> {
        let mut ours = Vec::new();
        for (key, rounds) in self.found.measured() {
            let real_time_callers = key.more.first().and_then(|(_, number)| number.as_u64());
            let real_time_callers = real_time_callers.unwrap_or(0) as usize;
            let case = Case::one(System::BatonTyped, self.level, self.most_callers);
            if *key == (Case { real_time_callers, ..case }).key(Leg::Call) {
                ours.push(point(real_time_callers, Spread::of(MEAN(rounds).into_iter())?));
            }
        }
        ours.sort_by_key(|point| point.0);
        let quoted = THESIS_MEANS.map(|(callers, mean_us)| (callers, [mean_us * 1e3; 3]));
        (ours.len() > 1).then(|| Chart::ByNumber {
            title: "mean T_CALL, by the number of real-time callers".to_owned(),
            unit: Unit::Nanoseconds,
            lines: vec![(System::BatonTyped.name(), ours), (INHERITING, quoted.into())],
        })
    }
}

/// How many real-time callers one is compared with, as in the thesis.
const SEVEN: usize = 7;

/// Every ratio that has a bar, and others that a reader asks for.
pub fn ratios(results: &RtResults) -> Vec<Ratio> {
    let mut ratios = of_calls(results, results.most_callers);
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

/// The longest delay of a round, in microseconds; and what it is where the priority may not come
/// with the call.
fn of_inversion(results: &RtResults) -> [Ratio; 2] {
    let kinds = [("inversion_delay_us", true), ("inversion_without_inheritance_delay_us", false)];
    kinds.map(|(name, allowed)| {
        let inversion = Inversion { system: System::BatonTyped, allowed };
        let value = results.found.find(&inversion.key(results.level)).map(|rounds| {
            let longest_us: Vec<f64> = MAX(rounds).iter().map(|ns| ns / 1e3).collect();
            divide(&longest_us, &vec![1.0; longest_us.len()])
        });
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
    use crate::rt::case::Inversion;

    fn times(call_ns: &[u64], return_ns: &[u64]) -> Times {
        Times { call_ns: call_ns.to_vec(), return_ns: return_ns.to_vec() }
    }

    #[test]
    fn a_whole_call_is_both_its_halves() {
        let mut results = RtResults::default();
        let case = Case::one(System::Unix, 80, 0);
        results.add_calls(&case, Ok(vec![times(&[10, 20], &[1, 1]), times(&[30], &[70])]));
        let ends = Leg::ALL.map(|leg| {
            let times = &results.found.find(&case.key(leg)).unwrap().times;
            (times.n(), times.min_ns(), times.max_ns())
        });
        assert_eq!(ends, [(3, 10, 30), (3, 1, 70), (3, 11, 100)]);
    }

    fn results() -> RtResults {
        let mut results = RtResults { level: 80, most_callers: 100, ..RtResults::default() };
        for (callers, real_time_callers, system) in [
            (0, 1, System::BatonTyped),
            (100, 1, System::BatonTyped),
            (100, 7, System::BatonTyped),
            (100, 1, System::Unix),
        ] {
            let case = Case { real_time_callers, ..Case::one(system, 80, callers) };
            results.add_calls(&case, Ok(vec![times(&[10_000], &[20_000])]));
        }
        results.found.ok(results.wake_up(100), Err::<(), _>("not installed"));
        let inversion = Inversion { system: System::BatonTyped, allowed: false };
        results.found.add_times(inversion.key(80), Ok::<_, io::Error>(vec![9]));
        results.quote();
        results
    }

    #[test]
    fn a_row_for_each_leg() {
        let rows = results().rows();
        let of = |system: &str, case: &str| {
            rows.iter().filter(|row| (row.key.system, row.key.case) == (system, case)).count()
        };
        for leg in Leg::ALL {
            assert_eq!((of("baton-typed", leg.into()), of("unix", leg.into())), (3, 1));
        }
        assert_eq!((of("baton-typed", "inversion"), of("cyclictest", "wake-up")), (1, 1));
        assert_eq!((of(INHERITING, "t-call"), of(INHERITING, "t-return")), (3, 1));
    }

    #[test]
    fn a_chart_for_each_group_and_leg() {
        let charts = results().charts();
        let of_leg = |leg: Leg| {
            let wanted = Case::one(System::BatonTyped, 80, 100).title(leg);
            let found = charts.iter().find_map(|chart| match chart {
                Chart::Percentiles { title, curves, levels } if *title == wanted => {
                    Some((curves, levels))
                }
                _ => None,
            });
            found.unwrap()
        };
        let (curves, levels) = of_leg(Leg::Call);
        assert_eq!(levels[0], (STANDARD, 42_300_000));
        assert!(curves.iter().any(|curve| curve.0 == "unix"));
        assert!(of_leg(Leg::Whole).1.is_empty());
        let Some(Chart::ByNumber { lines, .. }) = charts.last() else { panic!() };
        assert_eq!(lines[1].0, INHERITING);
    }
}

#[cfg(test)]
mod ratios_tests {
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
        ratios(&results()).into_iter().find(|ratio| ratio.name == name).unwrap()
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
        let nowhere = ratios(&RtResults::default());
        let kernel = nowhere.iter().find(|ratio| ratio.name == "kernel_p999_over_typed").unwrap();
        assert_eq!((kernel.value, kernel.holds), (None, None), "a machine without one");
    }
}
