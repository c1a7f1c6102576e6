//! What was measured of wake-ups and of calls: as rows, tables, charts and ratios.

use crate::chart::{self, Chart};
use crate::distribution::Distribution;
use crate::latency::{LEGS, cyclictest, timer};
use crate::processors::Placement;
use crate::report::{Bar, Detail, Outcome, Quoted, Ratio, Report, Row, Times};
use crate::results::Results;
use crate::service::STAMPED_BYTES;
use crate::table::us;
use baton_rt::SchedPriority;

const WAKE_UP: &str = "wake-up";
const TYPED: &str = "baton-typed";
/// What both ways to measure wake-ups may differ by.
const AGREEMENT: f64 = 1.25;

/// Kalkov 2018, table 4.3: with and without load, shortest, mean and longest in microseconds. A
/// Samsung Exynos 5250 with Linux 3.4.
const THESIS: [(&str, usize, [u64; 3]); 5] = [
    ("thesis-standard", 0, [37, 186, 7407]),
    ("thesis-rt", 0, [27, 77, 118]),
    ("thesis-rt", 1, [23, 108, 219]),
    ("thesis-rt-locked", 0, [17, 31, 58]),
    ("thesis-rt-locked", 1, [16, 34, 63]),
];

/// How many threads ran beside, where the thread was bound, and who measured.
type WakeUp = (usize, Option<usize>, &'static str);
/// How many threads ran beside, and how client and server lay.
type Calls = (usize, Option<Placement>);

/// Distributions, and why others are missing.
#[derive(Default)]
pub struct LatencyResults {
    /// Of all threads that were measured; `None` for ordinary ones.
    pub priority: Option<SchedPriority>,
    pub wake_ups: Results<WakeUp>,
    /// By [`LEGS`].
    pub calls: Results<Calls, [Distribution; 2]>,
}

impl LatencyResults {
    /// The wake-ups of a system, one place after the other.
    fn of(&self, system: &str, load: usize) -> impl Iterator<Item = &Distribution> {
        let is_it = move |it: &WakeUp| (it.0, it.2) == (load, system);
        self.wake_ups.measured.iter().filter(move |(it, _)| is_it(it)).map(|(_, times)| times)
    }

    fn detail(&self, load: usize, cpu: Option<usize>, times: &Distribution) -> Detail {
        let quartiles = times.curve(&[0.25, 0.75]);
        let priority = self.priority.unwrap_or_default().to_string();
        let quartiles_ns = Some([quartiles[0], quartiles[1]]);
        Detail::Latency { priority, load, cpu, quartiles_ns }
    }

    /// A row for each distribution, then quoted ones, then missing ones.
    pub fn rows(&self) -> Vec<Row> {
        let wake_ups = self.wake_ups.measured.iter().filter_map(|(&(load, cpu, system), times)| {
            let row = Row::new(system, WAKE_UP, Outcome::of(times)?);
            Some(row.detail(self.detail(load, cpu, times)))
        });
        let calls = self.calls.measured.iter().flat_map(|(&(load, placement), legs)| {
            LEGS.into_iter().zip(legs).filter_map(move |(leg, times)| {
                let row = Row::new(TYPED, leg, Outcome::of(times)?).at(placement);
                Some(row.bytes(STAMPED_BYTES).detail(self.detail(load, None, times)))
            })
        });
        let quoted = THESIS.map(|(system, load, [min, mean, max])| {
            let outcome = Outcome::Quoted(Quoted {
                source: "I. Kalkov, RWTH Aachen 2018, table 4.3",
                mean_ns: Some(mean as f64 * 1e3),
                min_ns: Some(min * 1_000),
                max_ns: Some(max * 1_000),
            });
            let priority = SchedPriority::fifo(80).to_string();
            let detail = Detail::Latency { priority, load, cpu: None, quartiles_ns: None };
            Row::new(system, WAKE_UP, outcome).detail(detail)
        });
        let missing = self.wake_ups.missing_rows(WAKE_UP).chain(self.calls.missing_rows(LEGS[0]));
        wake_ups.chain(calls).chain(quoted).chain(missing).collect()
    }

    pub fn charts(&self) -> Vec<Chart> {
        let wake_ups = &self.wake_ups.measured;
        let mut cases: Vec<_> = wake_ups.keys().map(|&(load, cpu, _)| (load, cpu)).collect();
        cases.dedup();
        let of_case = |(load, cpu): (usize, Option<usize>)| {
            let systems = wake_ups.iter().filter(|(it, _)| (it.0, it.1) == (load, cpu));
            let title = format!("wake-up, {}, load {load}", place(cpu));
            chart::percentiles(title, systems.map(|(it, times)| (it.2, times)))
        };
        let calls = self.calls.measured.iter().filter_map(|(&(load, placement), legs)| {
            let processors = Placement::title(placement);
            let title = format!("T_CALL and T_RET, {processors}, load {load}");
            chart::percentiles(title, LEGS.into_iter().zip(legs))
        });
        cases.into_iter().filter_map(of_case).chain(calls).collect()
    }

    pub fn page(&self, report: &Report, tables: &str) -> String {
        let lead = "How late a thread wakes up at the time that it has asked for, and how long a \
                    call takes to its handler (call) and back (return): how many are not longer, \
                    all rounds together. Time is on a logarithmic axis, as are the nines of the \
                    share.";
        let names = [timer::NAME, cyclictest::NAME, LEGS[0], LEGS[1]];
        chart::page(report, lead, &names, &self.charts(), tables)
    }

    /// Whether cyclictest says the same, and what the load does.
    pub fn ratios(&self) -> Vec<Ratio> {
        let mut ratios = Vec::new();
        let mut loads: Vec<usize> = self.wake_ups.measured.keys().map(|it| it.0).collect();
        loads.dedup();
        let beside = self.of(cyclictest::NAME, 0).next().is_some()
            || self.wake_ups.missing.contains_key(cyclictest::NAME);
        for &load in loads.iter().filter(|_| beside) {
            // Under load both differ from round to round by more than from each other.
            let bar = (load == 0).then_some(Bar::AtMost(AGREEMENT));
            let loaded = if load == 0 { "" } else { "_loaded" };
            let [ours, theirs] =
                [timer::NAME, cyclictest::NAME].map(|system| self.first(system, load));
            let name = |name: &str| format!("{name}{loaded}");
            let both = (ours.clone(), theirs.clone());
            ratios.push(Ratio::of(name("wake_up_over_cyclictest"), ours, theirs, bar));
            ratios.push(Ratio::of(name("cyclictest_over_wake_up"), both.1, both.0, bar));
        }
        if let [_, load] = loads[..] {
            let wake_up = |load| self.first(timer::NAME, load);
            ratios.push(of_tails("wake_up_loaded_p99_over_idle", wake_up(load), wake_up(0)));
            for (at, leg) in LEGS.into_iter().enumerate() {
                let of = |load| {
                    let legs = self.calls.find(&(load, Some(Placement::Different)), TYPED);
                    legs.map(|legs| &legs[at])
                };
                ratios.push(of_tails(&format!("{leg}_loaded_p99_over_idle"), of(load), of(0)));
            }
        }
        ratios
    }

    fn first(&self, system: &'static str, load: usize) -> Times<'_> {
        let missing = || self.wake_ups.missing.get(system).cloned();
        let why = || missing().unwrap_or(format!("{system} was not measured"));
        self.of(system, load).next().ok_or_else(why)
    }
}

fn place(cpu: Option<usize>) -> String {
    cpu.map_or("unbound".to_owned(), |cpu| format!("processor {cpu}"))
}

/// Of the medians of the rounds' 99th percentiles.
fn of_tails(name: &str, over: Times<'_>, under: Times<'_>) -> Ratio {
    let p99 = |times: &Distribution| {
        times.over_rounds(|round| round.p99 as f64).map_or(f64::NAN, |spread| spread.median)
    };
    Ratio::new(name, over.and_then(|over| Ok((p99(over) / p99(under?), None))), None)
}

/// Two tables, of wake-ups and of calls.
pub fn tables(rows: &[Row]) -> String {
    let heads = ["min", "p25", "p50", "p75", "mean", "p99", "p99.9", "max", "n"];
    let heads: String = heads.iter().map(|head| format!("{head:>10}")).collect();
    let mut text = String::new();
    for (title, is_wake_up) in [
        ("how late threads wake up, in us", true),
        ("T_CALL (call) and T_RET (return), in us", false),
    ] {
        let of_table = rows.iter().filter(|row| (row.case == WAKE_UP) == is_wake_up);
        let lines: String = of_table.filter_map(line).collect();
        if !lines.is_empty() {
            text += &format!("\n{title}\n{:<38}{:>5}{:>9}{heads}\n{lines}", "", "load", "priority");
        }
    }
    text
}

fn line(row: &Row) -> Option<String> {
    let Some(Detail::Latency { priority, load, cpu, quartiles_ns }) = &row.detail else {
        return None;
    };
    let at = match row.placement {
        _ if row.case == WAKE_UP => place(*cpu),
        Some(Placement::Same) => format!("{}, same", row.case),
        Some(Placement::Different) => format!("{}, different", row.case),
        None => format!("{}, unbound", row.case),
    };
    let none = || "-".to_owned();
    let end = |ns: Option<u64>| ns.map_or_else(none, |ns| us(ns as f64));
    let (at, times) = match &row.outcome {
        Outcome::Measured(it) => {
            let [p25, p75] = [0, 1].map(|at| end(quartiles_ns.map(|ns| ns[at])));
            let [min, max] = [it.min_ns, it.max_ns].map(|ns| us(ns as f64));
            let [p50, mean, p99, p999] = [it.p50_ns, it.mean_ns, it.p99_ns, it.p999_ns].map(us);
            (at, [min, p25, p50, p75, mean, p99, p999, max, it.n.to_string()])
        }
        Outcome::Quoted(it) => {
            let mut times = [(); 9].map(|()| none());
            (times[0], times[7]) = (end(it.min_ns), end(it.max_ns));
            times[4] = it.mean_ns.map_or_else(none, us);
            (String::new(), times)
        }
        Outcome::Missing { .. } | Outcome::Counted(_) => return None,
    };
    let times: String = times.iter().map(|time| format!("{time:>10}")).collect();
    Some(format!("{:<18}{at:<20}{load:>5}{priority:>9}{times}\n", row.system))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found() -> LatencyResults {
        let mut found =
            LatencyResults { priority: Some(SchedPriority::fifo(80)), ..LatencyResults::default() };
        for (system, load, delay_ns) in
            [(timer::NAME, 0, 1_000), (timer::NAME, 4, 3_000), (cyclictest::NAME, 0, 2_000)]
        {
            let round = Ok::<_, String>(vec![delay_ns; 10]);
            found.wake_ups.add_times((load, None, system), system, round);
        }
        found.wake_ups.missing.insert(cyclictest::NAME, "has ended".to_owned());
        let legs = found.calls.measured.entry((0, Some(Placement::Different))).or_default();
        legs[0].add_round(&[5_000; 10]);
        legs[1].add_round(&[4_000; 10]);
        found
    }

    #[test]
    fn a_line_for_each_distribution_and_figure_of_the_thesis() {
        let rows = found().rows();
        let text = tables(&rows);
        let line = |name: &str, word: &str| -> Vec<String> {
            let line =
                text.lines().find(|line| line.starts_with(name) && line.contains(word)).unwrap();
            line.split_whitespace().map(str::to_owned).collect()
        };
        assert_eq!(line("baton-latency", "unbound")[2..6], ["0", "fifo:80", "1.00", "1.00"]);
        assert_eq!(line("baton-typed", "call, different")[3..6], ["0", "fifo:80", "5.00"]);
        assert_eq!(line("thesis-rt-locked", "63.00")[1..4], ["1", "fifo:80", "16.00"]);
        assert!(rows.iter().any(|row| matches!(row.outcome, Outcome::Missing { .. })));
    }

    #[test]
    fn agreement_has_a_bar_where_nothing_else_runs() {
        let ratios = found().ratios();
        let ratio = |name: &str| ratios.iter().find(|ratio| ratio.name == name).unwrap();
        assert_eq!(ratio("wake_up_over_cyclictest").value, Some(0.5));
        assert_eq!(ratio("wake_up_over_cyclictest").holds, Some(true));
        assert_eq!(ratio("cyclictest_over_wake_up").holds, Some(false));
        assert_eq!(ratio("wake_up_over_cyclictest_loaded").holds, None);
        assert_eq!(ratio("wake_up_over_cyclictest_loaded").why.as_deref(), Some("has ended"));
        assert_eq!(ratio("wake_up_loaded_p99_over_idle").value, Some(3.0));
        assert!(ratio("call_loaded_p99_over_idle").why.is_some());
    }
}
