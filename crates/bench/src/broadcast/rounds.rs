//! The rounds: everything that is planned, once in each.

use crate::broadcast::args::{Part, Plan};
use crate::broadcast::delay;
use crate::broadcast::designs::Design;
use crate::broadcast::fan_out::{self, N_RECEIVERS};
use crate::broadcast::local;
use crate::broadcast::order::{self, LEAST_SITUATIONS};
use crate::broadcast::results::{DELIVERIES, FAILURES, SITUATIONS};
use crate::broadcast::role::{Local, Method};
use crate::latency::timer;
use crate::results::Results;
use crate::turns::each_round;
use std::io;
use strum::VariantArray;

/// Intents to many receivers in a round.
const N_FAN_OUT: u32 = 100;

/// A measurement of a round.
#[derive(Clone, Copy, Debug)]
enum Step {
    Delay(Design, usize),
    WakeUp(usize),
    Local(Local),
    FanOut(Design),
}

/// The cases of a round follow each other: what disturbs the machine for a while disturbs all of
/// them.
pub fn measure(plan: &Plan) -> Results {
    let mut found = Results::default();
    for part in Part::VARIANTS.iter().filter(|part| plan.parts.contains(part)) {
        let steps = match part {
            Part::Delay => delays(plan),
            Part::Local => locals(),
            Part::FanOut => [Design::Ours, plan.bus].map(Step::FanOut).into(),
            Part::Order => {
                race(&mut found, plan.n_situations);
                continue;
            }
        };
        each_round(plan.rounds, &steps, title, |&step| measure_step(&mut found, plan, step));
    }
    found
}

fn title(step: &Step) -> String {
    let among = |name, senders: &usize| format!("{name}, {senders} ordinary senders");
    match step {
        Step::Delay(design, senders) => among(design.into(), senders),
        Step::WakeUp(senders) => among(timer::NAME, senders),
        Step::Local(_) => "within a process".to_owned(),
        Step::FanOut(_) => format!("{N_RECEIVERS} receivers"),
    }
}

fn measure_step(found: &mut Results, plan: &Plan, step: Step) {
    let schedule = (plan.n_intents, plan.period_us);
    match step {
        Step::Delay(design, senders) => {
            let measure = || delay::measure(design, senders, schedule);
            found.measure(delay::key(design, senders), measure);
        }
        Step::WakeUp(senders) => {
            found.measure(delay::wake_up(senders), || delay::wake_ups(senders, schedule));
        }
        Step::Local(local) => {
            found.measure(local.key(), || local::measure(local, plan.n_intents));
        }
        Step::FanOut(design) if found.is_missing(&fan_out::key(design)) => {}
        Step::FanOut(design) => fan_out(found, design, plan.n_intents.min(N_FAN_OUT)),
    }
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

fn locals() -> Vec<Step> {
    let of = |senders| Method::VARIANTS.iter().map(move |&method| Local { method, senders });
    local::SENDERS.into_iter().flat_map(of).map(Step::Local).collect()
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
