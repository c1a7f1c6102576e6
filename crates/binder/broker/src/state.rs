//! The broker's data, and every rule by which it changes. [`State`] has the data.
//!
//! The state is pure: it takes a request and returns a reply and [`Effect`]s. It uses no clock, no
//! randomness and no I/O. So a seeded simulator can drive it, kill any process between two
//! requests, and replay the run.
//!
//! **Invariants**
//! - A node's holders are exactly the processes with the node in their book of grants, each as
//!   strongly as its grants say. The exception is a restart: see [`rejoin`].
//! - The broker gives no process a grant on a living owner's node that its giver does not hold, by
//!   the giver's book or by the owner's own list.
//! - A process that is gone leaves nothing.
//! - A violation by one process changes nothing for any other process.

mod account;
mod channel;
mod claims;
mod context;
mod effect;
mod freeze;
mod grant;
mod holder_lists;
mod introduce;
mod lane;
mod manager;
mod node;
mod pid_namespace;
mod process;
mod real_time;
mod rejoin;
mod report;
mod room;
mod tables;

pub use context::{CONTEXTS, Rule};
pub use effect::{Effect, Violation};
pub use holder_lists::{HolderList, HolderLists};
pub use lane::{LaneId, Thread};
pub use node::NodeKey;
pub use pid_namespace::PidNamespace;
pub use tables::State;

use crate::limits::{Resource, Rights, Usage};
use baton_abi::control::{ChannelId, End, Event, Identity, ProcessId, Reply, Request, Strength};
use baton_abi::quota::Quota;
use channel::{Channel, Channels};
use claims::Rebuild;
use process::{CallsTold, Process};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};

/// A process that opens a context, as the kernel and the configuration describe it.
#[derive(Clone, Debug, Default)]
pub struct NewProcess {
    /// Thread group id in the broker's pid namespace, or 0.
    pub pid: u32,
    /// The pid namespace in which the process lives.
    pub pid_namespace: PidNamespace,
    /// Effective user id.
    pub uid: u32,
    /// Security label, never empty.
    pub security_context: String,
    /// See [`Identity::is_served_by_root`].
    pub is_served_by_root: bool,
    /// Rights that the configuration gives to the process.
    pub rights: Rights,
}

impl State {
    /// Admits a process to a context. `channels` is the number of channels as server that the
    /// process has descriptors for. `ENOENT` if there is no such context, `EDQUOT` if its user has
    /// too many processes.
    pub fn admit(
        &mut self,
        new: NewProcess,
        context: &str,
        channels: u32,
    ) -> Result<Identity, Errno> {
        if !self.has_context(context) {
            return Err(Errno::NOENT);
        }
        let NewProcess { pid, pid_namespace, uid, security_context, is_served_by_root, rights } =
            new;
        let rights = self.rights(uid, rights);
        self.room_for_process(uid, &rights)?;
        self.last_process += 1;
        let id = ProcessId(self.last_process);
        let identity = Identity { process: id, pid, uid, security_context, is_served_by_root };
        let mut process = self.new_process(identity.clone(), context, rights, channels);
        process.pid_namespace = pid_namespace;
        self.add_process(process);
        self.accounts.open(uid, rights);
        Ok(identity)
    }

    fn room_for_process(&self, uid: u32, rights: &Rights) -> Result<(), Errno> {
        let quota_class = self.quota_class(rights, Resource::Processes);
        self.accounts.of(Resource::Processes).check(uid, quota_class, 1).map_err(|_| Errno::DQUOT)
    }

    fn new_process(
        &self,
        identity: Identity,
        context: &str,
        rights: Rights,
        channels: u32,
    ) -> Process {
        let served = channels.min(self.limits.channels_served);
        Process {
            identity,
            pid_namespace: PidNamespace::default(),
            context: context.to_owned(),
            grants: Default::default(),
            channels: Default::default(),
            watchers: Default::default(),
            freezer: Default::default(),
            usage: Usage { processes: 1, ..Usage::default() },
            rights,
            handles_given: Quota::new(self.limits.process.handles.into()),
            served: Quota::new(served.into()),
            calls: CallsTold::default(),
        }
    }

    /// The identity of a process while it is alive.
    pub fn identity(&self, process: ProcessId) -> Option<&Identity> {
        self.processes.get(&process).map(|process| &process.identity)
    }

