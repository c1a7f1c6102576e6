//! The truth about references, without I/O: requests in, effects out.
//!
//! Who holds how many grants of which node, who has a channel with whom, which context has which
//! manager. One [`State`] and several engines' states, driven by one seed, make the simulator.

use crate::limits::Limits;
use baton_abi::control::*;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What the runner has to do, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send an event.
    Event {
        /// To whom.
        to: ProcessId,
        /// What.
        event: Event,
    },
    /// Make a channel and send both ends their [`Event::Channel`].
    OpenChannel {
        /// Its name.
        channel: ChannelId,
        /// Who calls.
        client: ProcessId,
        /// Who is called.
        server: ProcessId,
    },
    /// Write the word on the process's front page.
    SetFrozen {
        /// Whose.
        process: ProcessId,
        /// What.
        frozen: bool,
    },
    /// The process has broken the protocol: end its connection.
    Disconnect {
        /// Who.
        process: ProcessId,
        /// For the log.
        why: &'static str,
    },
}

/// A node, by its owner and the owner's name for it.
pub(crate) type NodeKey = (ProcessId, NodeId);

#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    pub(crate) flags: u32,
    /// Who holds it, by which handle.
    pub(crate) holders: BTreeMap<ProcessId, u32>,
}

/// One process's hold of one node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) node: NodeKey,
    pub(crate) flags: u32,
    pub(crate) strong_grants: u32,
    pub(crate) grants: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) identity: Identity,
    pub(crate) context: String,
    pub(crate) handles: BTreeMap<u32, Held>,
    /// Channels with others: name, the other, and which end is this process's.
    pub(crate) channels: BTreeMap<ChannelId, (ProcessId, End)>,
    pub(crate) frozen: bool,
    two_way_received: bool,
    one_way_received: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Context {
    pub(crate) manager: Option<NodeKey>,
    /// Once managed, always by the same user.
    manager_uid: Option<u32>,
}

/// All of it.
#[derive(Clone, Debug)]
pub struct State {
    limits: Limits,
    owner_uid: u32,
    pub(crate) contexts: BTreeMap<String, Context>,
    pub(crate) processes: BTreeMap<ProcessId, Process>,
    pub(crate) nodes: BTreeMap<NodeKey, Node>,
    per_uid: HashMap<u32, u32>,
    last_process: u64,
    last_channel: u64,
    last_ticket: u64,
}

impl State {
    /// A broker of `owner_uid` with Android's three contexts.
    pub fn new(limits: Limits, owner_uid: u32) -> State {
        let names = ["binder", "hwbinder", "vndbinder"];
        State {
            limits,
            owner_uid,
            contexts: names.map(|name| (name.to_owned(), Context::default())).into(),
            processes: BTreeMap::new(),
            nodes: BTreeMap::new(),
            per_uid: HashMap::new(),
            last_process: 0,
            last_channel: 0,
            last_ticket: 0,
        }
    }

    /// A process opens a context. `ENOENT` for an unknown one, `EMFILE` over the user's limit.
    pub fn admit(
        &mut self,
        pid: u32,
        uid: u32,
        label: String,
        context: &str,
    ) -> Result<Identity, Errno> {
        if !self.contexts.contains_key(context) {
            return Err(Errno::NOENT);
        }
        let count = self.per_uid.entry(uid).or_default();
        if *count >= self.limits.processes_per_uid {
            return Err(Errno::MFILE);
        }
        *count += 1;
        self.last_process += 1;
        let process = ProcessId(self.last_process);
        let identity = Identity { process, pid, uid, security_context: label };
        self.processes.insert(
            process,
            Process {
                identity: identity.clone(),
                context: context.to_owned(),
                handles: BTreeMap::new(),
                channels: BTreeMap::new(),
                frozen: false,
                two_way_received: false,
                one_way_received: false,
            },
        );
        Ok(identity)
    }

    /// Who a process is.
    pub fn identity(&self, process: ProcessId) -> Option<&Identity> {
        self.processes.get(&process).map(|process| &process.identity)
    }

