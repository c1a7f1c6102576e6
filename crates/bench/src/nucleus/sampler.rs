//! Where time goes, by sampling (Greenaway 2007, section 4.5): a timer's signal notes which
//! instruction it has interrupted, and `addr2line` says afterwards whose that is, inlined functions
//! included.
//!
//! What the system does for the program counts as the program's.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::io::{self, Write};
use std::process::{Command, Stdio};
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
    let mut counts = HashMap::<usize, usize>::new();
    for sample in &SAMPLES[..n] {
        *counts.entry(sample.load(Relaxed)).or_default() += 1;
    }
    classify(&counts, n)
}

/// Where this program begins in memory.
fn base() -> io::Result<usize> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let program = std::env::current_exe()?;
    let line = maps.lines().find(|line| line.ends_with(&*program.to_string_lossy()));
    let start = line.and_then(|line| line.split('-').next());
    let start = start.and_then(|start| usize::from_str_radix(start, 16).ok());
    start.ok_or_else(|| io::Error::other("this program is not in its own memory map"))
}

fn classify(counts: &HashMap<usize, usize>, n: usize) -> io::Result<Shares> {
    let base = base()?;
    let mut child = Command::new("addr2line")
        .args(["-a", "-i", "-f", "-C", "-e"])
        .arg(std::env::current_exe()?)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| io::Error::other(format!("addr2line: {error}")))?;
    let addresses: Vec<(usize, usize)> =
        counts.iter().map(|(&address, &count)| (address.wrapping_sub(base), count)).collect();
    let text: String = addresses.iter().map(|(address, _)| format!("{address:#x}\n")).collect();
    let mut input = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let writing = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = child.wait_with_output()?;
    writing.join().map_err(|_| io::Error::other("the writer has panicked"))??;
    let output = String::from_utf8_lossy(&output.stdout);
    let (mut ipc, mut scheduler) = (0, 0);
    // Each answer begins with its address.
    for (answer, (_, count)) in output.split("0x").skip(1).zip(&addresses) {
        match part(answer) {
            Part::Ipc => ipc += count,
            Part::Scheduler => scheduler += count,
            Part::Other => {}
        }
    }
    let share = |count: usize| count as f64 / n.max(1) as f64;
    Ok(Shares { ipc: share(ipc), scheduler: share(scheduler), n })
}

#[derive(Debug, PartialEq, Eq)]
enum Part {
    Ipc,
    Scheduler,
    Other,
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
