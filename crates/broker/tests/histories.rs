//! Random histories of the broker's state with everything together: users with small shares, liars
//! among them, channels that cannot be made, real-time lanes, and brokers that die at any step and
//! are followed by the next one. With an argument, as many histories, from the second one on:
//! `cargo test --release -p baton-broker --test histories -- 1000000 0`.
//!
//! Honest engines keep books of what they are told. After each step no honest engine is harmed:
//! none was disconnected or denied what an honest owner gave it, its books agree with those of the
//! others and with the state, and a user that has nothing gets something.

mod core;
mod model;

use baton_abi::claim::{Claim, first_of};
use baton_abi::control::*;
use baton_abi::lane::LANES;
use baton_broker::limits::{Limits, Rights, Usage};
use baton_broker::state::{Effect, Newcomer, Rule, State, Thread};
use core::{Core, OWNER, become_manager, handle, node, release, report_of, translate};
use model::{Books, Dice, Held};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};

const N_STEPS: u64 = 150;
/// Without an argument.
const N_HISTORIES: u64 = 2000;
const ROOT: u32 = 0;
const STRANGERS: [u32; 3] = [1, 2, 3];
/// Who has never been here.
const NEWCOMER: u32 = 9;
const NODES: u64 = 12;
/// Processes of root and of the broker's own user: they may take everything.
const MOST_OWNERS: usize = 4;

/// Small enough to be reached. What one user has is bounded by its processes: how they share it is
/// their own business.
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
enum Place {
    /// With this broker.
    Here,
    /// It makes its claims, and has made some.
    Joining,
    /// It knows the last broker.
    Away,
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
    place: Place,
    books: Books,
    manages: Option<NodeId>,
    frozen: bool,
}

impl Engine {
    fn is_honest(&self) -> bool {
        self.character == Character::Honest
    }

    fn is_here(&self) -> bool {
        self.place == Place::Here
    }
}

struct History {
    core: Core,
    dice: Dice,
    engines: BTreeMap<ProcessId, Engine>,
    dead: BTreeSet<ProcessId>,
    rules: BTreeMap<String, Rule>,
    promoted: BTreeSet<u32>,
    pids: u32,
    era: u32,
    /// Whether a refusal changes nothing: dear to find out.
    compares: bool,
    counts: Counts,
}

/// What the histories have come to.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    steps: u64,
    refused: u64,
    brokers: u64,
    came_back: u64,
    denied: u64,
    disconnected: u64,
    failed_channels: u64,
    probes: u64,
}