    /// A request of an admitted process; `None` if it has no answer.
    pub fn request(
        &mut self,
        from: ProcessId,
        request: Request,
        effects: &mut Vec<Effect>,
    ) -> Option<Reply> {
        let answer = match request {
            Request::Translate { target, objects } => {
                self.translate(from, target, &objects, effects)
            }
            Request::Acquire { handle } => self.acquire(from, handle, effects),
            Request::ContextManager => self.context_manager(from, effects),
            Request::BecomeContextManager { node, flags } => self.become_manager(from, node, flags),
            Request::OpenChannel { target } => self.open_channel(from, target, effects),
            Request::NodeInfo { handle } => self.node_info(from, handle),
            Request::Freeze { pid, frozen } => self.freeze(from, pid, frozen, effects),
            Request::FrozenInfo { pid } => self.frozen_info(from, pid),
            Request::IsFrozen { target } => {
                let frozen = self.processes.get(&target).is_some_and(|process| process.frozen);
                Ok(Reply::Frozen { frozen })
            }
            Request::AddContext { name } => {
                let uid = self.processes[&from].identity.uid;
                self.add_context(uid, &name)
            }
            Request::Contexts => Ok(self.context_names()),
            Request::Hello { .. } | Request::Observe { .. } | Request::Report => Err(Errno::PROTO),
            Request::CancelTicket { target, ticket } => {
                if self.processes.contains_key(&target) {
                    let event = Event::TicketCancelled { from, ticket };
                    effects.push(Effect::Event { to: target, event });
                }
                return None;
            }
            Request::Release { handle, strong, grants } => {
                if self.release(from, handle, strong, grants, effects).is_err() {
                    let why = "returned more grants than it had";
                    effects.push(Effect::Disconnect { process: from, why });
                }
                return None;
            }
            Request::FrozenTouched { target, two_way } => {
                if let Some(process) = self.processes.get_mut(&target).filter(|p| p.frozen) {
                    process.two_way_received |= two_way;
                    process.one_way_received |= !two_way;
                }
                return None;
            }
            Request::Barrier { number } => {
                effects.push(Effect::Event { to: from, event: Event::Barrier { number } });
                return None;
            }
        };
        Some(answer.unwrap_or_else(|errno| Reply::Refused { errno: errno.raw_os_error() }))
    }

    // ---- references -------------------------------------------------------------------------

    fn has_channel(&self, one: ProcessId, other: ProcessId) -> bool {
        self.processes
            .get(&one)
            .is_some_and(|process| process.channels.values().any(|&(peer, _)| peer == other))
    }

    fn translate(
        &mut self,
        from: ProcessId,
        target: ProcessId,
        objects: &[Object],
        effects: &mut Vec<Effect>,
    ) -> Result<Reply, Errno> {
        if !self.processes.contains_key(&target) {
            return Err(Errno::SRCH);
        }
        if !self.has_channel(from, target) {
            return Err(Errno::PERM);
        }
        if objects.len() > MAX_OBJECTS {
            return Err(Errno::NOSPC);
        }
        let mut wanted = Vec::with_capacity(objects.len());
        for object in objects {
            wanted.push(self.right_to_send(from, object)?);
        }
        self.check_room(from, target, &wanted)?;
        let mut dead = BTreeSet::new();
        let granted = wanted
            .into_iter()
            .map(|(key, flags, strength)| {
                if key.0 == target {
                    return Granted::Own { node: key.1, strength };
                }
                if !self.processes.contains_key(&key.0) {
                    dead.insert(key.0);
                }
                self.grant(target, key, flags, strength, effects)
            })
            .collect();
        let ticket = self.send_ticket(from, target, granted, effects);
        for process in dead {
            effects.push(Effect::Event { to: target, event: Event::Dead { process } });
        }
        Ok(Reply::Ticket { ticket })
    }

    fn right_to_send(
        &self,
        from: ProcessId,
        object: &Object,
    ) -> Result<(NodeKey, u32, Strength), Errno> {
        match *object {
            Object::Node { node, strength, flags } => {
                let key = (from, node);
                let flags = self.nodes.get(&key).map_or(flags, |node| node.flags);
                Ok((key, flags, strength))
            }
            Object::Handle { handle, strength } => {
                let held = self.processes[&from].handles.get(&handle).ok_or(Errno::INVAL)?;
                if strength == Strength::Strong && held.strong_grants == 0 {
                    return Err(Errno::INVAL);
                }
                Ok((held.node, held.flags, strength))
            }
        }
    }

    fn check_room(
        &self,
        from: ProcessId,
        target: ProcessId,
        wanted: &[(NodeKey, u32, Strength)],
    ) -> Result<(), Errno> {
        let handles = self.processes[&target].handles.len() + wanted.len();
        let new_nodes = wanted
            .iter()
            .filter(|(key, ..)| key.0 == from && !self.nodes.contains_key(key))
            .count();
        let nodes = self.nodes.range((from, NodeId(0))..=(from, NodeId(u64::MAX))).count();
        if handles > self.limits.handles || nodes + new_nodes > self.limits.nodes {
            return Err(Errno::NOSPC);
        }
        Ok(())
    }

