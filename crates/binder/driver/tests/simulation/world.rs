//! The machine: processes, the broker, and everything under way between them. One step is one
//! critical section of one party; which party's is the dice's choice.

use crate::party::{Link, Party, Stage};
use crate::rng::Rng;
use crate::wire::{Channel, other};
use baton_abi::control::{ChannelId, End, Event, ProcessId, Reply};
use baton_broker::limits::Limits;
use baton_broker::state::{Effect, NewProcess, Rule, State as Broker, Violation};
use baton_state::work::Tid;
use std::collections::BTreeMap;

pub const CONTEXT: &str = "binder";

pub struct World {
    pub rng: Rng,
    pub broker: Broker,
    /// What the next broker will know of contexts.
    pub rules: BTreeMap<String, Rule>,
    pub parties: BTreeMap<ProcessId, Party>,
    /// Killed processes whose end the broker has not seen.
    pub dying: BTreeMap<ProcessId, Party>,
    pub channels: BTreeMap<ChannelId, Channel>,
    pub clock: u64,
    pub phase: Phase,
    pub last_pid: u32,
    pub trace: bool,
}

/// What programs do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Anything.
    Busy,
    /// They finish what they have begun.
    Finish,
    /// They give back all that they hold.
    GiveBack,
}

/// Who may take the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agent {
    /// The broker reads a request of this process.
    Broker(ProcessId),
    /// The broker notices that this process is dead.
    Coroner(ProcessId),
    /// The control thread takes one event.
    Events(ProcessId),
    /// The control thread looks at a channel that has rung.
    Visit(ProcessId, ChannelId),
    /// The control thread has caught up.
    CaughtUp(ProcessId),
    Thread(ProcessId, Tid),
    /// The control thread finds the next broker.
    Rejoin(ProcessId),
    /// Whoever has not come back to the broker is dead.
    Settle,
}

impl World {
    pub fn new(seed: u64, trace: bool) -> World {
        World {
            rng: Rng::new(seed),
            broker: Broker::new(Limits::default(), 0),
            rules: BTreeMap::new(),
            parties: BTreeMap::new(),
            dying: BTreeMap::new(),
            channels: BTreeMap::new(),
            clock: 0,
            phase: Phase::Busy,
            last_pid: 0,
            trace,
        }
    }

    pub fn note(&self, line: impl FnOnce() -> String) {
        if self.trace {
            println!("{:>5} {}", self.clock, line());
        }
    }

    /// A new process with a looper that stays, and maybe threads that come and go.
    pub fn spawn(&mut self) {
        self.last_pid += 1;
        let label = "u:r:test:s0".to_owned();
        let (pid, rights) = (self.last_pid, Default::default());
        let newcomer = NewProcess { pid, uid: 0, security_context: label, rights };
        let identity = self.broker.admit(newcomer, CONTEXT, u32::MAX).expect("room");
        let mut party = Party::new(identity);
        party.start_thread(true, true);
        for _ in 0..self.rng.below(3) {
            let looper = self.rng.percent(50);
            party.start_thread(false, looper);
        }
        self.note(|| format!("{:?} starts", party.id()));
        self.parties.insert(party.id(), party);
    }

    /// SIGKILL: nothing of the process runs any more; what it has sent stays sent.
    pub fn kill(&mut self, id: ProcessId) {
        if let Some(party) = self.parties.remove(&id) {
            self.note(|| format!("{id:?} is killed"));
            self.dying.insert(id, party);
        }
    }

    pub fn agents(&self) -> Vec<Agent> {
        let mut agents = Vec::new();
        for (&id, party) in &self.dying {
            agents.push(Agent::Coroner(id));
            if !party.requests.is_empty() {
                agents.push(Agent::Broker(id));
            }
        }
        for (&id, party) in &self.parties {
            if !party.requests.is_empty() {
                agents.push(Agent::Broker(id));
            }
            if !party.events.is_empty() || party.link == Link::HungUp {
                agents.push(Agent::Events(id));
            }
            if party.link == Link::Lost {
                agents.push(Agent::Rejoin(id));
            }
            match &party.control {
                Some((number, _)) if party.has_caught_up(*number) => {
                    agents.push(Agent::CaughtUp(id));
                }
                Some(_) => {}
                None => agents.extend(self.visits(id)),
            }
            for &tid in party.threads.keys() {
                if party.is_runnable(tid) {
                    agents.push(Agent::Thread(id, tid));
                }
            }
        }
        if self.may_settle() {
            agents.push(Agent::Settle);
        }
        agents
    }

    fn visits(&self, id: ProcessId) -> impl Iterator<Item = Agent> {
        self.channels
            .values()
            .filter(move |channel| channel.client == id || channel.server == id)
            .filter(move |channel| {
                let end = channel.end_of(id);
                let rung = channel.end(end).rung;
                channel.is_open(end) && (rung || self.has_hung_up(channel, end))
            })
            .map(move |channel| Agent::Visit(id, channel.id))
    }

    /// The other side has closed the channel's socket.
    pub fn has_hung_up(&self, channel: &Channel, end: End) -> bool {
        let peer = if end == End::Client { channel.server } else { channel.client };
        !self.parties.contains_key(&peer) || channel.end(other(end)).dead
    }

