//! Random histories of the broker's state: users with small shares, lying engines, channels that
//! cannot be made, real-time lanes, and brokers that die at any step and are succeeded. Arguments
//! are the number of histories and the first seed: `cargo test --release -p baton-broker --test
//! histories -- 1000000 0`.
//!
//! Owners grant their nodes themselves, too, and write lists of the holders; liars write lies.
//!
//! Each honest engine keeps a record of its events. After each step no honest engine has been
//! disconnected or lost what an honest owner gave it. No process got a grant on an honest owner's
//! node that its giver did not hold. The records agree with each other and with the state, and a
//! user without anything can still get its share.

mod model;
mod test_state;

use baton_abi::claim::{Claim, first_of};
use baton_abi::control::*;
use baton_abi::holder_list::{Entry, Holding};
use baton_abi::lane::LANES;
use baton_abi::sched_priority::SchedPriority;
use baton_broker::limits::{Limits, Rights, Usage};
use baton_broker::state::{Effect, HolderLists, NewProcess, PidNamespace, Rule, State, Thread};
use model::{EngineRecord, Rng};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use test_state::{
    FLAGS, OWNER, TestState, become_manager, held, introduce, open, release, report_of,
};

const N_STEPS: u64 = 150;
/// Number of histories without an argument.
const N_HISTORIES: u64 = 2000;
const ROOT: u32 = 0;
const STRANGERS: [u32; 3] = [1, 2, 3];
/// A user without processes.
const NEWCOMER: u32 = 9;
const NODES: u64 = 12;
/// Entries of one owner's list.
const ENTRIES: u64 = 6;
/// Most processes of root and of the broker's own user, who may take everything.
const MOST_OWNERS: usize = 4;