    fn send_ticket(
        &mut self,
        from: ProcessId,
        to: ProcessId,
        objects: Vec<Granted>,
        effects: &mut Vec<Effect>,
    ) -> TicketId {
        self.last_ticket += 1;
        let ticket = TicketId(self.last_ticket);
        effects.push(Effect::Event { to, event: Event::Ticket { from, ticket, objects } });
        ticket
    }

    /// One more grant of a node for a process that is not its owner.
    fn grant(
        &mut self,
        to: ProcessId,
        key: NodeKey,
        flags: u32,
        strength: Strength,
        effects: &mut Vec<Effect>,
    ) -> Granted {
        let is_manager = self.manager_of(to) == Some(key);
        let node = self.nodes.entry(key).or_insert_with(|| Node { flags, ..Node::default() });
        let process = self.processes.get_mut(&to).expect("checked by the caller");
        let known = node.holders.get(&to).copied();
        let handle = known.unwrap_or_else(|| lowest_free(&process.handles, is_manager));
        node.holders.insert(to, handle);
        let held = process.handles.entry(handle).or_insert(Held {
            node: key,
            flags,
            strong_grants: 0,
            grants: 0,
        });
        held.grants += 1;
        let first_strong = strength == Strength::Strong && held.strong_grants == 0;
        held.strong_grants += u32::from(strength == Strength::Strong);
        let holder = known.is_none().then_some((to, true));
        if known.is_none() || first_strong {
            self.tell_owner(key, holder, effects);
        }
        Granted::Handle { handle, owner: key.0, node: key.1, strength, flags }
    }

    /// What the owner is to know of a node now.
    fn tell_owner(
        &self,
        key: NodeKey,
        holder: Option<(ProcessId, bool)>,
        effects: &mut Vec<Effect>,
    ) {
        let (owner, node) = key;
        if !self.processes.contains_key(&owner) {
            return;
        }
        let (strong, all) = self.counts(key);
        let event = Event::References { node, strong: strong > 0, held: all > 0, holder };
        effects.push(Effect::Event { to: owner, event });
    }

    /// Processes that hold a node strongly, and at all.
    pub(crate) fn counts(&self, key: NodeKey) -> (u32, u32) {
        let Some(node) = self.nodes.get(&key) else { return (0, 0) };
        let strong = node
            .holders
            .iter()
            .filter(|(process, handle)| self.processes[process].handles[handle].strong_grants > 0);
        (strong.count() as u32, node.holders.len() as u32)
    }

    fn acquire(
        &mut self,
        from: ProcessId,
        handle: u32,
        effects: &mut Vec<Effect>,
    ) -> Result<Reply, Errno> {
        let key = self.processes[&from].handles.get(&handle).ok_or(Errno::INVAL)?.node;
        let alive = self.counts(key).0 > 0 || self.manager_of(from) == Some(key);
        if !alive {
            return Err(Errno::INVAL);
        }
        let process = self.processes.get_mut(&from).expect("a known process");
        let held = process.handles.get_mut(&handle).expect("just seen");
        let first = held.strong_grants == 0;
        held.strong_grants += 1;
        held.grants += 1;
        if first {
            self.tell_owner(key, None, effects);
        }
        Ok(Reply::Done)
    }

