//! Limits at work: what a process may have of its own table, and its user of the amount for all.
//!
//! A process takes a resource for itself, and its user pays. A handle is a node of which the
//! broker's book has grants. It is different, because another process gives it. A handle takes from
//! three amounts, two of them at the giver's cost:
//!
//! ```text
//!   all handles                     by the user whose process has the handle
//!   handles of the receiver's user  by the user that gave it
//!   the receiver's handle table     by the user that gave it
//! ```

use super::process::Process;
use super::tables::State;
use crate::limits::{Resource, Rights};
use baton_abi::control::ProcessId;
use baton_abi::quota::{Quota, QuotaClass, STRANGER};
use rustix::io::Errno;
use std::collections::BTreeMap;

/// The class in which the giver's user takes from the receiver's amounts.
fn quota_class_between(giver: &Process, receiver: &Process) -> QuotaClass {
    let at_home = giver.identity.uid == receiver.identity.uid || giver.rights.reserve;
    if at_home { QuotaClass::Owner } else { STRANGER }
}

impl State {
    /// The rights of a process: the configuration's, and the reserve for root and the broker's own
    /// user.
    pub(super) fn rights(&self, uid: u32, configured: Rights) -> Rights {
        let reserve = configured.reserve || uid == 0 || uid == self.uid;
        Rights { reserve, ..configured }
    }

    /// The class in which a user with these rights takes from the amount for all.
    pub(super) fn quota_class(&self, rights: &Rights, resource: Resource) -> QuotaClass {
        if rights.reserve {
            return QuotaClass::Owner;
        }
        let most = self.limits.user.of(resource).min(rights.most.of(resource));
        QuotaClass::Stranger { most: most.into() }
    }

    /// Checks whether a live process may have `more` of a resource.
    pub(super) fn check_room(
        &self,
        process: ProcessId,
        resource: Resource,
        more: usize,
    ) -> Result<(), Errno> {
        let process = &self.processes[&process];
        let (over_process, over_user) = match resource {
            Resource::Processes => (Errno::DQUOT, Errno::DQUOT),
            Resource::Handles => (Errno::MFILE, Errno::DQUOT),
            Resource::Nodes => (Errno::NOSPC, Errno::DQUOT),
            Resource::Channels => (Errno::MFILE, Errno::MFILE),
        };
        let its = process.usage.of(resource) as usize;
        if more > 0 && its + more > self.limits.process.of(resource) as usize {
            return Err(over_process);
        }
        let quota_class = self.quota_class(&process.rights, resource);
        let all = self.accounts.of(resource);
        all.check(process.identity.uid, quota_class, more as u64).map_err(|_| over_user)
    }

    /// Checks whether live processes may have so many more nodes in the broker's book, all of them
    /// together.
    pub(super) fn check_room_for_nodes(
        &self,
        more: &BTreeMap<ProcessId, usize>,
    ) -> Result<(), Errno> {
        for (&owner, &count) in more {
            self.check_room(owner, Resource::Nodes, count)?;
        }
        if more.len() < 2 {
            return Ok(());
        }
        let mut all = self.accounts.of(Resource::Nodes).clone();
        for (owner, &count) in more {
            let Process { identity, rights, .. } = &self.processes[owner];
            let quota_class = self.quota_class(rights, Resource::Nodes);
            let checked = all.check(identity.uid, quota_class, count as u64);
            checked.map_err(|_| Errno::DQUOT)?;
            all.take(identity.uid, count as u64);
        }
        Ok(())
    }

    /// Checks whether a live process may give another one, or itself, `more` new handles.
    pub(super) fn check_room_for_handles(
        &self,
        giver: ProcessId,
        receiver: ProcessId,
        more: usize,
    ) -> Result<(), Errno> {
        let (from, to) = (&self.processes[&giver], &self.processes[&receiver]);
        let (user, quota_class) = (from.identity.uid, quota_class_between(from, to));
        let table = to.handles_given.check(user, quota_class, more as u64);
        table.map_err(|_| Errno::MFILE)?;
        self.check_room(receiver, Resource::Handles, more)?;
        let received = self.accounts.handles_received.get(&to.identity.uid);
        let nothing = Quota::new(self.limits.handles_received.into());
        let received = received.unwrap_or(&nothing).check(user, quota_class, more as u64);
        received.map_err(|_| Errno::DQUOT)
    }

