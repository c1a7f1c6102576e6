//! Contexts: what was a device node each, and who manages them.

use super::node::{Node, NodeKey};
use super::{Effect, State};
use crate::limits::Resource;
use baton_abi::control::{MAX_CONTEXT_NAME_BYTES, NodeId, ProcessId, Strength, TicketId};
use rustix::io::Errno;

/// Contexts that every broker has.
pub const CONTEXTS: [&str; 3] = ["binder", "hwbinder", "vndbinder"];

#[derive(Clone, Debug, Default)]
pub(super) struct Context {
    pub manager: Option<NodeKey>,
    /// The first manager's user; it outlives the manager, as in the kernel.
    pub manager_uid: Option<u32>,
}

impl State {
    /// The manager of a process's context.
    pub(super) fn manager_of(&self, process: ProcessId) -> Option<NodeKey> {
        self.contexts[&self.processes[&process].context].manager
    }

    /// Adds a context at the wish of a user. `EPERM` unless it is root or the broker's own,
    /// `EINVAL` for what is no name, `EEXIST`, `ENOSPC`.
    pub fn add_context(&mut self, uid: u32, name: &str) -> Result<(), Errno> {
        if uid != 0 && uid != self.uid {
            return Err(Errno::PERM);
        }
        // The name becomes a file's in the eyes of programs: binderfs refuses the same ones.
        let bad = name.is_empty()
            || name.len() > MAX_CONTEXT_NAME_BYTES
            || name.contains(['/', '\0'])
            || matches!(name, "." | ".." | "binder-control" | "features");
        if bad {
            return Err(Errno::INVAL);
        }
        if self.contexts.contains_key(name) {
            return Err(Errno::EXIST);
        }
        if self.contexts.len() >= self.limits.contexts {
            return Err(Errno::NOSPC);
        }
        self.contexts.insert(name.to_owned(), Context::default());
        Ok(())
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
        if context.manager.is_some() {
            return Err(Errno::BUSY);
        }
        if context.manager_uid.is_some_and(|managed_by| managed_by != uid) {
            return Err(Errno::PERM);
        }
        let key = NodeKey { owner: from, node };
        if !self.nodes.contains_key(&key) {
            self.room(from, Resource::Nodes, 1)?;
            self.charge(from, Resource::Nodes);
        }
        self.nodes.entry(key).or_insert_with(|| Node::new(flags)).is_manager = true;
        let name = &self.processes[&from].context;
        let context = self.contexts.get_mut(name).expect("contexts never go");
        *context = Context { manager: Some(key), manager_uid: Some(uid) };
        Ok(())
    }

    /// A strong grant on the manager's node, for whoever asks.
    pub(super) fn context_manager(
        &mut self,
        from: ProcessId,
        out: &mut Vec<Effect>,
    ) -> Result<TicketId, Errno> {
        let key = self.manager_of(from).ok_or(Errno::SRCH)?;
        if key.owner == from {
            return Err(Errno::INVAL);
        }
        if self.processes[&from].handles.number_of(key).is_none() {
            self.room(from, Resource::Handles, 1)?;
        }
        let granted = self.grant(from, key, Strength::Strong, out);
        Ok(self.send_ticket(ProcessId::BROKER, from, vec![granted], out))
    }
}
