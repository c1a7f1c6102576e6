//! All that was measured, and why the rest was not; as rows, tables and charts.

use crate::chart::{self, Chart, Unit, point};
use crate::distribution::Distribution;
use crate::latency::cyclictest;
use crate::report::{self, Detail, Outcome, Quoted, Report, Row};
use crate::rt::caller::Times;
use crate::rt::misuse::Harm;
use crate::rt::steady::Resource;
use crate::rt::way::Way;
use crate::table;
use baton_rt::SchedPriority;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use strum::{IntoStaticStr, VariantArray};

/// Real-time calls: how many callers make them, at which priority (the more urgent first), among
/// how many ordinary callers, who is bound to a processor, what somebody else does to hurt them,
/// and how they call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Case {
    pub real_time_callers: usize,
    pub level: Reverse<u8>,
    pub callers: usize,
    pub bound: Bound,
    pub misuse: Option<Harm>,
    pub way: Way,
}

/// All cases that tell of the same callers.
type Group = (usize, Reverse<u8>, usize, Option<Harm>, bool);

/// Who is bound to a processor, both to the same.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    clap::ValueEnum,
    IntoStaticStr,
    VariantArray,
    strum::Display,
)]
#[strum(serialize_all = "kebab-case")]
pub enum Bound {
    /// Neither side.
    Nobody,
    /// Real-time callers, by themselves; the server knows nothing of it.
    Caller,
    /// Real-time callers, and the server's process by its own doing.
    Both,
}

impl Case {
    /// One real-time caller, with nobody bound.
    pub fn one(way: Way, level: u8, callers: usize) -> Case {
        let (level, bound) = (Reverse(level), Bound::Nobody);
        Case { real_time_callers: 1, level, callers, bound, misuse: None, way }
    }

    pub fn bound(self, bound: Bound) -> Case {
        Case { bound, ..self }
    }

    pub fn name(&self) -> &'static str {
        if (self.way, self.bound) == (Way::Mqueue, Bound::Both) {
            return MQUEUE_BOUND;
        }
        self.way.name()
    }

    fn group(&self) -> Group {
        let is_bound = self.bound != Bound::Nobody;
        (self.real_time_callers, self.level, self.callers, self.misuse, is_bound)
    }

    fn detail(&self) -> Detail {
        let &Case { real_time_callers, level: Reverse(level), callers, bound, misuse, .. } = self;
        let (priority, misuse) = (format!("fifo:{level}"), misuse.map(Harm::name));
        Detail::RealTime { real_time_callers, priority, callers, bound: bound.into(), misuse }
    }
}

/// Message queues whose server is bound, too.
const MQUEUE_BOUND: &str = "mqueue-bound";
/// Calls that may not bring their priority.
const WITHOUT: &str = "baton-typed-without";

/// A part of a call's way: T_CALL, T_RET, or the whole call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
pub enum Leg {
    #[strum(serialize = "t-call")]
    Call,
    #[strum(serialize = "t-return")]
    Return,
    #[strum(serialize = "call")]
    Whole,
}

impl Leg {
    pub const ALL: [Leg; 3] = [Leg::Call, Leg::Return, Leg::Whole];

    fn name(self) -> &'static str {
        self.into()
    }
}

/// A call while somebody in between keeps the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Inversion {
    pub way: Way,
    /// Whether the caller's priority may come with the call.
    pub allowed: bool,
}

impl Inversion {
    /// The priority of the thread that serves a caller of this one.
    fn served_at(self, level: u8) -> SchedPriority {
        match self.way {
            Way::Mqueue => SchedPriority::fifo(level),
            way if way.inherits() && self.allowed => SchedPriority::fifo(level),
            _ => SchedPriority::default(),
        }
    }
}

/// What came of each case, or why there is nothing.
pub type Measured<K, V> = BTreeMap<K, Result<V, String>>;

#[derive(Debug, Default)]
pub struct RtResults {
    /// The first of the callers' priorities: that of all but some calls.
    pub level: u8,
    /// Whether there is one to be measured.
    pub has_kernel_binder: bool,
    /// By [`Leg`].
    pub calls: Measured<Case, [Distribution; 3]>,
    /// cyclictest's wake-ups, by the number of ordinary callers beside it.
    pub wake_ups: Measured<usize, Distribution>,
    pub inversions: Measured<Inversion, Distribution>,
    /// What a steady call takes, round by round.
    pub steady: Measured<Resource, Vec<f64>>,
}