/// Limits that histories reach. A user's amounts equal those of all its processes: how they share
/// them is not tested here.
fn limits() -> Limits {
    Limits {
        process: Usage { processes: 1, handles: 12, nodes: 9, channels: 5 },
        user: Usage { processes: 6, handles: 72, nodes: 54, channels: 30 },
        all: Usage { processes: 26, handles: 160, nodes: 160, channels: 64 },
        handles_received: 72,
        channels_per_server: 2,
        channels_served: 48,
        real_time_lanes_per_server: 6,
        real_time_lanes_per_user: 3,
        objects_per_ticket: 4,
        claims: 200,
        ..Limits::default()
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
/// An engine's relation to the current broker.
enum Presence {
    /// Admitted by this broker, or rejoined.
    Connected,
    /// Readmitted, and making its claims.
    Joining,
    /// Known to the previous broker only.
    Absent,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Character {
    Honest,
    Liar,
}

struct Engine {
    uid: u32,
    pid: u32,
    character: Character,
    presence: Presence,
    record: EngineRecord,
    manages: Option<NodeId>,
    frozen: bool,
    /// Servers of which it is or was the client. Each counts as a channel.
    servers: BTreeSet<ProcessId>,
    /// Processes with which it had a channel that this broker need not know.
    claimed: BTreeSet<ProcessId>,
}

impl Engine {
    fn is_honest(&self) -> bool {
        self.character == Character::Honest
    }

    fn is_connected(&self) -> bool {
        self.presence == Presence::Connected
    }
}

struct History {
    core: TestState,
    rng: Rng,
    engines: BTreeMap<ProcessId, Engine>,
    dead: BTreeSet<ProcessId>,
    rules: BTreeMap<String, Rule>,
    promoted: BTreeSet<u32>,
    pids: u32,
    era: u32,
    /// Whether to check that a refused request changes nothing, which is slow.
    compares: bool,
    counts: Counts,
}

/// Totals over the steps of histories.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    steps: u64,
    refused: u64,
    brokers: u64,
    rejoined: u64,
    denied: u64,
    disconnected: u64,
    failed_channels: u64,
    probes: u64,
    introduced: u64,
    not_held: u64,
    dead_nodes: u64,
}

impl History {
    fn new(seed: u64) -> History {
        History {
            core: TestState::with(limits()),
            rng: Rng(seed),
            engines: BTreeMap::new(),
            dead: BTreeSet::from([ProcessId::BROKER]),
            rules: BTreeMap::new(),
            promoted: BTreeSet::new(),
            pids: 0,
            era: 0,
            compares: seed.is_multiple_of(32),
            counts: Counts::default(),
        }
    }

    fn play(seed: u64) -> Counts {
        let mut history = History::new(seed);
        for _ in 0..N_STEPS {
            history.step();
            history.check();
            history.counts.steps += 1;
        }
        history.end_rejoin();
        history.check();
        while let Some(process) = history.engines.keys().next().copied() {
            history.die(process);
            history.check();
        }
        assert!(history.core.state.is_empty(), "left: {:?}", history.core.state);
        assert_eq!(history.promoted, BTreeSet::new(), "loopers of nobody");
        history.counts
    }

    fn step(&mut self) {
        let away: Vec<ProcessId> =
            self.engines.iter().filter(|(_, it)| !it.is_connected()).map(|(id, _)| *id).collect();
        if !away.is_empty() && self.rng.below(5) < 3 {
            let who = self.rng.pick(&away).expect("some are");
            return self.rejoin_step(who);
        }
        match self.rng.below(120) {
            0 => return self.restart(),
            1 | 2 if !self.core.state.is_rejoin_over() => return self.end_rejoin(),
            _ => {}
        }
        let here: Vec<ProcessId> =
            self.engines.iter().filter(|(_, it)| it.is_connected()).map(|(id, _)| *id).collect();
        let Some(who) = self.rng.pick(&here) else { return self.admit() };
        match (self.engines[&who].character, self.rng.below(20)) {
            (_, 0 | 1) => self.admit(),
            (_, 2) if self.rng.once_in(3) => self.die(who),
            (_, 3) => self.real_time(who, &here),
            (Character::Liar, 4..) => self.liar_step(who, &here),
            (Character::Honest, _) => self.honest_step(who, &here),
            _ => {}
        }
    }

    fn admit(&mut self) {
        let users = [ROOT, OWNER, STRANGERS[0], STRANGERS[0], STRANGERS[1], STRANGERS[2]];
        let uid = self.rng.pick(&users).expect("there are some");
        let owners = |it: &&Engine| it.uid == ROOT || it.uid == OWNER;
        let is_owner = uid == ROOT || uid == OWNER;
        if is_owner && self.engines.values().filter(owners).count() >= MOST_OWNERS {
            return;
        }
        // A new process must not take the place of the user's own processes that are still to
        // rejoin.
        let of_user = self.engines.values().filter(|it| it.uid == uid).count();
        if !self.core.state.is_rejoin_over() && of_user >= limits().user.processes as usize {
            return;
        }
        self.pids += 1;
        let pid = self.pids;
        match self.core.admit_to(pid, uid, "binder") {
            Ok(process) => {
                assert!(!self.dead.contains(&process), "an id was used twice");
                // Root and the broker's own user are never liars: they may take everything.
                let lies = !is_owner && self.rng.below(3) == 0;
                let character = if lies { Character::Liar } else { Character::Honest };
                let (record, presence) = (EngineRecord::default(), Presence::Connected);
                let (manages, frozen) = (None, false);
                let (servers, claimed) = Default::default();
                let new = Engine {
                    uid,
                    pid,
                    character,
                    presence,
                    record,
                    manages,
                    frozen,
                    servers,
                    claimed,
                };
                assert!(self.engines.insert(process, new).is_none());
            }
            Err(errno) => {
                assert_eq!(errno, Errno::DQUOT);
                assert!(!is_owner, "root was refused");
            }
        }
    }

    /// A random request of an honest engine.
    fn honest_step(&mut self, who: ProcessId, here: &[ProcessId]) {
        let record = self.engines[&who].record.clone();
        let grants: Vec<(ProcessId, NodeId)> = record.held.keys().copied().collect();
        let channels: Vec<ChannelId> = record.channels.keys().copied().collect();
        let peers: Vec<ProcessId> = record.channels.values().map(|(_, peer)| *peer).collect();
        let owners: Vec<ProcessId> = grants.iter().map(|(owner, _)| *owner).collect();
        match self.rng.below(30) {
            0 => {
                let node = self.rng.below(NODES);
                if self.ask(who, become_manager(node)) == Some(Reply::Done) {
                    self.engine(who).manages = Some(NodeId(node));
                }
            }
            1..4 => _ = self.ask(who, Request::ContextManager),
            4..7 => {
                if self.rng.once_in(2)
                    && let Some((HeldNode { owner: target, entry, .. }, _)) = self.listed(who)
                {
                    self.ask(who, Request::OpenChannel { target, entry });
                } else if let Some(target) = self.rng.pick(&owners).or(self.rng.pick(here)) {
                    self.ask(who, open(target));
                }
            }
            7..13 => {
                let Some(target) = self.rng.pick(&peers) else { return };
                let wanted = self.rng.below(5);
                let mut objects: Vec<HeldNode> =
                    (0..wanted).filter_map(|_| self.object(who, &grants)).collect();
                // Those of the receiver are refused.
                let refused = self.rng.once_in(16);
                objects.retain(|object| refused || object.owner != target);
                self.introduce(who, target, &objects);
            }
            13..18 => {
                let Some(node) = self.rng.pick(&grants) else { return };
                self.release(who, node);
            }
            18 => {
                let Some(channel) = self.rng.pick(&channels) else { return };
                if self.rng.once_in(3) {
                    self.ask(who, Request::CloseChannel { channel });
                    self.end_channel(who, channel);
                }
            }
            19 => {
                let Some(target) = self.rng.pick(&peers) else { return };
                let ticket = TicketId(first_of(self.era) + 1);
                // Before both ends have rejoined, this broker has no such channel.
                if self.core.state.is_rejoin_over() && self.is_honest_pair(who, target) {
                    self.ask(who, Request::CancelTicket { target, ticket });
                }
            }
            20 => {
                let pid = self.rng.pick(here).map_or(0, |other| self.engines[&other].pid);
                let frozen = self.rng.once_in(2);
                self.ask(who, Request::Freeze { pid, frozen });
            }
            21 => {
                let Some(target) = self.rng.pick(&owners) else { return };
                self.ask(who, Request::IsFrozen { target });
                self.ask(who, Request::FrozenTouched { target, two_way: true });
            }
            22 => {
                let owner = self.rng.pick(here).expect("the asker is");
                let node = NodeId(self.rng.below(NODES));
                self.ask(who, Request::NodeInfo { owner, node });
            }
            23..29 => {
                let holder = self.rng.pick(&peers).or(self.rng.pick(here)).expect("the asker is");
                self.list(who, holder);
            }
            _ => {
                let number = self.rng.below(100);
                self.ask(who, Request::Barrier { number });
                self.ask(who, Request::Accounts { from: 0 });
                self.ask(who, Request::DescribeCalls);
                self.ask(who, Request::Calls { calls: Vec::new() });
            }
        }
    }

    /// Grants a node directly, or takes such a grant back.
    fn list(&mut self, owner: ProcessId, holder: ProcessId) {
        let entry = self.rng.below(ENTRIES) as u32;
        let (node, strength) = (NodeId(self.rng.below(NODES)), self.rng.strength());
        if self.rng.once_in(3) {
            self.core.lists.free(owner, entry);
        } else {
            let holding = Holding { holder, node, flags: FLAGS, strength };
            self.core.lists.write(owner, entry, Entry::of(holding));
        }
    }

    /// A direct grant of a process, and how strongly it has it.
    fn listed(&mut self, holder: ProcessId) -> Option<(HeldNode, Strength)> {
        let owners: Vec<ProcessId> = self.engines.keys().copied().collect();
        let mut all = Vec::new();
        for owner in owners {
            for entry in 0..ENTRIES as u32 {
                let holding = self.core.lists.entry(owner, entry);
                if let Some(Holding { node, strength, .. }) =
                    holding.filter(|it| it.holder == holder)
                {
                    let entry = Some(entry);
                    all.push((HeldNode { owner, node, strength, entry }, strength));
                }
            }
        }
        self.rng.pick(&all)
    }

    /// A node that the engine holds, now and then not so strongly.
    fn object(&mut self, who: ProcessId, grants: &[(ProcessId, NodeId)]) -> Option<HeldNode> {
        let strength = self.rng.strength();
        match self.rng.pick(grants) {
            Some((owner, node)) if self.rng.once_in(2) => Some(held(owner, node.0, strength)),
            _ => self.listed(who).map(|(listed, _)| HeldNode { strength, ..listed }),
        }
    }

    /// Whether a process holds a node so strongly, by the broker's grants or by its owner's list.
    fn holds(&self, who: ProcessId, object: HeldNode) -> bool {
        let HeldNode { owner, node, strength, entry } = object;
        let suffices = |most| most == Strength::Strong || strength == Strength::Weak;
        let booked = self.core.grants(who, owner, node.0);
        let booked = booked.map(|(strong, _)| match strong {
            0 => Strength::Weak,
            _ => Strength::Strong,
        });
        let listed = entry.and_then(|entry| self.core.lists.entry(owner, entry));
        let listed = listed.filter(|it| (it.holder, it.node) == (who, node));
        booked.is_some_and(suffices) || listed.is_some_and(|it| suffices(it.strength))
    }

    /// Passes nodes on, and checks which of them the receiver got.
    fn introduce(&mut self, from: ProcessId, target: ProcessId, objects: &[HeldNode]) {
        let held: Vec<bool> = objects.iter().map(|object| self.holds(from, *object)).collect();
        let reply = self.core.ask(from, introduce(target, objects));
        let effects = self.core.effects();
        if let Some(Reply::Ticket { .. }) = reply {
            let granted = effects.iter().find_map(|effect| match effect {
                Effect::Event { event: Event::Ticket { objects, .. }, .. } => Some(objects),
                _ => None,
            });
            let granted = granted.expect("a ticket was sent");
            assert_eq!(granted.len(), objects.len());
            for ((object, held), granted) in objects.iter().zip(held).zip(granted) {
                assert_eq!(granted.strength, object.strength);
                if !self.engines.contains_key(&object.owner) {
                    self.counts.dead_nodes += 1;
                } else if held {
                    assert_eq!((granted.owner, granted.node), (object.owner, object.node));
                    self.counts.introduced += 1;
                } else {
                    assert_eq!(granted.owner, ProcessId::BROKER, "{object:?} was not held");
                    self.counts.not_held += 1;
                }
            }
        } else {
            self.counts.refused += 1;
            assert_eq!(effects, [], "{reply:?}, and yet something happened");
        }
        self.carry_out(effects, Some(from));
    }

    /// Returns a legal number of grants, often all.
    fn release(&mut self, who: ProcessId, node: (ProcessId, NodeId)) {
        let held = self.engines[&who].record.held[&node];
        let (strong, grants) = if self.rng.once_in(2) {
            (held.strong, held.grants)
        } else {
            let left = self.rng.below(u64::from(held.grants) + 1) as u32;
            let left_strong = self.rng.below(u64::from(held.strong.min(left)) + 1) as u32;
            (held.strong - left_strong, held.grants - left)
        };
        self.engine(who).record.return_grants(node, strong, grants);
        self.ask(who, release(node.0, node.1.0, strong, grants));
    }

    /// A random request of a liar.
    fn liar_step(&mut self, who: ProcessId, here: &[ProcessId]) {
        let rng = &mut self.rng;
        let target = rng.pick(here).expect("the liar is");
        let anybody = if rng.once_in(4) { ProcessId(rng.below(30)) } else { target };
        let channel = ChannelId(first_of(self.era) + rng.below(40));
        let own: Vec<ChannelId> = self.engines[&who].record.channels.keys().copied().collect();
        let channel = if rng.once_in(2) { rng.pick(&own).unwrap_or(channel) } else { channel };
        let lane = rng.below(LANES as u64 + 2) as u32;
        let own_grants: Vec<(ProcessId, NodeId)> =
            self.engines[&who].record.held.keys().copied().collect();
        let other = ProcessId(first_of(self.era) + rng.below(30));
        let (owner, node) = (rng.pick(&[target, anybody, other]), NodeId(rng.below(NODES)));
        let some = (owner.expect("there are three"), node);
        let some = if rng.once_in(2) { rng.pick(&own_grants).unwrap_or(some) } else { some };
        let objects: Vec<HeldNode> = (0..rng.below(6))
            .map(|_| {
                let (owner, node) = if rng.once_in(2) { some } else { (target, node) };
                let entry = (!rng.once_in(4)).then(|| rng.below(ENTRIES) as u32);
                HeldNode { owner, node, strength: rng.strength(), entry }
            })
            .collect();
        if rng.once_in(3) {
            // It lists itself a friend, or any process any node.
            let holding = Holding { holder: anybody, node, flags: FLAGS, strength: rng.strength() };
            let entry = rng.below(ENTRIES) as u32;
            self.core.lists.write(who, entry, Entry::of(holding));
        }
        let pid = self.engines[&target].pid;
        let ticket = TicketId(rng.below(50));
        // Violations are rare, so that a liar lives long enough to do harm.
        let choices = if rng.once_in(8) { 26 } else { 19 };
        let request = match rng.below(choices) {
            0..6 => return self.introduce(who, anybody, &objects),
            6..9 => {
                let entry = Some(rng.below(ENTRIES) as u32);
                Request::OpenChannel { target: anybody, entry }
            }
            9 => Request::ContextManager,
            10 => become_manager(rng.below(NODES)),
            11 => Request::CloseChannel { channel },
            12 | 13 => Request::Freeze { pid, frozen: rng.once_in(2) },
            14 => Request::LeaveRealTime { channel, lane },
            15 => Request::Ordinary { channel, lane },
            16 => Request::FrozenTouched { target: anybody, two_way: rng.once_in(2) },
            17 => Request::NodeInfo { owner: some.0, node: some.1 },
            18 => Request::Barrier { number: 7 },
            19 => Request::RealTime { channel, lane, tid: 1 },
            20 => Request::CancelTicket { target: anybody, ticket },
            21 | 22 => release(some.0, some.1.0, rng.below(3) as u32, rng.below(3) as u32),
            23 => Request::Claim { claims: Vec::new() },
            24 => Request::Rejoin { manages: vec![(NodeId(1), 0)] },
            _ => Request::Observe { version: VERSION },
        };
        let returned = match request {
            Request::Release { ref released } => {
                released.first().map(|it| ((it.owner, it.node), it.strong, it.grants))
            }
            _ => None,
        };
        let managed = match request {
            Request::BecomeContextManager { node, .. } => Some(node),
            _ => None,
        };
        let closed = match request {
            Request::CloseChannel { channel } if own.contains(&channel) => Some(channel),
            _ => None,
        };
        let reply = self.ask(who, request);
        if let Some(channel) = closed {
            self.end_channel(who, channel);
        }
        let Some(engine) = self.engines.get_mut(&who) else { return };
        if let Some((node, strong, grants)) = returned
            && let Some(held) = engine.record.held.get(&node)
            && held.strong >= strong
            && held.grants >= grants
        {
            engine.record.return_grants(node, strong, grants);
        }
        if reply == Some(Reply::Done) && managed.is_some() {
            engine.manages = managed;
        }
    }

    /// Does what the runner does for requests about real-time lanes.
    fn real_time(&mut self, who: ProcessId, here: &[ProcessId]) {
        let record = &self.engines[&who].record;
        let channels: Vec<ChannelId> = record.channels.keys().copied().collect();
        let rng = &mut self.rng;
        let channel = ChannelId(first_of(self.era) + rng.below(40));
        let channel = if rng.once_in(8) { Some(channel) } else { rng.pick(&channels) };
        let Some(channel) = channel else { return };
        let presence = (channel, rng.below(4) as u32);
        // Some threads appear in several requests.
        let tid = 100 * self.engines[&who].pid + rng.below(3) as u32;
        let thread = Thread { pid: self.engines[&who].pid, tid, started: 1 };
        let mut out = Vec::new();
        match rng.below(4) {
            0 => self.core.state.set_standby_looper(who, thread, tid),
            1 => {
                if self.core.state.priority_of_lane(who, presence).is_ok() {
                    self.promote(presence, thread, &mut out);
                }
            }
            _ => {
                let priority = SchedPriority::fifo(1 + rng.below(3) as u8);
                let granted = self.core.state.grant_lane(who, presence, priority, &mut out);
                let is_own = self.engines[&who].record.channels.get(&channel);
                let is_own = is_own.is_some_and(|(end, _)| *end == End::Client);
                assert!(granted.is_err() || is_own, "a lane of another's channel");
            }
        }
        assert!(here.contains(&who));
        self.carry_out(out, None);
    }

    fn promote(&mut self, presence: (ChannelId, u32), thread: Thread, out: &mut Vec<Effect>) {
        let succeeds = !self.rng.once_in(4);
        if succeeds {
            self.promoted.insert(thread.tid);
        }
        self.core.state.set_looper(presence, thread, succeeds, out);
    }

    fn ask(&mut self, from: ProcessId, request: Request) -> Option<Reply> {
        let before = self.compares.then(|| format!("{:?}", self.core.state));
        let what = format!("{request:?}");
        let reply = self.core.ask(from, request);
        let effects = self.core.effects();
        if let Some(Reply::Refused { .. }) = reply {
            self.counts.refused += 1;
            assert_eq!(effects, [], "{what} was refused, and yet something happened");
            if let Some(before) = before {
                assert_eq!(format!("{:?}", self.core.state), before, "{what}");
            }
        }
        self.carry_out(effects, Some(from));
        reply
    }

    /// Carries out effects as the runner does. Only the asker may be disconnected.
    fn carry_out(&mut self, effects: Vec<Effect>, asker: Option<ProcessId>) {
        let mut disconnected = None;
        let mut work = std::collections::VecDeque::from(effects);
        while let Some(effect) = work.pop_front() {
            let mut more = Vec::new();
            match effect {
                Effect::Event { to, event } => self.receive_event(to, event),
                Effect::OpenChannel { channel, client, server } => {
                    for (at, end, peer) in
                        [(client, End::Client, server), (server, End::Server, client)]
                    {
                        self.engine(at).record.add_channel(channel, end, peer);
                    }
                    self.engine(client).servers.insert(server);
                    if self.rng.once_in(8) {
                        self.counts.failed_channels += 1;
                        self.core.state.end_channel(client, channel, &mut more);
                        self.end_channel(client, channel);
                    }
                }
                Effect::SetFrozen { process, frozen } => {
                    self.engines.get_mut(&process).expect("it is alive").frozen = frozen;
                }
                Effect::Promote { lane: presence, thread, .. } => {
                    self.promote(presence, thread, &mut more)
                }
                Effect::SetPriority { thread, priority: None } => {
                    assert!(self.promoted.remove(&thread.tid), "demoted twice");
                }
                Effect::SetPriority { .. } => {}
                Effect::Disconnect { process, why } => {
                    assert_eq!(Some(process), asker, "disconnected for another's request: {why}");
                    let engine = &self.engines[&process];
                    assert!(!engine.is_honest(), "an honest engine was disconnected: {why}");
                    self.counts.disconnected += 1;
                    disconnected = Some(process);
                }
            }
            work.extend(more);
        }
        if let Some(process) = disconnected {
            self.disconnect(process);
        }
    }

    fn receive_event(&mut self, to: ProcessId, event: Event) {
        let rejoin_is_over = self.core.state.is_rejoin_over();
        if let Event::Dead { process } = event {
            // Or it never existed: a liar said that it did, and passed on a handle to its node.
            assert!(!self.engines.contains_key(&process), "{process:?} is alive");
            self.dead.insert(process);
        }
        if let Event::Denied { owner, node } = event {
            let gave = self.engines.get(&owner).is_some_and(|owner| {
                let told = owner.record.nodes.get(&node);
                owner.is_honest() && told.is_some_and(|told| told.holders.contains_key(&to))
            });
            assert!(!self.engines[&to].is_honest() || !gave, "denied what it was given: {node:?}");
            self.counts.denied += 1;
        }
        let engine = self.engines.get_mut(&to).expect("only the living are told");
        assert!(engine.is_connected(), "told before it has come back: {event:?}");
        let record = &mut engine.record;
        match event {
            Event::Ticket { objects, .. } => {
                objects.iter().for_each(|granted| record.add_grant(to, granted));
            }
            Event::References { .. } => {
                let is_news = record.add_references(&event);
                assert!(
                    is_news || !rejoin_is_over || !engine.is_honest(),
                    "told of nothing: {event:?}"
                );
            }
            Event::Denied { owner, node } => _ = record.held.remove(&(owner, node)),
            // Each ticket with a dead process's node repeats the event.
            Event::Dead { process } => record.add_death(process),
            Event::OrdinaryLane { .. }
            | Event::RealTimeLane { .. }
            | Event::TicketCancelled { .. }
            | Event::Frozen { .. }
            | Event::DescribeCalls
            | Event::Barrier { .. } => (),
            other => panic!("{other:?}"),
        }
    }

    /// Closes a channel's socket at one end; the other end sees that.
    fn end_channel(&mut self, at: ProcessId, channel: ChannelId) {
        let Some(engine) = self.engines.get_mut(&at) else { return };
        let Some((_, peer)) = engine.record.channels.remove(&channel) else { return };
        engine.claimed.insert(peer);
        let Some(engine) = self.engines.get_mut(&peer) else { return };
        if engine.record.channels.get(&channel).is_some_and(|(_, with)| *with == at) {
            engine.record.channels.remove(&channel);
            engine.claimed.insert(at);
        }
    }

    /// Ends a process.
    fn die(&mut self, process: ProcessId) {
        match self.engines[&process].presence {
            Presence::Connected => self.disconnect(process),
            Presence::Joining => {
                self.core.gone(process);
                assert_eq!(self.core.effects(), [], "it was not here yet");
                self.remove_engine(process);
            }
            Presence::Absent => self.remove_engine(process),
        }
    }

    /// Removes an engine and its ends of channels.
    fn remove_engine(&mut self, process: ProcessId) {
        self.engines.remove(&process);
        self.core.lists.remove(process);
        for other in self.engines.values_mut() {
            other.record.channels.retain(|_, (_, peer)| *peer != process);
            other.servers.remove(&process);
        }
        self.dead.insert(process);
    }

    /// Ends an engine's connection. For a connected engine that is its death.
    fn disconnect(&mut self, process: ProcessId) {
        let engine = &self.engines[&process];
        if !engine.is_connected() {
            self.core.gone(process);
            assert_eq!(self.core.effects(), [], "it was not here yet");
            self.engine(process).presence = Presence::Absent;
            return;
        }
        let must_be_told: BTreeSet<ProcessId> = self.must_be_told_of(process).collect();
        let known = |(_, other): &(&ProcessId, &Engine)| {
            other.record.is_related_to(process) || other.claimed.contains(&process)
        };
        let is_related_to: BTreeSet<ProcessId> =
            self.engines.iter().filter(known).map(|(id, _)| *id).collect();
        self.remove_engine(process);
        self.core.gone(process);
        let mut told = BTreeSet::new();
        for effect in self.core.effects() {
            match effect {
                Effect::Event { to, event: Event::Dead { process: dead } } => {
                    assert_eq!(dead, process);
                    assert!(told.insert(to), "told twice");
                    let knew = self.engines[&to].record.deaths.contains(&process);
                    assert!(!knew, "{to:?} was told twice");
                    let known = is_related_to.contains(&to) || !self.engines[&to].is_honest();
                    assert!(known, "no concern of {to:?}");
                    self.receive_event(to, Event::Dead { process });
                }
                effect => self.carry_out(vec![effect], None),
            }
        }
        let rejoin_is_over = self.core.state.is_rejoin_over();
        assert!(!rejoin_is_over || told.is_superset(&must_be_told), "{must_be_told:?} must know");
    }

    /// Honest engines that hold a process's node, or have or had a channel that the process also
    /// has or had.
    fn must_be_told_of(&self, process: ProcessId) -> impl Iterator<Item = ProcessId> {
        let is_honest = self.engines[&process].is_honest();
        let others = self.engines.iter().filter(|(_, it)| it.is_honest() && it.is_connected());
        let must_be_told = others.filter(move |(_, other)| {
            let holds = other.record.holds_node_of(process);
            let met = other.record.met.contains(&process) || other.record.is_connected(process);
            holds || is_honest && met
        });
        must_be_told.map(|(id, _)| *id)
    }

    fn restart(&mut self) {
        self.era += 1;
        self.counts.brokers += 1;
        for rule in self.rules.values_mut() {
            rule.manager.take_if(|(manager, _)| self.dead.contains(manager));
        }
        let state = State::succeed(limits(), OWNER, self.era, self.rules.clone());
        let lists = std::mem::take(&mut self.core.lists);
        self.core = TestState { lists, ..TestState::of(state) };
        self.promoted.clear();
        for engine in self.engines.values_mut() {
            engine.presence = Presence::Absent;
            engine.record.deaths.clear();
            engine.record.met.clear();
            engine.servers.clear();
        }
    }

    /// Lets an absent or joining engine take its next step.
    fn rejoin_step(&mut self, who: ProcessId) {
        if self.rng.once_in(60) {
            return self.die(who);
        }
        let Engine { uid, pid, presence, frozen, .. } = self.engines[&who];
        if presence == Presence::Absent {
            let security_context = "label".to_owned();
            let identity =
                Identity { process: who, pid, uid, security_context, is_served_by_root: false };
            let rights = Rights::default();
            let served = u32::MAX;
            let namespace = PidNamespace::Brokers;
            let state = &mut self.core.state;
            let result = state.readmit(identity, namespace, rights, "binder", served, frozen);
            assert_eq!(result, Ok(()), "{who:?} of {uid} may not come back");
            self.engine(who).presence = Presence::Joining;
            return;
        }
        let is_honest = self.engines[&who].is_honest();
        let mut claims = self.engines[&who].record.claims();
        if !is_honest {
            claims.retain(|_| !self.rng.once_in(4));
            let lies = self.rng.below(5);
            claims.extend((0..lies).map(|_| some_lie(&mut self.rng, self.era)));
        }
        self.rng.shuffle(&mut claims);
        if !is_honest {
            self.engine(who).record = EngineRecord::of_claims(&claims);
        }
        // The engine may disconnect amid its claims and start anew, or send another request.
        let part = self.rng.below(claims.len() as u64 + 1) as usize;
        let leaves = self.rng.once_in(8);
        if leaves || (!is_honest && self.rng.once_in(16)) {
            if !is_honest {
                self.engine(who).record = EngineRecord::of_claims(&claims[..part]);
            }
            self.ask(who, Request::Claim { claims: claims[..part].to_vec() });
            if !leaves {
                let nothing = if self.rng.once_in(2) {
                    Request::Rejoin { manages: Vec::new() }
                } else {
                    Request::ContextManager
                };
                self.finish_joining(who, nothing);
            } else {
                self.disconnect(who);
            }
            return;
        }
        for part in [&claims[..part], &claims[part..]] {
            let reply = self.ask(who, Request::Claim { claims: part.to_vec() });
            assert_eq!(reply, None);
        }
        let manages = self.engines[&who].manages.map(|node| (node, 0));
        let manages = if !is_honest && self.rng.once_in(2) {
            vec![(NodeId(self.rng.below(NODES)), 0)]
        } else {
            manages.into_iter().collect()
        };
        self.finish_joining(who, Request::Rejoin { manages });
    }

    /// Sends an engine's last request while it is joining. The engine is connected afterwards if
    /// its claims are possible.
    fn finish_joining(&mut self, who: ProcessId, request: Request) {
        let is_rejoin = matches!(request, Request::Rejoin { .. });
        assert_eq!(self.core.ask(who, request), None);
        let effects = self.core.effects();
        self.engine(who).presence = if is_rejoin { Presence::Connected } else { Presence::Joining };
        self.counts.rejoined += 1;
        let disconnects = |effect: &Effect| matches!(effect, Effect::Disconnect { .. });
        let fails = effects.iter().any(disconnects);
        let is_honest = self.engines[&who].is_honest();
        assert!(!fails || !is_honest, "an honest engine was not taken back: {effects:?}");
        if fails {
            self.counts.disconnected += 1;
            self.remove_engine(who);
            self.core.gone(who);
            let effects = self.core.effects();
            return self.carry_out(effects, None);
        }
        self.carry_out(effects, Some(who));
    }

    fn end_rejoin(&mut self) {
        let late: Vec<ProcessId> =
            self.engines.iter().filter(|(_, it)| !it.is_connected()).map(|(id, _)| *id).collect();
        let joining: BTreeSet<ProcessId> = late
            .iter()
            .filter(|id| self.engines[id].presence == Presence::Joining)
            .copied()
            .collect();
        let mut must_be_told = BTreeSet::new();
        for process in &late {
            must_be_told.extend(self.must_be_told_of(*process).map(|id| (id, *process)));
        }
        late.into_iter().for_each(|process| self.remove_engine(process));
        self.core.state.end_rejoin(&mut self.core.effects);
        let mut told = BTreeSet::new();
        for effect in self.core.effects() {
            match effect {
                Effect::Disconnect { process, .. } => {
                    assert!(joining.contains(&process), "{process:?} was in time");
                    self.core.state.remove_process(process, &mut Vec::new());
                }
                Effect::Event { to, event: Event::Dead { process } } => {
                    assert!(told.insert((to, process)), "told twice");
                    let knew = self.engines[&to].record.deaths.contains(&process);
                    assert!(!knew || process == ProcessId::BROKER, "{to:?} knew of {process:?}");
                    self.receive_event(to, Event::Dead { process });
                }
                effect => self.carry_out(vec![effect], None),
            }
        }
        assert!(told.is_superset(&must_be_told), "{must_be_told:?} must know");
    }

    fn engine(&mut self, process: ProcessId) -> &mut Engine {
        self.engines.get_mut(&process).expect("it is alive")
    }

    fn is_honest_pair(&self, one: ProcessId, other: ProcessId) -> bool {
        let is_good =
            |id| self.engines.get(&id).is_some_and(|it| it.is_honest() && it.is_connected());
        is_good(one) && is_good(other)
    }

    fn check(&mut self) {
        if let Some(rules) = self.core.state.changed_rules() {
            self.rules = rules;
        }
        for (id, engine) in
            self.engines.iter().filter(|(_, it)| it.is_connected() && it.is_honest())
        {
            for ((owner, node), held) in &engine.record.held {
                let grants = self.core.grants(*id, *owner, node.0);
                assert_eq!(grants, Some((held.strong, held.grants)), "{id:?} {owner:?} {node:?}");
            }
        }
        // The broker's own book, without lists.
        let report = report_of(&TestState::of(self.core.state.clone()), ROOT);
        let shown: BTreeMap<ProcessId, &ProcessReport> = report
            .contexts
            .iter()
            .flat_map(|context| &context.processes)
            .map(|process| (ProcessId(process.process), process))
            .collect();
        let here: BTreeSet<ProcessId> =
            self.engines.iter().filter(|(_, it)| it.is_connected()).map(|(id, _)| *id).collect();
        assert!(shown.keys().eq(here.iter()), "who is here");
        self.check_shares(&shown);
        self.check_loopers(&shown);
        if self.core.state.is_rejoin_over() {
            self.check_agreement(&shown);
            if self.counts.steps.is_multiple_of(16) {
                self.check_guaranteed_shares();
            }
        }
    }

    /// Checks that users' shares are the sums of their processes'.
    fn check_shares(&mut self, shown: &BTreeMap<ProcessId, &ProcessReport>) {
        let mut truth: BTreeMap<u32, [u64; 4]> = BTreeMap::new();
        let mut held_by: BTreeMap<ProcessId, u64> = BTreeMap::new();
        for (_, holder, _) in shown.values().flat_map(|process| &process.holdings) {
            *held_by.entry(ProcessId(*holder)).or_default() += 1;
        }
        let managers: BTreeMap<ProcessId, NodeId> =
            self.rules.values().filter_map(|rule| rule.manager).collect();
        for (id, engine) in &mut self.engines {
            let of_user = truth.entry(engine.uid).or_default();
            if engine.presence == Presence::Absent {
                continue;
            }
            of_user[0] += 1;
            let Some(process) = shown.get(id) else { continue };
            of_user[1] += held_by.get(id).copied().unwrap_or_default();
            let nodes: BTreeSet<u64> = process.holdings.iter().map(|(node, ..)| *node).collect();
            let unheld = managers
                .get(id)
                .filter(|node| engine.manages == Some(**node) && !nodes.contains(&node.0));
            of_user[2] += (nodes.len() + usize::from(unheld.is_some())) as u64;
            let as_client = process.channels.iter().filter(|(.., server)| !server);
            let servers: BTreeSet<ProcessId> =
                as_client.clone().map(|(_, server, _)| ProcessId(*server)).collect();
            engine.servers.extend(&servers);
            engine.record.met.extend(process.channels.iter().map(|(_, peer, _)| ProcessId(*peer)));
            of_user[3] += (as_client.count() + engine.servers.difference(&servers).count()) as u64;
        }
        truth.retain(|_, shares| shares.iter().any(|taken| *taken > 0));
        let reply = self.core.observe(ROOT, &Request::Accounts { from: 0 });
        let Some(Reply::Accounts { accounts, next: None }) = reply else { panic!("{reply:?}") };
        let shares = accounts.iter().map(|account| {
            let taken = |at: usize| account.shares[at].taken;
            (account.uid, [taken(0), taken(1), taken(2), taken(3)])
        });
        // The report always contains the asker.
        let shares = shares.filter(|(_, taken)| *taken != [0; 4]);
        let mut shares: BTreeMap<u32, [u64; 4]> = shares.collect();
        if !self.core.state.is_rejoin_over() {
            // Grants on nodes of processes that have not rejoined are not reported.
            shares.iter_mut().for_each(|(_, taken)| taken[1] = 0);
            truth.iter_mut().for_each(|(_, taken)| taken[1] = 0);
        }
        assert_eq!(shares, truth, "shares");
    }

    /// Checks that exactly the promoted threads are loopers of lanes.
    fn check_loopers(&self, shown: &BTreeMap<ProcessId, &ProcessReport>) {
        let lanes = shown.values().flat_map(|process| &process.real_time);
        let loopers = lanes.filter_map(|lane| lane.looper.as_ref()).filter(|it| it.promoted);
        let loopers: BTreeSet<u32> = loopers.map(|looper| looper.tid).collect();
        assert_eq!(loopers, self.promoted, "who is promoted");
    }

    /// Checks that honest holders, honest owners and the state agree.
    fn check_agreement(&self, shown: &BTreeMap<ProcessId, &ProcessReport>) {
        let honest = || {
            self.engines.iter().filter(|(_, engine)| engine.is_connected() && engine.is_honest())
        };
        for (id, engine) in honest() {
            let mut told_of = BTreeSet::new();
            for (node, told) in &engine.record.nodes {
                let holders = told.holders.iter();
                told_of.extend(holders.map(|(by, how)| (node.0, by.0, *how == Strength::Strong)));
                let strong = told.holders.values().any(|how| *how == Strength::Strong);
                assert_eq!((told.strong, told.held), (strong, true), "{id:?} {node:?}");
            }
            assert!(told_of.iter().eq(&shown[id].holdings), "{id:?} was not told of a holder");
            for (&(owner, node), held) in &engine.record.held {
                assert!(!self.dead.contains(&owner), "{id:?} was not told of {owner:?}");
                let owner = self.engines.get(&owner);
                if let Some(owner) = owner.filter(|it| it.is_honest()) {
                    let told = owner.record.nodes.get(&node);
                    let told = told.and_then(|told| told.holders.get(id));
                    assert_eq!(told, Some(&held.strength()), "{id:?} {node:?}");
                }
            }
            for dead in &engine.record.deaths {
                assert!(self.dead.contains(dead), "{id:?} of {dead:?}");
            }
            for (channel, (_, peer)) in &engine.record.channels {
                assert!(!self.dead.contains(peer), "{id:?} was not told of {peer:?}");
                let connects = shown[id].channels.iter().any(|(name, ..)| *name == channel.0);
                assert!(connects || !self.is_honest_pair(*id, *peer), "{id:?} {channel:?}");
            }
            for (channel, peer, _) in &shown[id].channels {
                let known = engine.record.channels.get(&ChannelId(*channel));
                assert_eq!(known.map(|(_, peer)| peer.0), Some(*peer), "{id:?} {channel}");
            }
        }
    }

    /// Checks that root, and a user without anything, get a first process, handle, channel and
    /// node, whatever others have.
    fn check_guaranteed_shares(&mut self) {
        self.counts.probes += 1;
        for uid in [ROOT, NEWCOMER] {
            let mut core = TestState::of(self.core.state.clone());
            let pid = 1_000_000;
            let manager = self.rules.get("binder").and_then(|rule| rule.manager);
            let newcomer = |context: &str, core: &mut TestState| {
                let (security_context, rights) = ("label".to_owned(), Rights::default());
                let newcomer =
                    NewProcess { pid, uid, security_context, rights, ..NewProcess::default() };
                let admitted = core.state.admit(newcomer, context, u32::MAX);
                admitted.unwrap_or_else(|errno| panic!("{uid} has no process: {errno}")).process
            };
            let process = newcomer("binder", &mut core);
            let Some((manager, _)) = manager else { continue };
            let found = core.ask(process, Request::ContextManager);
            assert!(matches!(found, Some(Reply::Ticket { .. })), "{uid} has no handle: {found:?}");
            let opened = core.ask(process, open(manager));
            assert_eq!(opened, Some(Reply::Done), "{uid} has no channel");
            let same = self.engines.get(&manager).is_some_and(|it| it.uid == uid);
            core.gone(process);
            let process = newcomer("vndbinder", &mut core);
            let managed = core.ask(process, become_manager(1));
            assert!(managed == Some(Reply::Done) || same, "{uid} has no node: {managed:?}");
        }
    }
}

/// A random claim about ids of previous brokers.
fn some_lie(rng: &mut Rng, era: u32) -> Claim {
    let before = |rng: &mut Rng| first_of(rng.below(u64::from(era)) as u32);
    let other = ProcessId(before(rng) + rng.below(16));
    let node = NodeId(rng.below(NODES));
    match rng.below(4) {
        3 => Claim::Peer { peer: other },
        0 => Claim::Granted {
            owner: other,
            node,
            strong: rng.below(2) as u32,
            grants: rng.below(8).min(1) as u32,
        },
        1 => Claim::Node { node, flags: 0, strong: rng.once_in(2), holder: other },
        _ => {
            let end = if rng.once_in(2) { End::Client } else { End::Server };
            let channel = ChannelId(before(rng) + rng.below(40));
            Claim::Channel { channel, end, peer: other }
        }
    }
}

/// Plays histories with consecutive seeds.
fn main() {
    let mut numbers = std::env::args().filter_map(|argument| argument.parse().ok());
    let (n_histories, first) = (numbers.next().unwrap_or(N_HISTORIES), numbers.next().unwrap_or(0));
    let mut all = Counts::default();
    for seed in first..first + n_histories {
        let result = std::panic::catch_unwind(|| History::play(seed));
        let Ok(counts) = result else {
            eprintln!("failed with seed {seed}: -- 1 {seed}");
            std::process::exit(1);
        };
        all.steps += counts.steps;
        all.refused += counts.refused;
        all.brokers += counts.brokers;
        all.rejoined += counts.rejoined;
        all.denied += counts.denied;
        all.disconnected += counts.disconnected;
        all.failed_channels += counts.failed_channels;
        all.probes += counts.probes;
        all.introduced += counts.introduced;
        all.not_held += counts.not_held;
        all.dead_nodes += counts.dead_nodes;
    }
    println!("{n_histories} histories from {first} on: {all:?}");
}
