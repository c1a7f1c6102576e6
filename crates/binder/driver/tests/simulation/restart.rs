//! The broker dies, and another one takes its place.

use crate::party::{Link, Party};
use crate::world::{CONTEXT, World};
use baton_abi::claim::Claim;
use baton_abi::control::{End, ProcessId, Request};
use baton_broker::limits::{Limits, Rights};
use baton_broker::state::State as Broker;
use rustix::io::Errno;

impl World {
    /// SIGKILL, maybe amid a request. What it has sent will be read; what it was sent is lost.
    pub fn kill_broker(&mut self) {
        self.note(|| "the broker is killed".to_owned());
        if self.rng.percent(70) {
            self.serve_in_part();
        }
        for channel in self.channels.values_mut() {
            for end in [End::Client, End::Server] {
                let told =
                    |party: &Party| party.events.iter().any(|event| event_is_of(event, channel.id));
                let process = if end == End::Client { channel.client } else { channel.server };
                let knows = channel.end(end).known || self.parties.get(&process).is_some_and(told);
                // Nobody has this end's socket any more.
                channel.ends(end).dead |= !knows;
            }
        }
        self.dying.clear();
        for party in self.parties.values_mut() {
            if party.link == Link::Up {
                party.link = Link::HungUp;
            }
            party.nobody_listens();
        }
        let mut rules = self.rules.clone();
        for rule in rules.values_mut() {
            // The next one may see that the manager is dead.
            let sees = self.rng.percent(50);
            rule.manager.take_if(|(owner, _)| sees && !self.parties.contains_key(owner));
        }
        self.broker = Broker::succeed(Limits::default(), 0, self.broker.era() + 1, rules);
        self.what_follows_at_once();
    }

    /// What steps of all alike would seldom bring: a process that dies with the broker, and control
    /// threads that are faster than their programs' threads.
    fn what_follows_at_once(&mut self) {
        let ids: Vec<ProcessId> = self.parties.keys().copied().collect();
        if self.rng.percent(20)
            && let Some(id) = self.rng.pick(&ids)
        {
            self.kill(id);
        }
        for id in ids {
            if self.rng.percent(30) && self.parties.contains_key(&id) {
                self.with(id, |world, party| {
                    world.take_events(party);
                    if party.link == Link::HungUp {
                        world.learn_of_loss(party);
                    }
                    world.rejoin(party);
                });
            }
        }
    }

    /// It dies before its answer, and before some of the events; but each is sent in its turn.
    fn serve_in_part(&mut self) {
        let asking =
            |(id, party): (&ProcessId, &Party)| (!party.requests.is_empty()).then_some(*id);
        let ids: Vec<ProcessId> = self.parties.iter().filter_map(asking).collect();
        let Some(id) = self.rng.pick(&ids) else { return };
        let party = self.parties.get_mut(&id).expect("listed");
        let (request, _) = party.requests.pop_front().expect("nonempty");
        self.note(|| format!("amid {request:?} of {id:?}"));
        let mut effects = Vec::new();
        self.broker.request(id, request, &mut effects);
        let done = self.rng.below(effects.len() + 1);
        let all = done == effects.len();
        effects.truncate(done);
        self.carry_out_broker(effects);
        if all && self.rng.percent(50) {
            self.write_rules();
        }
    }

    pub fn write_rules(&mut self) {
        if let Some(rules) = self.broker.changed_rules() {
            self.rules = rules;
        }
    }

    /// Everybody who lives has come back.
    pub fn may_settle(&self) -> bool {
        let back =
            |party: &Party| party.link == Link::Up && self.broker.identity(party.id()).is_some();
        !self.broker.is_rejoin_over() && self.parties.values().all(back)
    }

    pub fn settle(&mut self) {
        let mut effects = Vec::new();
        self.broker.end_rejoin(&mut effects);
        self.carry_out_broker(effects);
        self.write_rules();
    }

    /// What a broker that is not there, or does not know everybody yet, refuses.
    pub fn is_between_brokers(&self, errno: Errno) -> bool {
        self.broker.era() > 0 && matches!(errno, Errno::CONNREFUSED | Errno::AGAIN)
    }

    /// The event stream has ended.
    pub fn learn_of_loss(&mut self, party: &mut Party) {
        assert_eq!(party.link, Link::HungUp, "listed for its events");
        party.link = Link::Lost;
        party.state.broker_lost();
        self.accept(party, None);
        self.carry_out(party);
    }

    /// The party greets the next broker, and tells it what it has.
    pub fn rejoin(&mut self, party: &mut Party) {
        let id = party.id();
        let readmitted = {
            let (who, rights) = (party.identity.clone(), Rights::default());
            self.broker.readmit(who, rights, CONTEXT, u32::MAX, party.frozen)
        };
        assert_eq!(readmitted, Ok(()));
        self.accept(party, None);
        let channels: Vec<(ProcessId, Claim)> = self
            .channels
            .values()
            .filter(|channel| channel.client == id || channel.server == id)
            .filter(|channel| channel.is_open(channel.end_of(id)))
            .map(|channel| {
                let (end, peer) = (channel.end_of(id), channel.peer_of(id));
                (peer, Claim::Channel { channel: channel.id, end, peer })
            })
            .collect();
        let era = self.broker.era();
        let with = |peer| channels.iter().any(|(other, _)| *other == peer);
        let mut claims = party.state.rejoin(era, with);
        self.carry_out(party);
        party.nobody_listens();
        claims.extend(channels.iter().map(|(_, claim)| *claim));
        (party.link, party.era) = (Link::Up, era);
        for part in claims.chunks(3) {
            party.requests.push_back((Request::Claim { claims: part.to_vec() }, None));
        }
        let manages = party.state.managers();
        party.requests.push_back((Request::Rejoin { manages }, None));
        // Whoever waits for the old broker asks this one.
        party.requests.push_back((Request::Barrier { number: party.barriers }, None));
    }
}

fn event_is_of(event: &baton_abi::control::Event, id: baton_abi::control::ChannelId) -> bool {
    matches!(event, baton_abi::control::Event::Channel { channel, .. } if *channel == id)
}
