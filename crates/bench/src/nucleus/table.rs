//! Tables 5.1, 5.2 and 5.4: what the workloads ask of a kernel, counted, and the time that kernels
//! take of one.

use super::sampler::{self, Shares};
use super::workload::{WORKLOADS, Workload};
use crate::report::Ratio;
use baton_nucleus::each_kernel;
use baton_nucleus::statistics::{Counters, Event};
use baton_nucleus::variant::{Counted, DirectLazy, Variant};
use std::fmt::Write;
use std::io;

/// What was found of the workloads.
#[derive(Default)]
pub struct Tables {
    counts: Vec<(Workload, io::Result<(f64, Counters)>)>,
    shares: Vec<(&'static str, io::Result<Shares>)>,
}

/// The kernel whose queue is counted, as in the thesis.
type Measured = Counted<DirectLazy>;

impl Tables {
    /// Runs the workloads: counted, and then sampled.
    pub fn fill(n_tasks: u64, is_wanted: &dyn Fn(&str) -> bool) -> Tables {
        let mut tables = Tables::default();
        for workload in WORKLOADS {
            let found = workload.play::<Measured>(n_tasks);
            let found = found.map(|(took_ns, counters)| (took_ns as f64 / 1e9, counters));
            tables.counts.push((workload, found));
        }
        each_kernel!(K => if is_wanted(K::NAME) {
            let act = || Workload::Udpserver.play::<K>(n_tasks).map(drop);
            tables.shares.push((K::NAME, sampler::shares(act)));
        });
        tables
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
            let name = format!("{}_share_of_udpserver", super::results::snake(kernel));
            ratios.push(Ratio::new(name, value.map_err(ToString::to_string), None));
        }
        ratios
    }

    /// As text.
    pub fn text(&self) -> String {
        let mut text = self.counts_text();
        if self.shares.is_empty() {
            return text;
        }
        let _ = writeln!(
            text,
            "\n{:<40}{:>9}{:>11}{:>10}",
            "share of udpserver's time", "IPC", "scheduler", "samples"
        );
        for (kernel, shares) in &self.shares {
            let _ = match shares {
                Ok(Shares { ipc, scheduler, n }) => {
                    writeln!(
                        text,
                        "  {kernel:<38}{:>8.2}%{:>10.2}%{n:>10}",
                        ipc * 100.0,
                        scheduler * 100.0
                    )
                }
                Err(why) => writeln!(text, "  {kernel:<38}{why}"),
            };
        }
        text
    }

    fn counts_text(&self) -> String {
        let mut text = String::new();
        if self.counts.is_empty() {
            return text;
        }
        let heads = self.counts.iter().map(|(workload, _)| format!("{:>12}", workload.name()));
        let _ = writeln!(text, "\n{:<40}{}", "a second, on Direct/Lazy", heads.collect::<String>());
        for (title, value) in LINES {
            let cells = self.counts.iter().map(|(_, found)| match found {
                Ok((seconds, counters)) => format!("{:>12.2}", value(*seconds, counters)),
                Err(_) => format!("{:>12}", "failed"),
            });
            let _ = writeln!(text, "  {title:<38}{}", cells.collect::<String>());
        }
        for (workload, found) in &self.counts {
            if let Err(why) = found {
                let _ = writeln!(text, "  {}: {why}", workload.name());
            }
        }
        text
    }
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
