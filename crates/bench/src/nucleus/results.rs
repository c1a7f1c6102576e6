//! What was found, as rows, ratios, tables and charts.

use super::between::Idle;
use super::case::{CASES, Case, FEW, MANY, Measured, Since};
use super::hosting::INSIDE;
use super::latency::Load;
use super::peers::{self, PEERS};
use super::switching;
use super::workload_results::WorkloadResults;
use crate::chart::{self, Chart};
use crate::distribution::{Distribution, Summary};
use crate::ratios::COMMON_BYTES;
use crate::report::{Bar, Figures, Outcome, Ratio, Row, Times};
use crate::system::System;
use baton_nucleus::each_kernel;
use baton_nucleus::variant::Variant;
use std::collections::BTreeMap;
use std::io;

/// The case that ratios are of.
pub const COMMON: Case = Case::PingPong { n_words: 8 };
/// Two kernels beside two threads of the system.
pub const BETWEEN: Case = Case::Between { idle: Idle::Sleeps };
const SWITCH: &str = "bare-switch";
const FUTEX: &str = "futex-threads";

/// The thesis's cycles of a ping-pong IPC, at 400 MHz: section 5.2.1.
const THESIS: [(&str, f64); 9] = [
    ("Fastpath", 173.0),
    ("Slowpath", 294.0),
    ("Direct/Lazy", 297.0),
    ("Strict/Lazy", 365.0),
    ("Direct/Eager", 374.0),
    ("Strict/Eager", 452.0),
    ("IPC-Scan", 296.0),
    ("IPC-Ordered", 304.0),
    ("IPC-Heap", 297.0),
];
/// The thesis's order of kernels. Clocks waver by more than what lies between some of them; counts
/// do not.
const ORDER: [(&str, &str); 5] = [
    ("Direct/Lazy", "Fastpath"),
    ("Strict/Lazy", "Direct/Lazy"),
    ("Direct/Eager", "Direct/Lazy"),
    ("Strict/Eager", "Strict/Lazy"),
    ("Strict/Eager", "Direct/Eager"),
];
const SOURCE: &str = "Greenaway, From 'Real Fast' to Real-Time, 2007, section 5.2.1, at 400 MHz";

