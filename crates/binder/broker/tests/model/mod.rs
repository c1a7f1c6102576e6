//! The record that a model engine keeps of the broker's events, and random numbers for histories.

#![allow(dead_code, reason = "each test program uses its part")]

use baton_abi::claim::Claim;
use baton_abi::control::*;
use std::collections::{BTreeMap, BTreeSet};

/// SplitMix64, a generator of random numbers.
#[derive(Clone)]
pub struct Rng(pub u64);

impl Rng {
    /// A number from 0 to `bound - 1`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    /// True with a probability of 1 in `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        (!from.is_empty()).then(|| from[self.below(from.len() as u64) as usize])
    }

    pub fn strength(&mut self) -> Strength {
        if self.once_in(2) { Strength::Strong } else { Strength::Weak }
    }

    pub fn shuffle<T>(&mut self, all: &mut [T]) {
        for at in (1..all.len()).rev() {
            all.swap(at, self.below(at as u64 + 1) as usize);
        }
    }
}

/// An engine's record of the broker's grants on one node of another process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Held {
    pub strong: u32,
    pub grants: u32,
}

impl Held {
    pub fn strength(&self) -> Strength {
        if self.strong > 0 { Strength::Strong } else { Strength::Weak }
    }
}

/// An engine's record of one of its own nodes, from the broker's events.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeRecord {
    pub strong: bool,
    pub held: bool,
    pub holders: BTreeMap<ProcessId, Strength>,
}

/// The whole knowledge of one engine.
#[derive(Clone, Debug, Default)]
pub struct EngineRecord {
    /// Nodes of others by the broker's grants.
    pub held: BTreeMap<(ProcessId, NodeId), Held>,
    pub nodes: BTreeMap<NodeId, NodeRecord>,
    /// Its channels: its own end and the process at the other.
    pub channels: BTreeMap<ChannelId, (End, ProcessId)>,
    /// Processes with which it has or had a channel, as far as this broker knows.
    pub met: BTreeSet<ProcessId>,
    /// Processes whose death this broker has announced.
    pub deaths: BTreeSet<ProcessId>,
}

impl EngineRecord {
    pub fn is_connected(&self, peer: ProcessId) -> bool {
        self.channels.values().any(|(_, with)| *with == peer)
    }

    /// Whether the engine holds a node of `owner` by the broker's grants.
    pub fn holds_node_of(&self, owner: ProcessId) -> bool {
        self.held.keys().any(|(its, _)| *its == owner)
    }

    /// Whether the broker has to announce the death of `other` to this engine.
    pub fn must_learn_death_of(&self, other: ProcessId) -> bool {
        self.met.contains(&other) || self.is_connected(other) || self.holds_node_of(other)
    }

    /// Whether `other` holds a node of this engine.
    pub fn is_held_by(&self, other: ProcessId) -> bool {
        self.nodes.values().any(|told| told.holders.contains_key(&other))
    }

    /// Whether this engine has any relation to `other`.
    pub fn is_related_to(&self, other: ProcessId) -> bool {
        self.must_learn_death_of(other) || self.is_held_by(other)
    }

    pub fn add_channel(&mut self, channel: ChannelId, end: End, peer: ProcessId) {
        let before = self.channels.insert(channel, (end, peer));
        assert_eq!(before, None, "one name for two channels");
        self.met.insert(peer);
    }

    pub fn add_grant(&mut self, to: ProcessId, granted: &Granted) {
        let Granted { owner, node, strength, .. } = *granted;
        assert_ne!(owner, to, "a grant on its own node");
        if owner == ProcessId::BROKER {
            return; // Dead, and not returned.
        }
        let held = self.held.entry((owner, node)).or_default();
        held.grants += 1;
        held.strong += u32::from(strength == Strength::Strong);
    }

    /// Records an event about one of its nodes. Returns whether the event changed the record.
    pub fn add_references(&mut self, event: &Event) -> bool {
        let Event::References { node, strong, held, holder } = *event else { return true };
        let told = self.nodes.entry(node).or_default();
        (told.strong, told.held) = (strong, held);
        let (process, holding) = holder;
        let before = match holding {
            Some(strength) => told.holders.insert(process, strength),
            None => told.holders.remove(&process),
        };
        // Of several events sent together, this is the last.
        if told.holders.is_empty() {
            assert!(!held, "{node:?} is held by nobody");
            self.nodes.remove(&node);
        }
        before != holding
    }

    /// Records a process's death, with which all grants on its nodes end.
    pub fn add_death(&mut self, process: ProcessId) {
        self.deaths.insert(process);
        self.met.remove(&process);
        self.held.retain(|(owner, _), _| *owner != process);
        self.channels.retain(|_, (_, peer)| *peer != process);
    }

    /// Records that the engine returns grants.
    pub fn return_grants(&mut self, node: (ProcessId, NodeId), strong: u32, grants: u32) {
        let held = self.held.get_mut(&node).expect("it has it");
        (held.strong, held.grants) = (held.strong - strong, held.grants - grants);
        if held.grants == 0 {
            self.held.remove(&node);
        }
    }

    /// The claims of an honest engine.
    pub fn claims(&self) -> Vec<Claim> {
        let held = self.held.iter().map(|(&(owner, node), held)| {
            let Held { strong, grants } = *held;
            Claim::Granted { owner, node, strong, grants }
        });
        let nodes = self.nodes.iter().flat_map(|(&node, told)| {
            let claim = move |&holder| Claim::Node { node, flags: 0, strong: told.strong, holder };
            told.holders.keys().map(claim)
        });
        let channels = self.channels.iter();
        let channels =
            channels.map(|(&channel, &(end, peer))| Claim::Channel { channel, end, peer });
        held.chain(nodes).chain(channels).collect()
    }

    /// The record of a liar if every claim is granted.
    pub fn of_claims(claims: &[Claim]) -> EngineRecord {
        let mut record = EngineRecord::default();
        for claim in claims {
            match *claim {
                Claim::Granted { owner, node, strong, grants } => {
                    record.held.insert((owner, node), Held { strong, grants });
                }
                Claim::Node { node, strong, holder, .. } => {
                    let told = record.nodes.entry(node).or_default();
                    (told.strong, told.held) = (strong, true);
                    let strength = if strong { Strength::Strong } else { Strength::Weak };
                    told.holders.insert(holder, strength);
                }
                Claim::Peer { .. } => {}
                Claim::Channel { channel, end, peer } => {
                    record.channels.insert(channel, (end, peer));
                }
            }
        }
        record
    }
}
