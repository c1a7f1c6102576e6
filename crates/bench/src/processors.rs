//! Which processors the two sides run on.

use baton_rt::schedule::parse_cpus;
use rustix::io::Result;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;

/// How the two sides lie to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    Same,
    Different,
}

impl Placement {
    pub(crate) const BOTH: [Placement; 2] = [Placement::Same, Placement::Different];

    /// How a placement reads in a title; `None` for wherever the kernel likes.
    pub(crate) fn title(placement: Option<Placement>) -> &'static str {
        match placement {
            Some(Placement::Same) => "same processor",
            Some(Placement::Different) => "different processors",
            None => "any processors",
        }
    }
}

/// The processors in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Processors {
    pub client: usize,
    /// The server's, when it has its own; `None` where there is only one.
    pub other: Option<usize>,
}

impl Processors {
    /// Chooses among those that this process may use: the client gets the last one, since the
    /// first takes most of a machine's interrupts; the server one of another core, if there is
    /// one.
    pub fn choose() -> Result<Processors> {
        let allowed = allowed()?;
        let (&client, rest) = allowed.split_last().expect("a thread runs somewhere");
        let siblings = siblings(client);
        let elsewhere = rest.iter().rev().find(|cpu| !siblings.contains(cpu));
        Ok(Processors { client, other: elsewhere.or(rest.last()).copied() })
    }

    /// Where the server goes; `None` if the machine has no such place.
    pub fn server(&self, placement: Placement) -> Option<usize> {
        match placement {
            Placement::Same => Some(self.client),
            Placement::Different => self.other,
        }
    }
}

/// Those that this process may use.
pub fn allowed() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

fn siblings(cpu: usize) -> Vec<usize> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    parse_cpus(&std::fs::read_to_string(path).unwrap_or_default()).unwrap_or_default()
}

/// Binds the calling thread alone to one processor.
pub fn stay_on(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set)
}

/// Binds every thread of this process, and all that they will start, to one processor; or to
/// none, but those that it was started with.
pub fn go_to(cpu: Option<usize>) -> Result<()> {
    static AT_START: OnceLock<CpuSet> = OnceLock::new();
    let at_start = sched_getaffinity(None)?;
    let mut set = *AT_START.get_or_init(|| at_start);
    if let Some(cpu) = cpu {
        set = CpuSet::new();
        set.set(cpu);
    }
    for entry in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let tid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        match sched_setaffinity(tid.and_then(Pid::from_raw), &set) {
            // It ended between the look and the call.
            Err(rustix::io::Errno::SRCH) => {}
            done => done?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_are_allowed_where_they_are_put() {
        let processors = Processors::choose().unwrap();
        let set = sched_getaffinity(None).unwrap();
        assert!(set.is_set(processors.client));
        assert_ne!(processors.other, Some(processors.client));
        assert_eq!(processors.server(Placement::Same), Some(processors.client));
        assert_eq!(processors.server(Placement::Different), processors.other);
    }
}
