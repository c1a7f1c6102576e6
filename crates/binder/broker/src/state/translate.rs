//! Grants a transaction's objects to its receiver: all of them or none.
//!
//! [`State::plan`] checks everything that can be refused. The steps after it cannot fail.

use super::effect::{Effect, Violation};
use super::node::{Node, NodeKey};
use super::tables::State;
use crate::limits::Resource;
use baton_abi::control::{Event, Granted, Object, ProcessId, Strength, TicketId};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::collections::btree_map::Entry;

/// A checked object of a transaction.
enum Step {
    /// The receiver does not own the node. `flags` count if the broker did not know the node.
    Grant { key: NodeKey, strength: Strength, flags: u32 },
    /// The receiver owns the node.
    Return { key: NodeKey, strength: Strength },
}

impl State {
    pub(super) fn translate(
        &mut self,
        from: ProcessId,
        target: ProcessId,
        objects: &[Object],
        out: &mut Vec<Effect>,
    ) -> Result<TicketId, Errno> {
        let steps = self.plan(from, target, objects)?;

        // Point of no return.
        let mut dead_owners = BTreeSet::new();
        let granted = steps
            .into_iter()
            .map(|step| match step {
                Step::Return { key, strength } => Granted::Own { node: key.node, strength },
                Step::Grant { key, strength, flags } => {
                    if !self.processes.contains_key(&key.owner) {
                        dead_owners.insert(key.owner);
                    } else if let Entry::Vacant(unknown) = self.nodes.entry(key) {
                        unknown.insert(Node::new(flags));
                        self.charge(from, Resource::Nodes);
                    }
                    self.grant(from, target, key, strength, out)
                }
            })
            .collect();
        let ticket = self.send_ticket(from, target, granted, out);
        // A handle to a dead node can be passed on, as in the kernel. The receiver may have
        // forgotten the owner's death or never have heard of it.
        for process in dead_owners {
            out.push(Effect::Event { to: target, event: Event::Dead { process } });
        }
        Ok(ticket)
    }

    /// Checks every object of a transaction. `ESRCH` or `EAGAIN` if the target is gone or may
    /// rejoin, `EPERM` without a channel, `ENOSPC` for too many objects, `EINVAL` for a handle that
    /// the sender does not have.
    fn plan(
        &self,
        from: ProcessId,
        target: ProcessId,
        objects: &[Object],
    ) -> Result<Vec<Step>, Errno> {
        let sender = &self.processes[&from];
        let receiver = self.processes.get(&target).ok_or_else(|| self.absence_errno(target))?;
        if !sender.channels.is_connected_to(target) {
            // Perhaps only one of the two has claimed their channel so far.
            let may_connect = !self.is_rejoin_over() && target.era() < self.era();
            return Err(if may_connect { Errno::AGAIN } else { Errno::PERM });
        }
        if objects.len() > self.limits.objects_per_ticket {
            return Err(Errno::NOSPC);
        }
        let mut steps = Vec::with_capacity(objects.len());
        let (mut new_handles, mut new_nodes) = (BTreeSet::new(), BTreeSet::new());
        for object in objects {
            let (key, strength, flags) = match *object {
                Object::Node { node, strength, flags } => {
                    (NodeKey { owner: from, node }, strength, flags)
                }
                Object::Handle { handle, strength } => {
                    let handle = sender.handles.get(handle).ok_or(Errno::INVAL)?;
                    if strength == Strength::Strong && handle.strong_grants == 0 {
                        return Err(Errno::INVAL);
                    }
                    self.check_owner(handle.key)?;
                    (handle.key, strength, 0)
                }
            };
            if key.owner == target {
                steps.push(Step::Return { key, strength });
                continue;
            }
            if receiver.handles.number_of(key).is_none() {
                new_handles.insert(key);
            }
            if !self.nodes.contains_key(&key) {
                new_nodes.insert(key);
            }
            steps.push(Step::Grant { key, strength, flags });
        }
        self.check_room_for_handles(from, target, new_handles.len())?;
        self.check_room(from, Resource::Nodes, new_nodes.len())?;
        Ok(steps)
    }

    /// Adds a grant on a known node for a process that has room for it.
    pub(super) fn grant(
        &mut self,
        from: ProcessId,
        to: ProcessId,
        key: NodeKey,
        strength: Strength,
        out: &mut Vec<Effect>,
    ) -> Granted {
        let Node { flags, is_manager, .. } = self.nodes[&key];
        let giver = self.processes[&from].identity.uid;
        let handles = &mut self.processes.get_mut(&to).expect("receiver is alive").handles;
        let is_new = handles.number_of(key).is_none();
        let handle = handles.grant(key, strength, is_manager, giver);
        let holding = handles.get(handle).and_then(|handle| handle.holding());
        if is_new {
            self.charge_handle(to, giver);
        }
        self.set_holding(key, to, holding, out);
        Granted::Handle { handle, owner: key.owner, node: key.node, strength, flags }
    }

    /// Sends a ticket for granted objects to their receiver.
    pub(super) fn send_ticket(
        &mut self,
        from: ProcessId,
        to: ProcessId,
        objects: Vec<Granted>,
        out: &mut Vec<Effect>,
    ) -> TicketId {
        self.last_ticket += 1;
        let ticket = TicketId(self.last_ticket);
        out.push(Effect::Event { to, event: Event::Ticket { from, ticket, objects } });
        ticket
    }

    /// Forwards a cancellation. The broker keeps no record of tickets: the grants already belong to
    /// the target, which knows whether the ticket was still unclaimed. Without a channel to the
    /// target nothing is forwarded: the target, which may have closed the channel just now, has
    /// given the grants back with it.
    pub(super) fn cancel_ticket(
        &mut self,
        from: ProcessId,
        target: ProcessId,
        ticket: TicketId,
        out: &mut Vec<Effect>,
    ) {
        if self.processes[&from].channels.is_connected_to(target) {
            out.push(Effect::Event { to: target, event: Event::TicketCancelled { from, ticket } });
        }
    }

    /// Takes back grants that a process returns, and disconnects it if it had fewer.
    pub(super) fn release(
        &mut self,
        from: ProcessId,
        handle: u32,
        strong: u32,
        grants: u32,
        out: &mut Vec<Effect>,
    ) {
        let process = self.processes.get_mut(&from).expect("the asker is alive");
        match process.handles.release(handle, strong, grants) {
            Ok(left) => {
                if left.grants == 0 {
                    self.refund_handle(from, left.giver);
                }
                self.set_holding(left.key, from, left.holding(), out);
            }
            Err(_) => {
                let why = Violation::OverReturn { handle };
                out.push(Effect::Disconnect { process: from, why });
            }
        }
    }

    /// Sets what a process holds of a node, tells the owner, and removes the node with its last
    /// holder. No other function changes holders of live owners' nodes.
    pub(super) fn set_holding(
        &mut self,
        key: NodeKey,
        holder: ProcessId,
        holding: Option<Strength>,
        out: &mut Vec<Effect>,
    ) {
        let node = self.nodes.get_mut(&key).expect("a node outlives its holders");
        let changed = node.set(holder, holding);
        let after = node.summary();
        let is_forgotten = !after.held && !node.is_manager;
        if is_forgotten {
            self.nodes.remove(&key);
        }
        if !self.processes.contains_key(&key.owner) {
            return;
        }
        if is_forgotten {
            self.refund(key.owner, Resource::Nodes, 1);
        }
        if changed {
            let event = Event::References {
                node: key.node,
                strong: after.strong,
                held: after.held,
                holder: (holder, holding),
            };
            out.push(Effect::Event { to: key.owner, event });
        }
    }
}
