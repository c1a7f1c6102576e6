//! Contexts are added and removed, and managers found for them.

use super::context::{CONTEXTS, Context, Rule};
use super::effect::Effect;
use super::node::{Node, NodeKey};
use super::tables::State;
use crate::limits::{Limits, Resource};
use baton_abi::control::{NodeId, ProcessId, Strength, TicketId, is_context_name};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};

impl State {
    /// Every context's rule, if one has changed since the last call.
    pub fn changed_rules(&mut self) -> Option<BTreeMap<String, Rule>> {
        if !std::mem::take(&mut self.rules_changed) {
            return None;
        }
        let rule = |(name, context): (&String, &Context)| {
            let manager = context.manager.or_else(|| self.manager_to_rejoin(name));
            let manager = manager.map(|key| (key.owner, key.node));
            let Context { manager_uid, is_removed, .. } = *context;
            (name.clone(), Rule { manager, manager_uid, is_removed })
        };
        Some(self.contexts.iter().map(rule).collect())
    }

    /// The manager of a process's context.
    pub(super) fn manager_of(&self, process: ProcessId) -> Option<NodeKey> {
        self.contexts[&self.processes[&process].context].manager
    }

    /// Adds a context for a user. `EPERM` unless the user is root or the broker's own, `EINVAL` for
    /// an invalid name, `EEXIST`, `ENOSPC` for too many contexts.
    pub fn add_context(&mut self, uid: u32, name: &str) -> Result<(), Errno> {
        self.may_change_contexts(uid)?;
        if !is_context_name(name) {
            return Err(Errno::INVAL);
        }
        match self.contexts.get_mut(name) {
            Some(context) if context.is_removed => context.is_removed = false,
            Some(_) => return Err(Errno::EXIST),
            None => {
                let bytes = name.len() + self.contexts.keys().map(String::len).sum::<usize>();
                let Limits { contexts, context_name_bytes, .. } = self.limits;
                if self.contexts.len() >= contexts || bytes > context_name_bytes {
                    return Err(Errno::NOSPC);
                }
                self.contexts.insert(name.to_owned(), Context::default());
            }
        }
        self.rules_changed = true;
        Ok(())
    }

    /// Removes a context for a user. It goes with the last process in it; until then no process
    /// enters it. `EPERM` unless the user is root or the broker's own, `ENOENT`, `EINVAL` for a
    /// context that every broker has.
    pub(super) fn remove_context(&mut self, uid: u32, name: &str) -> Result<(), Errno> {
        self.may_change_contexts(uid)?;
        if CONTEXTS.contains(&name) {
            return Err(Errno::INVAL);
        }
        let context = self.contexts.get_mut(name).filter(|context| !context.is_removed);
        context.ok_or(Errno::NOENT)?.is_removed = true;
        self.rules_changed = true;
        self.drop_removed_contexts();
        Ok(())
    }

    fn may_change_contexts(&self, uid: u32) -> Result<(), Errno> {
        if uid == 0 || uid == self.uid { Ok(()) } else { Err(Errno::PERM) }
    }

    /// Whether a process may enter a context.
    pub(super) fn has_context(&self, name: &str) -> bool {
        self.contexts.get(name).is_some_and(|context| !context.is_removed)
    }

    /// Drops the removed contexts in which no process is. Processes that may still rejoin are in
    /// one, too.
    pub(super) fn drop_removed_contexts(&mut self) {
        if self.rebuild.is_some() || !self.contexts.values().any(|context| context.is_removed) {
            return;
        }
        let in_use: BTreeSet<&String> = self.processes.values().map(|it| &it.context).collect();
        let before = self.contexts.len();
        self.contexts.retain(|name, context| !context.is_removed || in_use.contains(name));
        self.rules_changed |= self.contexts.len() < before;
    }

    pub(super) fn become_manager(
        &mut self,
        from: ProcessId,
        node: NodeId,
        flags: u32,
    ) -> Result<(), Errno> {
        let process = &self.processes[&from];
        let uid = process.identity.uid;
        let context = &self.contexts[&process.context];
        let key = NodeKey { owner: from, node };
        if context.manager == Some(key) {
            return Ok(()); // The previous broker's reply was lost.
        }
        if context.manager.is_some() || self.manager_to_rejoin(&process.context).is_some() {
            return Err(Errno::BUSY);
        }
        let managed_by_another = context.manager_uid.is_some_and(|managed_by| managed_by != uid);
        if managed_by_another || !process.rights.manages {
            return Err(Errno::PERM);
        }
        if !self.nodes.contains_key(&key) {
            self.check_room(from, Resource::Nodes, 1)?;
            self.charge(from, Resource::Nodes);
        }
        self.nodes.entry(key).or_insert_with(|| Node::new(flags)).is_manager = true;
        let name = &self.processes[&from].context;
        let context = self.contexts.get_mut(name).expect("a process is in it");
        (context.manager, context.manager_uid) = (Some(key), Some(uid));
        self.rules_changed = true;
        Ok(())
    }

    /// Gives the asker a strong grant on its manager's node.
    pub(super) fn context_manager(
        &mut self,
        from: ProcessId,
        out: &mut Vec<Effect>,
    ) -> Result<TicketId, Errno> {
        let key = self.manager_of(from).ok_or(Errno::SRCH)?;
        if key.owner == from {
            return Err(Errno::INVAL);
        }
        if self.processes[&from].grants.get(key).is_none() {
            self.check_room_for_handles(from, from, 1)?;
        }
        let granted = self.grant(from, from, key, Strength::Strong, out);
        Ok(self.send_ticket(ProcessId::BROKER, from, vec![granted], out))
    }
}
