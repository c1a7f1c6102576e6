//! Pid namespaces: a process has a pid of its own in each one that sees it.

use super::process::Process;

/// The pid namespace in which a process lives, as far as the broker can tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PidNamespace {
    /// The broker's own.
    #[default]
    Brokers,
    /// One below the broker's.
    Other {
        /// The kernel's number of the namespace.
        number: u64,
        /// The process's pid there.
        pid: u32,
    },
    /// One that the broker cannot look into.
    Unknown,
}

/// Number of the broker's namespace; the kernel numbers none so.
const BROKERS: u64 = 0;

impl PidNamespace {
    pub(super) fn number(self) -> Option<u64> {
        match self {
            PidNamespace::Brokers => Some(BROKERS),
            PidNamespace::Other { number, .. } => Some(number),
            PidNamespace::Unknown => None,
        }
    }
}

impl Process {
    /// The process's pids that the broker knows, each with the number of its namespace. A process
    /// may have none, so no two processes are one for that.
    pub(super) fn pids(&self) -> impl Iterator<Item = (u64, u32)> + use<> {
        let in_brokers = Some((BROKERS, self.identity.pid)).filter(|(_, pid)| *pid != 0);
        let in_other = match self.pid_namespace {
            PidNamespace::Other { number, pid } => Some((number, pid)),
            PidNamespace::Brokers | PidNamespace::Unknown => None,
        };
        in_brokers.into_iter().chain(in_other)
    }

    /// The process's pid in a namespace, or 0 if that does not see the process.
    pub(super) fn pid_in(&self, namespace: PidNamespace) -> u32 {
        let seen = self.pids().find(|(number, _)| namespace.number() == Some(*number));
        seen.map_or(0, |(_, pid)| pid)
    }
}
