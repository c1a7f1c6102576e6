//! Engines of a broker that died come back, and the truth is rebuilt from what they say.
//!
//! ```text
//!             readmit                 claim ...           rejoin
//!   (credential) ------------> Joining -----------------------------------> Process
//!                           |               settle: the time is over      |
//!                           +--> disconnected          whoever is not here is dead
//! ```
//!
//! Nobody is believed in what would be a gain. An owner says who holds its nodes, a holder says
//! what it holds, and only what both say is true:
//!
//! - The owner came first: its holders stand in the node at once, so that it is told of no loss
//!   before its time, and are awaited. A holder that comes finds its name there, or is denied.
//! - The holder came first: it has a handle to a node whose owner is not there. Such a handle can
//!   be returned, and neither passed on nor used. The owner that comes confirms or denies it.
//!
//! What is left at the end goes the way of the dead. A denied handle stays with its holder, for
//! its program has the number, as that of a node that never lives.

use super::handle::Handle;
use super::node::{Node, NodeKey, Summary};
use super::process::Process;
use super::{Effect, Rule, State, Violation};
use crate::limits::{Limits, Resource, Rights};
use baton_abi::claim::{Claim, era_of, first_of};
use baton_abi::control::{ChannelId, End, Event, Identity, NodeId, ProcessId, Request, Strength};
use rustix::io::Errno;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// What is not yet known to be true.
#[derive(Clone, Debug, Default)]
pub(super) struct Rebuild {
    joining: BTreeMap<ProcessId, Joining>,
    /// Holders that owners have named and that are not here yet.
    awaited: BTreeMap<ProcessId, BTreeSet<NodeKey>>,
    /// Channels that one end has claimed, by that end.
    channels: BTreeSet<(ProcessId, ChannelClaim)>,
    /// For each who is here, the others that it had to do with and that were not.
    missed: BTreeMap<ProcessId, BTreeSet<ProcessId>>,
    /// Who came back and has gone again: others know of its death.
    gone_again: BTreeSet<ProcessId>,
    /// Who managed what, and is not here yet.
    managers: BTreeMap<String, NodeKey>,
}

impl Rebuild {
    pub fn is_empty(&self) -> bool {
        self.joining.is_empty() && self.channels.is_empty() && self.missed.is_empty()
    }

    fn miss(&mut self, who: ProcessId, whom: ProcessId) {
        self.missed.entry(who).or_default().insert(whom);
    }
}

