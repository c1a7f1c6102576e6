//! `baton bench tester` and `baton bench add-ints`: the two experiments of the android-binder-ipc
//! project. One Binder client and one server do the same thing many times, on Baton and on the
//! kernel's driver.
//!
//! - `tester` is its `binder_tester`, without the points inside a driver: when a message of 272
//!   bytes is where, on its way there and back. Both programs write into it when they had it.
//! - `add-ints` is its `binderAddInts`: a server adds two ints, with and without a sleep between
//!   calls.

use crate::form::{self, BenchError, Finding, FormArgs};
use crate::pair::{Chunk, Pair, start_each};
use crate::processors::Placement;
use crate::report::{Keys, Ratio, RowKey};
use crate::results::{P50, Results, ratio};
use crate::service::{INTS_BYTES, STAMPED_BYTES, Service};
use crate::system::{Peers, System};
use crate::testbed::{Setting, Testbed};
use crate::turns::each_step;
use std::fmt::Display;

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

/// Runs `baton bench tester`.
pub(crate) fn tester(args: &ExperimentArgs) -> Result<Finding, BenchError> {
    run(&TESTER, args)
}

/// Runs `baton bench add-ints`.
pub(crate) fn add_ints(args: &ExperimentArgs) -> Result<Finding, BenchError> {
    run(&ADD_INTS, args)
}

fn run(experiment: &Experiment, args: &ExperimentArgs) -> Result<Finding, BenchError> {
    let setting = Setting::look()?;
    let mut found = experiment.measure(args, &setting)?;
    experiment.quote(&mut found);
    let (rows, ratios) = (found.rows(|_, _| Keys::new()), experiment.ratios(&found));
    let report = setting.report(experiment.name, args.rounds, rows, ratios);
    Ok(Finding::new(report, found.charts(), experiment.lead))
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
        System::called().filter(|system| system.is_binder()).filter(asked)
    }
}

impl Experiment {
    /// In each situation the systems take turns, in rounds.
    fn measure(&self, args: &ExperimentArgs, setting: &Setting) -> Result<Results, BenchError> {
        let testbed = Testbed::start()?;
        let mut found = Results::default();
        let key = |system: System| RowKey::new(system.name(), self.name);
        let start = |system| Pair::start(system, testbed.place(self.service));
        let mut pairs = start_each(args.systems(), &mut found, key, start);
        let placements = [None].into_iter().chain(setting.placements().into_iter().map(Some));
        let situations: Vec<Situation> = placements
            .flat_map(|placement| self.delays.iter().map(move |&delay_us| (placement, delay_us)))
            .map(|(placement, delay_us)| Situation { placement, delay_us })
            .collect();
        let title = |at: &Situation| Placement::title(at.placement);
        each_step(args.rounds, &situations, title, |&at| {
            let n_calls = args.n_calls(at.delay_us).div_ceil(args.rounds);
            let n_warm_up = N_WARM_UP.min(n_calls);
            let chunk = Chunk::new(at.placement, self.payload_bytes, n_warm_up, n_calls);
            let chunk = Chunk { delay_us: at.delay_us, ..chunk };
            pairs.retain(|&system, pair| {
                let round = pair.find(&chunk, &setting.processors);
                self.add(&mut found, system.name(), at, round)
            });
        });
        Ok(found)
    }

    fn add<E: Display>(
        &self,
        found: &mut Results,
        system: &'static str,
        at: Situation,
        round: Result<Vec<Vec<u64>>, E>,
    ) -> bool {
        let Some(points) = found.ok(RowKey::new(system, self.name), round) else { return false };
        for (point, times_ns) in points.into_iter().enumerate() {
            found.add_times(self.key(system, at, point), Ok::<_, E>(times_ns));
        }
        true
    }

