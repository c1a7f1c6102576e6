//! SchedPriority inversion: three processes on one processor.
//!
//! ```text
//!   fifo:80, late     ..........|call|             answered, if its priority goes with the call
//!   fifo:50, hog      ==========      ==========   computes
//!   ordinary, server            ....               runs now, or when the hog has done
//!            gate opens ^
//! ```
//!
//! The hog computes for [`HOG_MS`] and then sleeps for at least as long, so that the kernel's own
//! bound on real-time threads (95 % of a second) is never what helps.

use crate::endpoint::say;
use crate::gate::{self, Gate};
use crate::rt::caller::{self, Schedule};
use crate::rt::processes::{Member, RtProcesses};
use crate::rt::role::{Role, tell};
use crate::rt::way::{Call, Way};
use crate::service::now_ns;
use crate::stage::Stage;
use baton_rt::SchedPriority;
use baton_rt::schedule::set_priority;
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// How long the hog computes.
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

/// What is to be played.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// How the call is made.
    pub way: Way,
    /// Whether the caller's priority is to come with the call, where the way is one by which it
    /// can.
    pub inherits: bool,
    /// The caller's priority.
    pub level: u8,
    /// The processor.
    pub cpu: usize,
    /// Times that it is played.
    pub n_calls: u32,
}

/// Plays it: how long each call took, in nanoseconds.
pub fn measure(stage: &Stage, scenario: &Scenario) -> io::Result<Vec<u64>> {
    let &Scenario { way, inherits, level, cpu, n_calls } = scenario;
    let mut processes = RtProcesses::new(stage, way);
    let at = ["--cpu".to_owned(), cpu.to_string()];
    processes.server(level, &at)?;
    let gate = Gate::new()?;
    let waits = ["--gate".to_owned(), gate.place().display().to_string()];
    let with = |level: u8| [&at[..], &waits, &["--level".to_owned(), level.to_string()]].concat();
    let mut late = with(level);
    late.extend(inherits.then(|| "--inherits".to_owned()));
    let late = processes.ready(Role::Late, &late)?;
    let hog = processes.ready(Role::Hog, &with(hog_level(level)))?;
    let mut delays_ns = Vec::new();
    for _ in 0..n_calls * MOST_TRIES {
        delays_ns.extend(play_once(&mut processes, &gate, [hog, late])?);
        if delays_ns.len() == n_calls as usize {
            return Ok(delays_ns);
        }
    }
    Err(io::Error::other("the hog does not compute when it should"))
}

/// `None` if the call was not made while the hog computed, which tells nothing: the kernel may keep
/// real-time threads from the processor for a moment.
fn play_once(
    processes: &mut RtProcesses<'_>,
    gate: &Gate,
    [hog, late]: [Member; 2],
) -> io::Result<Option<u64>> {
    gate.open();
    let late: Late = processes.hear_found(late, Duration::ZERO)?;
    let burst: Burst = processes.hear_found(hog, Duration::ZERO)?;
    thread::sleep(Duration::from_millis(HOG_MS));
    let meanwhile = (burst.begin_ns..burst.end_ns).contains(&late.begin_ns);
    Ok(meanwhile.then_some(late.delay_ns))
}

/// The hog.
pub fn compute(level: u8, gate: &Path) -> io::Result<()> {
    set_priority(SchedPriority::fifo(level), None).map_err(io::Error::other)?;
    say("ready")?;
    for number in 1.. {
        gate::wait(gate, number)?;
        let begin_ns = now_ns();
        let mut end_ns = begin_ns;
        let mut value = begin_ns;
        while end_ns < begin_ns + HOG_MS * 1_000_000 {
            value = black_box(value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
            end_ns = now_ns();
        }
        tell(&Burst { begin_ns, end_ns })?;
    }
    Ok(())
}

/// The caller that is more urgent.
pub fn call_late(mut call: Call, level: u8, schedule: &Schedule, gate: &Path) -> io::Result<()> {
    caller::prepare(&mut call, level, schedule)?;
    say("ready")?;
    for number in 1.. {
        gate::wait(gate, number)?;
        caller::sleep_until(now_ns() + HEAD_START_MS * 1_000_000);
        let begin_ns = now_ns();
        let [call_ns, return_ns] = caller::call_once(&mut call)?;
        tell(&Late { begin_ns, delay_ns: call_ns + return_ns })?;
    }
    Ok(())
}