/// Adds a round, which `measure` takes, unless one has failed before.
pub fn add<K: Ord, V: Default, R>(
    to: &mut Measured<K, V>,
    case: K,
    measure: impl FnOnce() -> io::Result<R>,
    add: impl FnOnce(&mut V, R),
) {
    let known = to.entry(case).or_insert_with(|| Ok(V::default()));
    let Ok(value) = known else { return };
    match measure() {
        Ok(round) => add(value, round),
        Err(error) => *known = Err(error.to_string()),
    }
}

/// Adds the times of all callers of a round.
pub fn add_calls(legs: &mut [Distribution; 3], callers: Vec<Times>) {
    let there: Vec<u64> = callers.iter().flat_map(|times| &times.call_ns).copied().collect();
    let back: Vec<u64> = callers.iter().flat_map(|times| &times.return_ns).copied().collect();
    let whole: Vec<u64> = there.iter().zip(&back).map(|(there, back)| there + back).collect();
    for (leg, times_ns) in legs.iter_mut().zip([there, back, whole]) {
        leg.add_round(&times_ns);
    }
}

impl RtResults {
    /// A leg of a case, or why it is not there.
    pub fn leg(&self, case: &Case, leg: Leg) -> report::Times<'_> {
        let &Case { real_time_callers: n, level: Reverse(level), callers, bound, .. } = case;
        let way = case.way.name();
        match self.calls.get(case) {
            Some(Ok(legs)) => Ok(&legs[leg as usize]),
            Some(Err(why)) => Err(format!("{way}: {why}")),
            None => Err(format!(
                "{way}: {n} at fifo:{level} among {callers} ordinary callers, bound {bound}{}, \
                 were not measured",
                case.misuse.map_or(String::new(), |harm| format!(", misuse {}", harm.name())),
            )),
        }
    }

    fn groups(&self) -> BTreeSet<Group> {
        self.calls.keys().map(Case::group).collect()
    }

    /// A row for each distribution, or why there is none, and those of the thesis.
    pub fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for group in self.groups() {
            let cases = || self.calls.iter().filter(|(case, _)| case.group() == group);
            for leg in Leg::ALL {
                rows.extend(cases().filter_map(|(case, legs)| {
                    let times = legs.as_ref().map(|legs| &legs[leg as usize]);
                    row(case.way.name(), leg.name(), case.detail(), times)
                }));
            }
        }
        rows.extend(self.wake_ups.iter().filter_map(|(&callers, times)| {
            let detail = Case::one(Way::BatonTyped, self.level, callers).detail();
            row(cyclictest::NAME, "wake-up", detail, times.as_ref())
        }));
        rows.extend(self.inversions.iter().filter_map(|(inversion, times)| {
            let served_at = inversion.served_at(self.level).to_string();
            row(inversion.way.name(), "inversion", Detail::Inversion { served_at }, times.as_ref())
        }));
        rows.extend(thesis::rows());
        rows
    }

    /// Curves of each group and leg, and what more real-time callers do.
    pub fn page(&self, report: &Report, tables: &str) -> String {
        let groups = self.groups().into_iter().filter(|group| group.0 == 1);
        let legs = groups.flat_map(|group| Leg::ALL.map(|leg| self.of_leg(group, leg)));
        let charts: Vec<Chart> =
            legs.chain([self.of_inversions(), self.by_real_time_callers()]).flatten().collect();
        let lead = "How long a real-time call takes to its handler (t-call), back (t-return), and \
                    both together, among ordinary callers: how many are not longer, all rounds \
                    together. Time is on a logarithmic axis, as are the nines of the share. Broken \
                    lines: the longest time of RTAndroid's thesis, with Android's own Binder and \
                    with the thesis's.";
        let mut names: Vec<&str> = Way::VARIANTS.iter().map(|way| way.name()).collect();
        let others = [MQUEUE_BOUND, cyclictest::NAME, WITHOUT, thesis::STANDARD, thesis::MODIFIED];
        names.extend(others);
        chart::page(report, lead, &names, &charts, tables)
    }

    fn of_leg(&self, group: Group, leg: Leg) -> Option<Chart> {
        let (_, Reverse(level), callers, misuse, is_bound) = group;
        let cases = self.calls.iter().filter(|(case, _)| case.group() == group);
        let named = cases
            .filter_map(|(case, legs)| Some((case.name(), &legs.as_ref().ok()?[leg as usize])));
        let is_beside = leg == Leg::Call && misuse.is_none();
        let wake_ups = self.wake_ups.get(&callers).filter(|_| is_beside);
        let wake_ups = wake_ups.and_then(|times| Some((cyclictest::NAME, times.as_ref().ok()?)));
        let is_quoted = callers == thesis::CALLERS && level == thesis::LEVEL && !is_bound;
        let levels = thesis::longest(leg).filter(|_| is_quoted).collect();
        let bound = if is_bound { ", on one processor" } else { "" };
        let among = match misuse {
            Some(misuse) => format!("beside misuse: {}", misuse.name()),
            None => format!("among {callers} ordinary callers"),
        };
        let title = format!("{} at fifo:{level}{bound} {among}", leg.name());
        chart::percentiles_beside(title, named.chain(wake_ups), levels)
    }

    fn of_inversions(&self) -> Option<Chart> {
        let named = self.inversions.iter().filter_map(|(&Inversion { way, allowed }, times)| {
            Some((if allowed { way.name() } else { WITHOUT }, times.as_ref().ok()?))
        });
        let title = "a call on a processor that somebody less urgent keeps for 50 ms";
        chart::percentiles(title, named)
    }

    fn by_real_time_callers(&self) -> Option<Chart> {
        let most = self.calls.keys().map(|case| case.callers).max();
        let level = self.calls.keys().map(|case| case.level).min();
        let is_it = |case: &Case| {
            (case.way, case.bound) == (Way::BatonTyped, Bound::Nobody)
                && (Some(case.callers), Some(case.level)) == (most, level)
        };
        let mean = |(case, legs): (&Case, &Result<[Distribution; 3], String>)| {
            let mean = legs.as_ref().ok()?[Leg::Call as usize].over_rounds(|round| round.mean)?;
            Some(point(case.real_time_callers, mean))
        };
        let cases = self.calls.iter().filter(|(case, _)| is_it(case));
        let ours: Vec<_> = cases.filter_map(mean).collect();
        let quoted = thesis::MEANS_US.map(|(callers, mean_us)| (callers, [mean_us * 1e3; 3]));
        (ours.len() > 1).then(|| Chart::ByNumber {
            title: "mean t-call, by the number of real-time callers".to_owned(),
            unit: Unit::Nanoseconds,
            lines: vec![(Way::BatonTyped.name(), ours), (thesis::MODIFIED, quoted.into())],
        })
    }
}

