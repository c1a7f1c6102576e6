//! `baton bench tester` and `baton bench add-ints`: the two experiments of the android-binder-ipc
//! project. One Binder client and one server do the same thing many times, on Baton and on the
//! kernel's driver.
//!
//! - `tester` is its `binder_tester`, without the points inside a driver: when a message of 272
//!   bytes is where, on its way there and back. Both programs write into it when they had it.
//! - `add-ints` is its `binderAddInts`: a server adds two ints, with and without a sleep between
//!   calls.

use crate::chart::{self, Chart};
use crate::distribution::Distribution;
use crate::form::{self, BenchError, Finding, FormArgs, progress};
use crate::pair::{Chunk, Pair};
use crate::processors::Placement;
use crate::report::{Detail, Figures, Outcome, Quoted, Ratio, Row};
use crate::results::Results;
use crate::rpc::Peers;
use crate::service::{INTS_BYTES, STAMPED_BYTES, Service};
use crate::system::System;
use crate::table::us;
use crate::testbed::{Setting, Testbed};
use std::collections::BTreeMap;
use std::process::ExitCode;

const SOURCE: &str = "README of android-binder-ipc, 2012";
const DRIVERS: [&str; 2] = ["readme-old-driver", "readme-new-driver"];
const N_WARM_UP: u32 = 100;
/// The original's sleep between two calls, a millisecond.
const DELAY_US: u64 = 1000;

/// How an experiment is to run.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints a table; with --json one JSON object instead. The kernel's own driver runs where there is \
/dev/binder: in the guest of `make bench-guest`.

Exit codes: 0 success; 1 nothing could be measured, or, with --check, a ratio does not hold.")]
pub struct ExperimentArgs {
    /// How it reports
    #[command(flatten)]
    pub form: FormArgs,
    /// What to measure beside Baton: all, none, or names with commas between
    #[arg(long, value_name = "LIST", default_value = "all", value_parser = crate::rpc::parse_peers)]
    pub peers: Peers,
    /// Rounds
    #[arg(long, value_name = "N", default_value = "5", value_parser = form::positive())]
    pub rounds: u32,
    /// Iterations, all rounds together [default: 10000]
    #[arg(long, value_name = "N", value_parser = form::positive())]
    pub calls: Option<u32>,
}

/// A delay, and the mean with it; the shortest and the longest, if they are told.
type QuotedUs = (u64, f64, Option<[f64; 2]>);

/// An experiment: what is done, and what the README says of both drivers, in microseconds.
struct Experiment {
    name: &'static str,
    service: Service,
    payload_bytes: usize,
    /// Points on the way there and back; their times begin with C_SEND. Empty for whole calls.
    points: &'static [&'static str],
    /// By drivers: of each point the mean, or of each delay the mean, the shortest and the longest.
    quoted_us: [&'static [QuotedUs]; 2],
    delays: &'static [u64],
    lead: &'static str,
}

const TESTER: Experiment = Experiment {
    name: "tester",
    service: Service::Stamp,
    payload_bytes: STAMPED_BYTES,
    points: &["S_RECV", "S_REPLY", "C_RECV"],
    quoted_us: [
        &[(0, 7.0, None), (0, 10.0, None), (0, 17.0, None)],
        &[(0, 7.0, None), (0, 9.0, None), (0, 16.0, None)],
    ],
    delays: &[0],
    lead: "Time from C_SEND, at which the client sends, to each point: how many messages were \
           there no later, all rounds together.",
};

const ADD_INTS: Experiment = Experiment {
    name: "add-ints",
    service: Service::AddInts,
    payload_bytes: INTS_BYTES,
    points: &[],
    quoted_us: [
        &[(DELAY_US, 181.443, Some([151.486, 4976.61])), (0, 258.004, Some([139.962, 4903.84]))],
        &[(DELAY_US, 203.101, Some([142.057, 3298.81])), (0, 242.037, Some([139.124, 2432.85]))],
    ],
    delays: &[0, DELAY_US],
    lead: "Time of a call that adds two ints: how many of them are not longer, all rounds \
           together.",
};

/// One way to do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Situation {
    /// `None` as in the original: wherever the kernel puts both sides.
    placement: Option<Placement>,
    /// Sleep between two iterations, in microseconds.
    delay_us: u64,
}

/// A distribution for each point; the last is the round trip.
type Measured = Results<(Situation, System), Vec<Distribution>>;

/// Runs `baton bench tester`.
pub fn tester(args: &ExperimentArgs) -> ExitCode {
    form::finish(TESTER.name, &args.form, run(&TESTER, args))
}

