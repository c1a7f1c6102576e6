//! One opened device as the broker sees it.

use super::channel::Channels;
use super::grant::Grants;
use crate::limits::{Rights, Usage};
use baton_abi::control::{CallReport, Identity, ProcessId};
use baton_abi::quota::Quota;
use std::collections::BTreeSet;

#[derive(Clone, Debug)]
pub(super) struct Process {
    pub identity: Identity,
    /// Name of the context that the process opened. Contexts are never removed.
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

/// What a process has told of its calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum CallsTold {
    /// Nobody has asked.
    #[default]
    Nothing,
    /// It has been asked, and owes the answer.
    Owed,
    /// Its answer.
    Told(Vec<CallReport>),
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