    pub fn step(&mut self, agent: Agent) {
        self.clock += 1;
        self.note(|| format!("{agent:?}"));
        match agent {
            Agent::Broker(id) => self.serve_request(id),
            Agent::Coroner(id) => self.reclaim(id),
            Agent::Events(id) => self.with(id, |world, party| world.take_event(party)),
            Agent::Visit(id, channel) => self.with(id, |world, party| world.visit(party, channel)),
            Agent::CaughtUp(id) => self.with(id, |world, party| {
                let (_, before) = party.control.take().expect("it caught up");
                let blocked = world.end_liars(party, None, &before);
                world.control_catches_up(party, blocked);
            }),
            Agent::Rejoin(id) => self.with(id, |world, party| world.rejoin(party)),
            Agent::Settle => self.settle(),
            Agent::Thread(id, tid) => self.with(id, |world, party| world.run_thread(party, tid)),
        }
    }

    /// Runs with a party taken out of the world, which it is then put back into.
    pub fn with(&mut self, id: ProcessId, body: impl FnOnce(&mut World, &mut Party)) {
        let mut party = self.parties.remove(&id).expect("a living party");
        body(self, &mut party);
        self.parties.insert(id, party);
    }

    // ---- the broker -------------------------------------------------------------------------

    fn serve_request(&mut self, id: ProcessId) {
        let party = match self.parties.get_mut(&id) {
            Some(party) => party,
            None => self.dying.get_mut(&id).expect("its requests are there"),
        };
        let (request, asker) = party.requests.pop_front().expect("listed as nonempty");
        if self.trace {
            println!("      {request:?}");
        }
        let mut effects = Vec::new();
        let reply = self.broker.request(id, request, &mut effects);
        self.carry_out_broker(effects);
        self.write_rules();
        if let (Some(reply), Some(party)) = (reply, self.parties.get_mut(&id)) {
            let tid = asker.expect("only questions are answered");
            if let Some(thread) = party.threads.get_mut(&tid) {
                thread.answer = Some(reply);
            }
        }
    }

    fn reclaim(&mut self, id: ProcessId) {
        self.dying.remove(&id);
        let mut effects = Vec::new();
        self.broker.remove_process(id, &mut effects);
        self.carry_out_broker(effects);
        self.write_rules();
    }

    pub fn carry_out_broker(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            if self.trace {
                println!("      -> {effect:?}");
            }
            match effect {
                Effect::Event { to, event } => self.send_event(to, event),
                Effect::Promote { .. } | Effect::SetPriority { .. } => {
                    unreachable!("no thread here is a real one")
                }
                Effect::SetFrozen { process, frozen } => {
                    if let Some(party) = self.parties.get_mut(&process) {
                        party.frozen = frozen;
                    }
                }
                Effect::OpenChannel { channel, client, server } => {
                    self.channels.insert(channel, Channel::new(channel, client, server));
                    for (to, end, peer) in
                        [(server, End::Server, client), (client, End::Client, server)]
                    {
                        let peer = self.broker.identity(peer).expect("just seen").clone();
                        self.send_event(to, Event::Channel { channel, end, peer });
                    }
                }
                Effect::Disconnect { process, why } => {
                    // Killed before it had made its claims, it is late.
                    let dead = !self.parties.contains_key(&process);
                    assert!(dead && why == Violation::Claims, "{process:?} disconnected: {why}");
                }
            }
        }
    }

    fn send_event(&mut self, to: ProcessId, event: Event) {
        if let Some(party) = self.parties.get_mut(&to) {
            party.events.push_back(event);
        }
    }

    // ---- running ----------------------------------------------------------------------------

    /// Steps until nobody has anything left to do.
    pub fn come_to_rest(&mut self) {
        for _ in 0..50_000 {
            let agents = self.agents();
            match self.rng.pick(&agents) {
                Some(agent) => self.step(agent),
                None if self.add_loopers() => {}
                None => return,
            }
        }
        panic!("no rest: {:?}", self.agents());
    }

    /// Programs go over to another phase: in each a passing thread sees to what lies about. Those
    /// that sleep are left alone, as their wake-ups are what is being looked at.
    pub fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        for party in self.parties.values_mut() {
            party.start_thread(false, false);
        }
    }

    /// A process whose threads are all taken gets another one, as BR_SPAWN_LOOPER would have it.
    fn add_loopers(&mut self) -> bool {
        let ids: Vec<ProcessId> = self.parties.keys().copied().collect();
        let mut added = false;
        for id in ids {
            let party = self.parties.get_mut(&id).expect("listed");
            let free = party.threads.keys().copied().collect::<Vec<_>>().into_iter().any(|tid| {
                let sleeps =
                    matches!(party.threads[&tid].stage, Stage::Asleep { process_work: true, .. });
                sleeps && party.state.takes_process_work(tid)
            });
            if !free {
                party.start_thread(true, true);
                added = true;
            }
        }
        added
    }

    pub fn errno(reply: &Reply) -> Option<i32> {
        match reply {
            Reply::Refused { errno } => Some(*errno),
            _ => None,
        }
    }
}
