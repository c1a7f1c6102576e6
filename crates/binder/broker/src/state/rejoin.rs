//! Engines of a broker that died rejoin the next one, which rebuilds its state from their claims.
//!
//! ```text
//!                readmit             claim ..., rejoin
//!   (credential) -------> Joining ----------------------> Process
//!                            |
//!                            | end_rejoin: the time is over
//!                            v
//!                       disconnected; processes that have not rejoined are dead
//! ```
//!
//! No engine is trusted in a claim from which it would gain. An owner says who holds its nodes, a
//! holder says what it holds, and only claims on which both agree are true:
//!
//! - The owner rejoined first: its node lists the holders at once, so that the owner is told of no
//!   premature loss. The broker awaits these holders. When a holder rejoins, the broker finds it in
//!   the node's list, or denies the grants.
//! - The holder rejoined first: the node in its book has an absent owner. The holder can return
//!   such grants but neither pass them on nor use them. When the owner rejoins, it confirms or
//!   denies them.
//!
//! Denied grants are void and leave the holder's book. At the end the broker treats absent
//! processes as dead, and nothing is left of their nodes.
//!
//! Grants that an owner gave itself are no concern of the broker's, and are not claimed.

use super::claims::{ChannelClaim, Claims, Joining, OwnerClaim, Rebuild};
use super::context::Rule;
use super::effect::{Effect, Violation};
use super::grant::Grant;
use super::lane::LaneId;
use super::node::{Node, NodeKey, Summary};
use super::pid_namespace::PidNamespace;
use super::tables::State;
use crate::limits::{Limits, Resource, Rights};
use baton_abi::claim::first_of;
use baton_abi::control::{ChannelId, Event, Identity, NodeId, ProcessId, Request, Strength};
use baton_abi::lane::LANES;
use rustix::io::Errno;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

impl State {
    /// The state of the next broker at a socket. Engines of the previous broker may rejoin until
    /// [`State::end_rejoin`].
    pub fn succeed(limits: Limits, uid: u32, era: u32, rules: BTreeMap<String, Rule>) -> State {
        let mut state = State::new(limits, uid);
        let first = first_of(era);
        (state.era, state.last_process) = (era, first);
        (state.last_channel, state.last_ticket, state.last_dead_node) = (first, first, first);
        let mut rebuild = Rebuild::default();
        for (name, rule) in rules {
            if let Some((owner, node)) = rule.manager {
                rebuild.managers.insert(name.clone(), NodeKey { owner, node });
            }
            let context = state.contexts.entry(name).or_default();
            (context.manager_uid, context.is_removed) = (rule.manager_uid, rule.is_removed);
        }
        state.rebuild = Some(rebuild);
        state
    }

    /// Number of this broker among those at its socket, from 0.
    pub fn era(&self) -> u32 {
        self.era
    }

    /// Whether no engine of a previous broker can rejoin any more.
    pub fn is_rejoin_over(&self) -> bool {
        self.rebuild.is_none()
    }

    /// Readmits a process of a previous broker, after the runner has checked its credential. The
    /// process has nothing until it has made its claims. Errors:
    ///
    /// - `EKEYREJECTED`: the id is no previous broker's.
    /// - `EBUSY`: the process has already rejoined.
    /// - `ETIME`: the time is over, or the process rejoined and died.
    /// - `ENOENT`, `EDQUOT`: like at its first admission.
    pub fn readmit(
        &mut self,
        identity: Identity,
        pid_namespace: PidNamespace,
        rights: Rights,
        context: &str,
        channels: u32,
        frozen: bool,
    ) -> Result<(), Errno> {
        let id = identity.process;
        if id.era() >= self.era {
            return Err(Errno::KEYREJECTED);
        }
        let known = self.processes.contains_key(&id) || self.is_joining(id);
        if self.rebuild.as_ref().is_none_or(|rebuild| rebuild.died_again.contains(&id)) {
            return Err(Errno::TIME);
        }
        if known {
            return Err(Errno::BUSY);
        }
        if !self.contexts.contains_key(context) {
            return Err(Errno::NOENT);
        }
        let rights = self.rights(identity.uid, rights);
        let quota_class = self.quota_class(&rights, Resource::Processes);
        let all = self.accounts.of(Resource::Processes);
        all.check_return(identity.uid, quota_class, 1).map_err(|_| Errno::DQUOT)?;
        self.accounts.open(identity.uid, rights);
        let mut process = self.new_process(identity, context, rights, channels);
        (process.pid_namespace, process.freezer) = (pid_namespace, frozen.into());
        let rebuild = self.rebuild.as_mut().expect("just seen");
        rebuild.joining.insert(id, Joining { process, claims: Vec::new() });
        Ok(())
    }