impl History {
    fn new(seed: u64) -> History {
        History {
            core: Core::with(limits()),
            dice: Dice(seed),
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
        history.settle();
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
            self.engines.iter().filter(|(_, it)| !it.is_here()).map(|(id, _)| *id).collect();
        if !away.is_empty() && self.dice.roll(5) < 3 {
            let who = self.dice.pick(&away).expect("some are");
            return self.come_back(who);
        }
        match self.dice.roll(120) {
            0 => return self.restart(),
            1 | 2 if !self.core.state.is_rejoin_over() => return self.settle(),
            _ => {}
        }
        let here: Vec<ProcessId> =
            self.engines.iter().filter(|(_, it)| it.is_here()).map(|(id, _)| *id).collect();
        let Some(who) = self.dice.pick(&here) else { return self.admit() };
        match (self.engines[&who].character, self.dice.roll(20)) {
            (_, 0 | 1) => self.admit(),
            (_, 2) if self.dice.once_in(3) => self.die(who),
            (_, 3) => self.real_time(who, &here),
            (Character::Liar, 4..) => self.lie(who, &here),
            (Character::Honest, _) => self.act(who, &here),
            _ => {}
        }
    }

    fn admit(&mut self) {
        let users = [ROOT, OWNER, STRANGERS[0], STRANGERS[0], STRANGERS[1], STRANGERS[2]];
        let uid = self.dice.pick(&users).expect("there are some");
        let owners = |it: &&Engine| it.uid == ROOT || it.uid == OWNER;
        let is_owner = uid == ROOT || uid == OWNER;
        if is_owner && self.engines.values().filter(owners).count() >= MOST_OWNERS {
            return;
        }
        // Nor does a user take the places of its own processes that are to come back.
        let of_user = self.engines.values().filter(|it| it.uid == uid).count();
        if !self.core.state.is_rejoin_over() && of_user >= limits().user.processes as usize {
            return;
        }
        self.pids += 1;
        let pid = self.pids;
        match self.core.admit_to(pid, uid, "binder") {
            Ok(process) => {
                assert!(!self.dead.contains(&process), "a name was used twice");
                // Root and the broker's own user take what they want: they do not lie.
                let lies = !is_owner && self.dice.roll(3) == 0;
                let character = if lies { Character::Liar } else { Character::Honest };
                let (books, place) = (Books::default(), Place::Here);
                let (manages, frozen) = (None, false);
                let new = Engine { uid, pid, character, place, books, manages, frozen };
                assert!(self.engines.insert(process, new).is_none());
            }
            Err(errno) => {
                assert_eq!(errno, Errno::DQUOT);
                assert!(!is_owner, "root was refused");
            }
        }
    }

    /// What a correct engine does.
    fn act(&mut self, who: ProcessId, here: &[ProcessId]) {
        let books = self.engines[&who].books.clone();
        let handles: Vec<u32> = books.handles.keys().copied().collect();
        let channels: Vec<ChannelId> = books.channels.keys().copied().collect();
        let peers: Vec<ProcessId> = books.channels.values().map(|(_, peer)| *peer).collect();
        let owners: Vec<ProcessId> = books.handles.values().map(|held| held.owner).collect();
        match self.dice.roll(24) {
            0 => {
                let node = self.dice.roll(NODES);
                if self.ask(who, become_manager(node)) == Some(Reply::Done) {
                    self.engine(who).manages = Some(NodeId(node));
                }
            }
            1..4 => _ = self.ask(who, Request::ContextManager),
            4..7 => {
                if let Some(target) = self.dice.pick(&owners).or(self.dice.pick(here)) {
                    self.ask(who, Request::OpenChannel { target });
                }
            }
            7..13 => {
                let Some(target) = self.dice.pick(&peers) else { return };
                let objects: Vec<Object> =
                    (0..self.dice.roll(5)).map(|_| self.object(&books, &handles)).collect();
                self.ask(who, translate(target, &objects));
            }
            13..18 => {
                let Some(number) = self.dice.pick(&handles) else { return };
                self.release(who, number);
            }
            18 => {
                let Some(channel) = self.dice.pick(&channels) else { return };
                if self.dice.once_in(3) {
                    self.ask(who, Request::CloseChannel { channel });
                    self.end_channel(who, channel);
                }
            }
            19 => {
                let Some(target) = self.dice.pick(&peers) else { return };
                let ticket = TicketId(first_of(self.era) + 1);
                // Where an end is not back yet, there is no channel for this broker.
                if self.core.state.is_rejoin_over() && self.is_honest_pair(who, target) {
                    self.ask(who, Request::CancelTicket { target, ticket });
                }
            }
            20 => {
                let pid = self.dice.pick(here).map_or(0, |other| self.engines[&other].pid);
                let frozen = self.dice.once_in(2);
                self.ask(who, Request::Freeze { pid, frozen });
            }
            21 => {
                let Some(target) = self.dice.pick(&owners) else { return };
                self.ask(who, Request::IsFrozen { target });
                self.ask(who, Request::FrozenTouched { target, two_way: true });
            }
            22 => {
                let handle = self.dice.roll(6) as u32;
                self.ask(who, Request::NodeInfo { handle });
            }
            _ => {
                let number = self.dice.roll(100);
                self.ask(who, Request::Barrier { number });
                self.ask(who, Request::Accounts { from: 0 });
            }
        }
    }

    /// What it may send; seldom what it may not, which is refused.
    fn object(&mut self, books: &Books, handles: &[u32]) -> Object {
        match self.dice.pick(handles) {
            Some(number) if self.dice.once_in(2) => {
                let strong = books.handles[&number].strong > 0 || self.dice.once_in(8);
                let strength = if strong { self.dice.strength() } else { Strength::Weak };
                handle(number, strength)
            }
            _ => node(self.dice.roll(NODES), self.dice.strength()),
        }
    }

    /// Any legal return, often of all.
    fn release(&mut self, who: ProcessId, number: u32) {
        let held = self.engines[&who].books.handles[&number];
        let (strong, grants) = if self.dice.once_in(2) {
            (held.strong, held.grants)
        } else {
            let left = self.dice.roll(u64::from(held.grants) + 1) as u32;
            let left_strong = self.dice.roll(u64::from(held.strong.min(left)) + 1) as u32;
            (held.strong - left_strong, held.grants - left)
        };
        self.engine(who).books.return_grants(number, strong, grants);
        self.ask(who, release(number, strong, grants));
    }

    /// Anything.
    fn lie(&mut self, who: ProcessId, here: &[ProcessId]) {
        let dice = &mut self.dice;
        let target = dice.pick(here).expect("the liar is");
        let anybody = if dice.once_in(4) { ProcessId(dice.roll(30)) } else { target };
        let channel = ChannelId(first_of(self.era) + dice.roll(40));
        let own: Vec<ChannelId> = self.engines[&who].books.channels.keys().copied().collect();
        let channel = if dice.once_in(2) { dice.pick(&own).unwrap_or(channel) } else { channel };
        let (number, lane) = (dice.roll(14) as u32, dice.roll(LANES as u64 + 2) as u32);
        let objects: Vec<Object> = (0..dice.roll(6))
            .map(|_| match dice.roll(3) {
                0 => handle(dice.roll(14) as u32, dice.strength()),
                _ => node(dice.roll(2 * NODES), dice.strength()),
            })
            .collect();
        let pid = self.engines[&target].pid;
        let ticket = TicketId(dice.roll(50));
        // What costs the connection comes seldom: a liar lives long enough to do harm.
        let choices = if dice.once_in(8) { 26 } else { 19 };
        let request = match dice.roll(choices) {
            0..6 => translate(anybody, &objects),
            6..9 => Request::OpenChannel { target: anybody },
            9 => Request::ContextManager,
            10 => become_manager(dice.roll(NODES)),
            11 => Request::CloseChannel { channel },
            12 | 13 => Request::Freeze { pid, frozen: dice.once_in(2) },
            14 => Request::LeaveRealTime { channel, lane },
            15 => Request::Ordinary { channel, lane },
            16 => Request::FrozenTouched { target: anybody, two_way: dice.once_in(2) },
            17 => Request::NodeInfo { handle: number },
            18 => Request::Barrier { number: 7 },
            19 => Request::RealTime { channel, lane, tid: 1 },
            20 => Request::CancelTicket { target: anybody, ticket },
            21 | 22 => release(number, dice.roll(3) as u32, dice.roll(3) as u32),
            23 => Request::Claim { claims: Vec::new() },
            24 => Request::Rejoin { manages: vec![(NodeId(1), 0)] },
            _ => Request::Observe { version: VERSION },
        };
        let returned = match request {
            Request::Release { handle, strong, grants } => Some((handle, strong, grants)),
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
        if let Some((number, strong, grants)) = returned
            && engine.books.handles.contains_key(&number)
        {
            engine.books.return_grants(number, strong, grants);
        }
        if reply == Some(Reply::Done) && managed.is_some() {
            engine.manages = managed;
        }
    }

    /// What the runner does for a request of a real-time caller or looper.
    fn real_time(&mut self, who: ProcessId, here: &[ProcessId]) {
        let books = &self.engines[&who].books;
        let channels: Vec<ChannelId> = books.channels.keys().copied().collect();
        let dice = &mut self.dice;
        let channel = ChannelId(first_of(self.era) + dice.roll(40));
        let channel = if dice.once_in(8) { Some(channel) } else { dice.pick(&channels) };
        let Some(channel) = channel else { return };
        let place = (channel, dice.roll(4) as u32);
        // Some threads are asked for twice.
        let tid = 100 * self.engines[&who].pid + dice.roll(3) as u32;
        let thread = Thread { pid: self.engines[&who].pid, tid, started: 1 };
        let mut out = Vec::new();
        match dice.roll(4) {
            0 => self.core.state.set_standby_looper(who, thread, tid),
            1 => {
                if self.core.state.rank_of_lane(who, place).is_ok() {
                    self.promote(place, thread, &mut out);
                }
            }
            _ => {
                let rank = Rank { policy: Policy::Fifo, priority: 1 + dice.roll(3) as u32 };
                let granted = self.core.state.grant_lane(who, place, rank, &mut out);
                let is_own = self.engines[&who].books.channels.get(&channel);
                let is_own = is_own.is_some_and(|(end, _)| *end == End::Client);
                assert!(granted.is_err() || is_own, "a lane of another's channel");
            }
        }
        assert!(here.contains(&who));
        self.carry_out(out, None);
    }

    fn promote(&mut self, place: (ChannelId, u32), thread: Thread, out: &mut Vec<Effect>) {
        let succeeds = !self.dice.once_in(4);
        if succeeds {
            self.promoted.insert(thread.tid);
        }
        self.core.state.set_looper(place, thread, succeeds, out);
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

    /// Carries out effects as the runner does. Nobody but the asker is disconnected.
    fn carry_out(&mut self, effects: Vec<Effect>, asker: Option<ProcessId>) {
        let mut doomed = None;
        let mut work = std::collections::VecDeque::from(effects);
        while let Some(effect) = work.pop_front() {
            let mut more = Vec::new();
            match effect {
                Effect::Event { to, event } => self.hear(to, event),
                Effect::OpenChannel { channel, client, server } => {
                    if self.dice.once_in(8) {
                        self.counts.failed_channels += 1;
                        self.core.state.end_channel(client, channel, &mut more);
                    } else {
                        for (at, end, peer) in
                            [(client, End::Client, server), (server, End::Server, client)]
                        {
                            let engine = self.engines.get_mut(&at).expect("it is alive");
                            let before = engine.books.channels.insert(channel, (end, peer));
                            assert_eq!(before, None, "one name for two channels");
                        }
                    }
                }
                Effect::SetFrozen { process, frozen } => {
                    self.engines.get_mut(&process).expect("it is alive").frozen = frozen;
                }
                Effect::Promote { lane: place, thread, .. } => {
                    self.promote(place, thread, &mut more)
                }
                Effect::SetRank { thread, rank: None } => {
                    assert!(self.promoted.remove(&thread.tid), "demoted twice");
                }
                Effect::SetRank { .. } => {}
                Effect::Disconnect { process, why } => {
                    assert_eq!(Some(process), asker, "somebody else's fault: {why}");
                    let engine = &self.engines[&process];
                    assert!(!engine.is_honest(), "an honest engine was disconnected: {why}");
                    self.counts.disconnected += 1;
                    doomed = Some(process);
                }
            }
            work.extend(more);
        }
        if let Some(process) = doomed {
            self.leave(process);
        }
    }

    fn hear(&mut self, to: ProcessId, event: Event) {
        let is_settled = self.core.state.is_rejoin_over();
        if let Event::Dead { process } = event {
            // Or never was: a liar said so, and passed on a handle to its node.
            assert!(!self.engines.contains_key(&process), "{process:?} is alive");
            self.dead.insert(process);
        }
        if let Event::Denied { handle } = event {
            let engine = &self.engines[&to];
            let Held { owner, node, .. } = engine.books.handles[&handle];
            let gave = self.engines.get(&owner).is_some_and(|owner| {
                let told = owner.books.nodes.get(&node);
                owner.is_honest() && told.is_some_and(|told| told.holders.contains_key(&to))
            });
            let was_dead = engine.books.handles[&handle].denied;
            assert!(!engine.is_honest() || !gave || was_dead, "denied what it was given: {handle}");
            self.counts.denied += 1;
        }
        let engine = self.engines.get_mut(&to).expect("only the living are told");
        assert!(engine.is_here(), "told before it has come back: {event:?}");
        let books = &mut engine.books;
        match event {
            Event::Ticket { objects, .. } => {
                objects.iter().for_each(|granted| books.book_grant(to, granted));
            }
            Event::References { .. } => {
                let is_news = books.book_references(&event);
                assert!(
                    is_news || !is_settled || !engine.is_honest(),
                    "told of nothing: {event:?}"
                );
            }
            Event::Denied { handle } => {
                books.handles.get_mut(&handle).expect("just seen").denied = true;
            }
            // With a ticket that has a handle to one of its nodes: as often as there is one.
            Event::Dead { process } => books.book_death(process),
            Event::OrdinaryLane { .. }
            | Event::RealTimeLane { .. }
            | Event::TicketCancelled { .. }
            | Event::Frozen { .. }
            | Event::Barrier { .. } => (),
            other => panic!("{other:?}"),
        }
    }

    /// A channel's socket is closed at one end, which the other sees.
    fn end_channel(&mut self, at: ProcessId, channel: ChannelId) {
        let Some(engine) = self.engines.get_mut(&at) else { return };
        let Some((_, peer)) = engine.books.channels.remove(&channel) else { return };
        let Some(engine) = self.engines.get_mut(&peer) else { return };
        if engine.books.channels.get(&channel).is_some_and(|(_, with)| *with == at) {
            engine.books.channels.remove(&channel);
        }
    }

    /// A process ends.
    fn die(&mut self, process: ProcessId) {
        match self.engines[&process].place {
            Place::Here => self.leave(process),
            Place::Joining => {
                self.core.gone(process);
                assert_eq!(self.core.effects(), [], "it was not here yet");
                self.bury(process);
            }
            Place::Away => self.bury(process),
        }
    }

    /// Its sockets are closed.
    fn bury(&mut self, process: ProcessId) {
        self.engines.remove(&process);
        for other in self.engines.values_mut() {
            other.books.channels.retain(|_, (_, peer)| *peer != process);
        }
        self.dead.insert(process);
    }

    /// An engine's connection ends. If it was here, that is its death.
    fn leave(&mut self, process: ProcessId) {
        let engine = &self.engines[&process];
        if !engine.is_here() {
            self.core.gone(process);
            assert_eq!(self.core.effects(), [], "it was not here yet");
            self.engine(process).place = Place::Away;
            return;
        }
        let concerned: BTreeSet<ProcessId> = self.concerned_by(process).collect();
        let known = |(_, other): &(&ProcessId, &Engine)| other.books.knows(process);
        let knows: BTreeSet<ProcessId> =
            self.engines.iter().filter(known).map(|(id, _)| *id).collect();
        self.bury(process);
        self.core.gone(process);
        let mut told = BTreeSet::new();
        for effect in self.core.effects() {
            match effect {
                Effect::Event { to, event: Event::Dead { process: dead } } => {
                    assert_eq!(dead, process);
                    assert!(told.insert(to), "told twice");
                    let knew = self.engines[&to].books.deaths.contains(&process);
                    assert!(!knew, "{to:?} was told twice");
                    let known = knows.contains(&to) || !self.engines[&to].is_honest();
                    assert!(known, "no concern of {to:?}");
                    self.hear(to, Event::Dead { process });
                }
                effect => self.carry_out(vec![effect], None),
            }
        }
        let is_settled = self.core.state.is_rejoin_over();
        assert!(!is_settled || told.is_superset(&concerned), "{concerned:?} must know");
    }

    /// Honest engines that have a handle of a process's, or a channel that it has as well.
    fn concerned_by(&self, process: ProcessId) -> impl Iterator<Item = ProcessId> {
        let is_honest = self.engines[&process].is_honest();
        let others = self.engines.iter().filter(|(_, it)| it.is_honest() && it.is_here());
        let concerned = others.filter(move |(_, other)| {
            let handles = other.books.handles.values().filter(|held| !held.denied);
            let holds = handles.into_iter().any(|held| held.owner == process);
            holds || is_honest && other.books.is_connected(process)
        });
        concerned.map(|(id, _)| *id)
    }

    fn restart(&mut self) {
        self.era += 1;
        self.counts.brokers += 1;
        for rule in self.rules.values_mut() {
            rule.manager.take_if(|(manager, _)| self.dead.contains(manager));
        }
        self.core = Core {
            state: State::succeed(limits(), OWNER, self.era, self.rules.clone()),
            effects: Vec::new(),
        };
        self.promoted.clear();
        for engine in self.engines.values_mut() {
            engine.place = Place::Away;
            engine.books.deaths.clear();
        }
    }

    /// One more step of an engine on its way back.
    fn come_back(&mut self, who: ProcessId) {
        if self.dice.once_in(60) {
            return self.die(who);
        }
        let Engine { uid, pid, place, frozen, .. } = self.engines[&who];
        if place == Place::Away {
            let security_context = "label".to_owned();
            let identity = Identity { process: who, pid, uid, security_context };
            let rights = Rights::default();
            let served = u32::MAX;
            let result = self.core.state.readmit(identity, rights, "binder", served, frozen);
            assert_eq!(result, Ok(()), "{who:?} of {uid} may not come back");
            self.engine(who).place = Place::Joining;
            return;
        }
        let is_honest = self.engines[&who].is_honest();
        let mut claims = self.engines[&who].books.claims();
        if !is_honest {
            claims.retain(|_| !self.dice.once_in(4));
            let lies = self.dice.roll(5);
            claims.extend((0..lies).map(|_| some_lie(&mut self.dice, self.era)));
        }
        self.dice.shuffle(&mut claims);
        if !is_honest {
            self.engine(who).books = Books::of_claims(&claims);
        }
        // It may leave amid them, and then begins anew; or say something else.
        let part = self.dice.roll(claims.len() as u64 + 1) as usize;
        let leaves = self.dice.once_in(8);
        if leaves || (!is_honest && self.dice.once_in(16)) {
            if !is_honest {
                self.engine(who).books = Books::of_claims(&claims[..part]);
            }
            self.ask(who, Request::Claim { claims: claims[..part].to_vec() });
            if !leaves {
                let nothing = if self.dice.once_in(2) {
                    Request::Rejoin { manages: Vec::new() }
                } else {
                    Request::ContextManager
                };
                self.say(who, nothing);
            } else {
                self.leave(who);
            }
            return;
        }
        for part in [&claims[..part], &claims[part..]] {
            let reply = self.ask(who, Request::Claim { claims: part.to_vec() });
            assert_eq!(reply, None);
        }
        let manages = self.engines[&who].manages.map(|node| (node, 0));
        let manages = if !is_honest && self.dice.once_in(2) {
            vec![(NodeId(self.dice.roll(NODES)), 0)]
        } else {
            manages.into_iter().collect()
        };
        self.say(who, Request::Rejoin { manages });
    }

    /// The last word of an engine that comes back, which is here from then on if it did not lie.
    fn say(&mut self, who: ProcessId, request: Request) {
        let is_rejoin = matches!(request, Request::Rejoin { .. });
        assert_eq!(self.core.ask(who, request), None);
        let effects = self.core.effects();
        self.engine(who).place = if is_rejoin { Place::Here } else { Place::Joining };
        self.counts.came_back += 1;
        let disconnects = |effect: &Effect| matches!(effect, Effect::Disconnect { .. });
        let fails = effects.iter().any(disconnects);
        let is_honest = self.engines[&who].is_honest();
        assert!(!fails || !is_honest, "an honest engine was not taken back: {effects:?}");
        if fails {
            self.counts.disconnected += 1;
            self.bury(who);
            self.core.gone(who);
            let effects = self.core.effects();
            return self.carry_out(effects, None);
        }
        self.carry_out(effects, Some(who));
    }

    fn settle(&mut self) {
        let late: Vec<ProcessId> =
            self.engines.iter().filter(|(_, it)| !it.is_here()).map(|(id, _)| *id).collect();
        let joining: BTreeSet<ProcessId> =
            late.iter().filter(|id| self.engines[id].place == Place::Joining).copied().collect();
        let mut concerned = BTreeSet::new();
        for process in &late {
            concerned.extend(self.concerned_by(*process).map(|id| (id, *process)));
        }
        late.into_iter().for_each(|process| self.bury(process));
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
                    let knew = self.engines[&to].books.deaths.contains(&process);
                    assert!(!knew || process == ProcessId::BROKER, "{to:?} knew of {process:?}");
                    self.hear(to, Event::Dead { process });
                }
                effect => self.carry_out(vec![effect], None),
            }
        }
        assert!(told.is_superset(&concerned), "{concerned:?} must know");
    }

