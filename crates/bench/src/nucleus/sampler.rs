//! Where time goes, by sampling (Greenaway 2007, section 4.5): a timer's signal notes which
//! instruction it has interrupted, and the program's debug information says afterwards whose that
//! is, inlined functions included.
//!
//! What the system does for the program counts as the program's.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const PERIOD_NS: i64 = 97_000;
const N_SAMPLES: usize = 1 << 16;

static N_TAKEN: AtomicUsize = AtomicUsize::new(0);
static SAMPLES: [AtomicUsize; N_SAMPLES] = [const { AtomicUsize::new(0) }; N_SAMPLES];

/// The kernel's share of samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shares {
    /// In the IPC path, and the ways into the kernel and out of it.
    pub ipc: f64,
    /// In the scheduler and its queue.
    pub scheduler: f64,
    pub n: usize,
}

extern "C" fn note(_signal: c_int, _info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the context of this handler.
    let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
    #[cfg(target_arch = "x86_64")]
    let address = registers.gregs[libc::REG_RIP as usize] as usize;
    #[cfg(target_arch = "aarch64")]
    let address = registers.pc as usize;
    let taken = N_TAKEN.fetch_add(1, Relaxed);
    if let Some(place) = SAMPLES.get(taken) {
        place.store(address, Relaxed);
    }
}

/// A timer that samples this OS thread, as long as this lives.
struct Sampling(libc::timer_t);

impl Sampling {
    fn start() -> io::Result<Sampling> {
        N_TAKEN.store(0, Relaxed);
        let mut timer = std::ptr::null_mut();
        // SAFETY: all zeroes is a value of these C structures; pointers are to variables of ours.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = note as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigaction(libc::SIGPROF, &action, std::ptr::null_mut());
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = libc::SIGPROF;
            event.sigev_notify_thread_id = libc::gettid();
            if libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer) != 0 {
                return Err(io::Error::last_os_error());
            }
            let period = libc::timespec { tv_sec: 0, tv_nsec: PERIOD_NS };
            let value = libc::itimerspec { it_interval: period, it_value: period };
            libc::timer_settime(timer, 0, &value, std::ptr::null_mut());
        }
        Ok(Sampling(timer))
    }
}

impl Drop for Sampling {
    fn drop(&mut self) {
        // SAFETY: created by `start`. A signal that is still to come is handled all the same.
        unsafe { libc::timer_delete(self.0) };
    }
}

/// Does something, and says where it spent its time.
pub fn shares(act: impl FnOnce() -> io::Result<()>) -> io::Result<Shares> {
    let sampling = Sampling::start()?;
    act()?;
    drop(sampling);
    let n = N_TAKEN.load(Relaxed).min(N_SAMPLES);
    let mut parts = HashMap::<usize, Part>::new();
    let of = |sample: &AtomicUsize| {
        let address = sample.load(Relaxed);
        *parts.entry(address).or_insert_with(|| part(&functions(address)))
    };
    let of_all: Vec<Part> = SAMPLES[..n].iter().map(of).collect();
    let share = |part| of_all.iter().filter(|it| **it == part).count() as f64 / n.max(1) as f64;
    Ok(Shares { ipc: share(Part::Ipc), scheduler: share(Part::Scheduler), n })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Ipc,
    Scheduler,
    Other,
}

/// The functions and files that an instruction is of, inlined functions first.
fn functions(address: usize) -> String {
    let mut functions = String::new();
    // What is looked up is an address to return to, which is behind its instruction.
    backtrace::resolve((address + 1) as *mut c_void, |symbol| {
        functions += &format!("{:?} {:?}\n", symbol.name(), symbol.filename());
    });
    functions
}

/// Whose an instruction is, by the functions that it is inlined in.
fn part(answer: &str) -> Part {
    let is_in = |words: &[&str]| words.iter().any(|word| answer.contains(word));
    if is_in(&["state/scheduler.rs", "state/open.rs", "src/ready_queue.rs", "state::scheduler"]) {
        Part::Scheduler
    } else if is_in(&[
        "nucleus/src/state",
        "nucleus/src/kernel.rs",
        "nucleus/src/switch",
        "baton_nucleus::switch",
        "baton_nucleus::state",
        "baton_nucleus::kernel",
    ]) {
        Part::Ipc
    } else {
        Part::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_is_its_innermost_part_of_the_kernel() {
        for (answer, expected) in [
            (
                "1f\nindex\n/b/nucleus/src/tcb.rs:3\nrun\n/b/nucleus/src/state/\
                 scheduler.rs:9\nenter\n/b/nucleus/src/kernel.rs:1\n",
                Part::Scheduler,
            ),
            ("1f\nenter\n/b/nucleus/src/kernel.rs:1\n", Part::Ipc),
            ("1f\nbaton_nucleus::switch::x86_64::leave\n??:0\n", Part::Ipc),
            ("1f\nsort\n/rustc/library/core/src/slice/sort.rs:1\n", Part::Other),
        ] {
            assert_eq!(part(answer), expected, "{answer}");
        }
    }
}