#[derive(Default)]
pub struct NucleusResults {
    /// In picoseconds.
    pub measured: BTreeMap<(Case, &'static str), Distribution>,
    pub missing: BTreeMap<(Case, &'static str), String>,
    pub instructions: BTreeMap<&'static str, Result<f64, String>>,
    pub workloads: WorkloadResults,
    /// Two processors, if there are two.
    pub pair: Option<[usize; 2]>,
}

impl NucleusResults {
    /// One round of a case, on the kernels that are wanted.
    pub fn add_round(&mut self, case: Case, n_batches: u64, is_wanted: &dyn Fn(&str) -> bool) {
        match case {
            Case::Switch => {
                self.add(case, SWITCH, Ok(vec![(case, switching::bare_switch(n_batches))]));
            }
            Case::ServiceCall { .. } => {}
            _ => {
                each_kernel!(K => if is_wanted(K::NAME) {
                    self.add(case, K::NAME, case.measure::<K>(self.pair, n_batches));
                });
            }
        }
    }

    /// One round of each peer.
    pub fn add_peers(&mut self, n_batches: u64) {
        for peer in &PEERS {
            let round = peer.measure(n_batches).map(|times| vec![(COMMON, times)]);
            self.add(COMMON, peer.name, round);
        }
    }

    /// One round of two threads of the system on two processors.
    pub fn add_futex_between(&mut self, n_batches: u64) {
        if let Some([_, server]) = self.pair {
            let round = peers::futex(n_batches + 1, Some(server));
            let found = round.map(|times| vec![(BETWEEN, times.into_iter().skip(1).collect())]);
            self.add(BETWEEN, FUTEX, found);
        }
    }

    /// Adds a round, if there is one.
    pub fn add(&mut self, case: Case, kernel: &'static str, round: io::Result<Measured>) {
        let missing = |why: io::Error| drop(self.missing.insert((case, kernel), why.to_string()));
        for (case, times) in round.map_err(missing).unwrap_or_default() {
            if times.is_empty() {
                self.missing.insert((case, kernel), "a thread has failed".to_owned());
            } else {
                self.measured.entry((case, kernel)).or_default().add_round(&times);
            }
        }
    }

    pub fn rows(&self) -> Vec<Row> {
        let row = |system, case: Case, outcome| {
            let row = Row::new(system, case.name(), outcome).bytes(case.payload_bytes());
            row.at(case.placement()).detail(case.detail())
        };
        let measured = self.measured.iter().filter_map(|(&(case, kernel), times)| {
            Some(row(kernel, case, Outcome::Measured(nanoseconds(Figures::of(times)?))))
        });
        let missing = self.missing.iter();
        let missing =
            missing.map(|(&(case, kernel), why)| row(kernel, case, Outcome::missing(why)));
        let quoted = THESIS
            .iter()
            .map(|&(kernel, cycles)| row(kernel, COMMON, Outcome::mean(SOURCE, cycles * 2.5)));
        measured.chain(missing).chain(quoted).collect()
    }

    fn find(&self, case: Case, kernel: &'static str) -> Times<'_> {
        self.measured.get(&(case, kernel)).ok_or_else(|| "not measured".to_owned())
    }

    pub fn ratios(&self) -> Vec<Ratio> {
        let not_measured = || Err("not measured".to_owned());
        let of = |kernel| self.find(COMMON, kernel);
        let over = |name: String, over, under, bar| Ratio::of(name, of(over), of(under), bar);
        let at_most = |bound| Some(Bar::AtMost(bound));
        let count = |kernel| self.instructions.get(kernel).cloned().unwrap_or_else(not_measured);
        let instructions = count("Fastpath").map(|count| (count, None));
        let mut ratios = vec![
            Ratio::new("fastpath_instructions", instructions, at_most(60.0)),
            Ratio::of(
                "fastpath_over_switch",
                of("Fastpath"),
                self.find(Case::Switch, SWITCH),
                at_most(2.0),
            ),
            over("interface_overhead".to_owned(), "Direct/Lazy", "Slowpath", at_most(1.05)),
            over("strict_plus_over_fastpath".to_owned(), "Strict+", "Fastpath", at_most(1.25)),
        ];
        for (over, under) in ORDER {
            let count = |kernel| count(kernel).map_err(|_| "not measured".to_owned());
            let value = count(over).and_then(|it| Ok((it / count(under)?, None)));
            let name = format!("{}_instructions_over_{}", snake(over), snake(under));
            ratios.push(Ratio::new(name, value, Some(Bar::AtLeast(1.0))));
        }
        for (kernel, _) in THESIS.iter().skip(1) {
            ratios.push(over(snake(kernel) + "_over_fastpath", kernel, "Fastpath", None));
        }
        for kernel in ["Fastpath", "Strict+"] {
            for peer in &PEERS {
                let name = format!("{}_over_{}", snake(kernel), snake(peer.name));
                let bar = (!peer.is_bare).then_some(Bar::AtMost(1.0));
                ratios.push(over(name, kernel, peer.name, bar));
            }
        }
        // What a host gains a service that calls another one of it, and costs a client outside.
        let call = Case::ServiceCall { payload_bytes: COMMON_BYTES };
        for (name, system, bar) in [
            ("hosted_call_over_typed", INSIDE, at_most(1.0)),
            ("call_of_hosted_over_typed", System::BatonHosted.name(), None),
            ("call_of_hosted_leaving_over_typed", System::BatonHostedLeaving.name(), None),
        ] {
            let typed = self.find(call, System::BatonTyped.name());
            ratios.push(Ratio::of(name, self.find(call, system), typed, bar));
        }
        ratios.extend(self.workloads.ratios());
        ratios.extend(self.growths());
        ratios
    }

    /// The latency that nearly all are below, of many threads over that of few.
    fn growths(&self) -> Vec<Ratio> {
        let p99 = |round: &Summary| round.p99 as f64;
        let mut ratios = Vec::new();
        for (load, name) in [
            (Load::Elevator, "elevator"),
            (Load::StartStop, "start_stop"),
            (Load::Chaining, "chaining"),
        ] {
            each_kernel!(K => {
                let latency = |n_threads| {
                    self.find(Case::Latency { load, n_threads, since: Since::Signal }, K::NAME)
                };
                let bar = (K::NAME == "Strict+").then_some(Bar::AtMost(1.5));
                let name = format!("{}_{name}_growth", snake(K::NAME));
                ratios.push(Ratio::divide(name, latency(MANY), latency(FEW), p99, bar));
            });
        }
        ratios
    }

    pub fn charts(&self) -> Vec<Chart> {
        let chart = |&case: &Case| {
            let of_case = self.measured.iter().filter(|((other, _), _)| *other == case);
            let named = of_case.map(|(&(_, kernel), times)| (kernel, times));
            match case {
                Case::Latency { .. } => chart::histograms(case.title(), named),
                _ => chart::percentiles(case.title(), named),
            }
        };
        CASES.iter().filter_map(chart).collect()
    }

    /// A line for each kernel and case, by cases.
    pub fn tables(&self) -> String {
        let mut text = String::new();
        let both = |&case: &Case| match case {
            Case::Latency { load, n_threads, .. } => {
                vec![case, Case::Latency { load, n_threads, since: Since::Due }]
            }
            _ => vec![case],
        };
        for case in CASES.iter().flat_map(both) {
            let of_case = self.measured.iter().filter(|((it, _), _)| *it == case);
            let line = |(&(_, kernel), times): (&(Case, &str), &Distribution)| {
                let p50 = times.over_rounds(|round| round.p50 as f64 / 1000.0)?;
                let p99 = times.over_rounds(|round| round.p99 as f64 / 1000.0)?.median;
                let spread = format!("[{:.1}, {:.1}]", p50.least, p50.greatest);
                Some(format!("  {kernel:<38}{:>9.2}  {spread:>15}{p99:>11.2}\n", p50.median))
            };
            let lines: String = of_case.filter_map(line).collect();
            if !lines.is_empty() {
                let heads = format!("{:>9}  {:>15}{:>11}", "p50 ns", "of rounds", "p99 ns");
                text += &format!("\n{:<40}{heads}\n{lines}", case.title());
            }
        }
        if !self.instructions.is_empty() {
            let heads = format!("{:>9}  {:>15}", "instr.", "thesis, cycles");
            text += &format!("\n{:<40}{heads}\n", "one IPC of 8 words");
        }
        for (kernel, count) in &self.instructions {
            let thesis = THESIS.iter().find(|(name, _)| name == kernel);
            let thesis = thesis.map_or(String::new(), |(_, cycles)| format!("{cycles:.0}"));
            text += &match count {
                Ok(count) => format!("  {kernel:<38}{count:>9.1}  {thesis:>15}\n"),
                Err(why) => format!("  {kernel:<38}{why}\n"),
            };
        }
        text + &self.workloads.text()
    }
}

/// A kernel's name as ratios have it.
pub fn snake(kernel: &str) -> String {
    kernel.to_lowercase().replace(['/', '-'], "_").replace('+', "_plus")
}

/// Figures of times that were measured in picoseconds.
fn nanoseconds(figures: Figures) -> Figures {
    let ns = |ps: f64| (ps / 10.0).round() / 100.0;
    Figures {
        p50_ns: ns(figures.p50_ns),
        p99_ns: ns(figures.p99_ns),
        p999_ns: ns(figures.p999_ns),
        min_ns: figures.min_ns / 1000,
        max_ns: figures.max_ns / 1000,
        mean_ns: ns(figures.mean_ns),
        p50_spread_ns: figures.p50_spread_ns.map(ns),
        p99_spread_ns: figures.p99_spread_ns.map(ns),
        ..figures
    }
}