    /// Checks whether a server has room for one more channel of a client.
    pub(super) fn check_room_at_server(
        &self,
        client: ProcessId,
        server: ProcessId,
    ) -> Result<(), Errno> {
        let (client, server) = (&self.processes[&client], &self.processes[&server]);
        let quota_class = quota_class_between(client, server);
        server.served.check(client.identity.uid, quota_class, 1).map_err(|_| Errno::MFILE)
    }

    /// Checks whether a rejoining process may have the `count` resources that it claims. Only its
    /// own and its user's limits apply. Errors: `ENOSPC` above the process's limit, `EDQUOT` above
    /// its user's.
    pub(super) fn check_room_to_return(
        &self,
        process: ProcessId,
        resource: Resource,
        count: usize,
    ) -> Result<(), Errno> {
        let process = &self.processes[&process];
        let user = process.identity.uid;
        if count > self.limits.process.of(resource) as usize {
            return Err(Errno::NOSPC);
        }
        let quota_class = self.quota_class(&process.rights, resource);
        let all = self.accounts.of(resource).check_return(user, quota_class, count as u64);
        if resource == Resource::Handles
            && let Some(received) = self.accounts.handles_received.get(&user)
        {
            let received = received.check_return(user, QuotaClass::Owner, count as u64);
            received.map_err(|_| Errno::DQUOT)?;
        }
        all.map_err(|_| Errno::DQUOT)
    }

    /// Whether a client and its server may have a channel that both claim.
    pub(super) fn has_room_to_reconnect(&self, client: ProcessId, server: ProcessId) -> bool {
        let (client, server) = (&self.processes[&client], &self.processes[&server]);
        let (user, all) = (client.identity.uid, self.accounts.of(Resource::Channels));
        let quota_class = self.quota_class(&client.rights, Resource::Channels);
        let with = quota_class_between(client, server);
        all.check_return(user, quota_class, 1).is_ok()
            && server.served.check_return(user, with, 1).is_ok()
    }

    pub(super) fn charge(&mut self, process: ProcessId, resource: Resource) {
        let process = self.processes.get_mut(&process).expect("only the living are charged");
        *process.usage.of_mut(resource) += 1;
        self.accounts.take(resource, process.identity.uid, 1);
    }

    pub(super) fn refund(&mut self, process: ProcessId, resource: Resource, count: u32) {
        let process = self.processes.get_mut(&process).expect("only the living are refunded");
        *process.usage.of_mut(resource) -= count;
        self.accounts.give_back(resource, process.identity.uid, count);
    }

    /// Books one more handle of a process, given by a process of user `giver`.
    pub(super) fn charge_handle(&mut self, process: ProcessId, giver: u32) {
        self.charge(process, Resource::Handles);
        let process = self.processes.get_mut(&process).expect("it is charged");
        process.handles_given.take(giver, 1);
        let most = self.limits.handles_received.into();
        let received = self.accounts.handles_received.entry(process.identity.uid);
        received.or_insert_with(|| Quota::new(most)).take(giver, 1);
    }

    pub(super) fn refund_handle(&mut self, process: ProcessId, giver: u32) {
        self.refund(process, Resource::Handles, 1);
        let process = self.processes.get_mut(&process).expect("it is refunded");
        process.handles_given.give_back(giver, 1);
        let user = process.identity.uid;
        self.return_received(user, giver, 1);
    }

    fn return_received(&mut self, user: u32, giver: u32, count: u64) {
        let received = self.accounts.handles_received.get_mut(&user);
        let received = received.expect("a handle was received by its user");
        received.give_back(giver, count);
        if received.taken() == 0 {
            self.accounts.handles_received.remove(&user);
        }
    }

    /// Number of handles and nodes that a process has.
    pub fn holdings(&self, process: ProcessId) -> u64 {
        let usage = self.processes.get(&process).map(|process| process.usage);
        usage.map_or(0, |usage| u64::from(usage.handles) + u64::from(usage.nodes))
    }

    /// Takes everything that a process used off its user's account.
    pub(super) fn close_account(&mut self, process: &Process) {
        let user = process.identity.uid;
        for resource in Resource::ALL {
            self.accounts.give_back(resource, user, process.usage.of(resource));
        }
        let givers: Vec<u32> = process.handles_given.users().collect();
        for giver in givers {
            self.return_received(user, giver, process.handles_given.of(giver));
        }
        if self.accounts.of(Resource::Processes).of(user) == 0 {
            self.accounts.rights.remove(&user);
        }
    }
}
