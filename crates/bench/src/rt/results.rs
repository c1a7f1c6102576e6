//! All that was measured, and why the rest was not, with the thesis's figures; as rows and charts.
//!
//! The figures are of I. Kalkov, RWTH Aachen 2018, chapter 6.3: a Samsung Exynos 5250 with Linux
//! 3.4.5-rt15, one caller at priority 80 among 100 ordinary ones in another application, 2,500
//! calls.

use crate::chart::{Chart, Unit, point};
use crate::distribution::Spread;
use crate::latency::cyclictest;
use crate::report::{Keys, Row, RowKey};
use crate::results::{MEAN, Results};
use crate::rt::caller::Times;
use crate::rt::case::{Bound, Case, Leg, Resource};
use crate::system::System;
use std::io;

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
        case.key_of(cyclictest::NAME, "wake-up").heading(title)
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
