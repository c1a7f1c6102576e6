//! The rounds: everything that is planned, once in each.

use crate::broadcast::args::{Part, Plan};
use crate::broadcast::delay::{self, FEWEST, MOST};
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
    let steps = if has(Part::Delay) { delays(plan.is_quick) } else { Vec::new() };
    let locals = if has(Part::Local) { locals() } else { Vec::new() };
    let (fan_outs, orders) = (u32::from(has(Part::FanOut)), u32::from(has(Part::Order)));
    let n_others = plan.rounds as usize * (steps.len() + locals.len() + fan_outs as usize);
    let progress = progress(n_others + orders as usize);
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
    for _ in 0..plan.rounds * fan_outs {
        progress.set_message(format!("{N_RECEIVERS} receivers"));
        if !found.is_missing(&fan_out::key()) {
            fan_out(&mut found, plan.n_intents.min(N_FAN_OUT));
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    found
}

/// What is quick keeps what bars are of.
fn delays(is_quick: bool) -> Vec<Step> {
    let is_of_a_bar = |&step: &Step| match step {
        Step::Delay(Design::Ours, senders) | Step::WakeUp(senders) => {
            [FEWEST, MOST].contains(&senders)
        }
        Step::Delay(_, senders) => senders == MOST,
    };
    let of = |senders| {
        let designs = Design::VARIANTS.iter().map(move |&design| Step::Delay(design, senders));
        designs.chain([Step::WakeUp(senders)])
    };
    delay::SENDERS.into_iter().flat_map(of).filter(|step| !is_quick || is_of_a_bar(step)).collect()
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

fn fan_out(found: &mut Results, n_intents: u32) {
    let times_ns: io::Result<Vec<u64>> = fan_out::measure(n_intents);
    found.add(fan_out::key(), times_ns, |rounds, times_ns| {
        rounds.times.add_round(&times_ns);
        let takes_s = times_ns.iter().sum::<u64>() as f64 / 1e9;
        let n_deliveries = times_ns.len() as f64 * N_RECEIVERS as f64;
        rounds.add_value(DELIVERIES, (n_deliveries / takes_s).round());
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_quick_keeps_what_bars_are_of() {
        assert_eq!(delays(false).len(), 5 * 4);
        let quick = delays(true);
        assert_eq!(quick.len(), 6);
        for design in Design::VARIANTS {
            assert!(quick.contains(&Step::Delay(*design, MOST)));
        }
        for senders in [FEWEST, MOST] {
            assert!(quick.contains(&Step::Delay(Design::Ours, senders)));
            assert!(quick.contains(&Step::WakeUp(senders)));
        }
    }
}