    fn release(
        &mut self,
        from: ProcessId,
        handle: u32,
        strong: u32,
        grants: u32,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Errno> {
        let process = self.processes.get_mut(&from).ok_or(Errno::SRCH)?;
        let held = process.handles.get_mut(&handle).ok_or(Errno::INVAL)?;
        let left = held.grants.checked_sub(grants).ok_or(Errno::INVAL)?;
        let left_strong = held.strong_grants.checked_sub(strong).ok_or(Errno::INVAL)?;
        if left_strong > left {
            return Err(Errno::INVAL);
        }
        let was_strong = held.strong_grants > 0;
        (held.grants, held.strong_grants) = (left, left_strong);
        let key = held.node;
        if left == 0 {
            process.handles.remove(&handle);
            self.forget_holder(key, from);
            self.tell_owner(key, Some((from, false)), effects);
            self.forget_node(key);
        } else if was_strong && left_strong == 0 {
            self.tell_owner(key, None, effects);
        }
        Ok(())
    }

    fn forget_holder(&mut self, key: NodeKey, holder: ProcessId) {
        if let Some(node) = self.nodes.get_mut(&key) {
            node.holders.remove(&holder);
        }
    }

    fn forget_node(&mut self, key: NodeKey) {
        let unused = self.nodes.get(&key).is_some_and(|node| node.holders.is_empty());
        if unused && !self.contexts.values().any(|context| context.manager == Some(key)) {
            self.nodes.remove(&key);
        }
    }

    // ---- contexts ---------------------------------------------------------------------------

    fn context_of(&self, process: ProcessId) -> &Context {
        &self.contexts[&self.processes[&process].context]
    }

    fn manager_of(&self, process: ProcessId) -> Option<NodeKey> {
        self.context_of(process).manager
    }

    fn context_manager(
        &mut self,
        from: ProcessId,
        effects: &mut Vec<Effect>,
    ) -> Result<Reply, Errno> {
        let key = self.manager_of(from).ok_or(Errno::SRCH)?;
        if key.0 == from {
            return Err(Errno::INVAL);
        }
        let flags = self.nodes[&key].flags;
        let granted = self.grant(from, key, flags, Strength::Strong, effects);
        let ticket = self.send_ticket(ProcessId::BROKER, from, vec![granted], effects);
        Ok(Reply::Ticket { ticket })
    }

    fn become_manager(
        &mut self,
        from: ProcessId,
        node: NodeId,
        flags: u32,
    ) -> Result<Reply, Errno> {
        let process = &self.processes[&from];
        let uid = process.identity.uid;
        let context = self.contexts.get_mut(&process.context).expect("contexts are never removed");
        if context.manager.is_some() {
            return Err(Errno::BUSY);
        }
        if context.manager_uid.is_some_and(|managed_by| managed_by != uid) {
            return Err(Errno::PERM);
        }
        (context.manager, context.manager_uid) = (Some((from, node)), Some(uid));
        self.nodes.entry((from, node)).or_insert_with(|| Node { flags, ..Node::default() });
        Ok(Reply::Done)
    }

    /// CTL_ADD by a user.
    pub fn add_context(&mut self, uid: u32, name: &str) -> Result<Reply, Errno> {
        if uid != 0 && uid != self.owner_uid {
            return Err(Errno::PERM);
        }
        let valid = !name.is_empty()
            && name.len() <= MAX_CONTEXT_NAME_BYTES
            && !name.contains(['/', '\0'])
            && !matches!(name, "." | ".." | "binder-control" | "features");
        if !valid {
            return Err(Errno::INVAL);
        }
        if self.contexts.contains_key(name) {
            return Err(Errno::EXIST);
        }
        if self.contexts.len() >= self.limits.contexts {
            return Err(Errno::NOSPC);
        }
        self.contexts.insert(name.to_owned(), Context::default());
        Ok(Reply::Done)
    }

    /// All of them.
    pub fn context_names(&self) -> Reply {
        Reply::Contexts { names: self.contexts.keys().cloned().collect() }
    }

    // ---- channels ---------------------------------------------------------------------------

    fn open_channel(
        &mut self,
        from: ProcessId,
        target: ProcessId,
        effects: &mut Vec<Effect>,
    ) -> Result<Reply, Errno> {
        if !self.processes.contains_key(&target) {
            return Err(Errno::SRCH);
        }
        let process = &self.processes[&from];
        let has_reason = process.handles.values().any(|held| held.node.0 == target);
        if from == target || !has_reason {
            return Err(Errno::PERM);
        }
        let limit = self.limits.channels;
        if process.channels.len() >= limit || self.processes[&target].channels.len() >= limit {
            return Err(Errno::MFILE);
        }
        self.last_channel += 1;
        let channel = ChannelId(self.last_channel);
        for (one, other, end) in [(from, target, End::Client), (target, from, End::Server)] {
            let process = self.processes.get_mut(&one).expect("checked above");
            process.channels.insert(channel, (other, end));
        }
        effects.push(Effect::OpenChannel { channel, client: from, server: target });
        Ok(Reply::Done)
    }

    fn node_info(&self, from: ProcessId, handle: u32) -> Result<Reply, Errno> {
        if self.manager_of(from).is_none_or(|manager| manager.0 != from) {
            return Err(Errno::PERM);
        }
        let held = self.processes[&from].handles.get(&handle).ok_or(Errno::INVAL)?;
        let (strong, all) = self.counts(held.node);
        Ok(Reply::Counts { strong, weak: all - strong })
    }

    // ---- freezing ---------------------------------------------------------------------------

    fn with_pid(&self, from: ProcessId, pid: u32) -> Result<Vec<ProcessId>, Errno> {
        let asker = &self.processes[&from];
        let found: Vec<ProcessId> = self
            .processes
            .iter()
            .filter(|(_, process)| process.identity.pid == pid && process.context == asker.context)
            .map(|(&id, _)| id)
            .collect();
        let uid = asker.identity.uid;
        if found.is_empty() {
            return Err(Errno::INVAL);
        }
        if uid != 0 && found.iter().any(|id| self.processes[id].identity.uid != uid) {
            return Err(Errno::PERM);
        }
        Ok(found)
    }

    fn freeze(
        &mut self,
        from: ProcessId,
        pid: u32,
        frozen: bool,
        effects: &mut Vec<Effect>,
    ) -> Result<Reply, Errno> {
        let targets = self.with_pid(from, pid)?;
        for &target in &targets {
            let process = self.processes.get_mut(&target).expect("just found");
            if process.frozen == frozen {
                continue;
            }
            process.frozen = frozen;
            (process.two_way_received, process.one_way_received) = (false, false);
            effects.push(Effect::SetFrozen { process: target, frozen });
            // The target hears of it too: it takes in what has been sent before.
            let mut told = self.holders_of(target);
            told.insert(target);
            for holder in told {
                let event = Event::Frozen { process: target, frozen };
                effects.push(Effect::Event { to: holder, event });
            }
        }
        self.frozen_info(from, pid)
    }

    fn frozen_info(&self, from: ProcessId, pid: u32) -> Result<Reply, Errno> {
        let targets = self.with_pid(from, pid)?;
        let any = |seen: fn(&Process) -> bool| targets.iter().any(|id| seen(&self.processes[id]));
        Ok(Reply::Freeze {
            // The runner adds what the front pages say.
            outstanding: 0,
            two_way_received: any(|process| process.two_way_received),
            one_way_received: any(|process| process.one_way_received),
        })
    }

    /// Every process that holds a handle to one of this one's nodes.
    fn holders_of(&self, owner: ProcessId) -> BTreeSet<ProcessId> {
        self.nodes
            .range((owner, NodeId(0))..=(owner, NodeId(u64::MAX)))
            .flat_map(|(_, node)| node.holders.keys().copied())
            .collect()
    }

    /// The processes with a pid, for the front pages.
    pub(crate) fn pids(&self, pid: u32) -> impl Iterator<Item = ProcessId> {
        self.processes.iter().filter(move |(_, p)| p.identity.pid == pid).map(|(&id, _)| id)
    }

    // ---- the end of a process ---------------------------------------------------------------

    /// A process is gone, by whatever end.
    pub fn gone(&mut self, id: ProcessId, effects: &mut Vec<Effect>) {
        let Some(mut process) = self.processes.remove(&id) else { return };
        if let Some(count) = self.per_uid.get_mut(&process.identity.uid) {
            *count -= 1;
        }
        self.per_uid.retain(|_, count| *count > 0);
        let context = self.contexts.get_mut(&process.context).expect("contexts are never removed");
        context.manager.take_if(|manager| manager.0 == id);
        // First its death: those who serve it take in what it had sent while it may still call.
        let mut told = self.holders_of(id);
        told.extend(process.channels.values().map(|&(peer, _)| peer));
        for to in told.into_iter().filter(|to| *to != id) {
            if let Some(peer) = self.processes.get_mut(&to) {
                peer.channels.retain(|_, (other, _)| *other != id);
                effects.push(Effect::Event { to, event: Event::Dead { process: id } });
            }
        }
        for (_, held) in std::mem::take(&mut process.handles) {
            self.forget_holder(held.node, id);
            self.tell_owner(held.node, Some((id, false)), effects);
            self.forget_node(held.node);
        }
        // Its own nodes stay only as the names that others still hold.
        let own: Vec<NodeKey> = self
            .nodes
            .range((id, NodeId(0))..=(id, NodeId(u64::MAX)))
            .map(|(&key, _)| key)
            .collect();
        for key in own {
            self.forget_node(key);
        }
    }

    /// Grants that a process holds of a handle: strong ones, and all.
    pub fn grants(&self, process: ProcessId, handle: u32) -> Option<(u32, u32)> {
        let held = self.processes.get(&process)?.handles.get(&handle)?;
        Some((held.strong_grants, held.grants))
    }

    /// Whether nothing is left of any process.
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty() && self.nodes.is_empty() && self.per_uid.is_empty()
    }
}

fn lowest_free(handles: &BTreeMap<u32, Held>, is_manager: bool) -> u32 {
    if is_manager && !handles.contains_key(&0) {
        return 0;
    }
    let mut free = 1;
    for &handle in handles.keys().filter(|&&handle| handle > 0) {
        if handle != free {
            break;
        }
        free += 1;
    }
    free
}
