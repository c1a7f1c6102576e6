//! Introductions: a holder passes nodes of third processes to the receiver of a transaction, all of
//! them or none.
//!
//! [`State::plan`] checks everything that can be refused. The steps after it cannot fail.

use super::effect::{Effect, Violation};
use super::holder_lists::HolderLists;
use super::node::{Node, NodeKey};
use super::tables::State;
use crate::limits::Resource;
use baton_abi::control::{
    Event, Granted, HeldNode, NodeId, ProcessId, Released, Strength, TicketId,
};
use rustix::io::Errno;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// A checked object of a transaction.
enum Step {
    /// The sender holds the node. `flags` count if the broker did not know the node.
    Grant { key: NodeKey, strength: Strength, flags: u32 },
    /// The owner is dead. The receiver gets a handle to its node, as in the kernel.
    Dead { key: NodeKey, strength: Strength },
    /// The sender does not hold the node, or its owner denies it.
    Denied { strength: Strength },
}

impl State {
    pub(super) fn introduce(
        &mut self,
        from: ProcessId,
        target: ProcessId,
        objects: &[HeldNode],
        lists: &dyn HolderLists,
        out: &mut Vec<Effect>,
    ) -> Result<TicketId, Errno> {
        let steps = self.plan(from, target, objects, lists)?;

        // Point of no return.
        let mut dead_owners = BTreeSet::new();
        let granted = steps
            .into_iter()
            .map(|step| match step {
                Step::Grant { key, strength, flags } => {
                    if let Entry::Vacant(unknown) = self.nodes.entry(key) {
                        unknown.insert(Node::new(flags));
                        self.charge(key.owner, Resource::Nodes);
                    }
                    self.grant(from, target, key, strength, out)
                }
                Step::Dead { key, strength } => {
                    dead_owners.insert(key.owner);
                    dead(key, strength)
                }
                Step::Denied { strength } => {
                    dead_owners.insert(ProcessId::BROKER);
                    dead(self.new_dead_node(), strength)
                }
            })
            .collect();
        let ticket = self.send_ticket(from, target, granted, out);
        // The receiver may have forgotten the owner's death or never have heard of it.
        for process in dead_owners {
            out.push(Effect::Event { to: target, event: Event::Dead { process } });
        }
        Ok(ticket)
    }

    /// Checks every object of a transaction. `ESRCH` or `EAGAIN` if the target is gone or may
    /// rejoin, `EPERM` without a channel, `ENOSPC` for too many objects, `EINVAL` for a node of one
    /// of the two, `EAGAIN` for a node whose owner may rejoin.
    fn plan(
        &self,
        from: ProcessId,
        target: ProcessId,
        objects: &[HeldNode],
        lists: &dyn HolderLists,
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
        let (mut new_grants, mut new_nodes) = (BTreeSet::new(), BTreeSet::new());
        for &HeldNode { owner, node, strength, entry } in objects {
            let key = NodeKey { owner, node };
            if owner == from || owner == target {
                return Err(Errno::INVAL);
            }
            if !self.processes.contains_key(&owner) {
                if self.may_rejoin(owner) {
                    return Err(Errno::AGAIN);
                }
                // No process may be told of the death of one that is yet to come.
                let existed = owner.0 <= self.last_process;
                steps.push(match existed {
                    true => Step::Dead { key, strength },
                    false => Step::Denied { strength },
                });
                continue;
            }
            let Some(flags) = self.flags_if_held(lists, from, key, strength, entry) else {
                steps.push(Step::Denied { strength });
                continue;
            };
            if receiver.grants.get(key).is_none() {
                new_grants.insert(key);
            }
            if !self.nodes.contains_key(&key) {
                new_nodes.insert(key);
            }
            steps.push(Step::Grant { key, strength, flags });
        }
        self.check_room_for_handles(from, target, new_grants.len())?;
        let mut by_owner = BTreeMap::new();
        for key in new_nodes {
            *by_owner.entry(key.owner).or_default() += 1;
        }
        self.check_room_for_nodes(&by_owner)?;
        Ok(steps)
    }

