//! Tables 5.1, 5.2 and 5.4: what the workloads ask of a kernel, counted, and the time that kernels
//! take of one.

use super::sampler::{self, Shares};
use super::workload::{WORKLOADS, Workload};
use crate::report::{Ratio, RowKey, rounded};
use crate::results::Results;
use crate::table;
use baton_nucleus::each_kernel;
use baton_nucleus::statistics::{Counters, Event};
use baton_nucleus::variant::{Counted, DirectLazy, Variant};
use std::io;

/// What was found of the workloads.
#[derive(Default)]
pub struct WorkloadResults {
    counts: Vec<(Workload, io::Result<(f64, Counters)>)>,
    shares: Vec<(&'static str, io::Result<Shares>)>,
}

/// The kernel whose queue is counted, as in the thesis.
type Measured = Counted<DirectLazy>;

impl WorkloadResults {
    /// Runs the workloads: counted, and then sampled.
    pub fn measure(n_tasks: u64, is_wanted: &dyn Fn(&str) -> bool) -> WorkloadResults {
        let mut results = WorkloadResults::default();
        for workload in WORKLOADS {
            let found = workload.run::<Measured>(n_tasks);
            let found = found.map(|(took_ns, counters)| (took_ns as f64 / 1e9, counters));
            results.counts.push((workload, found));
        }
        each_kernel!(K => if is_wanted(K::NAME) {
            let act = || Workload::Udpserver.run::<K>(n_tasks).map(drop);
            results.shares.push((K::NAME, sampler::shares(act)));
        });
        results
    }

    /// What kernels avoid, and what share they take.
    pub fn ratios(&self) -> Vec<Ratio> {
        let mut ratios = Vec::new();
        for (workload, found) in &self.counts {
            for (name, line) in
                [("enqueues_avoided", Line::ENQUEUES), ("lookups_avoided", Line::LOOKUPS)]
            {
                let value = found.as_ref().map_err(ToString::to_string);
                let value = value.map(|(_, counters)| (line.avoided(counters), None));
                ratios.push(Ratio::new(format!("{}_{name}", workload.name()), value, None));
            }
        }
        for (kernel, shares) in &self.shares {
            let value = shares.as_ref().map(|shares| (shares.ipc + shares.scheduler, None));
            let name = format!("{}_share_of_udpserver", snake(kernel));
            ratios.push(Ratio::new(name, value.map_err(ToString::to_string), None));
        }
        ratios
    }

    /// Adds a row for each kernel: what share of a workload's time it takes.
    pub fn tell_shares(&self, found: &mut Results) {
        for (kernel, shares) in &self.shares {
            let key = RowKey::new(kernel, "udpserver-share").heading("share of udpserver's time");
            if let Some(Shares { ipc, scheduler, n }) = found.ok(key.clone(), shares.as_ref()) {
                let [ipc, scheduler] = [ipc, scheduler].map(|share| rounded(share * 100.0, 100.0));
                let shares = [("ipc_percent", ipc.into()), ("scheduler_percent", scheduler.into())];
                found.tell(key, [&shares[..], &[("samples", (*n).into())]].concat());
            }
        }
    }

    /// A table of the counts.
    pub fn text(&self) -> String {
        let first = |words: &str| vec![words.to_owned()];
        let mut text = String::new();
        if !self.counts.is_empty() {
            let heads = self.counts.iter().map(|(workload, _)| workload.name().to_owned());
            let heads = first("a second, on Direct/Lazy").into_iter().chain(heads).collect();
            let line = |(title, value): &(&str, Cell)| {
                let cells = self.counts.iter().map(|(_, found)| match found {
                    Ok((seconds, counters)) => format!("{:.2}", value(*seconds, counters)),
                    Err(why) => why.to_string(),
                });
                first(title).into_iter().chain(cells).collect()
            };
            let lines: Vec<_> = [heads].into_iter().chain(LINES.iter().map(line)).collect();
            text += &format!("\n{}", table::aligned(&lines));
        }
        text
    }
}

/// A kernel's name as ratios have it.
pub fn snake(kernel: &str) -> String {
    kernel.to_lowercase().replace(['/', '-'], "_").replace('+', "_plus")
}

/// How often something was to be done, and was.
struct Line {
    due: Event,
    done: Event,
}

impl Line {
    const ENQUEUES: Line = Line { due: Event::Blocked, done: Event::Dequeued };
    const LOOKUPS: Line = Line { due: Event::Switched, done: Event::LookedUp };

    fn avoided(&self, counters: &Counters) -> f64 {
        1.0 - counters.of(self.done) as f64 / counters.of(self.due).max(1) as f64
    }
}

fn rate(event: Event, seconds: f64, counters: &Counters) -> f64 {
    counters.of(event) as f64 / seconds
}

fn mean_length(counters: &Counters) -> f64 {
    let n: u64 = counters.lengths.iter().sum();
    let sum: u64 = counters.lengths.iter().zip(0..).map(|(count, length)| count * length).sum();
    sum as f64 / n.max(1) as f64
}

type Cell = fn(f64, &Counters) -> f64;
const LINES: &[(&str, Cell)] = &[
    ("eager enqueues", |s, it| rate(Event::Blocked, s, it)),
    ("actual enqueues", |s, it| rate(Event::Enqueued, s, it)),
    ("enqueues avoided, %", |_, it| Line::ENQUEUES.avoided(it) * 100.0),
    ("deferred enqueues", |s, it| rate(Event::EnqueuedLate, s, it)),
    ("deferred dequeues", |s, it| rate(Event::DequeuedLate, s, it)),
    ("context switches", |s, it| rate(Event::Switched, s, it)),
    ("lookups", |s, it| rate(Event::LookedUp, s, it)),
    ("lookups avoided, %", |_, it| Line::LOOKUPS.avoided(it) * 100.0),
    ("threads on the queue, mean", |_, it| mean_length(it)),
    ("IPCs", |s, it| rate(Event::Transferred, s, it)),
    ("time between two IPCs, ns", |s, it| s * 1e9 / it.of(Event::Transferred).max(1) as f64),
    ("IPCs queued", |s, it| rate(Event::Queued, s, it)),
    ("longest send queue", |_, it| f64::from(it.most_senders)),
];