/// Runs `baton bench add-ints`.
pub fn add_ints(args: &ExperimentArgs) -> ExitCode {
    form::finish(ADD_INTS.name, &args.form, run(&ADD_INTS, args))
}

fn run(experiment: &Experiment, args: &ExperimentArgs) -> Result<Finding, BenchError> {
    let setting = Setting::look()?;
    let found = experiment.measure(args, &setting)?;
    let mut report = setting.report(experiment.name, args.rounds, experiment.rows(&found));
    report.ratios = experiment.ratios(&found);
    let tables = experiment.tables(&report.rows);
    let is_measured = |system: &&System| found.measured.keys().any(|case| case.1 == **system);
    let names: Vec<&str> = System::ALL.iter().filter(is_measured).map(|it| it.name()).collect();
    let page = chart::page(&report, experiment.lead, &names, &experiment.charts(&found), &tables);
    Ok(Finding { report, tables, page })
}

impl ExperimentArgs {
    /// Iterations, all rounds together. Those with a sleep take long, and are no more than a run
    /// has by default.
    fn n_calls(&self, delay_us: u64) -> u32 {
        let most = if self.form.quick { 1_000 } else { 10_000 };
        let n_calls = self.calls.unwrap_or(10_000);
        if delay_us > 0 { n_calls.min(most) } else { n_calls }
    }

    /// Baton's, and the kernel's if it is asked for.
    fn systems(&self) -> impl Iterator<Item = System> {
        let asked = |system: &System| !system.is_peer() || self.peers.0.contains(system);
        System::ALL.iter().copied().filter(|system| system.is_binder()).filter(asked)
    }
}

impl Experiment {
    /// In each situation the systems take turns, in rounds.
    fn measure(&self, args: &ExperimentArgs, setting: &Setting) -> Result<Measured, BenchError> {
        let testbed = Testbed::start()?;
        let mut found = Measured::default();
        let mut pairs = BTreeMap::new();
        for system in args.systems() {
            let pair = Pair::start(system, testbed.place(self.service));
            pairs.extend(found.ok(system.name(), pair).map(|pair| (system, pair)));
        }
        let placements = || [None].into_iter().chain(setting.placements().into_iter().map(Some));
        let progress = progress(placements().count() * self.delays.len() * args.rounds as usize);
        for placement in placements() {
            for &delay_us in self.delays {
                let n_calls = args.n_calls(delay_us).div_ceil(args.rounds);
                let n_warm_up = N_WARM_UP.min(n_calls);
                let chunk = Chunk::new(placement, self.payload_bytes, n_warm_up, n_calls);
                let chunk = Chunk { delay_us, ..chunk };
                for _ in 0..args.rounds {
                    pairs.retain(|&system, pair| {
                        let case = (Situation { placement, delay_us }, system);
                        let round = pair.find(&chunk, &setting.processors);
                        found.add(case, system.name(), round, add_points)
                    });
                    progress.inc(1);
                }
            }
        }
        progress.finish_and_clear();
        Ok(found)
    }

    fn row(&self, system: &'static str, at: Situation, point: usize, outcome: Outcome) -> Row {
        let detail = match self.points.get(point) {
            Some(point) => Detail::Point { point },
            None => Detail::Delay { delay_us: at.delay_us },
        };
        let row = Row::new(system, self.name, outcome).bytes(self.payload_bytes);
        row.at(at.placement).detail(detail)
    }

    /// Measured and quoted rows, those of delays by the situation; then missing ones.
    fn rows(&self, found: &Measured) -> Vec<Row> {
        let mut rows: Vec<(Situation, Row)> = Vec::new();
        for (&(at, system), points) in &found.measured {
            let of_points = points.iter().enumerate().filter_map(|(point, times)| {
                Some((at, self.row(system.name(), at, point, Outcome::of(times)?)))
            });
            rows.extend(of_points);
        }
        for (driver, figures) in DRIVERS.into_iter().zip(self.quoted_us) {
            let figures =
                figures.iter().enumerate().map(|(point, &(delay_us, mean_us, ends_us))| {
                    let at = Situation { placement: None, delay_us };
                    (at, self.row(driver, at, point, quoted(mean_us, ends_us)))
                });
            rows.extend(figures);
        }
        if self.points.is_empty() {
            rows.sort_by_key(|(at, _)| *at);
        }
        rows.into_iter().map(|(_, row)| row).chain(found.missing_rows(self.name)).collect()
    }

