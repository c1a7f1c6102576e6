//! SchedPriority inversion: three processes on one processor.
//!
//! ```text
//!   fifo:80, late     ..........|call|             answered, if its priority goes with the call
//!   fifo:50, hog      ==========      ==========   computes
//!   ordinary, server            ....               runs now, or when the hog has done
//!            barrier opens ^
//! ```
//!
//! The hog computes for [`HOG_MS`] and then sleeps for at least as long, so that the kernel's own
//! bound on real-time threads (95 % of a second) is never what helps.

use crate::child::{say, tell};
use crate::processors;
use crate::random;
use crate::rt::caller::{self, Call, CallerSchedule};
use crate::rt::case::{Inversion, inherits};
use crate::rt::processes::Processes;
use crate::rt::role::Role;
use crate::service::{now_ns, sleep_until};
use crate::start_barrier::{self, StartBarrier};
use crate::testbed::Testbed;
use baton_rt::SchedPriority;
use baton_rt::schedule::set_priority;
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

pub const HOG_MS: u64 = 50;
/// Of its beginning, until the call.
const HEAD_START_MS: u64 = 5;
/// Of a scenario, until the hog was there.
const MOST_TRIES: u32 = 10;

/// The hog's priority, below the caller's: 50 for one of 80.
fn hog_level(level: u8) -> u8 {
    (u32::from(level) * 5 / 8) as u8
}

/// From when to when the hog has computed.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Burst {
    begin_ns: u64,
    end_ns: u64,
}

/// When the call was made, and how long it took.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Late {
    begin_ns: u64,
    delay_ns: u64,
}

/// Measures it: how long each of so many calls took, in nanoseconds.
pub fn measure(
    testbed: &Testbed,
    Inversion { system, allowed }: Inversion,
    (level, cpu, n_calls): (u8, usize, u32),
) -> io::Result<Vec<u64>> {
    let mut processes = Processes::new(testbed, system);
    processes.server(level, Some(cpu))?;
    let barrier = StartBarrier::new()?;
    let inherits = allowed && inherits(system);
    let mut waits = |level, role: fn(CallerSchedule, PathBuf) -> Role| {
        let schedule = CallerSchedule { level, inherits, cpu: Some(cpu) };
        processes.start(role(schedule, barrier.place()))
    };
    let late = waits(level, Role::Late)?;
    let hog = waits(hog_level(level), Role::Hog)?;
    let mut delays_ns = Vec::new();
    for _ in 0..n_calls * MOST_TRIES {
        delays_ns.extend(measure_once(&mut processes, &barrier, [hog, late])?);
        if delays_ns.len() == n_calls as usize {
            return Ok(delays_ns);
        }
    }
    Err(io::Error::other("the hog does not compute when it should"))
}

/// `None` if the call was not made while the hog computed, which tells nothing: the kernel may keep
/// real-time threads from the processor for a moment.
fn measure_once(
    processes: &mut Processes<'_>,
    barrier: &StartBarrier,
    [hog, late]: [usize; 2],
) -> io::Result<Option<u64>> {
    barrier.open();
    let late: Late = processes.get(late).found(Duration::ZERO)?;
    let burst: Burst = processes.get(hog).found(Duration::ZERO)?;
    thread::sleep(Duration::from_millis(HOG_MS));
    let meanwhile = (burst.begin_ns..burst.end_ns).contains(&late.begin_ns);
    Ok(meanwhile.then_some(late.delay_ns))
}

pub fn compute(schedule: CallerSchedule, barrier: &Path) -> io::Result<()> {
    schedule.cpu.map_or(Ok(()), processors::stay_on)?;
    set_priority(SchedPriority::fifo(schedule.level), None).map_err(io::Error::other)?;
    say("ready")?;
    for number in 1.. {
        start_barrier::wait(barrier, number)?;
        let begin_ns = now_ns();
        let mut end_ns = begin_ns;
        let mut value = begin_ns;
        while end_ns < begin_ns + HOG_MS * 1_000_000 {
            value = black_box(random::next(value, 1));
            end_ns = now_ns();
        }
        tell(&Burst { begin_ns, end_ns })?;
    }
    Ok(())
}

/// The caller that is more urgent.
pub fn call_late(mut call: Call, schedule: CallerSchedule, barrier: &Path) -> io::Result<()> {
    caller::prepare(&mut call, schedule)?;
    say("ready")?;
    for number in 1.. {
        start_barrier::wait(barrier, number)?;
        sleep_until(now_ns() + HEAD_START_MS * 1_000_000);
        let begin_ns = now_ns();
        let [call_ns, return_ns] = caller::call_once(&mut call)?;
        tell(&Late { begin_ns, delay_ns: call_ns + return_ns })?;
    }
    Ok(())
}
