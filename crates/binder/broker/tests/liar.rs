//! One engine lies among those that rejoin the next broker. The others keep what they had, and the
//! liar gets nothing that they did not give it, in any order of rejoining.

mod model;
mod test_state;

use baton_abi::claim::Claim;
use baton_abi::control::*;
use baton_broker::limits::{Limits, Rights};
use baton_broker::state::{Effect, PidNamespace, Rule, State};
use model::Rng;
use std::collections::{BTreeMap, BTreeSet};
use test_state::*;

const SEEDS: u64 = 2000;
const PROCESSES: u64 = 5;

/// What one process has by the broker's word.
#[derive(Clone, Debug, Default)]
struct Having {
    held: Vec<Held>,
    holders: Vec<(u64, u64, bool)>,
    channels: Vec<(u64, u64, bool)>,
}

type Truth = BTreeMap<ProcessId, Having>;
/// Owner, node, strongly held.
type Held = (u64, u64, bool);

fn some_process(rng: &mut Rng) -> ProcessId {
    ProcessId(1 + rng.below(PROCESSES))
}

#[test]
fn one_lying_engine_changes_nothing_for_others() {
    for seed in 0..SEEDS {
        let mut rng = Rng(seed);
        let before = truth(&some_broker(&mut rng));
        let liar = some_process(&mut rng);
        let next = take_over(&before, liar, &mut rng);
        let after = truth(&next);
        for id in before.keys() {
            check_gains(seed, *id, liar, &before, &after);
            if *id != liar {
                check_losses(seed, (*id, liar), &before[id], &after[id]);
            }
        }
    }
}

/// The processes as the broker reports them. Lists of owners are no part of it.
fn truth(core: &TestState) -> Truth {
    let core = TestState::of(core.state.clone());
    let processes = core.report().contexts.into_iter().flat_map(|context| context.processes);
    let mut all = Truth::default();
    for process in processes {
        for &(node, holder, strong) in &process.holdings {
            let holder = all.entry(ProcessId(holder)).or_default();
            holder.held.push((process.process, node, strong));
        }
        let its = all.entry(ProcessId(process.process)).or_default();
        (its.holders, its.channels) = (process.holdings, process.channels);
    }
    all
}

/// A broker after some random requests: a manager, and others with channels and references.
fn some_broker(rng: &mut Rng) -> TestState {
    let mut core = TestState::new();
    let all: Vec<ProcessId> = (0..PROCESSES).map(|pid| core.admit(pid as u32, OWNER)).collect();
    core.ask(all[0], become_manager(1));
    all[1..].iter().for_each(|client| core.connect_to_manager(*client, all[0]));
    for _ in 0..60 {
        let (from, to) = (some_process(rng), some_process(rng));
        let strength = if rng.below(3) > 0 { Strong } else { Weak };
        let (owner, node) = (some_process(rng), 1 + rng.below(3));
        let listed = core.list(owner, node, from, Strong);
        let request = match rng.below(5) {
            0 => Request::OpenChannel { target: owner, entry: listed.entry },
            1 => release(owner, node, rng.below(2) as u32, 1),
            2 => introduce(to, &[held(owner, node, strength)]),
            _ => introduce(to, &[HeldNode { strength, ..listed }]),
        };
        let (mut after, mut effects) = (core.state.clone(), Vec::new());
        after.request(from, request, &core.lists, &mut effects);
        if !effects.iter().any(|effect| matches!(effect, Effect::Disconnect { .. })) {
            core.state = after;
        }
    }
    core
}

/// The next broker, after all processes have rejoined in random order.
fn take_over(before: &Truth, liar: ProcessId, rng: &mut Rng) -> TestState {
    let rule = Rule {
        manager: Some((ProcessId(1), NodeId(1))),
        manager_uid: Some(OWNER),
        ..Rule::default()
    };
    let rules = BTreeMap::from([("binder".to_owned(), rule)]);
    let state = State::succeed(Limits::default(), OWNER, 1, rules);
    let mut core = TestState::of(state);
    let mut absent: Vec<ProcessId> = before.keys().copied().collect();
    while !absent.is_empty() {
        let process = absent.swap_remove(rng.below(absent.len() as u64) as usize);
        let mut claims = honest(before, process);
        if process == liar {
            claims.extend((0..10).map(|_| some_lie(rng, liar)));
            remove_contradictions(&mut claims);
        }
        let (pid, security_context) = (process.0 as u32, "label".to_owned());
        let identity =
            Identity { process, pid, uid: OWNER, security_context, is_served_by_root: false };
        core.state
            .readmit(identity, PidNamespace::Brokers, Rights::default(), "binder", u32::MAX, false)
            .unwrap();
        core.ask(process, Request::Claim { claims });
        // All claim to manage the context; one of them does.
        core.ask(process, Request::Rejoin { manages: vec![(NodeId(1), 0)] });
    }
    core.state.end_rejoin(&mut core.effects);
    let disconnected = |effect: &Effect| matches!(effect, Effect::Disconnect { .. });
    assert!(!core.effects().iter().any(disconnected), "a lie that was not remove_contradictions");
    core
}