    /// The identity of a living process for another one, in whose pid namespace the pid is.
    pub fn identity_for(&self, viewer: ProcessId, process: ProcessId) -> Option<Identity> {
        let (viewer, process) = (self.processes.get(&viewer)?, self.processes.get(&process)?);
        let pid = process.pid_in(viewer.pid_namespace);
        Some(Identity { pid, ..process.identity.clone() })
    }

    /// Carries out one request of an admitted process. Returns `None` for requests without a reply
    /// and for processes that are disconnected because of the request.
    ///
    /// The runner fills in `outstanding` of a [`Reply::Freeze`] and `engine` of a [`Reply::Report`]
    /// after it has carried out the effects. The state reads `lists` where a request needs them.
    pub fn request(
        &mut self,
        from: ProcessId,
        request: Request,
        lists: &dyn HolderLists,
        out: &mut Vec<Effect>,
    ) -> Option<Reply> {
        if self.is_joining(from) {
            self.claim_or_rejoin(from, request, out);
            return None;
        }
        let asker = self.processes.get(&from)?;
        let (uid, pid_namespace) = (asker.identity.uid, asker.pid_namespace);
        let answer = match request {
            Request::Hello { .. }
            | Request::Observe { .. }
            | Request::Resume { .. }
            | Request::Claim { .. }
            | Request::Rejoin { .. }
            | Request::OnBehalf { .. } => {
                let why = Violation::Greeting;
                out.push(Effect::Disconnect { process: from, why });
                return None;
            }
            Request::CancelTicket { target, ticket } => {
                self.cancel_ticket(from, target, ticket, out);
                return None;
            }
            Request::Release { released } => {
                let returned = released.iter().try_for_each(|it| self.release(from, it, out));
                if let Err(why) = returned {
                    out.push(Effect::Disconnect { process: from, why });
                }
                return None;
            }
            Request::Calls { calls } => {
                self.note_calls(from, calls);
                return None;
            }
            Request::FrozenTouched { target, two_way } => {
                self.frozen_touched(from, target, two_way);
                return None;
            }
            Request::CloseChannel { channel } => {
                self.end_channel(from, channel, out);
                return None;
            }
            Request::Barrier { number } => {
                out.push(Effect::Event { to: from, event: Event::Barrier { number } });
                return None;
            }
            Request::LeaveRealTime { channel, lane } => {
                self.leave_lane(from, (channel, lane), out);
                return None;
            }
            Request::Ordinary { channel, lane } => {
                self.end_lane(from, (channel, lane), out);
                return None;
            }
            // The runner asks the kernel and calls `grant_lane` or `promote_looper`.
            Request::RealTime { .. }
            | Request::RealTimeLooper { .. }
            | Request::StandbyLooper { .. } => Err(Errno::PERM),
            Request::Introduce { target, objects } => {
                let ticket = self.introduce(from, target, &objects, lists, out);
                ticket.map(|ticket| Reply::Ticket { ticket })
            }
            Request::ContextManager => {
                self.context_manager(from, out).map(|ticket| Reply::Ticket { ticket })
            }
            Request::BecomeContextManager { node, flags } => {
                self.become_manager(from, node, flags).map(|()| Reply::Done)
            }
            Request::OpenChannel { target, entry } => {
                self.open_channel(from, target, entry, lists, out).map(|()| Reply::Done)
            }
            Request::NodeInfo { owner, node } => {
                self.node_info(from, NodeKey { owner, node }, lists)
            }
            Request::Freeze { pid, frozen } => self.freeze(from, pid, frozen, out),
            Request::FrozenInfo { pid } => self.frozen_info(from, pid),
            Request::IsFrozen { target } => self.is_frozen(from, target),
            request @ (Request::AddContext { .. }
            | Request::RemoveContext { .. }
            | Request::Contexts
            | Request::DescribeCalls
            | Request::Report { .. }
            | Request::Accounts { .. }) => {
                return self.observe(uid, pid_namespace, &request, lists, out);
            }
        };
        let refused = |errno: Errno| Reply::Refused { errno: errno.raw_os_error() };
        Some(answer.unwrap_or_else(refused))
    }