    /// The flags of a node, if a process holds it this strongly: by the broker's book, or by the
    /// owner's list.
    fn flags_if_held(
        &self,
        lists: &dyn HolderLists,
        holder: ProcessId,
        key: NodeKey,
        strength: Strength,
        entry: Option<u32>,
    ) -> Option<u32> {
        let known = self.nodes.get(&key);
        let suffices = |most| most == Strength::Strong || strength == Strength::Weak;
        if let Some(node) = known.filter(|node| node.held_by(holder).is_some_and(suffices)) {
            return Some(node.flags);
        }
        let listed = self.listed(lists, holder, key.owner, entry)?;
        let holds = listed.node == key.node && suffices(listed.strength);
        holds.then(|| known.map_or(listed.flags, |node| node.flags))
    }

    /// Adds a grant on a known node of a living owner for a process that has room for it.
    pub(super) fn grant(
        &mut self,
        from: ProcessId,
        to: ProcessId,
        key: NodeKey,
        strength: Strength,
        out: &mut Vec<Effect>,
    ) -> Granted {
        let giver = self.processes[&from].identity.uid;
        let grants = &mut self.processes.get_mut(&to).expect("receiver is alive").grants;
        let is_new = grants.get(key).is_none();
        let holding = grants.grant(key, strength, giver).holding();
        if is_new {
            self.charge_handle(to, giver);
        }
        self.set_holding(key, to, holding, out);
        let (flags, manages) = (self.nodes[&key].flags, self.manager_of(to) == Some(key));
        Granted { owner: key.owner, node: key.node, strength, flags, manages }
    }

    /// Names a node that is dead and that no process ever had.
    fn new_dead_node(&mut self) -> NodeKey {
        self.last_dead_node += 1;
        NodeKey { owner: ProcessId::BROKER, node: NodeId(self.last_dead_node) }
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

    /// Takes back grants that a process returns, and disconnects it if it had fewer. Grants on a
    /// dead owner's node went with the owner, so a return that crossed the death has no effect.
    pub(super) fn release(
        &mut self,
        from: ProcessId,
        &Released { owner, node, strong, grants }: &Released,
        out: &mut Vec<Effect>,
    ) -> Result<(), Violation> {
        let key = NodeKey { owner, node };
        if !self.processes.contains_key(&owner) && !self.may_rejoin(owner) {
            return Ok(());
        }
        let process = self.processes.get_mut(&from).expect("the asker is alive");
        let left = process.grants.release(key, strong, grants);
        if let Some(left) = left.map_err(|_| Violation::OverReturn { owner, node })? {
            if left.grants == 0 {
                self.refund_handle(from, left.giver);
            }
            self.set_holding(key, from, left.holding(), out);
        }
        Ok(())
    }

    /// Sets what a process holds of a node by the broker's grants, tells the owner, and removes the
    /// node with its last holder. No other function changes holders of living owners' nodes.
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

    /// Removes a node of an owner that is dead, with every grant on it.
    pub(super) fn remove_node(&mut self, key: NodeKey) {
        let Some(node) = self.nodes.remove(&key) else { return };
        for holder in node.holders() {
            self.void_grants(key, holder);
        }
    }

    /// Removes a process's grants on a node from its book.
    pub(super) fn void_grants(&mut self, key: NodeKey, holder: ProcessId) {
        // A holder that has not rejoined has no book.
        let Some(process) = self.processes.get_mut(&holder) else { return };
        if let Some(grant) = process.grants.remove(key) {
            self.refund_handle(holder, grant.giver);
        }
    }
}

/// A node that is dead at its receiver. Nothing is booked.
fn dead(NodeKey { owner, node }: NodeKey, strength: Strength) -> Granted {
    Granted { owner, node, strength, flags: 0, manages: false }
}