    /// Ends the time for rejoining: absent processes are dead.
    pub fn end_rejoin(&mut self, out: &mut Vec<Effect>) {
        let Some(rebuild) = self.rebuild.take() else { return };
        for (process, late) in rebuild.joining {
            self.close_account(&late.process);
            out.push(Effect::Disconnect { process, why: Violation::Claims });
        }
        for (to, absent_peers) in rebuild.absent_peers {
            for process in absent_peers {
                if self.processes.contains_key(&to) && !self.processes.contains_key(&process) {
                    out.push(Effect::Event { to, event: Event::Dead { process } });
                }
            }
        }
        for (holder, keys) in rebuild.awaited {
            for key in keys {
                self.set_holding(key, holder, None, out);
            }
        }
        let orphaned = |key: &&NodeKey| !self.processes.contains_key(&key.owner);
        let orphaned: Vec<NodeKey> = self.nodes.keys().filter(orphaned).copied().collect();
        orphaned.into_iter().for_each(|key| self.remove_node(key));
        self.rules_changed |= !rebuild.managers.is_empty();
        self.drop_removed_contexts();
    }

    pub(super) fn is_joining(&self, process: ProcessId) -> bool {
        self.rebuild.as_ref().is_some_and(|rebuild| rebuild.joining.contains_key(&process))
    }

    /// The errno for a process that is not here: `EAGAIN` if it may rejoin, `ESRCH` if it is dead.
    pub(super) fn absence_errno(&self, process: ProcessId) -> Errno {
        // The broker does not tell which processes of its predecessors are dead.
        let is_old = process.era() < self.era && process != ProcessId::BROKER;
        if is_old && self.rebuild.is_some() { Errno::AGAIN } else { Errno::SRCH }
    }

    /// Whether a process that is not here may rejoin. One that has rejoined and died may not.
    pub(super) fn may_rejoin(&self, process: ProcessId) -> bool {
        let is_old = process.era() < self.era && process != ProcessId::BROKER;
        let may = |rebuild: &Rebuild| is_old && !rebuild.died_again.contains(&process);
        self.rebuild.as_ref().is_some_and(may)
    }

    /// Whether a process is not here, and may rejoin.
    pub fn is_awaited(&self, process: ProcessId) -> bool {
        self.may_rejoin(process) && !self.processes.contains_key(&process)
    }

    /// A context's manager under the previous broker, while its process may rejoin.
    pub(super) fn manager_to_rejoin(&self, context: &str) -> Option<NodeKey> {
        self.rebuild.as_ref()?.managers.get(context).copied()
    }

    /// The process that managed this process's context under the previous broker, while it may
    /// rejoin.
    pub fn awaited_manager(&self, process: ProcessId) -> Option<ProcessId> {
        let context = &self.processes.get(&process)?.context;
        self.manager_to_rejoin(context).map(|manager| manager.owner)
    }

    /// Lets a process's context have another manager: the awaited one has ended.
    pub fn forget_awaited_manager(&mut self, process: ProcessId) {
        let Some(process) = self.processes.get(&process) else { return };
        if let Some(rebuild) = &mut self.rebuild {
            rebuild.managers.remove(&process.context);
        }
    }

    /// Records that a process which may not rejoin is dead, and that the processes in `told` are
    /// being told so now.
    pub(super) fn note_second_death(&mut self, process: ProcessId, told: &BTreeSet<ProcessId>) {
        let Some(rebuild) = &mut self.rebuild else { return };
        if process.era() < self.era {
            rebuild.died_again.insert(process);
        }
        for to in told {
            if let Entry::Occupied(mut absent_peers) = rebuild.absent_peers.entry(*to) {
                absent_peers.get_mut().remove(&process);
                if absent_peers.get().is_empty() {
                    absent_peers.remove();
                }
            }
        }
    }

