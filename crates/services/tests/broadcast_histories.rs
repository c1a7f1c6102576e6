//! Random histories of the broadcast service's queues and levels, beside a naive model: nothing
//! that is accepted is lost or doubled, and a later, less urgent broadcast arrives later.
//!
//! `SEED=N` runs one history.

use baton_services::broadcast::level::{
    Broadcast, Effect, Event, Kind, Level, Limits, Outcome, Receiver, Skip, Target,
};
use baton_services::broadcast::presence::Presence;
use baton_services::broadcast::queue::{Invocation, Queues};
use baton_services::broadcast::token::Tokens;
use baton_services::intent::flags::{
    RECEIVER_FOREGROUND, RECEIVER_NO_ABORT, RECEIVER_REPLACE_PENDING,
};
use baton_services::intent::{ComponentName, Intent};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

const N_HISTORIES: u64 = 300;
const N_STEPS: u32 = 600;
const N_LEVELS: usize = 5;
const N_RECEIVERS: u64 = 6;
const LIMITS: Limits = Limits { receive_ns: 50, start_ns: 80 };

/// The number of a broadcast, which is its charge, too.
type Number = u64;
type Items = Queues<Event<u64, Number>, N_LEVELS>;

/// What became of a broadcast, for the model.
#[derive(Debug)]
struct Story {
    invoked: u64,
    level: usize,
    is_ordered: bool,
    may_abort: bool,
    /// Receivers, or components.
    targets: Vec<u64>,
    /// The receivers that were called, and when.
    arrived: Vec<(u64, u64)>,
    skipped: Vec<u64>,
    is_aborted: bool,
    /// How often the result came.
    n_results: u32,
    n_finished: i32,
}

/// A delivery that its receiver has not finished.
struct Open {
    token: u64,
    number: Number,
    receiver: u64,
    outcome: Outcome,
}

struct World<'a> {
    random: ChaCha8Rng,
    queues: &'a Items,
    levels: Vec<Level<u64, Number>>,
    tokens: Tokens,
    /// Invoked, and not yet accepted or refused.
    invoked: Vec<(Number, Invocation<'a, Event<u64, Number>, N_LEVELS>)>,
    receivers: Vec<Arc<Receiver<u64>>>,
    stories: BTreeMap<Number, Story>,
    open: Vec<Open>,
    /// Components that were asked for.
    starts: Vec<ComponentName>,
    /// How many broadcasts each component works on.
    working: BTreeMap<String, i32>,
    /// Counts what happens.
    clock: u64,
    now_ns: u64,
}

fn receiver(id: u64) -> Arc<Receiver<u64>> {
    let (name, presence) = (id.to_string(), Presence::default());
    Arc::new(Receiver {
        id,
        object: OnceLock::from(id),
        pid: 1,
        uid: 1,
        name,
        component: None,
        permission: None,
        presence,
    })
}

/// The result of an ordered broadcast goes to a receiver whose id names it.
const RESULT: u64 = 1 << 32;
/// The receivers of components.
const COMPONENT: u64 = 1 << 31;

fn component(id: u64) -> ComponentName {
    ComponentName { package: "p".to_owned(), class: id.to_string() }
}

