//! Everything that the broker knows, and every rule by which it changes.
//!
//! Pure: a request in, a reply and [`Effect`]s out, no clock, no chance, no I/O. A seeded
//! simulator can drive it, kill any process between two requests, and replay the run.
//!
//! **Invariants**
//! - A node's holders are exactly the processes with a handle to it, each as strongly as its
//!   handle's grants say; while engines of another broker's come back, see [`rejoin`].
//! - Nothing remains of a process that is gone but the nodes that others still have handles to.
//! - What a process does wrong changes nothing for any other.

mod account;
mod channel;
mod context;
mod effect;
mod freeze;
mod handle;
mod node;
mod process;
mod real_time;
mod rejoin;
mod report;
mod translate;

pub use context::{CONTEXTS, Rule};
pub use effect::{Effect, Violation};
pub use node::NodeKey;
pub use real_time::Thread;

use crate::limits::{Limits, Resource, Rights, Usage};
use account::Accounts;
use baton_abi::claim::first_of;
use baton_abi::control::{ChannelId, End, Event, Identity, Object, ProcessId, Reply, Request};
use baton_abi::quota::Quota;
use channel::Channel;
use context::Context;
use node::Node;
use process::Process;
use rejoin::Rebuild;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};

/// Somebody who opens a context, as the system and the configuration know it.
#[derive(Clone, Debug, Default)]
pub struct Newcomer {
    /// Thread group id in the broker's pid namespace.
    pub pid: u32,
    /// Effective user id.
    pub uid: u32,
    /// Security label, never empty.
    pub security_context: String,
    /// The configuration's word on it.
    pub rights: Rights,
}

/// The broker's truth. Maps are ordered so that equal runs give equal effects.
#[derive(Clone, Debug)]
pub struct State {
    limits: Limits,
    /// Whose broker it is.
    uid: u32,
    contexts: BTreeMap<String, Context>,
    processes: BTreeMap<ProcessId, Process>,
    /// The processes of each pid: a program may open several devices.
    with_pid: BTreeMap<u32, BTreeSet<ProcessId>>,
    nodes: BTreeMap<NodeKey, Node>,
    accounts: Accounts,
    real_time: BTreeMap<real_time::Place, real_time::Lane>,
    spares: BTreeMap<ProcessId, real_time::Spare>,
    era: u32,
    last_process: u64,
    last_channel: u64,
    last_ticket: u64,
    last_dead_node: u64,
    /// Present while engines of another broker's may come back.
    rebuild: Option<Rebuild>,
    /// Contexts or their managers have changed since [`State::changed_rules`] was asked.
    rules_changed: bool,
}

impl State {
    /// No processes, and the contexts that every broker has. `uid` is the broker's own.
    pub fn new(limits: Limits, uid: u32) -> State {
        let contexts = CONTEXTS.iter().map(|name| ((*name).to_owned(), Context::default()));
        State {
            limits,
            uid,
            contexts: contexts.collect(),
            processes: BTreeMap::new(),
            with_pid: BTreeMap::new(),
            nodes: BTreeMap::new(),
            accounts: Accounts::new(&limits),
            real_time: BTreeMap::new(),
            spares: BTreeMap::new(),
            era: 0,
            last_process: first_of(0),
            last_channel: first_of(0),
            last_ticket: first_of(0),
            last_dead_node: 0,
            rebuild: None,
            rules_changed: false,
        }
    }

    /// A process opens a context, and has descriptors for so many channels as server. `ENOENT` if
    /// there is none of that name, `EDQUOT` if its user has too many processes.
    pub fn admit(
        &mut self,
        newcomer: Newcomer,
        context: &str,
        channels: u32,
    ) -> Result<Identity, Errno> {
        if !self.contexts.contains_key(context) {
            return Err(Errno::NOENT);
        }
        let Newcomer { pid, uid, security_context, rights } = newcomer;
        let rights = self.rights(uid, rights);
        self.room_for_process(uid, &rights)?;
        self.last_process += 1;
        let id = ProcessId(self.last_process);
        let identity = Identity { process: id, pid, uid, security_context };
        let process = self.new_process(identity.clone(), context, rights, channels);
        self.with_pid.entry(pid).or_default().insert(id);
        self.processes.insert(id, process);
        self.accounts.open(uid, rights);
        Ok(identity)
    }