/// The claims of an honest engine.
fn honest(all: &Truth, id: ProcessId) -> Vec<Claim> {
    let mine = &all[&id];
    let held = mine.held.iter().map(|&(owner, node, strong)| {
        let (owner, node, strong) = (ProcessId(owner), NodeId(node), u32::from(strong));
        Claim::Granted { owner, node, strong, grants: 1 }
    });
    let channels = mine.channels.iter().map(|&(channel, peer, is_server)| {
        let end = if is_server { End::Server } else { End::Client };
        Claim::Channel { channel: ChannelId(channel), end, peer: ProcessId(peer) }
    });
    let nodes = mine.holders.iter().map(|&(node, holder, _)| {
        let strong = mine.holders.iter().any(|&(other, _, strong)| other == node && strong);
        Claim::Node { node: NodeId(node), flags: 0, strong, holder: ProcessId(holder) }
    });
    held.chain(channels).chain(nodes).collect()
}

/// A random claim, which may be false.
fn some_lie(rng: &mut Rng, liar: ProcessId) -> Claim {
    // Any process, or one that never existed.
    let other = ProcessId(1 + (liar.0 + rng.below(PROCESSES)) % (PROCESSES + 1));
    let node = NodeId(1 + rng.below(4));
    match rng.below(3) {
        0 => Claim::Granted { owner: other, node, strong: 1, grants: 1 },
        1 => Claim::Node { node, flags: 0, strong: rng.below(2) > 0, holder: other },
        _ => {
            let end = if rng.below(2) > 0 { End::Client } else { End::Server };
            Claim::Channel { channel: ChannelId(1 + rng.below(12)), end, peer: other }
        }
    }
}

/// Removes claims that contradict each other, which would cost the liar its connection.
fn remove_contradictions(claims: &mut Vec<Claim>) {
    let mut others = BTreeSet::new();
    claims.retain(|claim| match *claim {
        Claim::Granted { owner, node, .. } => others.insert((0, owner.0, node.0)),
        Claim::Node { node, holder, .. } => others.insert((1, node.0, holder.0)),
        Claim::Peer { peer } => others.insert((4, 0, peer.0)),
        Claim::Channel { channel, end, peer } => {
            others.insert((2 + u8::from(end == End::Server), channel.0, peer.0))
        }
    });
}

/// Checks that no process holds a living process's node, or has a channel, that it did not have.
/// The liar may give away its own nodes, and hold strongly what is held strongly.
fn check_gains(seed: u64, id: ProcessId, liar: ProcessId, before: &Truth, after: &Truth) {
    let allowed = |&(owner, node, _): &Held| {
        let weakly = before[&id].held.contains(&(owner, node, false));
        owner == liar.0 || id == liar && weakly
    };
    for held in &after[&id].held {
        let had = before[&id].held.contains(held);
        assert!(had || allowed(held), "seed {seed}: {id:?} gained {held:?}");
    }
    for channel in &after[&id].channels {
        let had = before[&id].channels.contains(channel);
        assert!(had, "seed {seed}: {id:?} gained {channel:?}");
    }
}

/// Checks that a process keeps everything that has nothing to do with the liar.
fn check_losses(seed: u64, (who, liar): (ProcessId, ProcessId), before: &Having, after: &Having) {
    let held = |having: &Having| -> Vec<Held> {
        having.held.iter().filter(|held| held.0 != liar.0).copied().collect()
    };
    let channels = |having: &Having| -> Vec<(u64, u64, bool)> {
        having.channels.iter().filter(|channel| channel.1 != liar.0).copied().collect()
    };
    let kept = |one: &Held| held(after).contains(one);
    assert!(held(before).iter().all(kept), "seed {seed}: {who:?} lost a node: {after:?}");
    assert_eq!(channels(after), channels(before), "seed {seed}: {who:?}");
}
