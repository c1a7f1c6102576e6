//! The rounds: everything that is planned, once in each.

use crate::broadcast::args::{Part, Plan};
use crate::broadcast::delay;
use crate::broadcast::designs::Design;
use crate::broadcast::fan_out::{self, N_RECEIVERS};
use crate::broadcast::local;
use crate::broadcast::order::{self, LEAST_SITUATIONS};
use crate::broadcast::results::{DELIVERIES, FAILURES, SITUATIONS};
use crate::broadcast::role::{Local, Method};
use crate::form::progress;
use crate::latency::timer;
use crate::results::Results;
use std::io;
use strum::VariantArray;

/// Intents to many receivers in a round.
const N_FAN_OUT: u32 = 100;

/// A row of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Delay(Design, usize),
    WakeUp(usize),
}

/// The cases of a round follow each other: what disturbs the machine for a while disturbs all of
/// them.
pub fn measure(plan: &Plan) -> Results {
    let mut found = Results::default();
    let has = |part| plan.parts.contains(&part);
    let steps = if has(Part::Delay) { delays(plan) } else { Vec::new() };
    let locals = if has(Part::Local) { locals() } else { Vec::new() };
    let fan_outs = if has(Part::FanOut) { vec![Design::Ours, plan.bus] } else { Vec::new() };
    let n_others = plan.rounds as usize * (steps.len() + locals.len() + fan_outs.len());
    let progress = progress(n_others + usize::from(has(Part::Order)));
    for _ in 0..plan.rounds {
        for &step in &steps {
            let schedule = (plan.n_intents, plan.period_us);
            let (name, senders, key) = match step {
                Step::Delay(design, senders) => {
                    (design.into(), senders, delay::key(design, senders))
                }
                Step::WakeUp(senders) => (timer::NAME, senders, delay::wake_up(senders)),
            };
            progress.set_message(format!("{name}, {senders} ordinary senders"));
            if !found.is_missing(&key) {
                let times_ns = match step {
                    Step::Delay(design, senders) => delay::measure(design, senders, schedule),
                    Step::WakeUp(senders) => delay::wake_ups(senders, schedule),
                };
                found.add_times(key, times_ns);
            }
            progress.inc(1);
        }
    }
    if has(Part::Order) {
        progress.set_message("order");
        race(&mut found, plan.n_situations);
        progress.inc(1);
    }
    for _ in 0..plan.rounds {
        for &local in &locals {
            progress.set_message("within a process");
            if !found.is_missing(&local.key()) {
                found.add_times(local.key(), local::measure(local, plan.n_intents));
            }
            progress.inc(1);
        }
    }
    for _ in 0..plan.rounds {
        for &design in &fan_outs {
            progress.set_message(format!("{N_RECEIVERS} receivers"));
            if !found.is_missing(&fan_out::key(design)) {
                fan_out(&mut found, design, plan.n_intents.min(N_FAN_OUT));
            }
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    found
}

/// Those of a number of senders follow each other.
fn delays(plan: &Plan) -> Vec<Step> {
    let of = |&senders: &usize| {
        let here = plan.delays.iter().filter(move |delay| delay.1 == senders);
        let steps = here.map(|&(design, senders)| Step::Delay(design, senders));
        steps.chain([Step::WakeUp(senders)])
    };
    plan.senders.iter().flat_map(of).collect()
}

fn locals() -> Vec<Local> {
    let of = |senders| Method::VARIANTS.iter().map(move |&method| Local { method, senders });
    local::SENDERS.into_iter().flat_map(of).collect()
}

/// Has intents race until there were so many situations, in as many rounds as that takes.
fn race(found: &mut Results, n_situations: u32) {
    let mut situations = 0;
    for seed in 0..u64::from(n_situations.div_ceil(LEAST_SITUATIONS)) {
        let raced = order::measure(seed);
        situations += raced.as_ref().map_or(0, |(count, _)| count.situations);
        let is_there = found.add(order::key(), raced, |rounds, (count, times_ns)| {
            rounds.times.add_round(&times_ns);
            rounds.add_value(SITUATIONS, count.situations as f64);
            rounds.add_value(FAILURES, count.failures as f64);
        });
        if !is_there || situations >= u64::from(n_situations) {
            return;
        }
    }
}

fn fan_out(found: &mut Results, design: Design, n_intents: u32) {
    let times_ns: io::Result<Vec<u64>> = fan_out::measure(design, n_intents);
    found.add(fan_out::key(design), times_ns, |rounds, times_ns| {
        rounds.times.add_round(&times_ns);
        let takes_s = times_ns.iter().sum::<u64>() as f64 / 1e9;
        let n_deliveries = times_ns.len() as f64 * f64::from(N_RECEIVERS);
        rounds.add_value(DELIVERIES, (n_deliveries / takes_s).round());
    });
}