    fn key(&self, system: &'static str, at: Situation, point: usize) -> RowKey {
        let processors = Placement::title(at.placement);
        let key = RowKey::new(system, self.name).bytes(self.payload_bytes).at(at.placement);
        match self.points.get(point) {
            Some(&point) => {
                key.with("point", point).heading(format!("C_SEND to {point}, {processors}"))
            }
            None => key.with("delay_us", at.delay_us).heading(match at.delay_us {
                0 => format!("no delay, {processors}"),
                delay_us => format!("{delay_us} us between, {processors}"),
            }),
        }
    }

    /// Adds the figures of the README.
    fn quote(&self, found: &mut Results) {
        for (driver, figures) in DRIVERS.into_iter().zip(self.quoted_us) {
            for (point, &(delay_us, mean_us, ends_us)) in figures.iter().enumerate() {
                let at = Situation { placement: None, delay_us };
                let (min_us, max_us) = ends_us.map(|[min, max]| (min, max)).unzip();
                let ns = |time_us: f64| (time_us * 1000.0).round();
                let figures = [min_us, Some(mean_us), max_us].map(|time_us| time_us.map(ns));
                found.quote(self.key(driver, at, point), SOURCE, figures);
            }
        }
    }

    /// The kernel's round trip over each of ours, undelayed, by placement.
    fn ratios(&self, found: &Results) -> Vec<Ratio> {
        let mut ratios = Vec::new();
        let [same, different] = Placement::BOTH.map(Some);
        for (placement, word) in [(None, ""), (same, "_same"), (different, "_diff")] {
            let round_trip = |system: System| {
                let (at, last) = (Situation { placement, delay_us: 0 }, self.points.len());
                found.find(&self.key(system.name(), at, last.saturating_sub(1)))
            };
            for ours in [System::BatonTyped, System::BatonUapiLibc] {
                let (bench, key) = (self.name.replace('-', "_"), ours.key().replace("baton_", ""));
                let name = format!("{bench}_kernel_binder{word}_over_{key}");
                let kernel = round_trip(System::KernelBinder);
                ratios.push(ratio(name, kernel, round_trip(ours), P50, None));
            }
        }
        ratios
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNDELAYED: Situation = Situation { placement: None, delay_us: 0 };

    fn add(found: &mut Results, experiment: &Experiment, system: System, times_ns: &[u64]) {
        let points = times_ns.iter().map(|&time_ns| vec![time_ns; 4]).collect();
        assert!(experiment.add(found, system.name(), UNDELAYED, Ok::<_, String>(points)));
    }

    #[test]
    fn points_stand_beside_those_of_both_drivers() {
        let mut found = Results::default();
        add(&mut found, &TESTER, System::BatonTyped, &[2_000, 3_000, 5_000]);
        found.ok(RowKey::new("kernel-binder", TESTER.name), Err::<(), _>("no device"));
        TESTER.quote(&mut found);
        let rows = found.rows(|_, _| Keys::new());
        assert_eq!(rows.len(), 3 + 2 * 3 + 1);
        let title = TESTER.key("baton-typed", UNDELAYED, 1).title();
        assert_eq!(title, "C_SEND to S_REPLY, any processors");
        let here: Vec<&str> =
            rows.iter().filter(|row| row.key.title() == title).map(|row| row.key.system).collect();
        assert_eq!(here, ["baton-typed", "readme-old-driver", "readme-new-driver"]);
    }

    #[test]
    fn the_kernel_is_told_beside_ours_or_missed() {
        let mut found = Results::default();
        add(&mut found, &TESTER, System::BatonTyped, &[1, 1, 1_000]);
        add(&mut found, &TESTER, System::KernelBinder, &[1, 1, 2_000]);
        found.ok(RowKey::new("baton-uapi-libc", TESTER.name), Err::<(), _>("no library"));
        let ratios = TESTER.ratios(&found);
        let ratio = |name: &str| ratios.iter().find(|ratio| ratio.name == name).unwrap();
        assert_eq!(ratio("tester_kernel_binder_over_typed").value, Some(2.0));
        let why = ratio("tester_kernel_binder_over_uapi_libc").why.as_deref();
        assert_eq!(why, Some("baton-uapi-libc: no library"));
        assert!(ratio("tester_kernel_binder_same_over_typed").value.is_none());
    }
}
