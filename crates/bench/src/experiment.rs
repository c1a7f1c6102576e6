//! What the two experiments of the android-binder-ipc project have in common: one Binder client
//! and one server that do the same thing many times, on Baton and on the kernel's driver.

use crate::distribution::Distribution;
use crate::form::{BenchError, FormArgs, progress};
use crate::html;
use crate::pair::{Chunk, Pair, PairError};
use crate::processors::Placement;
use crate::report::{Outcome, Quoted, Ratio, Row};
use crate::rpc::Peers;
use crate::service::Service;
use crate::stage::{Setting, Stage};
use crate::system::System;
use std::collections::BTreeMap;

/// Where the figures come from that are quoted.
pub const SOURCE: &str = "README of android-binder-ipc, 2012";
/// The project's two drivers, as rows name them.
pub const DRIVERS: [&str; 2] = ["readme-old-driver", "readme-new-driver"];
/// Warm-up calls of a round.
const N_WARM_UP: u32 = 100;

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
    #[arg(
        long, value_name = "N", default_value = "5",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub rounds: u32,
    /// Iterations, all rounds together [default: 10000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub calls: Option<u32>,
}

/// One way to do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Situation {
    /// Where the two run; `None` as in the original: wherever the kernel puts them.
    pub placement: Option<Placement>,
    /// Sleep between two iterations, in microseconds.
    pub delay_us: u64,
}

/// What is done, and how often.
pub struct Experiment {
    /// What the server does.
    pub service: Service,
    /// Bytes of a request.
    pub payload_bytes: usize,
    /// Sleeps between iterations, in microseconds, and how many iterations there are.
    pub delays: Vec<(u64, u32)>,
}

/// What was measured, and why the rest was not.
#[derive(Debug, Default)]
pub struct Results {
    /// A distribution for each point; the last is the round trip.
    pub measured: BTreeMap<(Situation, System), Vec<Distribution>>,
    /// Systems that are not there or have failed.
    pub missing: BTreeMap<System, String>,
}

impl ExperimentArgs {
    /// Baton's, and the kernel's if it is asked for.
    fn systems(&self) -> impl Iterator<Item = System> {
        let asked = |system: &System| !system.is_peer() || self.peers.0.contains(system);
        System::ALL.into_iter().filter(|system| system.is_binder()).filter(asked)
    }
}

/// Does it: in each situation the systems take turns, in rounds.
pub fn measure(
    experiment: &Experiment,
    args: &ExperimentArgs,
    setting: &Setting,
) -> Result<Results, BenchError> {
    let stage = Stage::set()?;
    let mut results = Results::default();
    let mut pairs = BTreeMap::new();
    for system in args.systems() {
        match Pair::start(system, stage.place(experiment.service)) {
            Ok(pair) => drop(pairs.insert(system, pair)),
            Err(why) => drop(results.missing.insert(system, why.to_string())),
        }
    }
    let placements = || std::iter::once(None).chain(setting.placements().into_iter().map(Some));
    let steps = placements().count() * experiment.delays.len() * args.rounds as usize;
    let progress = progress(steps);
    for placement in placements() {
        for &(delay_us, n_iterations) in &experiment.delays {
            let situation = Situation { placement, delay_us };
            let chunk = chunk(experiment, situation, n_iterations.div_ceil(args.rounds));
            for _ in 0..args.rounds {
                pairs.retain(|&system, pair| {
                    let done = results.add_round((situation, system), pair, &chunk, setting);
                    let missed =
                        |why: &PairError| drop(results.missing.insert(system, why.to_string()));
                    done.inspect_err(missed).is_ok()
                });
                progress.inc(1);
            }
        }
    }
    progress.finish_and_clear();
    Ok(results)
}

fn chunk(experiment: &Experiment, situation: Situation, n_calls: u32) -> Chunk {
    let Situation { placement, delay_us } = situation;
    let payload_bytes = experiment.payload_bytes;
    Chunk { placement, payload_bytes, n_warm_up: N_WARM_UP.min(n_calls), n_calls, delay_us }
}

impl Results {
    fn add_round(
        &mut self,
        case: (Situation, System),
        pair: &mut Pair,
        chunk: &Chunk,
        setting: &Setting,
    ) -> Result<(), PairError> {
        let found = pair.find(chunk, &setting.processors)?;
        let points = self.measured.entry(case).or_default();
        points.resize_with(found.len(), Distribution::default);
        for (point, times_ns) in points.iter_mut().zip(&found) {
            point.add_round(times_ns);
        }
        Ok(())
    }