fn row(
    system: &'static str,
    case: &'static str,
    detail: Detail,
    times: Result<&Distribution, &String>,
) -> Option<Row> {
    let outcome = match times {
        Ok(times) => Outcome::of(times)?,
        Err(why) => Outcome::missing(why),
    };
    Some(Row::new(system, case, outcome).detail(detail))
}

/// A table for each group and leg, and the thesis's figures.
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

/// The thesis's own figures: I. Kalkov, RWTH Aachen 2018, chapter 6.3. A Samsung Exynos 5250 with
/// Linux 3.4.5-rt15, one caller at priority 80 among 100 ordinary ones in another application,
/// 2,500 calls.
mod thesis {
    use super::*;

    /// As rows name the unmodified Binder, and the one with priority inheritance.
    pub const STANDARD: &str = "thesis-standard";
    pub const MODIFIED: &str = "thesis-inheriting";
    pub const LEVEL: u8 = 80;
    pub const CALLERS: usize = 100;

    const STANDARD_SOURCE: &str = "I. Kalkov, RWTH Aachen 2018, figure 6.5(a)";
    const MODIFIED_SOURCE: &str = "I. Kalkov, RWTH Aachen 2018, figure 6.5(b)";
    const MEANS_SOURCE: &str = "I. Kalkov, RWTH Aachen 2018, figure 6.6";

