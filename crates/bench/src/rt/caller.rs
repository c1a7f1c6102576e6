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

use crate::child::{forever, say};
use crate::processors;
use crate::service::{Ask, now_ns, sleep_until};
use crate::system::Client;
use baton_rt::schedule::set_priority;
use baton_rt::{SchedPriority, memory};
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::Duration;

/// Calls after the looper has come, until everything is warm.
const N_WARM_UP: u32 = 100;
const WARM_UP_PERIOD: Duration = Duration::from_micros(500);
/// How long a looper may take to come, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(20);
/// A caller uses less of its stack.
pub const STACK_BYTES: usize = 64 << 10;

/// One caller's end.
pub type Call = Box<dyn Client + Send>;

/// A real-time caller.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct CallerSchedule {
    /// Its real-time priority.
    pub level: u8,
    /// Whether it waits until calls are served at its own priority.
    pub inherits: bool,
    /// Where it runs.
    pub cpu: Option<usize>,
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

/// Has ordinary threads, which know no pause, do it for ever. This process is at it once each has
/// done it. An error if one could not.
pub fn for_ever<T: Send + 'static>(
    all: Vec<T>,
    act: fn(&mut T) -> io::Result<()>,
) -> io::Result<()> {
    let (told, done) = mpsc::channel();
    let n_threads = all.len();
    for mut one in all {
        let told = told.clone();
        thread::spawn(move || {
            let first = act(&mut one);
            let failed = first.is_err();
            // Nobody hears of it after the first failure.
            let _ = told.send(first);
            while !failed && act(&mut one).is_ok() {}
        });
    }
    done.iter().take(n_threads).collect::<io::Result<()>>()?;
    say("ready")?;
    forever()
}

/// A thread for each prepares, and acts with its number once `wait` has returned, which is called
/// when all of them have prepared.
pub fn together<C: Send, T: Send>(
    all: Vec<C>,
    prepare: impl Fn(&mut C) -> io::Result<()> + Sync,
    wait: impl FnOnce() -> io::Result<()>,
    act: impl Fn(C, u32) -> io::Result<T> + Sync,
) -> io::Result<Vec<T>> {
    let [prepared, begun] = [(); 2].map(|()| Barrier::new(all.len() + 1));
    thread::scope(|scope| {
        let (prepare, act, prepared, begun) = (&prepare, &act, &prepared, &begun);
        let start = |(mut one, number): (C, u32)| {
            scope.spawn(move || {
                let done = prepare(&mut one);
                // Those that failed have the others go on.
                prepared.wait();
                begun.wait();
                done.and_then(|()| act(one, number))
            })
        };
        let threads: Vec<_> = all.into_iter().zip(0..).map(start).collect();
        prepared.wait();
        let waited = wait();
        begun.wait();
        waited?;
        threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
    })
}

/// A thread for each, at the same priority. They take their turns within the period, and begin once
/// `wait` returns, which is called when all of them are warm.
pub fn call_periodically(
    callers: Vec<Call>,
    schedule: CallerSchedule,
    (n_calls, period_us): (u32, u64),
    wait: impl FnOnce() -> io::Result<()>,
) -> io::Result<Vec<Times>> {
    let n_callers = callers.len() as u64;
    let period_ns = period_us * 1000;
    let prepare = |call: &mut Call| prepare(call, schedule);
    together(callers, prepare, wait, |mut call, number| {
        let offset_ns = period_ns * u64::from(number) / n_callers;
        measure(&mut call, n_calls, now_ns() + period_ns + offset_ns, period_ns)
    })
}

/// Makes the calling thread a real-time one, and its calls warm.
pub fn prepare(call: &mut Call, schedule: CallerSchedule) -> io::Result<()> {
    let level = schedule.level;
    memory::prefault_stack(STACK_BYTES);
    // Before the first call, at which others look where it runs.
    schedule.cpu.map_or(Ok(()), processors::stay_on)?;
    set_priority(SchedPriority::fifo(level), None).map_err(io::Error::other)?;
    let deadline_ns = now_ns() + PATIENCE.as_nanos() as u64;
    while schedule.inherits && ask(call, Ask::Level)? != u64::from(level) {
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

/// A call, and the number that answers it.
pub fn ask(call: &mut Call, what: Ask) -> io::Result<u64> {
    let mut number = None;
    call.call(&what.bytes(), &mut |answer| number = answer.try_into().ok())?;
    number.map(u64::from_ne_bytes).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// T_CALL and T_RET of one call.
pub fn call_once(call: &mut Call) -> io::Result<[u64; 2]> {
    let before_ns = now_ns();
    let served_ns = ask(call, Ask::Time)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Consume;

    /// Answers after a while with a time.
    struct Answering(Duration, fn() -> u64);

    impl Client for Answering {
        fn call(&mut self, _: &[u8], consume: Consume<'_>) -> io::Result<()> {
            let begin_ns = now_ns();
            sleep_until(begin_ns + self.0.as_nanos() as u64);
            consume(&(self.1)().to_ne_bytes());
            Ok(())
        }
    }

    fn answering(after: Duration, time_ns: fn() -> u64) -> Call {
        Box::new(Answering(after, time_ns))
    }

    #[test]
    fn an_answer_of_another_call_is_an_error() {
        assert!(call_once(&mut answering(Duration::ZERO, now_ns)).is_ok());
        for wrong in [|| 0, || u64::MAX] {
            assert!(call_once(&mut answering(Duration::ZERO, wrong)).is_err());
        }
    }

    #[test]
    fn no_call_is_made_at_once_because_another_was_late() {
        // Every call takes longer than a period.
        let mut slow = answering(Duration::from_millis(3), now_ns);
        let times = measure(&mut slow, 4, now_ns(), 2_000_000).unwrap();
        assert_eq!((times.call_ns.len(), times.return_ns.len()), (4, 4));
        assert!(times.call_ns.iter().all(|&time_ns| time_ns >= 3_000_000));
    }
}