impl World<'_> {
    fn below(&mut self, n: u64) -> u64 {
        u64::from(self.random.next_u32()) % n
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn step(&mut self) {
        match self.below(12) {
            0..=1 => {
                let level = self.below(N_LEVELS as u64) as usize;
                let number = self.tick();
                self.invoked.push((number, self.queues.invoke(level)));
            }
            2..=3 if !self.invoked.is_empty() => self.end_invocation(),
            4 if !self.open.is_empty() => self.finish(),
            5 => self.now_ns += self.below(40),
            6 if !self.starts.is_empty() => self.start(),
            _ => {
                let level = self.below(N_LEVELS as u64) as usize;
                self.deliver(level);
            }
        }
    }

    /// Accepts a broadcast, refuses it, or lowers it.
    fn end_invocation(&mut self) {
        let at = self.below(self.invoked.len() as u64) as usize;
        let lower = self.below(self.invoked[at].1.level() as u64 + 1) as usize;
        match self.below(8) {
            0 => drop(self.invoked.swap_remove(at)),
            1..=2 => self.invoked[at].1.lower_to(lower),
            _ => {
                let (number, invocation) = self.invoked.swap_remove(at);
                let level = invocation.level();
                let broadcast = self.broadcast(number, level);
                invocation.accept(Event::Accepted(Box::new(broadcast)));
            }
        }
    }

    fn broadcast(&mut self, number: Number, level: usize) -> Broadcast<u64, Number> {
        let mut ids: Vec<u64> = Vec::new();
        for id in 0..N_RECEIVERS {
            match self.below(4) {
                0 => ids.push(id),
                1 if self.below(4) == 0 => ids.push(COMPONENT + id),
                _ => {}
            }
        }
        let is_ordered = self.below(3) == 0;
        let may_abort = self.below(2) == 0;
        let target = |id: &u64| match id.checked_sub(COMPONENT) {
            None => Target::Registered(Arc::clone(&self.receivers[*id as usize])),
            Some(id) => Target::Component(component(id)),
        };
        let targets = ids.iter().map(target).collect();
        let kind = match is_ordered {
            false => Kind::Parallel,
            true => Kind::Ordered {
                first: 0,
                initial: Outcome::default(),
                result_to: Some(receiver(RESULT + number)),
            },
        };
        let mut intent = Intent::new(number.to_string());
        if !may_abort {
            intent.flags = RECEIVER_NO_ABORT;
        }
        self.stories.insert(
            number,
            Story {
                invoked: number,
                level,
                is_ordered,
                may_abort,
                targets: ids,
                arrived: Vec::new(),
                skipped: Vec::new(),
                is_aborted: false,
                n_results: 0,
                n_finished: 0,
            },
        );
        let uid = self.below(3) as u32;
        let is_foreground = self.below(2) == 0;
        let (is_sticky, is_begun, charge) = (false, false, number);
        Broadcast { intent, uid, is_foreground, is_sticky, is_begun, kind, targets, charge }
    }

    /// One look of a delivery thread.
    fn deliver(&mut self, number: usize) {
        let events = self.queues.take_all(number);
        for event in events {
            assert!(!self.levels[number].put(event), "no broadcast of a history replaces another");
        }
        let late = self.levels[number].expire(self.now_ns);
        self.carry_out(number, late);
        while let Some(effects) = self.levels[number].next_urgent(self.now_ns) {
            self.carry_out(number, effects);
        }
        if self.levels[number].has_broadcast() && self.queues.is_first(number) {
            let effects = self.levels[number].next_broadcast(self.now_ns).unwrap();
            self.carry_out(number, effects);
            self.queues.handed_over(number);
        }
    }

    fn carry_out(&mut self, level: usize, effects: Vec<Effect<u64, Number>>) {
        for effect in effects {
            match effect {
                Effect::Start(name) => self.starts.push(name),
                Effect::Begin(_) | Effect::Step { .. } => {}
                Effect::Busy(name) => *self.working.entry(name.class).or_default() += 1,
                Effect::Idle(name) => *self.working.entry(name.class).or_default() -= 1,
                Effect::Skipped { name, broadcast, .. } => {
                    let id = match name.strip_prefix("p/") {
                        Some(id) => COMPONENT + id.parse::<u64>().unwrap(),
                        None => name.parse().unwrap(),
                    };
                    self.story(broadcast.charge).skipped.push(id);
                }
                Effect::Deliver { to, broadcast, token, outcome, .. } => {
                    let (number, at) = (broadcast.charge, self.tick());
                    if to.id == RESULT + number {
                        let story = self.story(number);
                        story.n_results += 1;
                        assert_eq!(outcome.code, story.n_finished, "the result is the last one");
                    } else if token != 0 && self.below(8) == 0 {
                        // Its process is dead.
                        let effects = self.levels[level].failed(token, Skip::Gone, self.now_ns);
                        self.carry_out(level, effects);
                    } else {
                        self.story(number).arrived.push((to.id, at));
                        if token != 0 {
                            assert_eq!(self.tokens.level(token), Some(level));
                            self.open.push(Open { token, number, receiver: to.id, outcome });
                        }
                    }
                }
            }
        }
    }

    fn story(&mut self, number: Number) -> &mut Story {
        self.stories.get_mut(&number).unwrap()
    }

    /// A receiver finishes, perhaps too late, or it dies.
    fn finish(&mut self) {
        let at = self.below(self.open.len() as u64) as usize;
        let Open { token, number, receiver, mut outcome } = self.open.swap_remove(at);
        let level = self.tokens.level(token).unwrap();
        if self.below(4) == 0 {
            if let Some(receiver) = self.receivers.iter().find(|it| it.id == receiver) {
                assert!(receiver.presence.waiting().any(|it| it == level), "the level is told");
            }
            self.queues.tell(level, Event::Gone(receiver));
            return;
        }
        outcome.code += 1;
        let aborts = self.below(6) == 0;
        // The model looks at the step where the level looks: now.
        self.deliver(level);
        if self.story(number).skipped.contains(&receiver) {
            self.queues.tell(level, Event::Finished { token, outcome, aborts });
            return;
        }
        let story = self.story(number);
        story.n_finished += 1;
        story.is_aborted = aborts && story.is_ordered && story.may_abort;
        self.levels[level].put(Event::Finished { token, outcome, aborts });
        while let Some(effects) = self.levels[level].next_urgent(self.now_ns) {
            self.carry_out(level, effects);
        }
    }

    /// The process manager starts a component, or says that it cannot.
    fn start(&mut self) {
        let at = self.below(self.starts.len() as u64) as usize;
        let name = self.starts.swap_remove(at);
        let started = self.below(4) != 0;
        let id = COMPONENT + name.class.parse::<u64>().unwrap();
        for level in 0..N_LEVELS {
            self.queues.tell(
                level,
                match started {
                    true => Event::Started(name.clone(), receiver(id)),
                    false => Event::NotStarted(name.clone()),
                },
            );
        }
    }

    /// Everything comes to its end.
    fn settle(&mut self) {
        self.invoked.clear();
        for _ in 0..2000 {
            for level in (0..N_LEVELS).rev() {
                self.deliver(level);
            }
            self.now_ns += LIMITS.start_ns;
        }
    }

    fn check(&self) {
        assert!(self.working.values().all(|n| *n == 0), "{:?} work still", self.working);
        for story in self.stories.values() {
            let called: Vec<u64> = story.arrived.iter().map(|(id, _)| *id).collect();
            let mut seen = called.clone();
            // A receiver that was called and then skipped is one.
            seen.extend(story.skipped.iter().filter(|id| !called.contains(id)));
            seen.sort_unstable();
            let mut expected = story.targets.clone();
            expected.sort_unstable();
            if story.is_ordered {
                assert_eq!(story.n_results, 1, "{story:?}");
                let in_order = story.targets.iter().filter(|id| called.contains(id));
                assert!(in_order.eq(&called), "one after the other: {story:?}");
                assert!(seen.windows(2).all(|pair| pair[0] != pair[1]), "{story:?}");
            }
            if !story.is_aborted {
                assert_eq!(seen, expected, "each receiver once: {story:?}");
            }
        }
    }

    /// The property of 7.3.4. Components that have to be started, and later steps of an ordered
    /// broadcast, are not bound by it.
    fn check_order(&self) -> u64 {
        let last_bound = |story: &Story| {
            let mut arrived = story.arrived.iter().filter(|(id, _)| *id < COMPONENT);
            let bound = match story.is_ordered {
                true => arrived.take(1).find(|(id, _)| *id == story.targets[0]),
                false => arrived.next_back(),
            };
            bound.map(|(_, at)| *at)
        };
        let mut n_races = 0;
        for (high, low) in self.stories.values().flat_map(|high| {
            let is_later_and_lower =
                |low: &&Story| high.level > low.level && high.invoked < low.invoked;
            self.stories.values().filter(is_later_and_lower).map(move |low| (high, low))
        }) {
            let low_at = low.arrived.first().map(|(_, at)| *at);
            if let Some((high_at, low_at)) = last_bound(high).zip(low_at) {
                n_races += 1;
                assert!(high_at < low_at, "{high:?} after {low:?}");
            }
        }
        n_races
    }
}

