//! What was found, as rows and ratios.

use super::between::Idle;
use super::case::{Case, FEW, MANY, Measured, Since};
use super::hosting::INSIDE;
use super::latency::Load;
use super::peers::{self, PEERS};
use super::switching;
use super::table::Tables;
use crate::distribution::{Distribution, Spread, Summary};
use crate::ratios::COMMON_BYTES;
use crate::report::{Bar, Figures, Outcome, Quoted, Ratio, Row};
use crate::system::System;
use baton_nucleus::each_kernel;
use baton_nucleus::variant::Variant;
use std::collections::BTreeMap;
use std::io;

/// What ratios are of.
pub const COMMON: Case = Case::PingPong { n_words: 8 };
/// Two kernels beside two threads of the system.
pub const BETWEEN: Case = Case::Between { idle: Idle::Sleeps };
const SWITCH: &str = "bare-switch";

/// The thesis's cycles of a ping-pong IPC, at 400 MHz: section 5.2.1.
pub const THESIS: [(&str, f64); 9] = [
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

/// What was found so far.
#[derive(Default)]
pub struct Results {
    /// In picoseconds.
    pub measured: BTreeMap<(Case, &'static str), Distribution>,
    pub missing: BTreeMap<(Case, &'static str), String>,
    pub instructions: BTreeMap<&'static str, Result<f64, String>>,
    pub tables: Tables,
    /// Two processors, if there are two.
    pub pair: Option<[usize; 2]>,
}

type Value = Result<(f64, Option<Spread>), String>;

impl Results {
    /// One round of a case, on the kernels that are wanted.
    pub fn add_round(&mut self, case: Case, n_batches: u64, is_wanted: &dyn Fn(&str) -> bool) {
        if case == Case::Switch {
            let times = switching::bare_switch(n_batches);
            self.measured.entry((case, SWITCH)).or_default().add_round(&times);
            return;
        }
        if matches!(case, Case::ServiceCall { .. }) {
            return;
        }
        each_kernel!(K => if is_wanted(K::NAME) {
            self.add(case, K::NAME, case.play::<K>(self.pair, n_batches));
        });
    }

    /// One round of each peer.
    pub fn add_peers(&mut self, n_batches: u64) {
        for peer in &PEERS {
            let round = peer.play(n_batches).map(|times| vec![(COMMON, times)]);
            self.add(COMMON, peer.name, round);
        }
    }

    /// One round of two threads of the system on two processors.
    pub fn add_futex_between(&mut self, n_batches: u64) {
        if let Some([_, server]) = self.pair {
            let round = peers::futex(n_batches + 1, Some(server));
            let found = round.map(|times| vec![(BETWEEN, times.into_iter().skip(1).collect())]);
            self.add(BETWEEN, "futex-threads", found);
        }
    }

    /// What came of a round, if anything did.
    pub fn add(&mut self, case: Case, kernel: &'static str, round: io::Result<Measured>) {
        let found = match round {
            Ok(found) => found,
            Err(why) => {
                self.missing.insert((case, kernel), why.to_string());
                return;
            }
        };
        for (case, times) in found {
            if times.is_empty() {
                self.missing.insert((case, kernel), "a thread has failed".to_owned());
            } else {
                self.measured.entry((case, kernel)).or_default().add_round(&times);
            }
        }
    }

    /// A row for each case of each kernel.
    pub fn rows(&self) -> Vec<Row> {
        let row = |system, case: Case, outcome| Row {
            system,
            case: case.name(),
            payload_bytes: case.payload_bytes(),
            placement: Some(case.placement()),
            detail: case.detail(),
            outcome,
        };
        let measured = self.measured.iter().filter_map(|(&(case, kernel), distribution)| {
            let figures = nanoseconds(Figures::of(distribution)?);
            Some(row(kernel, case, Outcome::Measured(figures)))
        });
        let missing = self
            .missing
            .iter()
            .map(|(&(case, kernel), why)| row(kernel, case, Outcome::Missing { why: why.clone() }));
        let quoted = THESIS.iter().map(|&(kernel, cycles)| {
            let mean_ns = cycles * 2.5;
            let quoted =
                Quoted { source: SOURCE, mean_ns: Some(mean_ns), min_ns: None, max_ns: None };
            row(kernel, COMMON, Outcome::Quoted(quoted))
        });
        measured.chain(missing).chain(quoted).collect()
    }

    fn over_of(
        &self,
        over: (Case, &'static str),
        under: (Case, &'static str),
        value: fn(&Summary) -> f64,
    ) -> Value {
        let find = |key| self.measured.get(&key).ok_or_else(|| "not measured".to_owned());
        Ok(Distribution::ratio_of(find(over)?, find(under)?, value))
    }

    fn over(&self, over: (Case, &'static str), under: (Case, &'static str)) -> Value {
        self.over_of(over, under, |round| round.p50 as f64)
    }

    /// What follows from the rows.
    pub fn ratios(&self) -> Vec<Ratio> {
        let common = |kernel| (COMMON, kernel);
        let instructions = self.instructions.get("Fastpath").cloned();
        let instructions = instructions.unwrap_or_else(|| Err("not measured".to_owned()));
        let at_most =
            |name: &str, value, bound| Ratio::new(name.to_owned(), value, Some(Bar::AtMost(bound)));
        let over = |over: &'static str, under: &'static str| self.over(common(over), common(under));
        let to_switch = self.over(common("Fastpath"), (Case::Switch, SWITCH));
        let mut ratios = vec![
            at_most("fastpath_instructions", instructions.map(|count| (count, None)), 60.0),
            at_most("fastpath_over_switch", to_switch, 2.0),
            at_most("interface_overhead", over("Direct/Lazy", "Slowpath"), 1.05),
            at_most("strict_plus_over_fastpath", over("Strict+", "Fastpath"), 1.25),
        ];
        for (over, under) in ORDER {
            let count = |kernel| match self.instructions.get(kernel) {
                Some(Ok(count)) => Ok(*count),
                _ => Err("not measured".to_owned()),
            };
            let value = count(over).and_then(|it| Ok((it / count(under)?, None)));
            let name = format!("{}_instructions_over_{}", snake(over), snake(under));
            ratios.push(Ratio::new(name, value, Some(Bar::AtLeast(1.0))));
        }
        for (kernel, _) in THESIS.iter().skip(1) {
            let name = snake(kernel) + "_over_fastpath";
            ratios.push(Ratio::new(name, over(kernel, "Fastpath"), None));
        }
        for (kernel, peer) in
            ["Fastpath", "Strict+"].iter().flat_map(|it| PEERS.iter().map(move |peer| (it, peer)))
        {
            let name = format!("{}_over_{}", snake(kernel), snake(peer.name));
            let bar = (!peer.is_bare).then_some(Bar::AtMost(1.0));
            ratios.push(Ratio::new(name, over(kernel, peer.name), bar));
        }
        ratios.extend(self.service_calls());
        ratios.extend(self.tables.ratios());
        ratios.extend(self.growths());
        ratios
    }

    /// What a host gains a service that calls another one of it, and costs a client outside.
    fn service_calls(&self) -> Vec<Ratio> {
        let of = |system| (Case::ServiceCall { payload_bytes: COMMON_BYTES }, system);
        let typed = of(System::BatonTyped.name());
        let inside = Ratio::new(
            "hosted_call_over_typed".to_owned(),
            self.over(of(INSIDE), typed),
            Some(Bar::AtMost(1.0)),
        );
        let outside = [
            ("call_of_hosted_over_typed", System::BatonHosted),
            ("call_of_hosted_leaving_over_typed", System::BatonHostedLeaving),
        ];
        let outside = outside.map(|(name, system)| {
            Ratio::new(name.to_owned(), self.over(of(system.name()), typed), None)
        });
        [inside].into_iter().chain(outside).collect()
    }

    /// The latency that nearly all are below, of many threads over that of few.
    fn growths(&self) -> Vec<Ratio> {
        let mut ratios = Vec::new();
        for (load, name) in [
            (Load::Elevator, "elevator"),
            (Load::StartStop, "start_stop"),
            (Load::Chaining, "chaining"),
        ] {
            each_kernel!(K => {
                let latency = |n_threads| {
                    (Case::Latency { load, n_threads, since: Since::Signal }, K::NAME)
                };
                let value = self.over_of(latency(MANY), latency(FEW), |round| round.p99 as f64);
                let bar = (K::NAME == "Strict+").then_some(Bar::AtMost(1.5));
                ratios.push(Ratio::new(format!("{}_{name}_growth", snake(K::NAME)), value, bar));
            });
        }
        ratios
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
        n: figures.n,
    }
}
