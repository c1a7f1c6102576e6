//! The rounds: everything that is planned, once in each.

use crate::latency::{cyclictest, timer::Period};
use crate::processors::Processors;
use crate::rt::caller::{CallerSchedule, Times};
use crate::rt::case::{Bound, Case, Inversion, inherits, name};
use crate::rt::inversion;
use crate::rt::misuse::{Aim, Harm};
use crate::rt::one_way;
use crate::rt::plan::{Plan, Step};
use crate::rt::processes::Processes;
use crate::rt::results::{RtResults, TAKEN};
use crate::rt::role::Role;
use crate::rt::steady;
use crate::system::System;
use crate::testbed::Testbed;
use crate::turns::each_round;
use baton_rt::SchedPriority;
use std::cmp::Reverse;
use std::io;
use std::time::Duration;

/// The cases of a round follow each other: what disturbs the machine for a while disturbs all of
/// them.
pub fn measure(plan: &Plan, processors: &Processors) -> RtResults {
    let mut found =
        RtResults { level: plan.level, most_callers: plan.most_callers, ..RtResults::default() };
    each_round(plan.rounds, &plan.steps, title, |step| match *step {
        Step::Calls(ref case) if found.is_missing(case) => {}
        Step::Calls(ref case) => found.add_calls(case, calls(plan, case, processors.client)),
        Step::WakeUps(callers) => {
            found.found.measure(found.wake_up(callers), || wake_ups(plan, callers));
        }
        Step::Inversion(inversion) => {
            let measure = || invert(plan, inversion, processors);
            found.found.measure(inversion.key(plan.level), measure);
        }
        Step::OneWay(one_way) => {
            let schedule = (plan.n_calls, plan.period_us);
            let measure = || one_way::measure(&Testbed::start()?, one_way, schedule);
            found.found.measure(one_way.key(), measure);
        }
        Step::Steady(resource) if found.found.is_missing(&resource.key()) => {}
        Step::Steady(resource) => {
            let taken = Testbed::start().map_err(io::Error::from);
            let taken = taken.and_then(|testbed| steady::measure(&testbed, plan.level, resource));
            found.found.add_value(resource.key(), TAKEN, taken);
        }
    });
    found
}

fn title(step: &Step) -> String {
    match step {
        Step::Calls(case) => {
            let misuse = case.misuse.map_or(String::new(), |misuse| format!(", {}", misuse.name()));
            format!("{}, {} ordinary callers{misuse}", name(case.system), case.callers)
        }
        Step::WakeUps(_) => cyclictest::NAME.to_owned(),
        Step::Inversion(_) => "inversion".to_owned(),
        Step::OneWay(it) => format!("{}, {} ordinary senders", name(it.system), it.senders),
        Step::Steady(_) => "steady calls".to_owned(),
    }
}

/// A round of calls, on a testbed of its own; who is bound is so to this processor.
fn calls(plan: &Plan, case: &Case, cpu: usize) -> io::Result<Vec<Times>> {
    let &Case { real_time_callers, level: Reverse(level), callers, bound, misuse, system } = case;
    let others = (misuse.is_some_and(|harm| harm.aim == Aim::Elsewhere)).then(Testbed::start);
    let others = others.transpose()?;
    let testbed = Testbed::start()?;
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
    let takes = Duration::from_micros(plan.period_us) * plan.n_calls;
    let found = processes.get(urgent).ask("call", takes)?;
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
    let testbed = Testbed::start()?;
    let mut processes = Processes::new(&testbed, System::BatonTyped);
    processes.server(0, None)?;
    add_others(&mut processes, callers)?;
    let period = Period {
        interval_us: plan.period_us as u32,
        n_loops: plan.n_calls,
        priority: Some(SchedPriority::fifo(plan.level)),
    };
    let mut threads = cyclictest::measure(&period, &[None])?;
    Ok(threads.pop().expect("of one thread"))
}

fn invert(plan: &Plan, it: Inversion, processors: &Processors) -> io::Result<Vec<u64>> {
    let testbed = if it.allowed { Testbed::start() } else { Testbed::without_real_time() };
    inversion::measure(&testbed?, it, (plan.level, processors.client, plan.n_inversions))
}
