//! One opened device as the broker sees it.

use super::channel::Channels;
use super::grant::Grants;
use super::pid_namespace::{BROKERS, PidNamespace};
use crate::limits::{Rights, Usage};
use baton_abi::control::{CallReport, Identity, ProcessId};
use baton_abi::quota::Quota;
use std::collections::BTreeSet;

#[derive(Clone, Debug)]
pub(super) struct Process {
    /// With the pid in the broker's namespace, or 0.
    pub identity: Identity,
    pub pid_namespace: PidNamespace,
    /// Name of the context that the process opened. The context stays as long.
    pub context: String,
    pub grants: Grants,
    pub channels: Channels,
    /// Processes that have claimed to have to do with this one, and are told of its death.
    pub watchers: BTreeSet<ProcessId>,
    pub freezer: Freezer,
    pub usage: Usage,
    /// Rights that the configuration gives to the process.
    pub rights: Rights,
    /// The nodes in `grants`, by the users that gave their first grants.
    pub handles_given: Quota,
    /// The process's channels as server, by the clients' users.
    pub served: Quota,
    pub calls: CallsTold,
}

/// A process's description of its calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum CallsTold {
    /// No observer has asked.
    #[default]
    Nothing,
    /// The process has been asked, and owes the answer.
    Owed,
    /// The process's answer.
    Told(Vec<CallReport>),
}

impl Process {
    /// The process's pids that the broker knows, each with the number of its namespace. A process
    /// may have none, so no two processes are one for that.
    pub fn pids(&self) -> impl Iterator<Item = (u64, u32)> + use<> {
        let in_brokers = Some((BROKERS, self.identity.pid)).filter(|(_, pid)| *pid != 0);
        let in_other = match self.pid_namespace {
            PidNamespace::Other { number, pid } => Some((number, pid)),
            PidNamespace::Brokers | PidNamespace::Unknown => None,
        };
        in_brokers.into_iter().chain(in_other)
    }

    /// The process's pid in a namespace, or 0 if that does not see the process.
    pub fn pid_in(&self, namespace: PidNamespace) -> u32 {
        let seen = self.pids().find(|(number, _)| namespace.number() == Some(*number));
        seen.map_or(0, |(_, pid)| pid)
    }
}

/// Whether a process is frozen, and which transactions it was sent meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Freezer {
    #[default]
    Thawed,
    Frozen {
        two_way_received: bool,
        one_way_received: bool,
    },
}

impl From<bool> for Freezer {
    /// A freezer that has recorded no transaction.
    fn from(frozen: bool) -> Freezer {
        match frozen {
            true => Freezer::Frozen { two_way_received: false, one_way_received: false },
            false => Freezer::Thawed,
        }
    }
}

impl Freezer {
    pub fn is_frozen(self) -> bool {
        matches!(self, Freezer::Frozen { .. })
    }
}