    /// Round trips of a system.
    pub fn round_trips(
        &self,
        situation: Situation,
        system: System,
    ) -> Result<&Distribution, String> {
        let measured = self.measured.get(&(situation, system)).and_then(|points| points.last());
        measured.ok_or_else(|| match self.missing.get(&system) {
            Some(why) => format!("{}: {why}", system.name()),
            None => format!("{} was not measured", system.name()),
        })
    }

    /// The kernel's round trip over each of ours, undelayed, by placement.
    pub fn ratios(&self, bench: &str) -> Vec<Ratio> {
        let mut ratios = Vec::new();
        for (placement, word) in
            [(None, ""), (Some(Placement::Same), "_same"), (Some(Placement::Different), "_diff")]
        {
            let situation = Situation { placement, delay_us: 0 };
            for ours in [System::BatonTyped, System::BatonUapiLibc] {
                let key = ours.key().replace("baton_", "");
                let name = format!("{bench}_kernel_binder{word}_over_{key}");
                let value = self.round_trips(situation, System::KernelBinder);
                let value = value.and_then(|kernel| {
                    Ok(Distribution::ratio(kernel, self.round_trips(situation, ours)?))
                });
                ratios.push(Ratio::new(name, value, None));
            }
        }
        ratios
    }

    /// Rows of systems that were not measured.
    pub fn missing_rows(&self, case: &'static str) -> impl Iterator<Item = Row> {
        self.missing.iter().map(move |(system, why)| Row {
            system: system.name(),
            case,
            payload_bytes: None,
            placement: None,
            detail: None,
            outcome: Outcome::Missing { why: why.clone() },
        })
    }

    /// Systems that were measured, by their names.
    pub fn names(&self) -> Vec<&'static str> {
        let measured = |system: &System| self.measured.keys().any(|case| case.1 == *system);
        System::ALL.into_iter().filter(measured).map(System::name).collect()
    }

    /// Curves of a situation's systems, each at one of its points.
    pub fn chart(&self, title: &str, situation: Situation, point: usize) -> String {
        let of_situation = self.measured.iter().filter(|(case, _)| case.0 == situation);
        let points =
            of_situation.filter_map(|(case, points)| Some((case.1.name(), points.get(point)?)));
        html::chart(title, points)
    }

    /// In the order in which they were measured.
    pub fn situations(&self) -> Vec<Situation> {
        let mut situations: Vec<Situation> = self.measured.keys().map(|case| case.0).collect();
        situations.dedup();
        situations
    }
}

/// A figure of the README, in microseconds.
pub fn quoted(mean_us: f64, ends_us: Option<[f64; 2]>) -> Outcome {
    let ns = |time_us: f64| (time_us * 1000.0).round() as u64;
    let (min_ns, max_ns) = ends_us.map(|ends| (ns(ends[0]), ns(ends[1]))).unzip();
    Outcome::Quoted(Quoted { source: SOURCE, mean_ns: Some(ns(mean_us) as f64), min_ns, max_ns })
}

/// Where the two run, in a title.
pub fn processors(placement: Option<Placement>) -> &'static str {
    placement.map_or("any processors", html::processors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_told_beside_ours_or_missed() {
        let situation = Situation { placement: None, delay_us: 0 };
        let mut results = Results::default();
        let mut of = |system, time_ns| {
            let mut points = vec![Distribution::default(); 3];
            points[2].add_round(&[time_ns]);
            results.measured.insert((situation, system), points);
        };
        of(System::BatonTyped, 1_000);
        of(System::KernelBinder, 2_000);
        results.missing.insert(System::BatonUapiLibc, "no library".to_owned());
        let ratios = results.ratios("tester");
        let ratio = |name: &str| ratios.iter().find(|ratio| ratio.name == name).unwrap();
        assert_eq!(ratio("tester_kernel_binder_over_typed").value, Some(2.0));
        let why = ratio("tester_kernel_binder_over_uapi_libc").why.as_deref();
        assert_eq!(why, Some("baton-uapi-libc: no library"));
        assert!(ratio("tester_kernel_binder_same_over_typed").value.is_none());
        assert_eq!(results.situations(), [situation]);
    }

    #[test]
    fn quotes_are_in_microseconds() {
        let Outcome::Quoted(quoted) = quoted(16.0, Some([0.5, 20.0])) else { panic!() };
        assert_eq!(
            (quoted.mean_ns, quoted.min_ns, quoted.max_ns),
            (Some(16e3), Some(500), Some(20_000))
        );
    }
}
