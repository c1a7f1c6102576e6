//! Decides whether all consequences of a step are over.
//!
//! Every task is probed twice. The tasks are still if each is asleep in both probes and has not run
//! in between: both probes of every task surround one instant, and at that instant no task ran or
//! was about to. Timers are handled by [`crate::crew::Crew::await_stillness`].

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// A task of the system, probed through /proc.
#[derive(Debug)]
pub struct Probe {
    state: File,
    runs: File,
    /// The `syscall` file of a process's thread, which shows that the thread is off its processor.
    call: Option<File>,
}

/// The result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// The task sleeps, and has run on a processor this many times.
    Asleep(u64),
    /// The task runs or is about to, or waits for an event that comes by itself.
    Awake,
    /// The task has ended.
    Gone,
}

impl Probe {
    /// A thread of a process.
    pub fn thread(pid: u32, tid: u32) -> Option<Probe> {
        let directory = format!("/proc/{pid}/task/{tid}");
        let call = File::open(format!("{directory}/syscall")).ok()?;
        Some(Probe { call: Some(call), ..Probe::worker(&directory)? })
    }

    fn worker(directory: &str) -> Option<Probe> {
        let open = |name: &str| File::open(format!("{directory}/{name}")).ok();
        Some(Probe { state: open("stat")?, runs: open("schedstat")?, call: None })
    }

    /// The first probe: the number of runs, then the state.
    pub fn before(&self) -> Look {
        let runs = self.runs();
        self.look(runs)
    }

    /// The second probe: the state, then the number of runs.
    pub fn after(&self) -> Look {
        match self.look(Some(0)) {
            Look::Asleep(_) => self.runs().map_or(Look::Gone, Look::Asleep),
            other => other,
        }
    }

    fn look(&self, runs: Option<u64>) -> Look {
        let mut text = [0; 256];
        let (Some(runs), Some(state)) = (runs, read(&self.state, &mut text)) else {
            return Look::Gone;
        };
        let end = state.iter().rposition(|byte| *byte == b')').unwrap_or(0);
        if !matches!(state.get(end + 2), Some(b'I' | b'S')) {
            return Look::Awake;
        }
        let Some(call) = &self.call else { return Look::Asleep(runs) };
        match read(call, &mut text) {
            None => Look::Gone,
            Some(call) if call.starts_with(b"running") || has_timer(call) => Look::Awake,
            Some(_) => Look::Asleep(runs),
        }
    }

    fn runs(&self) -> Option<u64> {
        let mut text = [0; 80];
        std::str::from_utf8(read(&self.runs, &mut text)?)
            .ok()?
            .split_whitespace()
            .nth(2)?
            .parse()
            .ok()
    }
}

/// Whether a line of /proc/.../syscall shows a futex wait with a timeout. The thread will act by
/// itself later, and a signal may find it between two sleeps.
fn has_timer(call: &[u8]) -> bool {
    let call = String::from_utf8_lossy(call);
    let mut words = call.split_whitespace();
    let is_futex = words.next() == Some(&libc::SYS_futex.to_string());
    let mut arguments = words.map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16));
    let (_, operation, _, timeout) =
        (arguments.next(), arguments.next(), arguments.next(), arguments.next());
    let waits = |operation: u64| {
        matches!(
            operation as i32 & libc::FUTEX_CMD_MASK,
            libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET
        )
    };
    is_futex
        && matches!(operation, Some(Ok(operation)) if waits(operation))
        && matches!(timeout, Some(Ok(timeout)) if timeout != 0)
}

fn read<'a>(file: &File, text: &'a mut [u8]) -> Option<&'a [u8]> {
    let n = file.read_at(text, 0).ok()?;
    Some(&text[..n]).filter(|text| !text.is_empty())
}

/// The results of all probes, if all tasks were asleep at one instant. Tasks that have ended count
/// as asleep.
pub fn all_asleep<'a>(probes: impl Iterator<Item = &'a Probe> + Clone) -> Option<Vec<Look>> {
    let mut before = Vec::new();
    for probe in probes.clone() {
        match probe.before() {
            Look::Awake => return None,
            look => before.push(look),
        }
    }
    let is_as_before =
        |(probe, before): (&Probe, &Look)| probe.after() == *before || *before == Look::Gone;
    probes.zip(&before).all(is_as_before).then_some(before)
}

/// The threads of a process.
pub fn threads_of(pid: u32) -> Vec<u32> {
    numbers(&format!("/proc/{pid}/task"))
}

/// The kernel's workers, which finish the closing of descriptors.
pub fn workers() -> Vec<Probe> {
    let is_worker = |tid: &u32| {
        fs::read(format!("/proc/{tid}/comm")).is_ok_and(|name| name.starts_with(b"kworker"))
    };
    let all = numbers("/proc").into_iter().filter(is_worker);
    all.filter_map(|tid| Probe::worker(&format!("/proc/{tid}"))).collect()
}

fn numbers(directory: &str) -> Vec<u32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_with_a_timer_is_no_rest() {
        let futex = libc::SYS_futex;
        let line =
            |rest: &str| format!("{futex} 0x7f00 {rest} 0x0 0x0 0x7ffe 0x7f01\n").into_bytes();
        assert!(has_timer(&line("0x0 0x2 0x7ffd10")));
        assert!(has_timer(&line("0x80 0x2 0x7ffd10")));
        assert!(!has_timer(&line("0x0 0x2 0x0")));
        assert!(!has_timer(&line("0x1 0x2 0x7ffd10")), "a wake has a number there");
        assert!(!has_timer(b"16 0x3 0xc0306201 0x7ffd10 0x1 0x0 0x0 0x7ffe 0x7f01"));
        assert!(!has_timer(b"running"));
    }
}
