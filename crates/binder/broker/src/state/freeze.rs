//! BINDER_FREEZE: a frozen process gets no two-way transaction, and the broker records attempts.

use super::effect::Effect;
use super::node::NodeKey;
use super::process::Freezer;
use super::tables::State;
use baton_abi::control::{Event, ProcessId, Reply};
use rustix::io::Errno;
use std::collections::BTreeSet;

impl State {
    /// The processes with a pid, as the asker's pid namespace has it, in the asker's context. There
    /// are several when a program opened the device several times.
    pub fn with_pid(&self, asker: ProcessId, pid: u32) -> Vec<ProcessId> {
        let Some(asker) = self.processes.get(&asker) else { return Vec::new() };
        let named = asker.pid_namespace.number().map(|number| (number, pid));
        let all = named.and_then(|named| self.with_pid.get(&named)).into_iter().flatten();
        all.filter(|id| self.processes[id].context == asker.context).copied().collect()
    }

    /// Freezes or thaws the processes with a pid. `EINVAL` if there is none, `EPERM` for another
    /// user's process.
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
            // As in the kernel, a second freeze resets the record of attempts.
            *freezer = frozen.into();
            if was_frozen != frozen {
                out.push(Effect::SetFrozen { process: target, frozen });
                // The target gets the event too and takes in what was sent before.
                let mut told = self.holders_of(target);
                told.extend(self.processes[&target].channels.met());
                // A holder that has not rejoined yet gets the event when it does.
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

    /// The transactions that the processes with a pid received while frozen. `outstanding` stays 0:
    /// the runner reads the value from the status pages.
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

    /// Whether a process is frozen. `EPERM` for a process with which the asker has nothing to do.
    pub(super) fn is_frozen(&self, from: ProcessId, target: ProcessId) -> Result<Reply, Errno> {
        let process = self.processes.get(&target).ok_or(Errno::SRCH)?;
        if !self.may_know(from, target) {
            return Err(Errno::PERM);
        }
        Ok(Reply::Frozen { frozen: process.freezer.is_frozen() })
    }

    /// Whether a process has to do with another: it holds a node of it by the broker's grants, or
    /// has or had a channel with it.
    fn may_know(&self, process: ProcessId, other: ProcessId) -> bool {
        self.holds_node_of(process, other) || self.processes[&process].channels.has_met(other)
    }

    /// Records that a transaction was sent to a frozen process. Ignores askers that have nothing to
    /// do with it, and processes that have thawed since.
    pub(super) fn frozen_touched(&mut self, from: ProcessId, target: ProcessId, two_way: bool) {
        if from != target && !self.may_know(from, target) {
            return;
        }
        if let Some(process) = self.processes.get_mut(&target)
            && let Freezer::Frozen { two_way_received, one_way_received } = &mut process.freezer
        {
            *two_way_received |= two_way;
            *one_way_received |= !two_way;
        }
    }

    /// The processes that hold a node of `owner` by the broker's grants.
    pub(super) fn holders_of(&self, owner: ProcessId) -> BTreeSet<ProcessId> {
        self.nodes_of(owner).flat_map(|key| self.nodes[&key].holders()).collect()
    }

    pub(super) fn nodes_of(&self, owner: ProcessId) -> impl Iterator<Item = NodeKey> {
        self.nodes.range(NodeKey::all_of(owner)).map(|(key, _)| *key)
    }
}