fn history(seed: u64) -> u64 {
    println!("SEED={seed}");
    let queues = Items::new(|_| {});
    let tokens = Tokens::default();
    let level = |number| Level::new(number, LIMITS, tokens.clone());
    let mut world = World {
        random: ChaCha8Rng::seed_from_u64(seed),
        queues: &queues,
        levels: (0..N_LEVELS).map(level).collect(),
        tokens,
        invoked: Vec::new(),
        receivers: (0..N_RECEIVERS).map(receiver).collect(),
        stories: BTreeMap::new(),
        open: Vec::new(),
        starts: Vec::new(),
        working: BTreeMap::new(),
        clock: 0,
        now_ns: 0,
    };
    (0..N_STEPS).for_each(|_| world.step());
    world.settle();
    world.check();
    world.check_order()
}

#[test]
fn nothing_accepted_is_lost_or_doubled_and_urgent_broadcasts_come_first() {
    if let Some(seed) = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()) {
        history(seed);
        return;
    }
    let n_races: u64 = (0..N_HISTORIES).map(history).sum();
    assert!(n_races > 100 * N_HISTORIES, "{n_races} situations in which the order matters");
}

/// A broadcast with one receiver.
struct Sent {
    number: Number,
    action: &'static str,
    uid: u32,
    is_ordered: bool,
    flags: u32,
    is_begun: bool,
    is_sticky: bool,
}

