//! What was found, as rows and ratios.

use super::between::Idle;
use super::case::{Case, FEW, MANY};
use super::hosting::INSIDE;
use super::latency::Load;
use super::peers::PEERS;
use super::workload_results::{WorkloadResults, snake};
use crate::payload::COMMON_BYTES;
use crate::report::{Bar, Ratio, RowKey};
use crate::results::{P50, P99, Results, ratio};
use crate::system::System;
use baton_nucleus::each_kernel;
use baton_nucleus::variant::Variant;
use std::collections::BTreeMap;
use std::io;

/// The case that ratios are of.
pub const COMMON: Case = Case::PingPong { n_words: 8 };
/// Two kernels beside two threads of the system.
pub const BETWEEN: Case = Case::Between { idle: Idle::Sleeps };
pub const SWITCH: &str = "bare-switch";

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
    pub found: Results,
    pub instructions: BTreeMap<&'static str, Result<f64, String>>,
    pub workloads: WorkloadResults,
}

impl NucleusResults {
    /// Adds a round, if there is one.
    pub fn add(&mut self, case: Case, system: &'static str, round: io::Result<Vec<u64>>) {
        let has_failed = || io::Error::other("a thread has failed");
        let round = round.and_then(|it| if it.is_empty() { Err(has_failed()) } else { Ok(it) });
        self.found.add_times(case.key(system), round);
    }

    /// Adds a round of a kernel, with latencies since their time.
    pub fn add_both(&mut self, case: Case, kernel: &'static str, round: io::Result<[Vec<u64>; 2]>) {
        let (times, since_due) = match round {
            Ok([times, since_due]) => (Ok(times), since_due),
            Err(why) => (Err(why), Vec::new()),
        };
        self.add(case, kernel, times);
        if let Some(key) = case.since_due(kernel).filter(|_| !since_due.is_empty()) {
            self.found.add_times(key, Ok::<_, io::Error>(since_due));
        }
    }

    /// Adds the thesis's figures, and what was counted.
    pub fn quote(&mut self) {
        for (kernel, count) in &self.instructions {
            let key = RowKey::new(kernel, "instructions").heading("one IPC of 8 words, counted");
            if let Some(count) = self.found.ok(key.clone(), count.as_ref()) {
                let cycles = THESIS.iter().find(|(name, _)| name == kernel);
                let cycles = cycles.map(|(_, cycles)| ("thesis_cycles", (*cycles).into()));
                let keys = [("instructions", (*count).into())].into_iter().chain(cycles);
                self.found.tell(key, keys.collect());
            }
        }
        self.workloads.tell_shares(&mut self.found);
        for (kernel, cycles) in THESIS {
            self.found.quote(COMMON.key(kernel), SOURCE, [None, Some(cycles * 2.5), None]);
        }
    }

    pub fn ratios(&self) -> Vec<Ratio> {
        let find = |case: Case, system| self.found.find(&case.key(system));
        let over = |name: String, over, under, bar: Option<Bar>| {
            ratio(name, find(COMMON, over), find(COMMON, under), P50, bar)
        };
        let at_most = |bound| Some(Bar::AtMost(bound));
        let not_measured = || "not measured".to_owned();
        let count = |kernel| self.instructions.get(kernel).cloned().unwrap_or(Err(not_measured()));
        let instructions = count("Fastpath").map(|count| (count, None));
        let (fastpath, switch) = (find(COMMON, "Fastpath"), find(Case::Switch, SWITCH));
        let mut ratios = vec![
            Ratio::new("fastpath_instructions", instructions, at_most(60.0)),
            ratio("fastpath_over_switch", fastpath, switch, P50, at_most(2.0)),
            over("interface_overhead".to_owned(), "Direct/Lazy", "Slowpath", at_most(1.05)),
            over("strict_plus_over_fastpath".to_owned(), "Strict+", "Fastpath", at_most(1.25)),
        ];
        for (over, under) in ORDER {
            let count = |kernel| count(kernel).map_err(|_| not_measured());
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
        let call = |system| find(Case::ServiceCall { payload_bytes: COMMON_BYTES }, system);
        for (name, system, bar) in [
            ("hosted_call_over_typed", INSIDE, at_most(1.0)),
            ("call_of_hosted_over_typed", System::BatonHosted.name(), None),
            ("call_of_hosted_leaving_over_typed", System::BatonHostedLeaving.name(), None),
        ] {
            ratios.push(ratio(name, call(system), call(System::BatonTyped.name()), P50, bar));
        }
        ratios.extend(self.workloads.ratios());
        // The latency that nearly all are below, of many threads over that of few.
        for (load, name) in [
            (Load::Elevator, "elevator"),
            (Load::StartStop, "start_stop"),
            (Load::Chaining, "chaining"),
        ] {
            each_kernel!(K => {
                let latency = |n_threads| find(Case::Latency { load, n_threads }, K::NAME);
                let bar = (K::NAME == "Strict+").then_some(Bar::AtMost(1.5));
                let name = match (load, K::NAME) {
                    (Load::Chaining, "Strict+") => "chain_growth_25_to_250".to_owned(),
                    (Load::Elevator, "Strict+") => "elevator_growth_25_to_250".to_owned(),
                    (_, kernel) => format!("{}_{name}_growth", snake(kernel)),
                };
                ratios.push(ratio(name, latency(MANY), latency(FEW), P99, bar));
            });
        }
        ratios
    }
}