    /// The kernel's round trip over each of ours, undelayed, by placement.
    fn ratios(&self, found: &Measured) -> Vec<Ratio> {
        let mut ratios = Vec::new();
        let [same, different] = Placement::BOTH.map(Some);
        for (placement, word) in [(None, ""), (same, "_same"), (different, "_diff")] {
            let round_trip = |system: System| {
                let case = (Situation { placement, delay_us: 0 }, system);
                let points = found.find(&case, system.name())?;
                points.last().ok_or_else(|| "no round trip".to_owned())
            };
            for ours in [System::BatonTyped, System::BatonUapiLibc] {
                let (bench, key) = (self.name.replace('-', "_"), ours.key().replace("baton_", ""));
                let name = format!("{bench}_kernel_binder{word}_over_{key}");
                ratios.push(Ratio::of(
                    name,
                    round_trip(System::KernelBinder),
                    round_trip(ours),
                    None,
                ));
            }
        }
        ratios
    }

    fn title(&self, at: Situation) -> String {
        let processors = Placement::title(at.placement);
        match (self.points, at.delay_us) {
            ([], 0) => format!("no delay, {processors}"),
            ([], delay_us) => format!("{delay_us} us between, {processors}"),
            _ => processors.to_owned(),
        }
    }

    fn charts(&self, found: &Measured) -> Vec<Chart> {
        let mut situations: Vec<Situation> = found.measured.keys().map(|case| case.0).collect();
        situations.dedup();
        let chart = |(at, point): (Situation, usize)| {
            let of_situation = found.measured.iter().filter(|(case, _)| case.0 == at);
            let times =
                of_situation.filter_map(|(case, points)| Some((case.1.name(), points.get(point)?)));
            let point = self.points.get(point).map_or(String::new(), |name| format!("{name}, "));
            chart::percentiles(point + &self.title(at), times)
        };
        let n_points = self.points.len().max(1);
        let all = situations.into_iter().flat_map(|at| (0..n_points).map(move |it| (at, it)));
        all.filter_map(chart).collect()
    }

    /// A table for each situation: systems and drivers, one a line.
    fn tables(&self, rows: &[Row]) -> String {
        let mut text = String::new();
        let mut last = None;
        for row in rows.iter().filter(|row| row.detail.is_some()) {
            let delay_us = match row.detail {
                Some(Detail::Delay { delay_us }) => delay_us,
                _ => 0,
            };
            let at = Situation { placement: row.placement, delay_us };
            if self.points.is_empty() {
                if last.replace(at) != Some(at) {
                    text += &format!("\n{}\n{}\n", self.title(at), columns("us", &TIMES));
                }
                text += &format!("{:<18}{}\n", row.system, of_call(row));
            } else if last.replace(at) != Some(at) {
                text += &self.of_points(rows, at);
            }
        }
        text
    }

    /// The mean time at each point, as the README has it, and the round trip.
    fn of_points(&self, rows: &[Row], at: Situation) -> String {
        let heads = [&["C_SEND"], self.points, &["C_RECV p50", "p99", "max", "n"]].concat();
        let mut text = format!(
            "\nmean time in us, {}, {} bytes\n{}\n",
            self.title(at),
            self.payload_bytes,
            columns("", &heads)
        );
        let here = || rows.iter().filter(|row| row.placement == at.placement);
        let mut names: Vec<&str> =
            here().filter(|row| row.detail.is_some()).map(|row| row.system).collect();
        names.dedup();
        for name in names {
            let times = here().filter(|row| row.system == name).filter_map(mean_ns);
            let times = [0.0].into_iter().chain(times);
            let times: String = times.map(|mean_ns| format!("{:>11}", us(mean_ns))).collect();
            let tail = match here().rfind(|row| row.system == name).and_then(Row::figures) {
                Some(Figures { n, p50_ns, p99_ns, max_ns, .. }) => {
                    let [p50, p99, max] = [*p50_ns, *p99_ns, *max_ns as f64].map(us);
                    format!("{p50:>11}{p99:>11}{max:>11}{n:>11}")
                }
                None => String::new(),
            };
            text += &format!("{name:<18}{times}{tail}\n");
        }
        text
    }
}

fn add_points(points: &mut Vec<Distribution>, round: Vec<Vec<u64>>) {
    points.resize_with(round.len(), Distribution::default);
    points.iter_mut().zip(&round).for_each(|(point, times_ns)| point.add_round(times_ns));
}

const TIMES: [&str; 6] = ["min", "avg", "max", "p50", "p99", "n"];

fn columns(first: &str, heads: &[&str]) -> String {
    let heads: String = heads.iter().map(|head| format!("{head:>11}")).collect();
    format!("{first:<18}{heads}")
}