impl Sent {
    fn accepted(self) -> Event<u64, Number> {
        let Sent { number, action, uid, is_ordered, flags, is_begun, is_sticky } = self;
        let mut intent = Intent::new(action);
        intent.flags = flags;
        intent.extras.put("number", number as i64);
        let initial = Outcome { code: number as i32, ..Outcome::default() };
        let result_to = Some(receiver(RESULT + number));
        let kind = match is_ordered {
            true => Kind::Ordered { first: 0, initial, result_to },
            false => Kind::Parallel,
        };
        let targets = vec![Target::Registered(receiver(1))];
        let (is_foreground, charge) = (flags & RECEIVER_FOREGROUND != 0, number);
        let broadcast =
            Broadcast { intent, uid, is_foreground, is_sticky, is_begun, kind, targets, charge };
        Event::Accepted(Box::new(broadcast))
    }
}

#[test]
fn a_broadcast_replaces_the_newest_pending_one_that_is_equal() {
    let mut level: Level<u64, Number> = Level::new(0, LIMITS, Tokens::default());
    let replace = RECEIVER_REPLACE_PENDING;
    let in_front = replace | RECEIVER_FOREGROUND;
    for (number, action, uid, is_ordered, flags, replaces) in [
        (1, "news", 1, false, 0, false),
        (2, "other", 1, false, 0, false),
        (3, "news", 1, false, 0, false),
        (4, "last", 1, false, 0, false),
        (5, "news", 1, true, 0, false),
        (6, "news", 2, false, replace, false),
        (7, "none", 1, false, replace, false),
        (8, "news", 1, false, in_front, false),
        (9, "news", 1, false, replace, true),
        (10, "news", 1, true, replace, true),
    ] {
        let (is_begun, is_sticky) = (false, false);
        let sent = Sent { number, action, uid, is_ordered, flags, is_begun, is_sticky };
        assert_eq!(level.put(sent.accepted()), replaces, "{number}");
    }
    // The sender of the ordered one that does not come gets the initial result.
    let effects = level.next_urgent(0).unwrap();
    let [Effect::Step { at: 1, .. }, Effect::Deliver { to, outcome, at: 1, token: 0, .. }] =
        &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert_eq!((to.id, outcome.code), (RESULT + 5, 5));
    assert!(level.next_urgent(0).is_none());
    let mut order = Vec::new();
    while let Some(effects) = level.next_broadcast(0) {
        let [Effect::Begin(_), Effect::Deliver { broadcast, .. }] = &effects[..] else {
            panic!("{effects:?}")
        };
        order.push(broadcast.charge);
    }
    assert_eq!(order, [8, 1, 6, 2, 9, 4, 10, 7]);
}