    /// Drops the open claims of a process that is gone.
    pub(super) fn forget_claims(&mut self, process: ProcessId) {
        let Some(rebuild) = &mut self.rebuild else { return };
        rebuild.absent_peers.remove(&process);
        rebuild.channels.retain(|(claimant, _)| *claimant != process);
        rebuild.ended_lanes.retain(|(claimant, _), _| *claimant != process);
        if let Some(joining) = rebuild.joining.remove(&process) {
            self.close_account(&joining.process);
        }
    }

    /// Handles a request of a joining process, and disconnects it for any other than claims.
    pub(super) fn claim_or_rejoin(
        &mut self,
        from: ProcessId,
        request: Request,
        out: &mut Vec<Effect>,
    ) {
        let rebuild = self.rebuild.as_mut().expect("somebody is joining");
        let joining = rebuild.joining.get_mut(&from).expect("it is joining");
        let done = match request {
            Request::Claim { claims } => {
                joining.claims.extend(claims);
                joining.claims.len() <= self.limits.claims
            }
            Request::Rejoin { manages } => self.rejoin(from, &manages, out).is_some(),
            _ => false,
        };
        if !done {
            out.push(Effect::Disconnect { process: from, why: Violation::Claims });
        }
    }

    /// Turns a joining process into a process that has what it claimed. `None` if its claims are
    /// impossible: the process is then still joining, or has nothing.
    fn rejoin(
        &mut self,
        from: ProcessId,
        manages: &[(NodeId, u32)],
        out: &mut Vec<Effect>,
    ) -> Option<()> {
        let joining = self.rebuild.as_mut()?.joining.get_mut(&from)?;
        let user = joining.process.identity.uid;
        let claims = std::mem::take(&mut joining.claims);
        let claims = Claims::check(from, user, self.era, claims)?;
        let joining = self.rebuild.as_mut()?.joining.remove(&from)?;
        let context = joining.process.context.clone();
        self.add_process(joining.process);
        self.check_room_to_return(from, Resource::Handles, claims.grants.len()).ok()?;
        let unheld = self.manager_to_rejoin(&context).filter(|manager| {
            let returns = manages.iter().any(|(node, _)| *node == manager.node);
            manager.owner == from && returns && !claims.nodes.contains_key(&manager.node)
        });
        let n_nodes = claims.nodes.len() + usize::from(unheld.is_some());
        self.check_room_to_return(from, Resource::Nodes, n_nodes).ok()?;
        self.return_nodes(from, &claims.nodes, out);
        self.return_manager(from, &context, manages);
        for _ in 0..self.nodes_of(from).count() {
            self.charge(from, Resource::Nodes);
        }
        self.return_grants(from, claims.grants, out);
        for claim in claims.channels {
            self.return_channel(from, claim, out);
        }
        self.return_peers(from, claims.peers);
        Some(())
    }

    /// Applies a process's claims of others with which it had to do, and the earlier claims of
    /// others: each claimant is told of the other's death.
    fn return_peers(&mut self, from: ProcessId, peers: BTreeSet<ProcessId>) {
        let rebuild = self.rebuild.as_mut().expect("somebody has come back");
        let claimants = rebuild.watchers.remove(&from).unwrap_or_default();
        self.processes.get_mut(&from).expect("it is here").watchers.extend(claimants);
        peers.into_iter().for_each(|peer| self.watch(from, peer));
    }

    /// The process is told of the peer's death, here or absent.
    fn watch(&mut self, from: ProcessId, peer: ProcessId) {
        if let Some(peer) = self.processes.get_mut(&peer) {
            peer.watchers.insert(from);
        } else if let Some(rebuild) = &mut self.rebuild {
            rebuild.add_absent_peer(from, peer);
            rebuild.watchers.entry(peer).or_default().insert(from);
        }
    }

    /// Applies an owner's claims about its nodes: confirms or denies earlier claims of holders, and
    /// awaits the absent holders.
    fn return_nodes(
        &mut self,
        owner: ProcessId,
        owner_claims: &BTreeMap<NodeId, OwnerClaim>,
        out: &mut Vec<Effect>,
    ) {
        let alleged: Vec<NodeKey> = self.nodes_of(owner).collect();
        for key in alleged {
            let claim = owner_claims.get(&key.node);
            let holders: Vec<ProcessId> = self.nodes[&key].holders().collect();
            for holder in holders {
                let strength = self.nodes[&key].held_by(holder);
                if claim.is_some_and(|claim| claim.confirms(holder, strength)) {
                    self.tell_frozen(owner, holder, out);
                } else {
                    self.deny(key, holder, out);
                }
            }
        }
        for (&node, claim) in owner_claims {
            self.return_node(NodeKey { owner, node }, claim, out);
        }
    }

