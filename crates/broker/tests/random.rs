//! Random runs against a naive model that knows only what engines know: it books the tickets,
//! references and deaths that the broker tells of, and after each step compares the books of
//! holders and owners with each other and with the broker's.

mod core;

use baton_abi::control::*;
use baton_broker::limits::{Limits, Usage};
use baton_broker::state::Effect;
use core::{Core, handle, node, release, translate};
use std::collections::{BTreeMap, BTreeSet};

/// Small enough to be reached.
fn limits() -> Limits {
    let process = Usage { processes: 1, handles: 12, nodes: 9, channels: 5 };
    let user = Usage { processes: 6, handles: 40, nodes: 30, channels: 20 };
    Limits { process, user, channels_per_server: 2, objects_per_ticket: 4, ..Limits::default() }
}

/// Says which run failed.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with seed {}", self.0);
        }
    }
}

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        (!from.is_empty()).then(|| from[self.roll(from.len() as u64) as usize])
    }

    fn strength(&mut self) -> Strength {
        if self.roll(2) == 0 { Strength::Strong } else { Strength::Weak }
    }
}

/// What an engine has on its books for a handle.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Held {
    owner: ProcessId,
    node: NodeId,
    strong: u32,
    grants: u32,
}

/// What an engine has been told of a node of its own.
#[derive(Clone, Debug, Default, PartialEq)]
struct Told {
    strong: bool,
    held: bool,
    holders: BTreeMap<ProcessId, Strength>,
}

#[derive(Default)]
struct Books {
    handles: BTreeMap<u32, Held>,
    nodes: BTreeMap<NodeId, Told>,
    channels: BTreeSet<ProcessId>,
    deaths: BTreeSet<ProcessId>,
}

struct Run {
    core: Core,
    dice: Dice,
    alive: BTreeMap<ProcessId, Books>,
    dead: BTreeSet<ProcessId>,
    pids: u32,
}

impl Run {
    fn admit(&mut self) {
        self.pids += 1;
        let (pid, uid) = (self.pids, 1 + self.dice.roll(2) as u32);
        if let Ok(process) = self.core.admit_to(pid, uid, "binder") {
            assert!(!self.dead.contains(&process), "a name was used twice");
            self.alive.insert(process, Books::default());
        }
    }

    fn kill(&mut self, process: ProcessId) {
        let books = self.alive.remove(&process).expect("alive");
        self.dead.insert(process);
        let mut expect: BTreeSet<ProcessId> =
            books.nodes.values().flat_map(|told| told.holders.keys().copied()).collect();
        expect.extend(&books.channels);
        self.core.gone(process);
        let mut told = BTreeSet::new();
        for effect in self.core.effects() {
            match effect {
                Effect::Event { to, event: Event::Dead { process: dead } } => {
                    assert_eq!(dead, process);
                    assert!(told.insert(to), "told twice");
                    let books = self.alive.get_mut(&to).expect("told the living");
                    assert!(books.deaths.insert(process));
                    books.channels.remove(&process);
                }
                effect => self.book(effect),
            }
        }
        assert_eq!(told, expect, "who must know of the death of {process:?}");
    }

    fn ask(&mut self, from: ProcessId, request: Request) {
        let before = format!("{:?}", self.core.state);
        let reply = self.core.ask(from, request);
        let effects = self.core.effects();
        if let Some(Reply::Refused { .. }) = reply {
            assert_eq!(effects, [], "refused, and yet something happened");
            assert_eq!(format!("{:?}", self.core.state), before);
        }
        for effect in effects {
            if let Effect::Disconnect { process, .. } = effect {
                assert_eq!(process, from, "somebody else's violation");
                return self.kill(process);
            }
            self.book(effect);
        }
    }

    fn book(&mut self, effect: Effect) {
        let (to, event) = match effect {
            Effect::Event { to, event } => (to, event),
            Effect::OpenChannel { client, server, .. } => {
                self.alive.get_mut(&client).expect("alive").channels.insert(server);
                self.alive.get_mut(&server).expect("alive").channels.insert(client);
                return;
            }
            other => panic!("{other:?}"),
        };
        let books = self.alive.get_mut(&to).expect("only the living are told");
        match event {
            Event::Ticket { objects, .. } => {
                objects.into_iter().for_each(|granted| book_grant(books, to, granted));
            }
            Event::References { node, strong, held, holder } => {
                let told = books.nodes.entry(node).or_default();
                (told.strong, told.held) = (strong, held);
                let (process, holding) = holder;
                let before = match holding {
                    Some(strength) => told.holders.insert(process, strength),
                    None => told.holders.remove(&process),
                };
                assert_ne!(before, holding, "told of nothing");
                if !held {
                    assert!(told.holders.is_empty());
                    books.nodes.remove(&node);
                }
            }
            // With a ticket that has a handle to one of its nodes.
            Event::Dead { process } => {
                assert!(self.dead.contains(&process));
                books.deaths.insert(process);
            }
            Event::TicketCancelled { .. } => (),
            other => panic!("{other:?}"),
        }
    }

