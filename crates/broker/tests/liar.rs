//! One liar among engines that come back to the next broker: the others have what they had, and it
//! has nothing that they did not give it, whatever it says and whoever comes first.

mod core;

use baton_abi::claim::Claim;
use baton_abi::control::*;
use baton_broker::limits::{Limits, Rights};
use baton_broker::state::{Effect, Rule, State};
use core::*;
use std::collections::{BTreeMap, BTreeSet};

const SEEDS: u64 = 2000;
const PROCESSES: u64 = 5;

type Truth = BTreeMap<ProcessId, ProcessReport>;
type HandleReport = (u32, u64, u64, bool);

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    fn process(&mut self) -> ProcessId {
        ProcessId(1 + self.below(PROCESSES))
    }
}

#[test]
fn one_liar_changes_nothing_for_others() {
    for seed in 0..SEEDS {
        let mut dice = Dice(seed);
        let before = truth(&some_broker(&mut dice).state);
        let liar = dice.process();
        let next = take_over(&before, liar, &mut dice);
        let after = truth(&next.state);
        for id in before.keys() {
            check_gains(seed, *id, liar, &before, &after);
            if *id != liar {
                check_losses(seed, liar, &before[id], &after[id]);
            }
        }
    }
}

/// What the broker takes for true.
fn truth(state: &State) -> Truth {
    let processes = report_of(state, 0).contexts.into_iter().flat_map(|context| context.processes);
    processes.map(|process| (ProcessId(process.process), process)).collect()
}

/// A broker in the middle of things: a manager, and others with channels and references.
fn some_broker(dice: &mut Dice) -> Core {
    let mut core = Core::new();
    let all: Vec<ProcessId> = (0..PROCESSES).map(|pid| core.admit(pid as u32, OWNER)).collect();
    core.ask(all[0], become_manager(1));
    all[1..].iter().for_each(|client| core.meet(*client, all[0]));
    for _ in 0..60 {
        let (from, to) = (dice.process(), dice.process());
        let strength = if dice.below(3) > 0 { Strong } else { Weak };
        let request = match dice.below(5) {
            0 => Request::OpenChannel { target: to },
            1 => release(dice.below(4) as u32, dice.below(2) as u32, 1),
            2 => translate(to, &[handle(dice.below(4) as u32, strength)]),
            _ => translate(to, &[node(1 + dice.below(3), strength)]),
        };
        let (mut after, mut effects) = (core.state.clone(), Vec::new());
        after.request(from, request, &mut effects);
        if !effects.iter().any(|effect| matches!(effect, Effect::Disconnect { .. })) {
            core.state = after;
        }
    }
    core
}

/// The next broker, with everybody back in some order.
fn take_over(before: &Truth, liar: ProcessId, dice: &mut Dice) -> Core {
    let rule = Rule { manager: Some((ProcessId(1), NodeId(1))), manager_uid: Some(OWNER) };
    let rules = BTreeMap::from([("binder".to_owned(), rule)]);
    let state = State::succeed(Limits::default(), OWNER, 1, rules);
    let mut core = Core { state, effects: Vec::new() };
    let mut absent: Vec<ProcessId> = before.keys().copied().collect();
    while !absent.is_empty() {
        let process = absent.swap_remove(dice.below(absent.len() as u64) as usize);
        let mut claims = honest(before, process);
        if process == liar {
            claims.extend((0..10).map(|_| some_lie(dice, liar)));
            plausible(&mut claims);
        }
        let (pid, security_context) = (process.0 as u32, "label".to_owned());
        let identity = Identity { process, pid, uid: OWNER, security_context };
        core.state.readmit(identity, Rights::default(), "binder", u32::MAX, false).unwrap();
        core.ask(process, Request::Claim { claims });
        // Only one of them is the manager.
        core.ask(process, Request::Rejoin { manages: vec![(NodeId(1), 0)] });
    }
    core.state.end_rejoin(&mut core.effects);
    let disconnected = |effect: &Effect| matches!(effect, Effect::Disconnect { .. });
    assert!(!core.effects().iter().any(disconnected), "a lie that was not plausible");
    core
}