#[test]
fn begun_and_sticky_broadcasts_are_not_replaced_and_replace_none() {
    let state = |is_begun, is_sticky| (is_begun, is_sticky);
    let pending = state(false, false);
    for (first, second, replaces) in [
        (pending, pending, true),
        (state(true, false), pending, false),
        (pending, state(true, false), false),
        (state(false, true), pending, false),
        (pending, state(false, true), false),
    ] {
        let mut level: Level<u64, Number> = Level::new(0, LIMITS, Tokens::default());
        let sent = [first, second].map(|(is_begun, is_sticky)| {
            let (number, action, uid, flags) = (1, "news", 1, RECEIVER_REPLACE_PENDING);
            Sent { number, action, uid, is_ordered: false, flags, is_begun, is_sticky }
        });
        let [first, second] = sent.map(|sent| level.put(sent.accepted()));
        assert_eq!((first, second), (false, replaces));
    }
}

#[test]
fn a_component_works_from_the_start_of_its_process_until_it_finishes_or_is_skipped() {
    let attached = || {
        let Some(mut receiver) = Arc::into_inner(receiver(1)) else { unreachable!() };
        receiver.component = Some(component(1));
        Arc::new(receiver)
    };
    let words = |effects: Vec<Effect<u64, Number>>| {
        let word = |effect: &Effect<u64, Number>| match effect {
            Effect::Begin(_) => "begin",
            Effect::Busy(_) => "busy",
            Effect::Idle(_) => "idle",
            Effect::Start(_) => "start",
            Effect::Step { .. } => "step",
            Effect::Skipped { .. } => "skipped",
            Effect::Deliver { token: 0, .. } => "result",
            Effect::Deliver { .. } => "call",
        };
        effects.iter().map(word).collect::<Vec<_>>().join(" ")
    };
    for (is_ordered, runs, how, then) in [
        (false, true, "finishes", "idle"),
        (false, true, "hangs", "skipped idle"),
        (false, true, "dies", "skipped idle"),
        (true, true, "finishes", "idle step result"),
        (true, true, "hangs", "skipped idle step result"),
        (false, false, "finishes", "idle"),
        (true, false, "finishes", "idle step result"),
        (false, false, "is broken", "skipped idle"),
    ] {
        let shown = format!("{is_ordered} {runs} {how}");
        let mut level: Level<u64, Number> = Level::new(0, LIMITS, Tokens::default());
        let (number, action, uid, flags, is_begun, is_sticky) = (1, "a", 1, 0, false, false);
        let sent = Sent { number, action, uid, is_ordered, flags, is_begun, is_sticky };
        let Event::Accepted(mut broadcast) = sent.accepted() else { unreachable!() };
        broadcast.targets = vec![match runs {
            true => Target::Registered(attached()),
            false => Target::Component(component(1)),
        }];
        level.put(Event::Accepted(broadcast));
        let mut called = level.next_broadcast(0).unwrap();
        if !runs {
            assert_eq!(words(called), "begin busy start", "{shown}");
            level.put(match how {
                "is broken" => Event::NotStarted(component(1)),
                _ => Event::Started(component(1), attached()),
            });
            called = level.next_urgent(0).unwrap();
        }
        let (outcome, aborts) = (Outcome::default(), false);
        let last = match called.last() {
            Some(&Effect::Deliver { token, .. }) => {
                let expected = if runs { "begin busy call" } else { "call" };
                assert_eq!(words(called), expected, "{shown}");
                match how {
                    "finishes" => _ = level.put(Event::Finished { token, outcome, aborts }),
                    "dies" => _ = level.put(Event::Gone(1)),
                    _ => {}
                }
                level.next_urgent(0).unwrap_or_else(|| level.expire(LIMITS.receive_ns))
            }
            _ => called,
        };
        assert_eq!(words(last), then, "{shown}");
    }
}