    fn step(&mut self) {
        let all: Vec<ProcessId> = self.alive.keys().copied().collect();
        let Some(who) = self.dice.pick(&all) else { return self.admit() };
        let (handles, peers): (Vec<u32>, Vec<ProcessId>) = {
            let books = &self.alive[&who];
            (books.handles.keys().copied().collect(), books.channels.iter().copied().collect())
        };
        match self.dice.roll(20) {
            0 => self.admit(),
            1 if self.dice.roll(3) == 0 => self.kill(who),
            2 => {
                let node = NodeId(self.dice.roll(12));
                self.ask(who, Request::BecomeContextManager { node, flags: 0 });
            }
            3 | 4 => self.ask(who, Request::ContextManager),
            5 | 6 => {
                let owners: Vec<ProcessId> =
                    self.alive[&who].handles.values().map(|held| held.owner).collect();
                if let Some(target) = self.dice.pick(&owners).or(self.dice.pick(&all)) {
                    self.ask(who, Request::OpenChannel { target });
                }
            }
            7..13 => {
                let Some(target) = self.dice.pick(&peers) else { return };
                let count = self.dice.roll(6);
                let objects: Vec<Object> = (0..count)
                    .map(|_| match self.dice.pick(&handles) {
                        Some(number) if self.dice.roll(2) == 0 => {
                            handle(number, self.dice.strength())
                        }
                        _ => node(self.dice.roll(12), self.dice.strength()),
                    })
                    .collect();
                self.ask(who, translate(target, &objects));
            }
            13 if self.dice.roll(10) == 0 => {
                // More than it has, or of what it does not have.
                let number = self.dice.roll(9) as u32;
                let grants = self.alive[&who].handles.get(&number).map_or(0, |held| held.grants);
                self.ask(who, release(number, 0, grants + 1));
                assert!(self.dead.contains(&who), "it went unpunished");
            }
            14..20 => {
                if let Some(number) = self.dice.pick(&handles) {
                    self.release(who, number);
                }
            }
            _ => (),
        }
    }

    /// Any legal return, often of all.
    fn release(&mut self, who: ProcessId, number: u32) {
        let books = self.alive.get_mut(&who).expect("alive");
        let held = books.handles[&number];
        let (strong, grants) = if self.dice.roll(2) == 0 {
            (held.strong, held.grants)
        } else {
            let left = self.dice.roll(u64::from(held.grants) + 1) as u32;
            let left_strong = self.dice.roll(u64::from(held.strong.min(left)) + 1) as u32;
            (held.strong - left_strong, held.grants - left)
        };
        let left = Held { strong: held.strong - strong, grants: held.grants - grants, ..held };
        match left.grants {
            0 => books.handles.remove(&number),
            _ => books.handles.insert(number, left),
        };
        self.ask(who, release(number, strong, grants));
        assert!(self.alive.contains_key(&who), "disconnected for a legal return");
    }

    fn check(&self) {
        let mut truth: BTreeMap<(ProcessId, NodeId), Told> = BTreeMap::new();
        for (process, books) in &self.alive {
            let mut nodes = BTreeSet::new();
            for (number, held) in &books.handles {
                let grants = self.core.state.grants(*process, *number);
                assert_eq!(grants, Some((held.strong, held.grants)), "{process:?} {number}");
                assert!(nodes.insert((held.owner, held.node)), "two handles for one node");
                let told_dead = books.deaths.contains(&held.owner);
                assert_eq!(told_dead, self.dead.contains(&held.owner), "{:?}", held.owner);
                let told = truth.entry((held.owner, held.node)).or_default();
                told.held = true;
                told.strong |= held.strong > 0;
                let strength = if held.strong > 0 { Strength::Strong } else { Strength::Weak };
                told.holders.insert(*process, strength);
            }
        }
        let told = self.alive.iter().flat_map(|(owner, books)| {
            books.nodes.iter().map(|(node, told)| ((*owner, *node), told.clone()))
        });
        truth.retain(|(owner, _), _| self.alive.contains_key(owner));
        assert_eq!(told.collect::<BTreeMap<_, _>>(), truth, "owners and holders disagree");
    }
}

fn book_grant(books: &mut Books, to: ProcessId, granted: Granted) {
    match granted {
        Granted::Own { .. } => (),
        Granted::Handle { handle, owner, node, strength, .. } => {
            assert_ne!(owner, to, "a handle to its own node");
            let new = Held { owner, node, strong: 0, grants: 0 };
            let held = books.handles.entry(handle).or_insert(new);
            assert_eq!((held.owner, held.node), (owner, node), "one number for two nodes");
            held.grants += 1;
            held.strong += u32::from(strength == Strength::Strong);
        }
    }
}

#[test]
fn holders_owners_and_the_broker_agree() {
    for seed in 0..300 {
        let _seed = Seed(seed);
        let mut run = Run {
            core: Core::with(limits()),
            dice: Dice(seed),
            alive: BTreeMap::new(),
            dead: BTreeSet::new(),
            pids: 0,
        };
        for _ in 0..300 {
            run.step();
            run.check();
        }
        while let Some(process) = run.alive.keys().next().copied() {
            run.kill(process);
            run.check();
        }
        assert!(run.core.state.is_empty(), "left: {:?}", run.core.state);
    }
}

#[test]
fn equal_runs_have_equal_effects() {
    let trace = |seed| {
        let mut core = Core::with(limits());
        let mut dice = Dice(seed);
        let processes = [1, 2, 3].map(|pid| core.admit(pid, 1));
        for _ in 0..200 {
            let from = processes[dice.roll(3) as usize];
            let to = processes[dice.roll(3) as usize];
            let number = dice.roll(3) as u32;
            let request = match dice.roll(5) {
                0 => Request::BecomeContextManager { node: NodeId(1), flags: 0 },
                1 => Request::ContextManager,
                2 => Request::OpenChannel { target: to },
                3 => translate(to, &[node(3, dice.strength()), handle(number, dice.strength())]),
                _ => translate(to, &[node(dice.roll(5), dice.strength())]),
            };
            core.ask(from, request);
        }
        core.gone(processes[0]);
        core.effects()
    };
    assert_eq!(trace(5), trace(5));
    assert!(trace(5).len() > 50);
}
