//! What engines know: they book the tickets, references, channels and deaths that the broker tells
//! of. And the dice of random histories.

#![allow(dead_code, reason = "each test program uses its part")]

use baton_abi::claim::Claim;
use baton_abi::control::*;
use std::collections::{BTreeMap, BTreeSet};

/// SplitMix64.
#[derive(Clone)]
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }

    /// Once in so many times.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.roll(times) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        (!from.is_empty()).then(|| from[self.roll(from.len() as u64) as usize])
    }

    pub fn strength(&mut self) -> Strength {
        if self.once_in(2) { Strength::Strong } else { Strength::Weak }
    }

    pub fn shuffle<T>(&mut self, all: &mut [T]) {
        for at in (1..all.len()).rev() {
            all.swap(at, self.roll(at as u64 + 1) as usize);
        }
    }
}

/// What an engine has on its books for a handle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Held {
    pub owner: ProcessId,
    pub node: NodeId,
    pub strong: u32,
    pub grants: u32,
    /// Its owner does not know of it.
    pub denied: bool,
}

impl Held {
    pub fn strength(&self) -> Strength {
        if self.strong > 0 { Strength::Strong } else { Strength::Weak }
    }
}

/// What an engine has been told of a node of its own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Told {
    pub strong: bool,
    pub held: bool,
    pub holders: BTreeMap<ProcessId, Strength>,
}

/// All that one engine knows.
#[derive(Clone, Debug, Default)]
pub struct Books {
    pub handles: BTreeMap<u32, Held>,
    pub nodes: BTreeMap<NodeId, Told>,
    /// Its end of each, and who has the other.
    pub channels: BTreeMap<ChannelId, (End, ProcessId)>,
    /// Of whose deaths this broker has told it.
    pub deaths: BTreeSet<ProcessId>,
}

impl Books {
    pub fn is_connected(&self, peer: ProcessId) -> bool {
        self.channels.values().any(|(_, with)| *with == peer)
    }

    /// Whether it has anything to do with another one.
    pub fn knows(&self, other: ProcessId) -> bool {
        self.is_connected(other)
            || self.handles.values().any(|held| held.owner == other)
            || self.nodes.values().any(|told| told.holders.contains_key(&other))
    }

    pub fn book_grant(&mut self, to: ProcessId, granted: &Granted) {
        let Granted::Handle { handle, owner, node, strength, .. } = *granted else { return };
        assert_ne!(owner, to, "a handle to its own node");
        let new = Held { owner, node, strong: 0, grants: 0, denied: false };
        let held = self.handles.entry(handle).or_insert(new);
        assert_eq!(
            (held.owner, held.node),
            (owner, node),
            "one number for two nodes: {handle} {held:?}"
        );
        held.grants += 1;
        held.strong += u32::from(strength == Strength::Strong);
    }

    /// Whether that was news.
    pub fn book_references(&mut self, event: &Event) -> bool {
        let Event::References { node, strong, held, holder } = *event else { return true };
        let told = self.nodes.entry(node).or_default();
        (told.strong, told.held) = (strong, held);
        let (process, holding) = holder;
        let before = match holding {
            Some(strength) => told.holders.insert(process, strength),
            None => told.holders.remove(&process),
        };
        // The last one, if several are told of at once.
        if told.holders.is_empty() {
            assert!(!held, "{node:?} is held by nobody");
            self.nodes.remove(&node);
        }
        before != holding
    }

    /// A process is no more. Its handles stay.
    pub fn book_death(&mut self, process: ProcessId) {
        self.deaths.insert(process);
        self.channels.retain(|_, (_, peer)| *peer != process);
    }

    /// Returns some of what it has on a handle.
    pub fn return_grants(&mut self, number: u32, strong: u32, grants: u32) {
        let held = self.handles.get_mut(&number).expect("it has it");
        (held.strong, held.grants) = (held.strong - strong, held.grants - grants);
        if held.grants == 0 {
            self.handles.remove(&number);
        }
    }

    /// What it tells the next broker, and all of it is true.
    pub fn claims(&self) -> Vec<Claim> {
        let handles = self.handles.iter().map(|(&handle, held)| {
            let Held { owner, node, strong, grants, .. } = *held;
            Claim::Handle { handle, owner, node, strong, grants }
        });
        let nodes = self.nodes.iter().flat_map(|(&node, told)| {
            let claim = move |&holder| Claim::Node { node, flags: 0, strong: told.strong, holder };
            told.holders.keys().map(claim)
        });
        let channels = self.channels.iter();
        let channels =
            channels.map(|(&channel, &(end, peer))| Claim::Channel { channel, end, peer });
        handles.chain(nodes).chain(channels).collect()
    }

    /// What a liar has if it is believed.
    pub fn of_claims(claims: &[Claim]) -> Books {
        let mut books = Books::default();
        for claim in claims {
            match *claim {
                Claim::Handle { handle, owner, node, strong, grants } => {
                    let held = Held { owner, node, strong, grants, denied: false };
                    books.handles.insert(handle, held);
                }
                Claim::Node { node, strong, holder, .. } => {
                    let told = books.nodes.entry(node).or_default();
                    (told.strong, told.held) = (strong, true);
                    let strength = if strong { Strength::Strong } else { Strength::Weak };
                    told.holders.insert(holder, strength);
                }
                Claim::Channel { channel, end, peer } => {
                    books.channels.insert(channel, (end, peer));
                }
            }
        }
        books
    }
}