#[derive(Clone, Debug)]
struct Joining {
    process: Process,
    claims: Vec<Claim>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ChannelClaim {
    channel: ChannelId,
    peer: ProcessId,
    is_server: bool,
}

/// One node in its owner's words.
#[derive(Clone, Debug, Default)]
struct Vouch {
    flags: u32,
    strong: bool,
    holders: BTreeSet<ProcessId>,
}

impl Vouch {
    fn confirms(&self, holder: ProcessId, strength: Option<Strength>) -> bool {
        self.holders.contains(&holder) && (self.strong || strength != Some(Strength::Strong))
    }
}

/// A process's claims, each of which could be true.
#[derive(Debug, Default)]
struct Claims {
    nodes: BTreeMap<NodeId, Vouch>,
    handles: BTreeMap<u32, Handle>,
    channels: BTreeSet<ChannelClaim>,
}

impl Claims {
    /// `None` if they contradict themselves, or name what no predecessor can have named. Who gave
    /// a handle nobody knows any more: from here on it is the holder's own user.
    fn sort(
        of: ProcessId,
        giver: u32,
        era: u32,
        limits: &Limits,
        claims: Vec<Claim>,
    ) -> Option<Claims> {
        let mut sorted = Claims::default();
        for claim in claims {
            let fits = match claim {
                Claim::Node { node, flags, strong, holder } => {
                    let vouch = sorted.nodes.entry(node).or_default();
                    (vouch.flags, vouch.strong) = (flags, strong);
                    holder != of && holder.era() < era && vouch.holders.insert(holder)
                }
                Claim::Handle { handle: number, owner, node, strong, grants } => {
                    let key = NodeKey { owner, node };
                    let (grants, strong_grants) = (u64::from(grants), u64::from(strong));
                    let handle = Handle { key, grants, strong_grants, giver };
                    let before = sorted.handles.insert(number, handle);
                    let possible = owner != of && owner.era() < era && strong_grants <= grants;
                    // The kernel's numbering is dense.
                    let low = number <= limits.process.handles;
                    before.is_none() && possible && low && grants > 0
                }
                Claim::Channel { channel, end, peer } => {
                    let is_server = end == End::Server;
                    let old = era_of(channel.0) < era && peer.era() < era;
                    let claim = ChannelClaim { channel, peer, is_server };
                    old && peer != of && sorted.channels.insert(claim)
                }
            };
            if !fits {
                return None;
            }
        }
        Some(sorted)
    }
}

impl State {
    /// The next broker at a socket. Whoever was there before may come back, until
    /// [`State::settle`].
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
            state.contexts.entry(name).or_default().manager_uid = rule.manager_uid;
        }
        state.rebuild = Some(rebuild);
        state
    }

    /// Which of the brokers at its socket this one is.
    pub fn era(&self) -> u32 {
        self.era
    }

    /// Whether nobody can come back any more.
    pub fn is_settled(&self) -> bool {
        self.rebuild.is_none()
    }

    /// A process that another broker admitted is here; the runner has seen its credential. It has
    /// nothing until it has made its claims. `EKEYREJECTED` if it is no predecessor's, `EBUSY` if
    /// it is here already, `ETIME` once settled or if it was here and has gone, `ENOENT` and
    /// `EDQUOT` as at its first admission.
    pub fn readmit(
        &mut self,
        identity: Identity,
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
        if self.rebuild.as_ref().is_none_or(|rebuild| rebuild.gone_again.contains(&id)) {
            return Err(Errno::TIME);
        }
        if known {
            return Err(Errno::BUSY);
        }
        if !self.contexts.contains_key(context) {
            return Err(Errno::NOENT);
        }
        let rights = self.rights(identity.uid, rights);
        let standing = self.standing(&rights, Resource::Processes);
        let all = self.accounts.of(Resource::Processes);
        all.check_return(identity.uid, standing, 1).map_err(|_| Errno::DQUOT)?;
        self.accounts.open(identity.uid, rights);
        let mut process = self.new_process(identity, context, rights, channels);
        process.freezer = frozen.into();
        let rebuild = self.rebuild.as_mut().expect("just seen");
        rebuild.joining.insert(id, Joining { process, claims: Vec::new() });
        Ok(())
    }

    /// Whoever has not come back by now is dead.
    pub fn settle(&mut self, out: &mut Vec<Effect>) {
        let Some(rebuild) = self.rebuild.take() else { return };
        for (process, late) in rebuild.joining {
            self.close_account(&late.process);
            out.push(Effect::Disconnect { process, why: Violation::Claims });
        }
        for (to, missed) in rebuild.missed {
            for process in missed {
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
        self.rules_changed |= !rebuild.managers.is_empty();
    }

    pub(super) fn is_joining(&self, process: ProcessId) -> bool {
        self.rebuild.as_ref().is_some_and(|rebuild| rebuild.joining.contains_key(&process))
    }

    /// Why a process that is not here cannot be had to do with.
    pub(super) fn absent(&self, process: ProcessId) -> Errno {
        let may_come = self.rebuild.is_some() && process.era() < self.era;
        if may_come { Errno::AGAIN } else { Errno::SRCH }
    }

    /// Whether a handle to a node may be used: the owner's word is not outstanding. A handle to a
    /// dead node may.
    pub(super) fn check_owner(&self, key: NodeKey) -> Result<(), Errno> {
        let here = self.rebuild.is_none() || self.processes.contains_key(&key.owner);
        if here { Ok(()) } else { Err(Errno::AGAIN) }
    }

    /// A context's manager under the predecessor, while it may come back.
    pub(super) fn absent_manager(&self, context: &str) -> Option<NodeKey> {
        self.rebuild.as_ref()?.managers.get(context).copied()
    }

    /// Those are told now of the death of a process, which cannot come back.
    pub(super) fn has_gone_again(&mut self, process: ProcessId, told: &BTreeSet<ProcessId>) {
        let Some(rebuild) = &mut self.rebuild else { return };
        if process.era() < self.era {
            rebuild.gone_again.insert(process);
        }
        for to in told {
            if let Entry::Occupied(mut missed) = rebuild.missed.entry(*to) {
                missed.get_mut().remove(&process);
                if missed.get().is_empty() {
                    missed.remove();
                }
            }
        }
    }

    /// What a process that leaves had claimed is claimed no more.
    pub(super) fn forget_claims(&mut self, process: ProcessId) {
        let Some(rebuild) = &mut self.rebuild else { return };
        rebuild.missed.remove(&process);
        rebuild.channels.retain(|(claimant, _)| *claimant != process);
        if let Some(joining) = rebuild.joining.remove(&process) {
            self.close_account(&joining.process);
        }
    }

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

    /// `None` if its claims cannot be: it is then still joining, or here without anything.
    fn rejoin(
        &mut self,
        from: ProcessId,
        manages: &[(NodeId, u32)],
        out: &mut Vec<Effect>,
    ) -> Option<()> {
        let joining = self.rebuild.as_mut()?.joining.get_mut(&from)?;
        let (user, pid) = (joining.process.identity.uid, joining.process.identity.pid);
        let claims = std::mem::take(&mut joining.claims);
        let claims = Claims::sort(from, user, self.era, &self.limits, claims)?;
        let joining = self.rebuild.as_mut()?.joining.remove(&from)?;
        let context = joining.process.context.clone();
        self.processes.insert(from, joining.process);
        self.with_pid.entry(pid).or_default().insert(from);
        self.room_to_return(from, Resource::Handles, claims.handles.len()).ok()?;
        let unheld = self.absent_manager(&context).filter(|manager| {
            let returns = manages.iter().any(|(node, _)| *node == manager.node);
            manager.owner == from && returns && !claims.nodes.contains_key(&manager.node)
        });
        let n_nodes = claims.nodes.len() + usize::from(unheld.is_some());
        self.room_to_return(from, Resource::Nodes, n_nodes).ok()?;
        self.return_nodes(from, &claims.nodes, out);
        self.return_manager(from, &context, manages);
        for _ in 0..self.nodes_of(from).count() {
            self.charge(from, Resource::Nodes);
        }
        self.return_handles(from, claims.handles, out);
        for claim in claims.channels {
            self.return_channel(from, claim);
        }
        Some(())
    }

    /// An owner's word on its nodes: what holders said that came before it is true or not, and
    /// those that it names besides are awaited.
    fn return_nodes(
        &mut self,
        owner: ProcessId,
        vouches: &BTreeMap<NodeId, Vouch>,
        out: &mut Vec<Effect>,
    ) {
        let alleged: Vec<NodeKey> = self.nodes_of(owner).collect();
        for key in alleged {
            let vouch = vouches.get(&key.node);
            let holders: Vec<ProcessId> = self.nodes[&key].holders().collect();
            for holder in holders {
                let strength = self.nodes[&key].held_by(holder);
                if vouch.is_some_and(|vouch| vouch.confirms(holder, strength)) {
                    self.tell_frozen(owner, holder, out);
                } else {
                    self.deny(key, holder, out);
                }
            }
        }
        for (&node, vouch) in vouches {
            self.return_node(NodeKey { owner, node }, vouch, out);
        }
    }

    fn return_node(&mut self, key: NodeKey, vouch: &Vouch, out: &mut Vec<Effect>) {
        let node = self.nodes.entry(key).or_insert_with(|| Node::new(vouch.flags));
        node.flags = vouch.flags;
        let most = if vouch.strong { Strength::Strong } else { Strength::Weak };
        let rebuild = self.rebuild.as_mut().expect("somebody has come back");
        let mut lost = Vec::new();
        for &holder in &vouch.holders {
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
            rebuild.miss(key.owner, holder);
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

    /// The predecessor wrote down who managed; its manager has to say so too.
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
            let context = self.contexts.get_mut(context).expect("contexts never go");
            context.manager = Some(key);
        }
    }

    fn return_handles(
        &mut self,
        from: ProcessId,
        handles: BTreeMap<u32, Handle>,
        out: &mut Vec<Effect>,
    ) {
        let rebuild = self.rebuild.as_mut().expect("somebody has come back");
        let mut awaited = rebuild.awaited.remove(&from).unwrap_or_default();
        let mut owners = BTreeSet::new();
        for (number, handle) in handles {
            let (key, strength) = (handle.key, handle.holding());
            let has_another = self.processes[&from].handles.number_of(key).is_some();
            let (key, denied) = if has_another {
                // One of them was denied by the last broker, and then its owner gave it another.
                (self.dead_node(), true)
            } else if !self.processes.contains_key(&key.owner) {
                self.nodes.entry(key).or_insert_with(|| Node::new(0));
                self.rebuild.as_mut().expect("as before").miss(from, key.owner);
                awaited.remove(&key);
                (key, false)
            } else if awaited.contains(&key) && self.vouched_for(key, from, strength) {
                awaited.remove(&key);
                owners.insert(key.owner);
                (key, false)
            } else {
                (self.dead_node(), true)
            };
            let process = self.processes.get_mut(&from).expect("it is here");
            process.handles.adopt(number, Handle { key, ..handle });
            self.charge_handle(from, handle.giver);
            self.set_holding(key, from, strength, out);
            if denied {
                out.push(Effect::Event { to: from, event: Event::Denied { handle: number } });
            }
        }
        for key in awaited {
            self.set_holding(key, from, None, out);
        }
        for owner in owners {
            self.tell_frozen(owner, from, out);
        }
    }

    fn vouched_for(&self, key: NodeKey, holder: ProcessId, strength: Option<Strength>) -> bool {
        let most = self.nodes.get(&key).and_then(|node| node.held_by(holder));
        most == Some(Strength::Strong) || most.is_some() && strength != Some(Strength::Strong)
    }

    fn return_channel(&mut self, from: ProcessId, claim: ChannelClaim) {
        let ChannelClaim { channel, peer, is_server } = claim;
        let theirs = ChannelClaim { channel, peer: from, is_server: !is_server };
        let rebuild = self.rebuild.as_mut().expect("somebody has come back");
        if !rebuild.channels.remove(&(peer, theirs)) {
            rebuild.channels.insert((from, claim));
            if !self.processes.contains_key(&peer) {
                rebuild.miss(from, peer);
            }
            return;
        }
        let (client, server) = if is_server { (peer, from) } else { (from, peer) };
        // One name for two channels: both pairs lie.
        let is_new = |id| self.processes[id].channels.get(channel).is_none();
        if ![client, server].iter().all(is_new) {
            return;
        }
        // Over the limit it stays theirs, and gives no right to send tickets.
        if self.room_to_reconnect(client, server) {
            self.add_channel(channel, client, server);
        }
    }

    /// A process gives up a channel that its peer has not claimed yet.
    pub(super) fn forget_channel_claim(&mut self, claimant: ProcessId, channel: ChannelId) {
        let Some(rebuild) = &mut self.rebuild else { return };
        let of_claimant =
            |&&(id, claim): &&(ProcessId, ChannelClaim)| id == claimant && claim.channel == channel;
        let ended: Vec<_> = rebuild.channels.iter().filter(of_claimant).copied().collect();
        ended.iter().for_each(|claim| _ = rebuild.channels.remove(claim));
    }

    /// The owner of a node leaves, and with it the word that it gave for holders which are not
    /// here yet.
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

    /// The node of a holder's handle, which is here, is not one that it was given.
    fn deny(&mut self, key: NodeKey, holder: ProcessId, out: &mut Vec<Effect>) {
        let dead = self.dead_node();
        let process = self.processes.get_mut(&holder).expect("only the present hold such a node");
        let (number, handle) = process.handles.rebind(key, dead).expect("it is a holder");
        let node = self.nodes.get_mut(&key).expect("it has a holder");
        node.set(holder, None);
        if !node.summary().held {
            self.nodes.remove(&key);
        }
        self.set_holding(dead, holder, handle.holding(), out);
        out.push(Effect::Event { to: holder, event: Event::Denied { handle: number } });
    }

    /// A node of nobody's.
    fn dead_node(&mut self) -> NodeKey {
        self.last_dead_node += 1;
        let key = NodeKey { owner: ProcessId::BROKER, node: NodeId(self.last_dead_node) };
        self.nodes.insert(key, Node::new(0));
        key
    }

    /// A holder may have missed a change.
    fn tell_frozen(&self, owner: ProcessId, holder: ProcessId, out: &mut Vec<Effect>) {
        let frozen = self.processes[&owner].freezer.is_frozen();
        out.push(Effect::Event { to: holder, event: Event::Frozen { process: owner, frozen } });
    }
}
