//! Accounts: the parts of the amounts for all that each user has.

use crate::limits::{Limits, Resource, Rights};
use baton_abi::quota::Quota;
use std::collections::{BTreeMap, BTreeSet};

/// The parts of the amounts for all that each user has.
#[derive(Clone, Debug)]
pub(super) struct Accounts {
    all: [Quota; Resource::ALL.len()],
    /// Handles of each user's processes, by the users that gave them.
    pub handles_received: BTreeMap<u32, Quota>,
    /// Rights that the configuration gave to each user's last process.
    pub rights: BTreeMap<u32, Rights>,
}

impl Accounts {
    pub fn new(limits: &Limits) -> Accounts {
        let all = Resource::ALL.map(|resource| Quota::new(limits.all.of(resource).into()));
        Accounts { all, handles_received: BTreeMap::new(), rights: BTreeMap::new() }
    }

    pub fn of(&self, resource: Resource) -> &Quota {
        &self.all[resource as usize]
    }

    pub fn take(&mut self, resource: Resource, user: u32, amount: u32) {
        self.all[resource as usize].take(user, amount.into());
    }

    pub fn give_back(&mut self, resource: Resource, user: u32, amount: u32) {
        self.all[resource as usize].give_back(user, amount.into());
    }

    /// Books one more process of a user.
    pub fn open(&mut self, user: u32, rights: Rights) {
        self.take(Resource::Processes, user, 1);
        self.rights.insert(user, rights);
    }

    /// Rights that the configuration gave to the user's last process.
    pub fn rights(&self, user: u32) -> Rights {
        self.rights.get(&user).copied().unwrap_or_default()
    }

    pub fn is_empty(&self) -> bool {
        self.all.iter().all(|quota| quota.taken() == 0)
            && self.handles_received.is_empty()
            && self.rights.is_empty()
    }

    /// Users that have at least one resource.
    pub fn users(&self) -> BTreeSet<u32> {
        self.all.iter().flat_map(Quota::users).collect()
    }
}