    /// Applies an owner's claims about one node, and tells the owner which holders it has lost.
    fn return_node(&mut self, key: NodeKey, claim: &OwnerClaim, out: &mut Vec<Effect>) {
        let node = self.nodes.entry(key).or_insert_with(|| Node::new(claim.flags));
        node.flags = claim.flags;
        let most = if claim.strong { Strength::Strong } else { Strength::Weak };
        let rebuild = self.rebuild.as_mut().expect("somebody has come back");
        let mut lost = Vec::new();
        for &holder in &claim.holders {
            if let Some(holding) = node.held_by(holder) {
                if holding != most {
                    lost.push((holder, Some(holding)));
                }
                continue;
            }
            if self.processes.contains_key(&holder) {
                lost.push((holder, None));
                continue;
            }
            node.set(holder, Some(most));
            rebuild.awaited.entry(holder).or_default().insert(key);
            rebuild.add_absent_peer(key.owner, holder);
        }
        let Summary { strong, held } = node.summary();
        if !held {
            self.nodes.remove(&key);
        }
        for holder in lost {
            let event = Event::References { node: key.node, strong, held, holder };
            out.push(Effect::Event { to: key.owner, event });
        }
    }

    /// Restores the manager if the previous broker's record and the owner's own claim agree.
    fn return_manager(&mut self, from: ProcessId, context: &str, manages: &[(NodeId, u32)]) {
        let rebuild = self.rebuild.as_mut().expect("somebody has come back");
        let managed = match rebuild.managers.get(context) {
            Some(manager) if manager.owner == from => rebuild.managers.remove(context),
            _ => return,
        };
        self.rules_changed = true;
        let Some(key) = managed else { return };
        if let Some(&(_, flags)) = manages.iter().find(|(node, _)| *node == key.node) {
            self.nodes.entry(key).or_insert_with(|| Node::new(flags)).is_manager = true;
            let context = self.contexts.get_mut(context).expect("a process is in it");
            context.manager = Some(key);
        }
    }

    /// Applies a holder's claims about its grants: awaited ones are confirmed, others denied or
    /// left open.
    fn return_grants(
        &mut self,
        from: ProcessId,
        grants: BTreeMap<NodeKey, Grant>,
        out: &mut Vec<Effect>,
    ) {
        let rebuild = self.rebuild.as_mut().expect("somebody has come back");
        let mut awaited = rebuild.awaited.remove(&from).unwrap_or_default();
        let mut owners = BTreeSet::new();
        for (key, grant) in grants {
            let strength = grant.holding();
            if !self.processes.contains_key(&key.owner) {
                self.nodes.entry(key).or_insert_with(|| Node::new(0));
                self.rebuild.as_mut().expect("as before").add_absent_peer(from, key.owner);
            } else if awaited.contains(&key) && self.owner_confirms(key, from, strength) {
                owners.insert(key.owner);
            } else {
                self.tell_denied(key, from, out);
                continue;
            }
            awaited.remove(&key);
            self.processes.get_mut(&from).expect("it is here").grants.adopt(key, grant);
            self.charge_handle(from, grant.giver);
            self.set_holding(key, from, strength, out);
        }
        for key in awaited {
            self.set_holding(key, from, None, out);
        }
        for owner in owners {
            self.tell_frozen(owner, from, out);
        }
    }

    /// Whether the owner of a node, which has rejoined, says that `holder` holds it this strongly.
    fn owner_confirms(&self, key: NodeKey, holder: ProcessId, strength: Option<Strength>) -> bool {
        let most = self.nodes.get(&key).and_then(|node| node.held_by(holder));
        most == Some(Strength::Strong) || most.is_some() && strength != Some(Strength::Strong)
    }