    fn engine(&mut self, process: ProcessId) -> &mut Engine {
        self.engines.get_mut(&process).expect("it is alive")
    }

    fn is_honest_pair(&self, one: ProcessId, other: ProcessId) -> bool {
        let is_good = |id| self.engines.get(&id).is_some_and(|it| it.is_honest() && it.is_here());
        is_good(one) && is_good(other)
    }

    fn check(&mut self) {
        if let Some(rules) = self.core.state.changed_rules() {
            self.rules = rules;
        }
        for (id, engine) in self.engines.iter().filter(|(_, it)| it.is_here() && it.is_honest()) {
            let mut nodes = BTreeSet::new();
            for (number, held) in &engine.books.handles {
                let grants = self.core.state.grants(*id, *number);
                assert_eq!(grants, Some((held.strong, held.grants)), "{id:?} {number}");
                assert!(held.denied || nodes.insert((held.owner, held.node)), "two for a node");
            }
        }
        let report = report_of(&self.core.state, ROOT);
        let shown: BTreeMap<ProcessId, &ProcessReport> = report
            .contexts
            .iter()
            .flat_map(|context| &context.processes)
            .map(|process| (ProcessId(process.process), process))
            .collect();
        let here: BTreeSet<ProcessId> =
            self.engines.iter().filter(|(_, it)| it.is_here()).map(|(id, _)| *id).collect();
        assert!(shown.keys().eq(here.iter()), "who is here");
        self.check_shares(&shown);
        self.check_loopers(&shown);
        if self.core.state.is_rejoin_over() {
            self.check_truth(&shown);
            if self.counts.steps.is_multiple_of(16) {
                self.check_promises();
            }
        }
    }