    /// The processes that get an event if the request is granted, and that a flood of such requests
    /// would harm.
    pub fn notified_by(&self, from: ProcessId, request: &Request) -> BTreeSet<ProcessId> {
        let Some(process) = self.processes.get(&from) else { return BTreeSet::new() };
        match request {
            Request::Introduce { target, objects } => {
                objects.iter().map(|object| object.owner).chain([*target]).collect()
            }
            Request::ContextManager => {
                self.manager_of(from).map(|manager| manager.owner).into_iter().collect()
            }
            Request::OpenChannel { target, .. } => BTreeSet::from([from, *target]),
            Request::RealTime { channel, .. } => {
                process.channels.server_of(*channel).into_iter().collect()
            }
            _ => BTreeSet::new(),
        }
    }

    /// Removes a process that ended or was disconnected: its grants return and its nodes die. Every
    /// process that had to do with it gets one [`Event::Dead`].
    pub fn remove_process(&mut self, process: ProcessId, out: &mut Vec<Effect>) {
        self.forget_claims(process);
        self.end_lanes_of(process, out);
        let Some(removed) = self.processes.get(&process) else { return };
        let user = removed.identity.uid;
        let met = removed.channels.met().clone();
        let mut told = self.holders_of(process);
        told.extend(&met);
        told.extend(&removed.watchers);
        told.retain(|to| self.processes.contains_key(to));
        let held: Vec<NodeKey> = removed.grants.nodes().collect();
        for peer in met {
            for end in self.channels_of(peer).remove_all_with(process) {
                match end {
                    End::Client => self.refund(peer, Resource::Channels, 1),
                    End::Server => {
                        let server = self.processes.get_mut(&peer).expect("as before");
                        server.served.give_back(user, 1);
                    }
                }
            }
        }
        self.note_second_death(process, &told);
        let removed = self.processes.remove(&process).expect("was there");
        self.close_account(&removed);
        self.forget_pids(&removed);
        // The death comes before the lost references: servers first take in what the process sent
        // while it was alive.
        for to in told {
            out.push(Effect::Event { to, event: Event::Dead { process } });
        }
        for key in held {
            self.set_holding(key, process, None, out);
        }
        let own: Vec<NodeKey> = self.nodes_of(process).collect();
        for key in own {
            self.forget_awaited(key);
            self.remove_node(key);
        }
        let context = self.contexts.get_mut(&removed.context).expect("the process was in it");
        let managed = context.manager.take_if(|manager| manager.owner == process);
        self.rules_changed |= managed.is_some();
        if context.is_removed {
            self.drop_removed_contexts();
        }
    }

    /// Whether no process has left anything, for checks at the end of a test.
    pub fn is_empty(&self) -> bool {
        let nobody_joins = self.rebuild.as_ref().is_none_or(Rebuild::is_empty);
        self.processes.is_empty()
            && self.nodes.is_empty()
            && self.accounts.is_empty()
            && nobody_joins
            && self.real_time.is_empty()
            && self.standby_loopers.is_empty()
    }

    /// Strong grants and all grants that the broker's book has for a process on a node. Tests
    /// compare them with an engine's count.
    pub fn grants(&self, process: ProcessId, key: NodeKey) -> Option<(u32, u32)> {
        let grant = self.processes.get(&process)?.grants.get(key)?;
        Some((grant.strong_grants as u32, grant.grants as u32))
    }

    fn open_channel(
        &mut self,
        from: ProcessId,
        target: ProcessId,
        entry: Option<u32>,
        lists: &dyn HolderLists,
        out: &mut Vec<Effect>,
    ) -> Result<(), Errno> {
        if !self.processes.contains_key(&target) {
            return Err(self.absence_errno(target));
        }
        let manages = self.manager_of(from).is_some_and(|manager| manager.owner == target);
        let may_call = manages
            || self.holds_node_of(from, target)
            || self.listed(lists, from, target, entry).is_some();
        if from == target || !may_call {
            return Err(Errno::PERM);
        }
        if self.channels_of(from).count_to(target) >= self.limits.channels_per_server {
            return Err(Errno::MFILE);
        }
        if !self.channels_of(from).remembers(target) {
            self.check_room(from, Resource::Channels, 1)?;
        }
        self.check_room_at_server(from, target)?;
        self.last_channel += 1;
        let channel = ChannelId(self.last_channel);
        self.add_channel(channel, from, target);
        out.push(Effect::OpenChannel { channel, client: from, server: target });
        Ok(())
    }

