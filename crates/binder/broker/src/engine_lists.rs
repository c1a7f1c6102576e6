//! The engines' holder lists as the state reads them, and the cost of reading.

use crate::connection::{Connection, Role};
use crate::poll::ConnectionId;
use crate::state::{HolderList, HolderLists};
use crate::status_pages::StatusPages;
use baton_abi::control::ProcessId;
use baton_abi::holder_list::Holding;
use std::cell::Cell;
use std::collections::BTreeMap;

/// Number of entries of a list that cost as much as a plain request.
const ENTRIES_FOR_ONE: usize = 1024;

/// The holder lists of the engines that are connected, during one request.
pub(crate) struct EngineLists<'a> {
    connections: &'a BTreeMap<ConnectionId, Connection>,
    engines: &'a BTreeMap<ProcessId, ConnectionId>,
    n_read: Cell<usize>,
}

impl<'a> EngineLists<'a> {
    pub fn of(
        connections: &'a BTreeMap<ConnectionId, Connection>,
        engines: &'a BTreeMap<ProcessId, ConnectionId>,
    ) -> EngineLists<'a> {
        EngineLists { connections, engines, n_read: Cell::new(0) }
    }

    /// The cost of all that has been read.
    pub fn cost(&self) -> u64 {
        (self.n_read.get() / ENTRIES_FOR_ONE) as u64
    }

    fn pages(&self, owner: ProcessId) -> Option<&StatusPages> {
        match &self.connections.get(self.engines.get(&owner)?)?.role {
            Role::Engine(engine) => Some(&engine.pages),
            Role::Ungreeted | Role::Observer => None,
        }
    }
}

impl HolderLists for EngineLists<'_> {
    fn entry(&self, owner: ProcessId, entry: u32) -> Option<Holding> {
        self.pages(owner)?.holding(entry)
    }

    fn all(&self, owner: ProcessId) -> HolderList {
        let list = self.pages(owner).map(StatusPages::holdings).unwrap_or_default();
        self.n_read.set(self.n_read.get() + list.n_read);
        list
    }
}