    /// What users have is what their processes have.
    fn check_shares(&mut self, shown: &BTreeMap<ProcessId, &ProcessReport>) {
        let mut truth: BTreeMap<u32, [u64; 4]> = BTreeMap::new();
        let managers: BTreeMap<ProcessId, NodeId> =
            self.rules.values().filter_map(|rule| rule.manager).collect();
        for (id, engine) in &self.engines {
            let of_user = truth.entry(engine.uid).or_default();
            if engine.place == Place::Away {
                continue;
            }
            of_user[0] += 1;
            let Some(process) = shown.get(id) else { continue };
            of_user[1] += process.handles.len() as u64;
            let unheld = managers.get(id).filter(|node| {
                engine.manages == Some(**node)
                    && !process.nodes.iter().any(|(shown, ..)| *shown == node.0)
            });
            of_user[2] += (process.nodes.len() + usize::from(unheld.is_some())) as u64;
            of_user[3] += process.channels.iter().filter(|(.., server)| !server).count() as u64;
        }
        truth.retain(|_, shares| shares.iter().any(|taken| *taken > 0));
        let reply = self.core.state.observe(ROOT, &Request::Accounts { from: 0 });
        let Some(Reply::Accounts { accounts, next: None }) = reply else { panic!("{reply:?}") };
        let shares = accounts.iter().map(|account| {
            let taken = |at: usize| account.shares[at].taken;
            (account.uid, [taken(0), taken(1), taken(2), taken(3)])
        });
        // The asker is always shown.
        let shares = shares.filter(|(_, taken)| *taken != [0; 4]);
        assert!(shares.clone().eq(truth), "shares: {:?}", shares.collect::<Vec<_>>());
    }

