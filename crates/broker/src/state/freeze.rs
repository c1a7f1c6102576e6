//! BINDER_FREEZE: a frozen process gets no two-way transaction, and whoever tried is remembered.

use super::node::NodeKey;
use super::{Effect, State};
use baton_abi::control::{Event, NodeId, ProcessId, Reply};
use rustix::io::Errno;
use std::collections::BTreeSet;

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
    /// Nothing has come since.
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

impl State {
    /// The processes of the asker's context with a pid. A pid has several when a program opened
    /// the device more than once.
    pub fn with_pid(&self, asker: ProcessId, pid: u32) -> Vec<ProcessId> {
        let Some(asker) = self.processes.get(&asker) else { return Vec::new() };
        let all = self.with_pid.get(&pid).into_iter().flatten();
        all.filter(|id| self.processes[id].context == asker.context).copied().collect()
    }

    pub(super) fn freeze(
        &mut self,
        from: ProcessId,
        pid: u32,
        frozen: bool,
        out: &mut Vec<Effect>,
    ) -> Result<Reply, Errno> {
        let uid = self.processes[&from].identity.uid;
        let targets = self.with_pid(from, pid);
        if targets.is_empty() {
            return Err(Errno::INVAL);
        }
        if uid != 0 && targets.iter().any(|target| self.processes[target].identity.uid != uid) {
            return Err(Errno::PERM);
        }
        for target in targets {
            let freezer = &mut self.processes.get_mut(&target).expect("just found").freezer;
            let was_frozen = freezer.is_frozen();
            // As in the kernel, a second freeze forgets what came since the first.
            *freezer = frozen.into();
            if was_frozen != frozen {
                out.push(Effect::SetFrozen { process: target, frozen });
                // The target hears of it too: it takes in what was sent before.
                let mut told = self.holders_of(target);
                // Whoever comes back hears of it then.
                told.retain(|holder| self.processes.contains_key(holder));
                told.insert(target);
                for to in told {
                    let event = Event::Frozen { process: target, frozen };
                    out.push(Effect::Event { to, event });
                }
            }
        }
        self.frozen_info(from, pid)
    }

    /// `outstanding` is left 0: only the front pages know, and the runner reads them.
    pub(super) fn frozen_info(&self, from: ProcessId, pid: u32) -> Result<Reply, Errno> {
        let targets = self.with_pid(from, pid);
        if targets.is_empty() {
            return Err(Errno::INVAL);
        }
        let mut received = (false, false);
        for target in targets {
            if let Freezer::Frozen { two_way_received, one_way_received } =
                self.processes[&target].freezer
            {
                received = (received.0 | two_way_received, received.1 | one_way_received);
            }
        }
        Ok(Reply::Freeze {
            outstanding: 0,
            two_way_received: received.0,
            one_way_received: received.1,
        })
    }

    pub(super) fn is_frozen(&self, from: ProcessId, target: ProcessId) -> Result<Reply, Errno> {
        let process = self.processes.get(&target).ok_or(Errno::SRCH)?;
        if !self.holds_of(from, target) {
            return Err(Errno::PERM);
        }
        Ok(Reply::Frozen { frozen: process.freezer.is_frozen() })
    }

    /// Says nothing if the asker has nothing to do with the target, or it thawed meanwhile.
    pub(super) fn frozen_touched(&mut self, from: ProcessId, target: ProcessId, two_way: bool) {
        let connected = from == target || self.processes[&from].channels.connects(target);
        if !connected && !self.holds_of(from, target) {
            return;
        }
        if let Some(process) = self.processes.get_mut(&target)
            && let Freezer::Frozen { two_way_received, one_way_received } = &mut process.freezer
        {
            *two_way_received |= two_way;
            *one_way_received |= !two_way;
        }
    }

    /// Everybody who has a handle to a node of a process.
    pub(super) fn holders_of(&self, owner: ProcessId) -> BTreeSet<ProcessId> {
        self.nodes_of(owner).flat_map(|key| self.nodes[&key].holders()).collect()
    }

    pub(super) fn nodes_of(&self, owner: ProcessId) -> impl Iterator<Item = NodeKey> {
        let first = NodeKey { owner, node: NodeId(0) };
        let last = NodeKey { owner, node: NodeId(u64::MAX) };
        self.nodes.range(first..=last).map(|(key, _)| *key)
    }
}