fn of_call(row: &Row) -> String {
    let times = |times: &[f64]| -> String {
        times.iter().map(|&time_ns| format!("{:>11}", us(time_ns))).collect()
    };
    match &row.outcome {
        Outcome::Measured(Figures { n, p50_ns, p99_ns, min_ns, max_ns, mean_ns, .. }) => {
            times(&[*min_ns as f64, *mean_ns, *max_ns as f64, *p50_ns, *p99_ns])
                + &format!("{n:>11}")
        }
        Outcome::Quoted(Quoted { min_ns, mean_ns, max_ns, .. }) => {
            let [min, max] = [min_ns, max_ns].map(|end| end.unwrap_or(0) as f64);
            times(&[min, mean_ns.unwrap_or(f64::NAN), max])
        }
        Outcome::Missing { .. } | Outcome::Counted(_) => String::new(),
    }
}

fn mean_ns(row: &Row) -> Option<f64> {
    match &row.outcome {
        Outcome::Measured(figures) => Some(figures.mean_ns),
        Outcome::Quoted(quoted) => quoted.mean_ns,
        Outcome::Missing { .. } | Outcome::Counted(_) => None,
    }
}

/// A figure of the README, in microseconds.
fn quoted(mean_us: f64, ends_us: Option<[f64; 2]>) -> Outcome {
    let ns = |time_us: f64| (time_us * 1000.0).round() as u64;
    let (min_ns, max_ns) = ends_us.map(|ends| (ns(ends[0]), ns(ends[1]))).unzip();
    Outcome::Quoted(Quoted { source: SOURCE, mean_ns: Some(ns(mean_us) as f64), min_ns, max_ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(placement: Option<Placement>, delay_us: u64, times_ns: &[u64]) -> Measured {
        let mut found = Measured::default();
        let points = times_ns.iter().map(|&time_ns| {
            let mut point = Distribution::default();
            point.add_round(&[time_ns; 4]);
            point
        });
        let case = (Situation { placement, delay_us }, System::BatonTyped);
        found.measured.insert(case, points.collect());
        found
    }

    fn line(text: &str, name: &str) -> Vec<String> {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().skip(1).take(4).map(str::to_owned).collect()
    }

    #[test]
    fn a_line_for_each_system_and_driver() {
        let mut found = measured(None, 0, &[2_000, 3_000, 5_000]);
        found.missing.insert("kernel-binder", "no device".to_owned());
        let rows = TESTER.rows(&found);
        assert_eq!(rows.len(), 3 + 2 * 3 + 1);
        let text = TESTER.tables(&rows);
        assert_eq!(line(&text, "baton-typed"), ["0.00", "2.00", "3.00", "5.00"]);
        assert_eq!(line(&text, "readme-old-driver"), ["0.00", "7.00", "10.00", "17.00"]);
        assert_eq!(line(&text, "readme-new-driver"), ["0.00", "7.00", "9.00", "16.00"]);
        assert!(!text.contains("kernel-binder"));
    }

    #[test]
    fn quotes_stand_below_what_was_measured_in_the_same_situation() {
        let mut found = measured(None, 0, &[2_000]);
        found.measured.append(&mut measured(None, DELAY_US, &[3_000]).measured);
        let rows = ADD_INTS.rows(&found);
        let names: Vec<&str> = rows.iter().map(|row| row.system).collect();
        assert_eq!(names[..3], ["baton-typed", "readme-old-driver", "readme-new-driver"]);
        assert_eq!(names[3..], names[..3]);
        let text = ADD_INTS.tables(&rows);
        assert!(text.contains("no delay, any processors") && text.contains("1000 us between"));
        assert_eq!(line(&text, "readme-old-driver")[..3], ["139.96", "258.00", "4903.84"]);
        assert_eq!(line(&text, "baton-typed")[..3], ["2.00", "2.00", "2.00"]);
    }

    #[test]
    fn the_kernel_is_told_beside_ours_or_missed() {
        let mut found = measured(None, 0, &[1, 1, 1_000]);
        let kernel = measured(None, 0, &[1, 1, 2_000]).measured.pop_first().unwrap().1;
        let at = Situation { placement: None, delay_us: 0 };
        found.measured.insert((at, System::KernelBinder), kernel);
        found.missing.insert("baton-uapi-libc", "no library".to_owned());
        let ratios = TESTER.ratios(&found);
        let ratio = |name: &str| ratios.iter().find(|ratio| ratio.name == name).unwrap();
        assert_eq!(ratio("tester_kernel_binder_over_typed").value, Some(2.0));
        let why = ratio("tester_kernel_binder_over_uapi_libc").why.as_deref();
        assert_eq!(why, Some("baton-uapi-libc: no library"));
        assert!(ratio("tester_kernel_binder_same_over_typed").value.is_none());
    }
}