    /// Who has a caller's priority is its looper.
    fn check_loopers(&self, shown: &BTreeMap<ProcessId, &ProcessReport>) {
        let lanes = shown.values().flat_map(|process| &process.real_time);
        let loopers = lanes.filter_map(|lane| lane.looper.as_ref()).filter(|it| it.promoted);
        let loopers: BTreeSet<u32> = loopers.map(|looper| looper.tid).collect();
        assert_eq!(loopers, self.promoted, "who is promoted");
    }

    /// Honest holders and owners agree, and the state with them.
    fn check_truth(&self, shown: &BTreeMap<ProcessId, &ProcessReport>) {
        let honest =
            || self.engines.iter().filter(|(_, engine)| engine.is_here() && engine.is_honest());
        for (id, engine) in honest() {
            for (node, told) in &engine.books.nodes {
                let shown = shown[id].nodes.iter().find(|(name, ..)| *name == node.0);
                let strong = told.holders.values().filter(|it| **it == Strength::Strong).count();
                let expect = (node.0, strong as u32, told.holders.len() as u32);
                assert_eq!(shown, Some(&expect), "{id:?}");
                assert_eq!((told.strong, told.held), (strong > 0, true), "{id:?} {node:?}");
            }
            let of_nodes = shown[id].nodes.len();
            assert_eq!(of_nodes, engine.books.nodes.len(), "{id:?} was not told of a node");
            for held in engine.books.handles.values().filter(|held| !held.denied) {
                let is_dead = self.dead.contains(&held.owner);
                let told = engine.books.deaths.contains(&held.owner);
                assert_eq!(told, is_dead, "{id:?} of {:?}", held.owner);
                let owner = self.engines.get(&held.owner);
                if let Some(owner) = owner.filter(|it| it.is_honest()) {
                    let told = owner.books.nodes.get(&held.node);
                    let told = told.and_then(|told| told.holders.get(id));
                    assert_eq!(told, Some(&held.strength()), "{id:?} {held:?}");
                }
            }
            for (channel, (_, peer)) in &engine.books.channels {
                assert!(!self.dead.contains(peer), "{id:?} was not told of {peer:?}");
                let connects = shown[id].channels.iter().any(|(name, ..)| *name == channel.0);
                assert!(connects || !self.is_honest_pair(*id, *peer), "{id:?} {channel:?}");
            }
            for (channel, peer, _) in &shown[id].channels {
                let known = engine.books.channels.get(&ChannelId(*channel));
                assert_eq!(known.map(|(_, peer)| peer.0), Some(*peer), "{id:?} {channel}");
            }
        }
    }

