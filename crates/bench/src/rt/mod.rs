//! `baton bench rt`: how late a real-time caller is served among ordinary ones.
//!
//! RTAndroid's experiments (Kalkov 2018, chapter 6.3), over Baton's typed API and peers: one
//! real-time caller, or several, that call once a period; beside them ordinary threads of another
//! process, which call the same method as fast as they can. What is told of each call is T_CALL,
//! T_RET and both together. Beside these, priority inversion on one processor; and cyclictest, so
//! that a longest time can be judged.
//!
//! - [`case`]: what can be measured; [`plan`]: what is, and in which order.
//! - [`processes`]: a measurement's processes, as the run sees them and as they see themselves;
//!   [`caller`]: the real-time ones; [`inversion`]: a scenario of three; [`misuse`]: those that
//!   want to hurt them.
//! - [`results`]: what came of it, beside the thesis's figures, and what it must hold.

use crate::form::{self, BenchError, Finding, progress};
use crate::latency::wake_up::{CYCLICTEST, Period, cyclictest};
use crate::pair;
use crate::perf::Counters;
use crate::processors::Processors;
use crate::results::Rounds;
use crate::rt::caller::{CallerSchedule, Times};
use crate::rt::case::{Bound, Case, Inversion, Resource, inherits, name};
use crate::rt::misuse::{Aim, Harm};
use crate::rt::plan::Plan;
use crate::rt::processes::{Processes, Role};
use crate::rt::results::{RtResults, TAKEN};
use crate::system::System;
use crate::testbed::{Setting, Testbed};
use baton_rt::SchedPriority;
use std::cmp::Reverse;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

mod caller;
mod case;
mod inversion;
mod misuse;
mod plan;
mod processes;
mod results;

pub use plan::RtArgs;
pub(crate) use processes::run_role;
pub use processes::run_with;

pub(crate) fn rt(args: &RtArgs) -> ExitCode {
    form::finish("rt", &args.form, run(args))
}

fn run(args: &RtArgs) -> Result<Finding, BenchError> {
    let setting = Setting::look()?;
    let plan = Plan::new(args);
    let mut found = measure(&plan, &setting.processors);
    found.has_kernel_binder = pair::cannot_be_here(System::KernelBinder).is_none();
    found.quote();
    let report = setting.report("rt", plan.rounds, found.rows(), results::ratios(&found));
    let lead = "How long a real-time call takes to its handler (T_CALL), back (T_RET), and both \
                together, among ordinary callers: how many are not longer, all rounds together. \
                Time is on a logarithmic axis, as are the nines of the share. Broken lines: the \
                longest time of RTAndroid's thesis, with Android's own Binder and with the \
                thesis's.";
    Ok(Finding::new(report, found.charts(), lead))
}

/// The cases of a round follow each other: what disturbs the machine for a while disturbs all of
/// them.
fn measure(plan: &Plan, processors: &Processors) -> RtResults {
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
            progress.set_message(CYCLICTEST);
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
    let mut threads = cyclictest(&period, &[None]).map_err(io::Error::other)?;
    Ok(threads.pop().expect("of one thread"))
}

fn steady(plan: &Plan, resource: Resource) -> io::Result<f64> {
    let testbed = Testbed::start().map_err(io::Error::other)?;
    count_steady(&testbed, plan.level, resource)
}

fn invert(plan: &Plan, it: Inversion, processors: &Processors) -> io::Result<Vec<u64>> {
    let testbed = if it.allowed { Testbed::start() } else { Testbed::without_real_time() };
    let testbed = testbed.map_err(io::Error::other)?;
    inversion::measure(&testbed, it, (plan.level, processors.client, plan.n_inversions))
}

const CALLS: u32 = 2000;

/// How much of it one call takes, to the tenth: that a wait ends for nothing once in a hundred
/// calls is not the call's.
fn count_steady(testbed: &Testbed, level: u8, resource: Resource) -> io::Result<f64> {
    let mut processes = Processes::new(testbed, System::BatonTyped);
    let server = processes.server(level, None)?;
    let caller =
        processes.start(Role::Steady(CallerSchedule { level, inherits: true, cpu: None }))?;
    let counted = [server, processes.get(caller).id()];
    let cannot = |error: io::Error| {
        io::Error::new(error.kind(), format!("the kernel does not count for us: {error}"))
    };
    let counters = match resource {
        Resource::Allocations => Counters::of_allocations(&counted),
        Resource::SystemCalls => Counters::of_system_calls(&counted),
    };
    let mut counters = counters.map_err(cannot)?;
    let mut taken = |n_calls: u32| -> io::Result<u64> {
        let before = counters.read()?;
        let caller = processes.get(caller);
        caller.tell(&n_calls.to_string())?;
        caller.is_ready()?;
        Ok(counters.read()? - before)
    };
    let (without, with) = (taken(0)?, taken(CALLS)?);
    let of_one = with.saturating_sub(without) as f64 / f64::from(CALLS);
    Ok((of_one * 10.0).round() / 10.0)
}