    /// Opens a channel to the context manager for a process that has asked for the manager and has
    /// none: it is about to call. Whatever is against that, the process hears when it calls.
    pub fn prepare_channel_to_manager(
        &mut self,
        from: ProcessId,
        lists: &dyn HolderLists,
        out: &mut Vec<Effect>,
    ) {
        let Some(manager) = self.manager_of(from).map(|manager| manager.owner) else { return };
        if self.channels_of(from).count_to(manager) == 0 {
            let _ = self.open_channel(from, manager, None, lists, out);
        }
    }

    fn add_channel(&mut self, id: ChannelId, client: ProcessId, server: ProcessId) {
        if !self.channels_of(client).take_remembered(server) {
            self.charge(client, Resource::Channels);
        }
        self.channels_of(client).add(id, Channel { peer: server, end: End::Client });
        self.channels_of(server).add(id, Channel { peer: client, end: End::Server });
        let user = self.processes[&client].identity.uid;
        self.processes.get_mut(&server).expect("it is alive").served.take(user, 1);
    }

    /// Removes a channel that the runner could not make or that one of its ends gave up. Does
    /// nothing if the process has no such channel. The last channel of a client to a server counts
    /// until one of the two is dead.
    pub fn end_channel(&mut self, at: ProcessId, id: ChannelId, out: &mut Vec<Effect>) {
        let Some(process) = self.processes.get(&at) else { return };
        let Some(Channel { peer, end }) = process.channels.get(id) else {
            return self.forget_channel_claim(at, id);
        };
        let (client, server) = match end {
            End::Client => (at, peer),
            End::Server => (peer, at),
        };
        self.end_lanes_on(id, out);
        self.channels_of(client).remove(id);
        self.channels_of(server).remove(id);
        match self.channels_of(client).count_to(server) {
            0 => self.channels_of(client).remember(server),
            _ => self.refund(client, Resource::Channels, 1),
        }
        let user = self.processes[&client].identity.uid;
        self.processes.get_mut(&server).expect("just seen").served.give_back(user, 1);
    }

    fn add_process(&mut self, process: Process) {
        let id = process.identity.process;
        for named in process.pids() {
            self.with_pid.entry(named).or_default().insert(id);
        }
        self.processes.insert(id, process);
    }

    fn forget_pids(&mut self, process: &Process) {
        for named in process.pids() {
            let all = self.with_pid.get_mut(&named).expect("entered with the process");
            all.remove(&process.identity.process);
            if all.is_empty() {
                self.with_pid.remove(&named);
            }
        }
    }

    fn node_info(
        &self,
        from: ProcessId,
        key: NodeKey,
        lists: &dyn HolderLists,
    ) -> Result<Reply, Errno> {
        if self.manager_of(from).is_none_or(|manager| manager.owner != from) {
            return Err(Errno::PERM);
        }
        if !self.share_context(from, key.owner) {
            return Err(Errno::INVAL);
        }
        let list = self.list_of(lists, key.owner).holdings;
        let mut holders: BTreeMap<ProcessId, bool> = BTreeMap::new();
        let node = self.nodes.get(&key);
        let booked = node.into_iter().flat_map(|node| node.holdings_from(ProcessId(0)));
        let listed = list.iter().filter(|holding| holding.node == key.node);
        for (holder, strength) in booked.chain(listed.map(|it| (it.holder, it.strength))) {
            *holders.entry(holder).or_default() |= strength == Strength::Strong;
        }
        let strong = holders.values().filter(|strongly| **strongly).count();
        match holders.len() {
            0 => Err(Errno::INVAL),
            all => Ok(Reply::Counts { strong: strong as u32, weak: (all - strong) as u32 }),
        }
    }

    /// Whether a process holds a node of `owner` by the broker's grants.
    fn holds_node_of(&self, holder: ProcessId, owner: ProcessId) -> bool {
        self.processes[&holder].grants.holds_node_of(owner)
    }

    fn channels_of(&mut self, process: ProcessId) -> &mut Channels {
        &mut self.processes.get_mut(&process).expect("channels end with their ends").channels
    }
}
