//! What a real-time call takes of the system once its looper is there, of both sides together.
//!
//! The kernel counts, in processes that are as in all other measurements: a caller that makes no
//! call in one stretch, and many in the next. What the second has more is the calls'. In both the
//! caller reads a line and writes one: if nothing of that is counted, the kernel does not count.

use crate::perf::Counters;
use crate::rt::caller::CallerSchedule;
use crate::rt::case::Resource;
use crate::rt::processes::Processes;
use crate::rt::role::Role;
use crate::system::System;
use crate::testbed::Testbed;
use std::io;

const CALLS: u32 = 2000;

/// How much of it one call takes, to the tenth: that a wait ends for nothing once in a hundred
/// calls is not the call's.
pub fn measure(testbed: &Testbed, level: u8, resource: Resource) -> io::Result<f64> {
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
    if without == 0 {
        return Err(cannot(io::Error::other("it counts nothing")));
    }
    let of_one = with.saturating_sub(without) as f64 / f64::from(CALLS);
    Ok((of_one * 10.0).round() / 10.0)
}
