//! The rounds: everything that is planned, once in each.

use crate::form::progress;
use crate::latency::{cyclictest, timer::Period};
use crate::processors::Processors;
use crate::results::Rounds;
use crate::rt::caller::{CallerSchedule, Times};
use crate::rt::case::{Bound, Case, Inversion, Resource, inherits, name};
use crate::rt::inversion;
use crate::rt::misuse::{Aim, Harm};
use crate::rt::one_way::{self, OneWay};
use crate::rt::plan::Plan;
use crate::rt::processes::Processes;
use crate::rt::results::{RtResults, TAKEN};
use crate::rt::role::Role;
use crate::rt::steady;
use crate::system::System;
use crate::testbed::Testbed;
use baton_rt::SchedPriority;
use std::cmp::Reverse;
use std::io;
use std::time::Duration;

/// The cases of a round follow each other: what disturbs the machine for a while disturbs all of
/// them.
pub fn measure(plan: &Plan, processors: &Processors) -> RtResults {
    let mut found =
        RtResults { level: plan.level, most_callers: plan.most_callers, ..RtResults::default() };
    let progress = progress(plan.n_steps());
    for _ in 0..plan.rounds {
        for case in &plan.cases {
            let misuse = case.misuse.map_or(String::new(), |misuse| format!(", {}", misuse.name()));
            let (system, callers) = (name(case.system), case.callers);
            progress.set_message(format!("{system}, {callers} ordinary callers{misuse}"));
            if !found.is_missing(case) {
                found.add_calls(case, calls(plan, case, processors.client));
            }
            progress.inc(1);
        }
        for &callers in &plan.wake_ups {
            progress.set_message(cyclictest::NAME);
            let key = found.wake_up(callers);
            if !found.found.is_missing(&key) {
                found.found.add_times(key, wake_ups(plan, callers));
            }
            progress.inc(1);
        }
        for &inversion in &plan.inversions {
            progress.set_message("inversion");
            let key = inversion.key(plan.level);
            if !found.found.is_missing(&key) {
                found.found.add_times(key, invert(plan, inversion, processors));
            }
            progress.inc(1);
        }
        for &one_way in &plan.one_ways {
            let (system, senders) = (name(one_way.system), one_way.senders);
            progress.set_message(format!("{system}, {senders} ordinary senders"));
            if !found.found.is_missing(&one_way.key()) {
                found.found.add_times(one_way.key(), send(plan, one_way));
            }
            progress.inc(1);
        }
        for &resource in &plan.steady {
            progress.set_message("steady calls");
            if !found.found.is_missing(&resource.key()) {
                let taken = steady(plan, resource);
                let add = |rounds: &mut Rounds, taken| rounds.add_value(TAKEN, taken);
                found.found.add(resource.key(), taken, add);
            }
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    found
}

/// A round of calls, on a testbed of its own; who is bound is so to this processor.
fn calls(plan: &Plan, case: &Case, cpu: usize) -> io::Result<Vec<Times>> {
    let &Case { real_time_callers, level: Reverse(level), callers, bound, misuse, system } = case;
    let others = (misuse.is_some_and(|harm| harm.aim == Aim::Elsewhere)).then(Testbed::start);
    let others = others.transpose().map_err(io::Error::other)?;
    let testbed = Testbed::start().map_err(io::Error::other)?;
    let mut processes = Processes::new(&testbed, system);
    // Beside its caller a server that went on with others' requests would keep the answer's reader
    // waiting.
    let below = u8::from(bound == Bound::Both && level > 1);
    processes.server(level - below, (bound == Bound::Both).then_some(cpu))?;
    add_others(&mut processes, callers)?;
    let cpu = (bound != Bound::Nobody).then_some(cpu);
    let urgent = processes.start(Role::Urgent {
        n_callers: real_time_callers,
        schedule: CallerSchedule { level, inherits: inherits(system), cpu },
        n_calls: plan.n_calls,
        period_us: plan.period_us,
    })?;
    let mut elsewhere = others.as_ref().map(|testbed| Processes::new(testbed, system));
    let misuser = match misuse {
        Some(harm) => Some(add_misuser(elsewhere.as_mut().unwrap_or(&mut processes), harm)?),
        None => None,
    };
    processes.get(urgent).tell("call")?;
    let takes = Duration::from_micros(plan.period_us) * plan.n_calls;
    let found = processes.get(urgent).found(takes)?;
    if let Some(misuser) = misuser {
        elsewhere.as_mut().unwrap_or(&mut processes).get(misuser).is_there()?;
    }
    Ok(found)
}

/// Somebody who wants to hurt this server, for which another one is started elsewhere.
fn add_misuser(processes: &mut Processes<'_>, harm: Harm) -> io::Result<usize> {
    if harm.aim == Aim::Elsewhere {
        processes.server(0, None)?;
    }
    processes.start(Role::Misuser(harm.misuse))
}

fn add_others(processes: &mut Processes<'_>, callers: usize) -> io::Result<()> {
    if callers > 0 {
        processes.start(Role::Others(callers))?;
    }
    Ok(())
}

/// A round of wake-ups, beside what callers do to the machine.
fn wake_ups(plan: &Plan, callers: usize) -> io::Result<Vec<u64>> {
    let testbed = Testbed::start().map_err(io::Error::other)?;
    let mut processes = Processes::new(&testbed, System::BatonTyped);
    processes.server(0, None)?;
    add_others(&mut processes, callers)?;
    let period = Period {
        interval_us: plan.period_us as u32,
        n_loops: plan.n_calls,
        priority: Some(SchedPriority::fifo(plan.level)),
    };
    let mut threads = cyclictest::measure(&period, &[None]).map_err(io::Error::other)?;
    Ok(threads.pop().expect("of one thread"))
}

fn steady(plan: &Plan, resource: Resource) -> io::Result<f64> {
    let testbed = Testbed::start().map_err(io::Error::other)?;
    steady::measure(&testbed, plan.level, resource)
}

fn send(plan: &Plan, case: OneWay) -> io::Result<Vec<u64>> {
    let testbed = Testbed::start().map_err(io::Error::other)?;
    one_way::measure(&testbed, case, (plan.n_calls, plan.period_us))
}

fn invert(plan: &Plan, it: Inversion, processors: &Processors) -> io::Result<Vec<u64>> {
    let testbed = if it.allowed { Testbed::start() } else { Testbed::without_real_time() };
    let testbed = testbed.map_err(io::Error::other)?;
    inversion::measure(&testbed, it, (plan.level, processors.client, plan.n_inversions))
}