/// What an honest engine claims.
fn honest(all: &Truth, id: ProcessId) -> Vec<Claim> {
    let mine = &all[&id];
    let handles = mine.handles.iter().map(|&(handle, owner, node, strong)| {
        let (owner, node, strong) = (ProcessId(owner), NodeId(node), u32::from(strong));
        Claim::Handle { handle, owner, node, strong, grants: 1 }
    });
    let channels = mine.channels.iter().map(|&(channel, peer, is_server)| {
        let end = if is_server { End::Server } else { End::Client };
        Claim::Channel { channel: ChannelId(channel), end, peer: ProcessId(peer) }
    });
    let held = all.iter().flat_map(|(&holder, process)| {
        process.handles.iter().map(move |&(_, owner, node, _)| (holder, owner, node))
    });
    let nodes = held.filter(|&(_, owner, _)| owner == id.0).map(|(holder, _, node)| {
        let &(_, strong, _) = mine.nodes.iter().find(|known| known.0 == node).expect("it is held");
        Claim::Node { node: NodeId(node), flags: 0, strong: strong > 0, holder }
    });
    handles.chain(channels).chain(nodes).collect()
}

fn some_lie(dice: &mut Dice, liar: ProcessId) -> Claim {
    // Anybody, and one who never was.
    let other = ProcessId(1 + (liar.0 + dice.below(PROCESSES)) % (PROCESSES + 1));
    let node = NodeId(1 + dice.below(4));
    match dice.below(3) {
        0 => {
            Claim::Handle { handle: dice.below(9) as u32, owner: other, node, strong: 1, grants: 1 }
        }
        1 => Claim::Node { node, flags: 0, strong: dice.below(2) > 0, holder: other },
        _ => {
            let end = if dice.below(2) > 0 { End::Client } else { End::Server };
            Claim::Channel { channel: ChannelId(1 + dice.below(12)), end, peer: other }
        }
    }
}

/// Without what contradicts itself, which would cost the liar its connection.
fn plausible(claims: &mut Vec<Claim>) {
    let (mut numbers, mut others) = (BTreeSet::new(), BTreeSet::new());
    claims.retain(|claim| match *claim {
        Claim::Handle { handle, owner, node, .. } => {
            !numbers.contains(&handle)
                && others.insert((0, owner.0, node.0))
                && numbers.insert(handle)
        }
        Claim::Node { node, holder, .. } => others.insert((1, node.0, holder.0)),
        Claim::Channel { channel, end, peer } => {
            others.insert((2 + u8::from(end == End::Server), channel.0, peer.0))
        }
    });
}

/// Nobody has a handle to a living process's node, or a channel, that it did not have. The liar may
/// give away its own nodes, and make strong what it holds of a node that is held strongly.
fn check_gains(seed: u64, id: ProcessId, liar: ProcessId, before: &Truth, after: &Truth) {
    let allowed = |&(handle, owner, node, _): &HandleReport| {
        let weakly = before[&id].handles.contains(&(handle, owner, node, false));
        let dead = !after.contains_key(&ProcessId(owner));
        dead || owner == liar.0 || id == liar && weakly
    };
    for handle in &after[&id].handles {
        let had = before[&id].handles.contains(handle);
        assert!(had || allowed(handle), "seed {seed}: {id:?} gained {handle:?}");
    }
    for channel in &after[&id].channels {
        let had = before[&id].channels.contains(channel);
        assert!(had, "seed {seed}: {id:?} gained {channel:?}");
    }
}

/// What had nothing to do with the liar is as it was.
fn check_losses(seed: u64, liar: ProcessId, before: &ProcessReport, after: &ProcessReport) {
    let handles = |report: &ProcessReport| -> Vec<HandleReport> {
        report.handles.iter().filter(|handle| handle.1 != liar.0).copied().collect()
    };
    let channels = |report: &ProcessReport| -> Vec<(u64, u64, bool)> {
        report.channels.iter().filter(|channel| channel.1 != liar.0).copied().collect()
    };
    let who = before.process;
    let kept = |handle: &HandleReport| handles(after).contains(handle);
    assert!(handles(before).iter().all(kept), "seed {seed}: {who} lost a handle: {after:?}");
    assert_eq!(channels(after), channels(before), "seed {seed}: {who}");
}
