//! What was found, as rows, tables and charts.

use crate::curve::Level;
use crate::distribution::{Distribution, Spread};
use crate::html;
use crate::latency::cyclictest;
use crate::load::{self, Line, Unit};
use crate::report::{Detail, Figures, Outcome, Report, Row};
use crate::rt::found::{Bound, Case, Inversion, Leg, MQUEUE_BOUND, Results};
use crate::rt::misuse::Harm;
use crate::rt::thesis;
use crate::rt::way::Way;
use crate::table;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// All cases that tell of the same callers: how many there are, at which priority, among how many
/// others, and whether they are bound.
type Scene = (usize, Reverse<u8>, usize, Option<Harm>, bool);

fn scene(case: &Case) -> Scene {
    let is_bound = case.bound != Bound::Nobody;
    (case.real_time_callers, case.level, case.callers, case.misuse, is_bound)
}

fn scenes(found: &Results) -> BTreeSet<Scene> {
    found.calls.keys().map(scene).collect()
}

/// A row for each distribution, or why there is none, and those of the thesis.
pub fn rows(found: &Results) -> Vec<Row> {
    let mut rows = Vec::new();
    for of_scene in scenes(found) {
        let cases = || found.calls.iter().filter(|(case, _)| scene(case) == of_scene);
        for leg in Leg::ALL {
            rows.extend(cases().filter_map(|(case, legs)| {
                let leg_of = legs.as_ref().map(|legs| &legs[leg as usize]);
                row(case.way.name(), leg.name(), detail(case), leg_of)
            }));
        }
    }
    rows.extend(found.wake_ups.iter().filter_map(|(&callers, times)| {
        let priority = format!("fifo:{}", found.level);
        let (bound, misuse) = (Bound::Nobody.name(), None);
        let detail = Detail::RealTime { real_time_callers: 1, priority, callers, bound, misuse };
        row(cyclictest::NAME, "wake-up", detail, times.as_ref())
    }));
    rows.extend(found.inversions.iter().filter_map(|(inversion, times)| {
        let served_at = inversion.served_at(found.level).to_string();
        let detail = Detail::Inversion { served_at };
        row(inversion.way.name(), "inversion", detail, times.as_ref())
    }));
    rows.extend(thesis::rows());
    rows
}

fn detail(case: &Case) -> Detail {
    let &Case { real_time_callers, level: Reverse(level), callers, bound, misuse, .. } = case;
    let (priority, misuse) = (format!("fifo:{level}"), misuse.map(Harm::name));
    Detail::RealTime { real_time_callers, priority, callers, bound: bound.name(), misuse }
}

fn row(
    system: &'static str,
    case: &'static str,
    detail: Detail,
    times: Result<&Distribution, &String>,
) -> Option<Row> {
    let outcome = match times {
        Ok(times) => Outcome::Measured(Figures::of(times)?),
        Err(why) => Outcome::Missing { why: why.clone() },
    };
    Some(Row { system, case, payload_bytes: None, placement: None, detail: Some(detail), outcome })
}

/// A table for each scene and leg, and the thesis's figures.
pub fn tables(report: &Report) -> String {
    let mut text = table::of_calls(report);
    text += "\nthe thesis, 1 at fifo:80 among 100 ordinary callers\n";
    let us = |ns: Option<u64>| ns.map_or("-".to_owned(), |ns| table::us(ns as f64));
    for row in &report.rows {
        let Outcome::Quoted(quoted) = &row.outcome else { continue };
        let what = match (quoted.mean_ns, &row.detail) {
            (Some(mean_ns), Some(Detail::RealTime { real_time_callers, .. })) => {
                format!("mean {} us of {real_time_callers} at once", table::us(mean_ns))
            }
            _ => format!("{} .. {} us", us(quoted.min_ns), us(quoted.max_ns)),
        };
        text += &format!("{:<18}{:<10}{what}\n", row.system, row.case);
    }
    text
}

/// Curves of each scene and leg, and what more real-time callers do.
pub fn page(report: &Report, found: &Results, tables: &str) -> String {
    let mut charts = String::new();
    for of_scene in
        scenes(found).into_iter().filter(|(real_time_callers, ..)| *real_time_callers == 1)
    {
        charts += &Leg::ALL.map(|leg| of_leg(found, of_scene, leg)).concat();
    }
    charts += &of_inversions(found);
    charts += &by_real_time_callers(found);
    let lead = "How long a real-time call takes to its handler (t-call), back (t-return), and both \
        together, among ordinary \
                callers: how many are not longer, all rounds together. Time is on a logarithmic \
                axis, as are the nines \
                of the share. Broken lines: the longest time of RTAndroid's thesis, with Android's \
                own Binder and with the \
                thesis's.";
    let mut names = Way::ALL.map(Way::name).to_vec();
    names.extend([MQUEUE_BOUND, cyclictest::NAME, WITHOUT, thesis::STANDARD, thesis::MODIFIED]);
    html::frame(report, lead, &names, &charts, tables)
}

