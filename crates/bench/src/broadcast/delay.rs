//! The processing delay of real-time intents: from just before they are sent until their receiver
//! runs, among ordinary senders that broadcast the same action as fast as they are accepted.

use crate::broadcast::designs::{Design, LEVEL};
use crate::broadcast::processes::Processes;
use crate::broadcast::role::Role;
use crate::latency::timer::{self, Period};
use crate::report::RowKey;
use baton_rt::SchedPriority;
use std::io;
use std::time::Duration;

/// Ordinary senders, few and many.
pub const FEWEST: usize = 10;
pub const MOST: usize = 100;
/// Numbers of ordinary senders, as in the thesis's figure 7.8.
pub const SENDERS: [usize; 5] = [FEWEST, 25, 50, 75, MOST];

/// The row of a design, among so many ordinary senders.
pub fn key(design: Design, senders: usize) -> RowKey {
    row(design.into(), "delay", senders)
}

/// The row of what the machine itself does.
pub fn wake_up(senders: usize) -> RowKey {
    row(timer::NAME, "wake-up", senders)
}

pub fn row(system: &'static str, case: &'static str, senders: usize) -> RowKey {
    RowKey::new(system, case)
        .with("priority", SchedPriority::fifo(LEVEL).to_string())
        .with("senders", senders)
        .heading(format!(
            "an intent at fifo:{LEVEL} among {senders} ordinary senders, until its receiver runs"
        ))
}

/// A round: so many intents, and the time from one to the next.
pub fn measure(
    design: Design,
    senders: usize,
    (n_intents, period_us): (u32, u64),
) -> io::Result<Vec<u64>> {
    let (mut processes, receiver) = among(design, senders, n_intents)?;
    let sender = processes.start(Role::Sender { n_intents, period_us })?;
    processes.get(sender).tell("send")?;
    processes.get(sender).is_ready()?;
    Ok(processes.get(receiver).ask("report", Duration::ZERO)?)
}

/// A round of wake-ups at the sender's priority, beside what ordinary senders do to the machine.
pub fn wake_ups(senders: usize, (n_loops, period_us): (u32, u64)) -> io::Result<Vec<u64>> {
    let (_processes, _) = among(Design::Ours, senders, 0)?;
    let priority = Some(SchedPriority::fifo(LEVEL));
    let period = Period { interval_us: period_us as u32, n_loops, priority };
    let mut threads = period.measure(&[None]).map_err(io::Error::other)?;
    Ok(threads.pop().expect("of one thread"))
}

/// A service, a receiver, and ordinary senders.
fn among(design: Design, senders: usize, n_intents: u32) -> io::Result<(Processes, usize)> {
    let mut processes = Processes::new(design)?;
    processes.start(Role::Service)?;
    let receiver = processes.start(Role::Receiver(n_intents))?;
    processes.start(Role::Senders(senders))?;
    Ok((processes, receiver))
}
