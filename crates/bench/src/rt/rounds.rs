//! The rounds: everything that is planned, once in each.

use crate::form::progress;
use crate::latency::{cyclictest, timer::Period};
use crate::processors::Processors;
use crate::rt::caller::Times;
use crate::rt::found::{self, Bound, Case, Inversion, Results};
use crate::rt::inversion::{self, Scenario};
use crate::rt::misuse::{Aim, Harm};
use crate::rt::plan::Plan;
use crate::rt::processes::{Member, RtProcesses};
use crate::rt::role::Role;
use crate::rt::steady::{self, Resource};
use crate::rt::way::Way;
use crate::stage::Stage;
use baton_rt::SchedPriority;
use std::cmp::Reverse;
use std::io;
use std::time::Duration;

/// The cases of a round follow each other: what disturbs the machine for a while disturbs all of
/// them.
pub fn measure(plan: &Plan, processors: &Processors) -> Results {
    let mut found = Results { level: plan.level, ..Results::default() };
    let progress = progress(plan.n_steps());
    for _ in 0..plan.rounds {
        for &case in &plan.cases {
            let misuse = case.misuse.map_or(String::new(), |misuse| format!(", {}", misuse.name()));
            let callers = case.callers;
            progress.set_message(format!("{}, {callers} ordinary callers{misuse}", case.name()));
            let add = |legs: &mut _, round: Vec<Times>| found::add_calls(legs, &round);
            found::add(&mut found.calls, case, || calls(plan, &case, processors.client), add);
            progress.inc(1);
        }
        for &callers in &plan.wake_ups {
            progress.set_message(cyclictest::NAME);
            let measure = || wake_ups(plan, callers);
            found::add(&mut found.wake_ups, callers, measure, |times, round: Vec<u64>| {
                times.add_round(&round)
            });
            progress.inc(1);
        }
        for &inversion in &plan.inversions {
            progress.set_message("inversion");
            let measure = || invert(plan, inversion, processors);
            found::add(&mut found.inversions, inversion, measure, |times, round: Vec<u64>| {
                times.add_round(&round)
            });
            progress.inc(1);
        }
        for &resource in &plan.steady {
            progress.set_message("steady calls");
            let measure = || steady(plan, resource);
            found::add(&mut found.steady, resource, measure, Vec::push);
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    found
}

fn words(words: &[(&str, u64)]) -> Vec<String> {
    words.iter().flat_map(|(word, value)| [(*word).to_owned(), value.to_string()]).collect()
}

/// A round of calls, on a stage of its own; who is bound is so to this processor.
fn calls(plan: &Plan, case: &Case, cpu: usize) -> io::Result<Vec<Times>> {
    let &Case { real_time_callers, level: Reverse(level), callers, bound, misuse, way } = case;
    let others = (misuse.is_some_and(|harm| harm.aim == Aim::Elsewhere)).then(Stage::set);
    let others = others.transpose().map_err(io::Error::other)?;
    let stage = Stage::set().map_err(io::Error::other)?;
    let mut processes = RtProcesses::new(&stage, way);
    let bound_with = |word, is_bound: bool| words(&[(word, cpu as u64)][..usize::from(is_bound)]);
    // Beside its caller a server that went on with others' requests would keep the answer's reader
    // waiting.
    let below = u8::from(bound == Bound::Both && level > 1);
    processes.server(level - below, &bound_with("--cpu", bound == Bound::Both))?;
    add_crowd(&mut processes, callers)?;
    let mut urgent = words(&[
        ("--level", level.into()),
        ("--threads", real_time_callers as u64),
        ("--calls", plan.n_calls.into()),
        ("--period-us", plan.period_us),
    ]);
    urgent.extend(bound_with("--caller-cpu", bound != Bound::Nobody));
    urgent.extend(way.inherits().then(|| "--inherits".to_owned()));
    let urgent = processes.ready(Role::Urgent, &urgent)?;
    let mut elsewhere = others.as_ref().map(|stage| RtProcesses::new(stage, way));
    let misuser = match misuse {
        Some(harm) => Some(add_misuser(elsewhere.as_mut().unwrap_or(&mut processes), harm)?),
        None => None,
    };
    processes.tell(urgent, "call")?;
    let found =
        processes.hear_found(urgent, Duration::from_micros(plan.period_us) * plan.n_calls)?;
    let of_misuser = elsewhere.as_mut().unwrap_or(&mut processes);
    misuser.map_or(Ok(()), |misuser| of_misuser.is_there(misuser))?;
    Ok(found)
}

/// Somebody who wants to hurt this server, for which another one is started elsewhere.
fn add_misuser(processes: &mut RtProcesses<'_>, harm: Harm) -> io::Result<Member> {
    if harm.aim == Aim::Elsewhere {
        processes.server(0, &[])?;
    }
    processes.ready(Role::Misuser, &["--misuse".to_owned(), harm.misuse.name().to_owned()])
}

fn add_crowd(processes: &mut RtProcesses<'_>, callers: usize) -> io::Result<()> {
    if callers > 0 {
        processes.ready(Role::Crowd, &words(&[("--threads", callers as u64)]))?;
    }
    Ok(())
}

/// A round of wake-ups, beside what callers do to the machine.
fn wake_ups(plan: &Plan, callers: usize) -> io::Result<Vec<u64>> {
    let stage = Stage::set().map_err(io::Error::other)?;
    let mut processes = RtProcesses::new(&stage, Way::BatonTyped);
    processes.server(0, &[])?;
    add_crowd(&mut processes, callers)?;
    let period = Period {
        interval_us: plan.period_us as u32,
        n_loops: plan.n_calls,
        priority: Some(SchedPriority::fifo(plan.level)),
    };
    let mut threads = cyclictest::measure(&period, &[None]).map_err(io::Error::other)?;
    Ok(threads.pop().expect("of one thread"))
}

fn steady(plan: &Plan, resource: Resource) -> io::Result<f64> {
    let stage = Stage::set().map_err(io::Error::other)?;
    steady::measure(&stage, plan.level, resource)
}

fn invert(plan: &Plan, inversion: Inversion, processors: &Processors) -> io::Result<Vec<u64>> {
    let Inversion { way, allowed } = inversion;
    let stage = if allowed { Stage::set() } else { Stage::without_real_time() };
    let scenario = Scenario {
        way,
        inherits: allowed && way.inherits(),
        level: plan.level,
        cpu: processors.client,
        n_calls: plan.n_inversions,
    };
    inversion::measure(&stage.map_err(io::Error::other)?, &scenario)
}
