//! Real-time callers: each calls once a period, and tells when the handler ran and when it was
//! back.
//!
//! ```text
//!   caller   t_pre ---- T_CALL ---.              .---- T_RET ----> t_post
//!   handler                        `---> t_res --'
//! ```
//!
//! As in RTAndroid's experiment (Kalkov 2018, figure 6.3) the handler does nothing but read the
//! clock, so that its first instruction is its last one.

use crate::processors;
use crate::rt::request::Request;
use crate::rt::way::Call;
use crate::service::now_ns;
use baton_rt::schedule::set_priority;
use baton_rt::{SchedPriority, memory};
use rustix::thread::{ClockId, Timespec, clock_nanosleep_absolute};
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

/// Calls after the looper has come, until everything is warm.
const N_WARM_UP: u32 = 100;
const WARM_UP_PERIOD: Duration = Duration::from_micros(500);
/// How long a looper may take to come, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(20);
/// A caller uses less of its stack.
const STACK_BYTES: usize = 64 << 10;

/// When callers call.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Schedule {
    /// Calls that each makes
    #[arg(long, default_value_t = 1)]
    pub calls: u32,
    /// Time from one to the next, in microseconds
    #[arg(long, default_value_t = 2000)]
    pub period_us: u64,
    /// Wait until calls are served at the caller's own priority
    #[arg(long)]
    pub inherits: bool,
    /// Where each of them runs
    #[arg(long)]
    pub caller_cpu: Option<usize>,
}

/// What one caller has found, call by call, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// From before a call to its handler.
    pub call_ns: Vec<u64>,
    /// From the handler to after the call.
    pub return_ns: Vec<u64>,
}

/// Where that may not be had, pages come late, and it shows.
pub fn stay_in_memory() {
    let _ = memory::Locked::new().map(std::mem::forget);
}

/// A thread for each, at the same priority. They take their turns within the period, and begin once
/// `wait` returns, which is called when all of them are warm.
pub fn call_periodically(
    callers: Vec<Call>,
    level: u8,
    schedule: &Schedule,
    wait: impl FnOnce() -> io::Result<()>,
) -> io::Result<Vec<Times>> {
    let n_callers = callers.len() as u64;
    let [warm, begun] = [(); 2].map(|()| Barrier::new(callers.len() + 1));
    let period_ns = schedule.period_us * 1000;
    thread::scope(|scope| {
        let start = |(mut call, number): (Call, u64)| {
            let (warm, begun) = (&warm, &begun);
            scope.spawn(move || {
                let prepared = prepare(&mut call, level, schedule);
                // Those that failed have the others go on.
                warm.wait();
                begun.wait();
                prepared?;
                let offset_ns = period_ns * number / n_callers;
                measure(&mut call, schedule.calls, now_ns() + period_ns + offset_ns, period_ns)
            })
        };
        let threads: Vec<_> = callers.into_iter().zip(0..).map(start).collect();
        warm.wait();
        let waited = wait();
        begun.wait();
        waited?;
        threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
    })
}

/// Makes the calling thread a real-time one, and its calls warm.
pub fn prepare(call: &mut Call, level: u8, schedule: &Schedule) -> io::Result<()> {
    memory::prefault_stack(STACK_BYTES);
    // Before the first call, at which others look where it runs.
    schedule.caller_cpu.map_or(Ok(()), processors::stay_on)?;
    set_priority(SchedPriority::fifo(level), None).map_err(io::Error::other)?;
    let served_at =
        |call: &mut Call| -> io::Result<u64> { Ok(u64::from_ne_bytes(call(Request::Level)?)) };
    let deadline_ns = now_ns() + PATIENCE.as_nanos() as u64;
    while schedule.inherits && served_at(call)? != u64::from(level) {
        if now_ns() > deadline_ns {
            let never = format!("calls at fifo:{level} are not served at that");
            return Err(io::Error::new(io::ErrorKind::TimedOut, never));
        }
        thread::sleep(WARM_UP_PERIOD);
    }
    for _ in 0..N_WARM_UP {
        thread::sleep(WARM_UP_PERIOD);
        call_once(call)?;
    }
    Ok(())
}

/// T_CALL and T_RET of one call.
pub fn call_once(call: &mut Call) -> io::Result<[u64; 2]> {
    let before_ns = now_ns();
    let served_ns = u64::from_ne_bytes(call(Request::Time)?);
    let after_ns = now_ns();
    if !(before_ns..=after_ns).contains(&served_ns) {
        let wrong = "the answer is of another call";
        return Err(io::Error::new(io::ErrorKind::InvalidData, wrong));
    }
    Ok([served_ns - before_ns, after_ns - served_ns])
}

fn measure(call: &mut Call, n_calls: u32, mut due_ns: u64, period_ns: u64) -> io::Result<Times> {
    // Written once before, so that no time has a page fault of its own record in it.
    let empty = || {
        let mut times_ns = vec![u64::MAX; n_calls as usize];
        times_ns.clear();
        times_ns
    };
    let mut times = Times { call_ns: empty(), return_ns: empty() };
    for _ in 0..n_calls {
        sleep_until(due_ns);
        let [call_ns, return_ns] = call_once(call)?;
        times.call_ns.push(call_ns);
        times.return_ns.push(return_ns);
        // Times that have passed are left out: a call is not made at once because the one before
        // was late.
        due_ns += period_ns * (1 + now_ns().saturating_sub(due_ns) / period_ns.max(1));
    }
    Ok(times)
}

/// Until a time of CLOCK_MONOTONIC, in nanoseconds.
pub fn sleep_until(due_ns: u64) {
    const SECOND_NS: u64 = 1_000_000_000;
    let due =
        Timespec { tv_sec: (due_ns / SECOND_NS) as i64, tv_nsec: (due_ns % SECOND_NS) as i64 };
    while clock_nanosleep_absolute(ClockId::Monotonic, &due).is_err() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_another_call_is_an_error() {
        let answering =
            |time_ns: fn() -> u64| -> Call { Box::new(move |_| Ok(time_ns().to_ne_bytes())) };
        assert!(call_once(&mut answering(now_ns)).is_ok());
        for wrong in [|| 0, || u64::MAX] {
            assert!(call_once(&mut answering(wrong)).is_err());
        }
    }

    #[test]
    fn no_call_is_made_at_once_because_another_was_late() {
        // Every call takes longer than a period.
        let slow = || -> Call {
            Box::new(|_| {
                thread::sleep(Duration::from_millis(3));
                Ok(now_ns().to_ne_bytes())
            })
        };
        let times = measure(&mut slow(), 4, now_ns(), 2_000_000).unwrap();
        assert_eq!((times.call_ns.len(), times.return_ns.len()), (4, 4));
        assert!(times.call_ns.iter().all(|&time_ns| time_ns >= 3_000_000));
    }
}