    fn room_for_process(&self, uid: u32, rights: &Rights) -> Result<(), Errno> {
        let standing = self.standing(rights, Resource::Processes);
        self.accounts.of(Resource::Processes).check(uid, standing, 1).map_err(|_| Errno::DQUOT)
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
            context: context.to_owned(),
            handles: Default::default(),
            channels: Default::default(),
            freezer: Default::default(),
            usage: Usage { processes: 1, ..Usage::default() },
            rights,
            handles_given: Quota::new(self.limits.process.handles.into()),
            served: Quota::new(served.into()),
        }
    }

    /// Who a process is, while it is alive.
    pub fn identity(&self, process: ProcessId) -> Option<&Identity> {
        self.processes.get(&process).map(|process| &process.identity)
    }

    /// Carries out one request of an admitted process. `None` where control has no answer to it,
    /// and for one that is disconnected for it.
    ///
    /// `outstanding` of a [`Reply::Freeze`] and `engine` of a [`Reply::Report`] are the runner's
    /// to fill in, after it has carried out the effects.
    pub fn request(
        &mut self,
        from: ProcessId,
        request: Request,
        out: &mut Vec<Effect>,
    ) -> Option<Reply> {
        if self.is_joining(from) {
            self.claim_or_rejoin(from, request, out);
            return None;
        }
        let uid = self.processes.get(&from)?.identity.uid;
        let answer = match request {
            Request::Hello { .. }
            | Request::Observe { .. }
            | Request::Resume { .. }
            | Request::Claim { .. }
            | Request::Rejoin { .. } => {
                let why = Violation::Greeting;
                out.push(Effect::Disconnect { process: from, why });
                return None;
            }
            Request::CancelTicket { target, ticket } => {
                self.cancel_ticket(from, target, ticket, out);
                return None;
            }
            Request::Release { handle, strong, grants } => {
                self.release(from, handle, strong, grants, out);
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
            // Who may is for the system to say: see `grant_lane` and `promote_looper`.
            Request::RealTime { .. }
            | Request::RealTimeLooper { .. }
            | Request::StandbyLooper { .. } => Err(Errno::PERM),
            Request::Translate { target, objects } => {
                self.translate(from, target, &objects, out).map(|ticket| Reply::Ticket { ticket })
            }
            Request::ContextManager => {
                self.context_manager(from, out).map(|ticket| Reply::Ticket { ticket })
            }
            Request::BecomeContextManager { node, flags } => {
                self.become_manager(from, node, flags).map(|()| Reply::Done)
            }
            Request::OpenChannel { target } => {
                self.open_channel(from, target, out).map(|()| Reply::Done)
            }
            Request::NodeInfo { handle } => self.node_info(from, handle),
            Request::Freeze { pid, frozen } => self.freeze(from, pid, frozen, out),
            Request::FrozenInfo { pid } => self.frozen_info(from, pid),
            Request::IsFrozen { target } => self.is_frozen(from, target),
            request @ (Request::AddContext { .. }
            | Request::Contexts
            | Request::Report { .. }
            | Request::Accounts { .. }) => {
                return self.observe(uid, &request);
            }
        };
        let refused = |errno: Errno| Reply::Refused { errno: errno.raw_os_error() };
        Some(answer.unwrap_or_else(refused))
    }

    /// Those whom a ticket, a grant or a channel would tell something if it is granted, and who
    /// would therefore suffer from a flood of them.
    pub fn told_by(&self, from: ProcessId, request: &Request) -> BTreeSet<ProcessId> {
        let Some(process) = self.processes.get(&from) else { return BTreeSet::new() };
        let owner = |handle| process.handles.get(handle).map(|handle| handle.key.owner);
        match request {
            Request::Translate { target, objects } => {
                let handles = objects.iter().filter_map(|object| match object {
                    Object::Handle { handle, .. } => owner(*handle),
                    Object::Node { .. } => None,
                });
                handles.chain([*target]).collect()
            }
            Request::ContextManager => {
                self.manager_of(from).map(|manager| manager.owner).into_iter().collect()
            }
            Request::OpenChannel { target } => BTreeSet::from([from, *target]),
            Request::RealTime { channel, .. } => {
                process.channels.server_of(*channel).into_iter().collect()
            }
            _ => BTreeSet::new(),
        }
    }

    /// A process ended or was disconnected: its grants return, its nodes die, and everybody who
    /// had to do with it is told once.
    pub fn gone(&mut self, process: ProcessId, out: &mut Vec<Effect>) {
        self.forget_claims(process);
        self.end_lanes_of(process, out);
        let Some(leaving) = self.processes.get(&process) else { return };
        let (user, pid) = (leaving.identity.uid, leaving.identity.pid);
        let mut told = leaving.channels.peers();
        told.extend(self.holders_of(process));
        told.retain(|to| self.processes.contains_key(to));
        let held: Vec<NodeKey> = leaving.handles.iter().map(|(_, handle)| handle.key).collect();
        for peer in leaving.channels.peers() {
            for end in self.channels_of(peer).forget(process) {
                match end {
                    End::Client => self.refund(peer, Resource::Channels, 1),
                    End::Server => {
                        let server = self.processes.get_mut(&peer).expect("as before");
                        server.served.give_back(user, 1);
                    }
                }
            }
        }
        self.has_gone_again(process, &told);
        let leaving = self.processes.remove(&process).expect("was there");
        self.close_account(&leaving);
        self.forget_pid(pid, process);
        // First its death: those who serve it take in what it sent while it might still call.
        for to in told {
            out.push(Effect::Event { to, event: Event::Dead { process } });
        }
        for key in held {
            self.set_holding(key, process, None, out);
        }
        let own: Vec<NodeKey> = self.nodes_of(process).collect();
        for key in own {
            self.forget_awaited(key);
            let node = self.nodes.get_mut(&key).expect("just listed");
            node.is_manager = false;
            if !node.summary().held {
                self.nodes.remove(&key);
            }
        }
        let context = self.contexts.get_mut(&leaving.context).expect("contexts never go");
        let managed = context.manager.take_if(|manager| manager.owner == process);
        self.rules_changed |= managed.is_some();
    }

    /// Whether nothing is left of any process.
    pub fn is_empty(&self) -> bool {
        let nobody_joins = self.rebuild.as_ref().is_none_or(Rebuild::is_empty);
        self.processes.is_empty()
            && self.nodes.is_empty()
            && self.accounts.is_empty()
            && nobody_joins
            && self.real_time.is_empty()
            && self.spares.is_empty()
    }

    /// Grants that a process has on a handle: strong ones, and all. For checking an engine's
    /// books against ours.
    pub fn grants(&self, process: ProcessId, handle: u32) -> Option<(u32, u32)> {
        let handle = self.processes.get(&process)?.handles.get(handle)?;
        Some((handle.strong_grants as u32, handle.grants as u32))
    }

    fn open_channel(
        &mut self,
        from: ProcessId,
        target: ProcessId,
        out: &mut Vec<Effect>,
    ) -> Result<(), Errno> {
        if !self.processes.contains_key(&target) {
            return Err(self.absent(target));
        }
        let manages = self.manager_of(from).is_some_and(|manager| manager.owner == target);
        if from == target || !(manages || self.holds_of(from, target)) {
            return Err(Errno::PERM);
        }
        if self.channels_of(from).count_to(target) >= self.limits.channels_per_server {
            return Err(Errno::MFILE);
        }
        self.room(from, Resource::Channels, 1)?;
        self.room_at_server(from, target)?;
        self.last_channel += 1;
        let channel = ChannelId(self.last_channel);
        self.add_channel(channel, from, target);
        out.push(Effect::OpenChannel { channel, client: from, server: target });
        Ok(())
    }

    fn add_channel(&mut self, id: ChannelId, client: ProcessId, server: ProcessId) {
        self.charge(client, Resource::Channels);
        self.channels_of(client).add(id, Channel { peer: server, end: End::Client });
        self.channels_of(server).add(id, Channel { peer: client, end: End::Server });
        let user = self.processes[&client].identity.uid;
        self.processes.get_mut(&server).expect("it is alive").served.take(user, 1);
    }

    /// A channel is no more: the runner could not make it, or one of its ends, which are alive,
    /// gave it up. Nothing happens if the process has no such channel.
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
        self.refund(client, Resource::Channels, 1);
        let user = self.processes[&client].identity.uid;
        self.processes.get_mut(&server).expect("just seen").served.give_back(user, 1);
    }

    fn forget_pid(&mut self, pid: u32, process: ProcessId) {
        let all = self.with_pid.get_mut(&pid).expect("a process has a pid");
        all.remove(&process);
        if all.is_empty() {
            self.with_pid.remove(&pid);
        }
    }

    fn node_info(&self, from: ProcessId, handle: u32) -> Result<Reply, Errno> {
        if self.manager_of(from).is_none_or(|manager| manager.owner != from) {
            return Err(Errno::PERM);
        }
        let handle = self.processes[&from].handles.get(handle).ok_or(Errno::INVAL)?;
        let (strong, holders) = self.nodes[&handle.key].counts();
        Ok(Reply::Counts { strong, weak: holders - strong })
    }

    /// Whether a process has a handle to a node of another.
    fn holds_of(&self, holder: ProcessId, owner: ProcessId) -> bool {
        self.processes[&holder].handles.holds_of(owner)
    }

    fn channels_of(&mut self, process: ProcessId) -> &mut channel::Channels {
        &mut self.processes.get_mut(&process).expect("channels end with their ends").channels
    }
}