    /// Restores a channel if the other end has claimed it, otherwise records the claim.
    fn return_channel(&mut self, from: ProcessId, claim: ChannelClaim, out: &mut Vec<Effect>) {
        let ChannelClaim { channel, peer, is_server } = claim;
        let theirs = ChannelClaim { channel, peer: from, is_server: !is_server };
        let rebuild = self.rebuild.as_mut().expect("somebody has come back");
        if !rebuild.channels.remove(&(peer, theirs)) {
            rebuild.channels.insert((from, claim));
            // A peer that does not claim it has not taken it up, or has lost it.
            self.watch(from, peer);
            return;
        }
        let (client, server) = if is_server { (peer, from) } else { (from, peer) };
        let ended = rebuild.ended_lanes.remove(&(client, channel)).unwrap_or(0);
        // Two channels with one id: both pairs lie.
        let is_new = |id| self.processes[id].channels.get(channel).is_none();
        if ![client, server].iter().all(is_new) {
            return;
        }
        // A channel over the limit stays open between its ends but gives no right to send tickets.
        if self.has_room_to_reconnect(client, server) {
            self.add_channel(channel, client, server);
        }
        for (at, peer) in [(client, server), (server, client)] {
            self.channels_of(at).meet(peer);
            self.tell_frozen(peer, at, out);
        }
        for lane in (0..LANES as u32).filter(|lane| ended >> lane & 1 == 1) {
            let event = Event::OrdinaryLane { channel, lane };
            out.push(Effect::Event { to: server, event });
        }
    }

    /// Records that a lane of a channel is ordinary again whose server may still claim the channel.
    pub(super) fn note_ended_lane(&mut self, client: ProcessId, (channel, lane): LaneId) {
        let Some(rebuild) = &mut self.rebuild else { return };
        let claim = |peer| (client, ChannelClaim { channel, peer, is_server: false });
        let mut of_channel =
            rebuild.channels.range(claim(ProcessId(0))..=claim(ProcessId(u64::MAX)));
        if of_channel.any(|(_, claim)| !claim.is_server) {
            *rebuild.ended_lanes.entry((client, channel)).or_default() |= 1 << lane;
        }
    }

    /// Drops the claim of a channel that the claimant has closed before its peer claimed it.
    pub(super) fn forget_channel_claim(&mut self, claimant: ProcessId, channel: ChannelId) {
        let Some(rebuild) = &mut self.rebuild else { return };
        let of_claimant =
            |&&(id, claim): &&(ProcessId, ChannelClaim)| id == claimant && claim.channel == channel;
        let ended: Vec<_> = rebuild.channels.iter().filter(of_claimant).copied().collect();
        ended.iter().for_each(|claim| _ = rebuild.channels.remove(claim));
        rebuild.ended_lanes.remove(&(claimant, channel));
    }

    /// Drops the claims of a removed owner about holders that are absent.
    pub(super) fn forget_awaited(&mut self, key: NodeKey) {
        let Some(rebuild) = &mut self.rebuild else { return };
        let node = self.nodes.get_mut(&key).expect("it has an owner");
        let absent: Vec<ProcessId> =
            node.holders().filter(|holder| !self.processes.contains_key(holder)).collect();
        for holder in absent {
            node.set(holder, None);
            if let Entry::Occupied(mut awaited) = rebuild.awaited.entry(holder) {
                awaited.get_mut().remove(&key);
                if awaited.get().is_empty() {
                    awaited.remove();
                }
            }
        }
    }

    /// Denies the grants of a holder that rejoined first: it was never given the node.
    fn deny(&mut self, key: NodeKey, holder: ProcessId, out: &mut Vec<Effect>) {
        let node = self.nodes.get_mut(&key).expect("it has a holder");
        node.set(holder, None);
        if !node.summary().held {
            self.nodes.remove(&key);
        }
        self.void_grants(key, holder);
        self.tell_denied(key, holder, out);
    }

    /// Tells a holder that its grants on a node are void.
    fn tell_denied(&mut self, key: NodeKey, holder: ProcessId, out: &mut Vec<Effect>) {
        self.processes.get_mut(&holder).expect("it has rejoined").grants.note_denial();
        let NodeKey { owner, node } = key;
        out.push(Effect::Event { to: holder, event: Event::Denied { owner, node } });
    }

    /// Tells a holder whether an owner is frozen, because the holder may have missed a change.
    fn tell_frozen(&self, owner: ProcessId, holder: ProcessId, out: &mut Vec<Effect>) {
        let frozen = self.processes[&owner].freezer.is_frozen();
        out.push(Effect::Event { to: holder, event: Event::Frozen { process: owner, frozen } });
    }
}