    /// The shortest and the longest time of a leg, in microseconds.
    const FIGURES: [(&str, Leg, Option<u64>, u64, &str); 4] = [
        (STANDARD, Leg::Call, None, 42_300, STANDARD_SOURCE),
        (STANDARD, Leg::Return, None, 44_500, STANDARD_SOURCE),
        (MODIFIED, Leg::Call, Some(51), 75, MODIFIED_SOURCE),
        (MODIFIED, Leg::Return, Some(41), 70, MODIFIED_SOURCE),
    ];
    /// Mean T_CALL of one real-time caller and of seven, in microseconds.
    pub const MEANS_US: [(usize, f64); 2] = [(1, 55.0), (7, 319.0)];

    pub fn longest(leg: Leg) -> impl Iterator<Item = (&'static str, u64)> {
        let of_leg = FIGURES.iter().filter(move |figure| figure.1 == leg);
        of_leg.map(|figure| (figure.0, figure.3 * 1000))
    }

    pub fn rows() -> impl Iterator<Item = Row> {
        let row = |system, leg: Leg, real_time_callers, outcome| {
            let case = Case::one(Way::BatonTyped, LEVEL, CALLERS);
            let detail = Case { real_time_callers, ..case }.detail();
            Row::new(system, leg.name(), outcome).detail(detail)
        };
        let ends = FIGURES.iter().map(move |&(system, leg, min_us, max_us, source)| {
            let (min_ns, max_ns) = (min_us.map(|us| us * 1000), Some(max_us * 1000));
            row(system, leg, 1, Outcome::Quoted(Quoted { source, mean_ns: None, min_ns, max_ns }))
        });
        ends.chain(MEANS_US.iter().map(move |&(callers, mean_us)| {
            row(MODIFIED, Leg::Call, callers, Outcome::mean(MEANS_SOURCE, mean_us * 1e3))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_call_is_both_its_halves() {
        let times = |call_ns: &[u64], return_ns: &[u64]| Times {
            call_ns: call_ns.to_vec(),
            return_ns: return_ns.to_vec(),
        };
        let mut legs = <[Distribution; 3]>::default();
        add_calls(&mut legs, vec![times(&[10, 20], &[1, 1]), times(&[30], &[70])]);
        let ends = legs.each_ref().map(|leg| (leg.n(), leg.min_ns(), leg.max_ns()));
        assert_eq!(ends, [(3, 10, 30), (3, 1, 70), (3, 11, 100)]);
    }

    #[test]
    fn what_has_failed_once_is_not_tried_again() {
        let mut measured = Measured::<u8, Vec<u8>>::new();
        for round in [Ok(1), Err(io::Error::other("lost")), Ok(2)] {
            add(&mut measured, 0, || round, Vec::push);
        }
        assert_eq!(measured[&0], Err("lost".to_owned()));
        add(&mut measured, 0, || -> io::Result<u8> { panic!("not asked") }, Vec::push);
    }

    fn found() -> RtResults {
        let mut found = RtResults { level: 80, ..RtResults::default() };
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
        let inversion = Inversion { way: Way::BatonTyped, allowed: false };
        let times = |times: &mut Distribution, time_ns| times.add_round(&[time_ns]);
        add(&mut found.inversions, inversion, || Ok(9), times);
        found
    }

    #[test]
    fn a_row_for_each_leg() {
        let rows = found().rows();
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
    fn a_chart_for_each_group_and_leg() {
        let found = found();
        let of_leg = |leg| match found.of_leg((1, Reverse(80), 100, None, false), leg) {
            Some(Chart::Percentiles { curves, levels, .. }) => (curves, levels),
            other => panic!("{other:?}"),
        };
        let (curves, levels) = of_leg(Leg::Call);
        assert_eq!(levels[0], (thesis::STANDARD, 42_300_000));
        assert!(curves.iter().any(|curve| curve.0 == "unix"));
        assert!(of_leg(Leg::Whole).1.is_empty());
        let Some(Chart::ByNumber { lines, .. }) = found.by_real_time_callers() else { panic!() };
        assert_eq!(lines[1].0, thesis::MODIFIED);
        assert!(found.of_inversions().is_some());
    }
}