    /// Root, and a user that has nothing, get what they ask for first, whatever strangers have.
    fn check_promises(&mut self) {
        self.counts.probes += 1;
        for uid in [ROOT, NEWCOMER] {
            let mut core = Core { state: self.core.state.clone(), effects: Vec::new() };
            let pid = 1_000_000;
            let manager = self.rules.get("binder").and_then(|rule| rule.manager);
            let newcomer = |context: &str, core: &mut Core| {
                let (security_context, rights) = ("label".to_owned(), Rights::default());
                let newcomer = Newcomer { pid, uid, security_context, rights };
                let admitted = core.state.admit(newcomer, context, u32::MAX);
                admitted.unwrap_or_else(|errno| panic!("{uid} has no process: {errno}")).process
            };
            let process = newcomer("binder", &mut core);
            let Some((manager, _)) = manager else { continue };
            let found = core.ask(process, Request::ContextManager);
            assert!(matches!(found, Some(Reply::Ticket { .. })), "{uid} has no handle: {found:?}");
            let opened = core.ask(process, Request::OpenChannel { target: manager });
            assert_eq!(opened, Some(Reply::Done), "{uid} has no channel");
            let same = self.engines.get(&manager).is_some_and(|it| it.uid == uid);
            core.gone(process);
            let process = newcomer("vndbinder", &mut core);
            let managed = core.ask(process, become_manager(1));
            assert!(managed == Some(Reply::Done) || same, "{uid} has no node: {managed:?}");
        }
    }
}

fn some_lie(dice: &mut Dice, era: u32) -> Claim {
    let before = |dice: &mut Dice| first_of(dice.roll(u64::from(era)) as u32);
    let other = ProcessId(before(dice) + dice.roll(16));
    let node = NodeId(dice.roll(NODES));
    match dice.roll(3) {
        0 => Claim::Handle {
            handle: dice.roll(14) as u32,
            owner: other,
            node,
            strong: dice.roll(2) as u32,
            grants: dice.roll(8).min(1) as u32,
        },
        1 => Claim::Node { node, flags: 0, strong: dice.once_in(2), holder: other },
        _ => {
            let end = if dice.once_in(2) { End::Client } else { End::Server };
            let channel = ChannelId(before(dice) + dice.roll(40));
            Claim::Channel { channel, end, peer: other }
        }
    }
}

/// Seeds, from the first on.
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
        all.came_back += counts.came_back;
        all.denied += counts.denied;
        all.disconnected += counts.disconnected;
        all.failed_channels += counts.failed_channels;
        all.probes += counts.probes;
    }
    println!("{n_histories} histories from {first} on: {all:?}");
}