fn of_leg(found: &Results, of_scene: Scene, leg: Leg) -> String {
    let (_, Reverse(level), callers, misuse, is_bound) = of_scene;
    let cases = found.calls.iter().filter(|(case, _)| scene(case) == of_scene);
    let named =
        cases.filter_map(|(case, legs)| Some((case.name(), &legs.as_ref().ok()?[leg as usize])));
    let is_beside = leg == Leg::Call && misuse.is_none();
    let wake_ups = found.wake_ups.get(&callers).filter(|_| is_beside);
    let wake_ups = wake_ups.and_then(|times| Some((cyclictest::NAME, times.as_ref().ok()?)));
    let quoted = callers == thesis::CALLERS && level == thesis::LEVEL && !is_bound;
    let levels = thesis::longest(leg).filter(|_| quoted);
    let levels: Vec<Level> = levels.map(|(name, time_ns)| Level { name, time_ns }).collect();
    let bound = if is_bound { ", on one processor" } else { "" };
    let among = match misuse {
        Some(misuse) => format!("beside misuse: {}", misuse.name()),
        None => format!("among {callers} ordinary callers"),
    };
    let title = format!("{} at fifo:{level}{bound} {among}", leg.name());
    html::chart_beside(&title, named.chain(wake_ups), &levels)
}

const WITHOUT: &str = "baton-typed-without";

fn of_inversions(found: &Results) -> String {
    let named = found.inversions.iter().filter_map(|(&Inversion { way, allowed }, times)| {
        let name = if allowed { way.name() } else { WITHOUT };
        Some((name, times.as_ref().ok()?))
    });
    html::chart("a call on a processor that somebody less urgent keeps for 50 ms", named)
}

/// Mean T_CALL.
fn by_real_time_callers(found: &Results) -> String {
    let most = found.calls.keys().map(|case| case.callers).max();
    let level = found.calls.keys().map(|case| case.level).min();
    let cases = found.calls.iter().filter(|(case, _)| {
        (case.way, case.bound) == (Way::BatonTyped, Bound::Nobody)
            && (Some(case.callers), Some(case.level)) == (most, level)
    });
    let point = |(case, legs): (&Case, &Result<[Distribution; 3], String>)| {
        let mean = legs.as_ref().ok()?[Leg::Call as usize].over_rounds(|round| round.mean)?;
        Some((case.real_time_callers, mean))
    };
    let ours: Vec<(usize, Spread)> = cases.filter_map(point).collect();
    if ours.len() < 2 {
        return String::new();
    }
    let quoted = thesis::MEANS_US.map(|(callers, mean_us)| {
        let mean_ns = mean_us * 1e3;
        (callers, Spread { median: mean_ns, least: mean_ns, greatest: mean_ns })
    });
    let mut numbers: Vec<usize> = ours.iter().chain(&quoted).map(|point| point.0).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let lines = [
        Line { name: Way::BatonTyped.name(), points: ours },
        Line { name: thesis::MODIFIED, points: quoted.into() },
    ];
    html::figure(
        "mean t-call, by the number of real-time callers",
        &load::svg(&numbers, &lines, Unit::Time),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rt::found::add;

    fn found() -> Results {
        let mut found = Results { level: 80, ..Results::default() };
        for (callers, real_time_callers, way) in [
            (0, 1, Way::BatonTyped),
            (100, 1, Way::BatonTyped),
            (100, 7, Way::BatonTyped),
            (100, 1, Way::Unix),
        ] {
            let case = Case { real_time_callers, ..Case::one(way, 80, callers) };
            let legs = |legs: &mut [Distribution; 3], time_ns| {
                legs.iter_mut().for_each(|leg| leg.add_round(&[time_ns, 2 * time_ns]));
            };
            add(&mut found.calls, case, || Ok(10_000), legs);
        }
        found.wake_ups.insert(100, Err("not installed".to_owned()));
        let times = |times: &mut Distribution, time_ns| times.add_round(&[time_ns]);
        add(
            &mut found.inversions,
            Inversion { way: Way::BatonTyped, allowed: false },
            || Ok(9),
            times,
        );
        found
    }

    #[test]
    fn a_row_for_each_leg() {
        let rows = rows(&found());
        let of = |system: &str, case: &str| {
            rows.iter().filter(|row| (row.system, row.case) == (system, case)).count()
        };
        for leg in Leg::ALL {
            assert_eq!((of("baton-typed", leg.name()), of("unix", leg.name())), (3, 1));
        }
        assert_eq!((of("baton-typed", "inversion"), of("cyclictest", "wake-up")), (1, 1));
        assert_eq!((of(thesis::MODIFIED, "t-call"), of(thesis::MODIFIED, "t-return")), (3, 1));
    }

    #[test]
    fn a_chart_for_each_scene_and_leg() {
        let found = found();
        let charts = |leg| of_leg(&found, (1, Reverse(80), 100, None, false), leg);
        assert!(charts(Leg::Call).contains("class=\"level thesis-standard\""));
        assert!(charts(Leg::Call).contains("class=\"curve unix\""));
        assert!(!charts(Leg::Whole).contains("class=\"level"));
        assert!(by_real_time_callers(&found).contains("class=\"curve thesis-inheriting\""));
        assert!(of_inversions(&found).contains(WITHOUT));
    }
}
