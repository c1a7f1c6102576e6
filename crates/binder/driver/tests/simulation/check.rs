//! What must hold when nothing is under way.

use crate::world::{Peer, World};
use baton_abi::control::{NodeId, ProcessId, ProcessReport, Report};
use baton_abi::sched_priority::SchedPriority;
use baton_driver::observer::Observer;
use baton_shm::simulation::FIRST_PID;
use std::collections::{BTreeMap, BTreeSet};

/// Everything that was begun has ended, and broker, engines and programs agree on who holds what.
pub fn at_rest(world: &World) {
    let report = report(world);
    for peer in world.peers() {
        check_threads(&peer);
        check_references(&peer);
        check_notices(world, &peer, &report);
        check_objects(&peer);
        check_real_time(world, &peer, &report);
    }
    check_grants(world, &report);
}

fn report(world: &World) -> Report {
    let observer = Observer::connect(&world.broker.socket).expect("a broker");
    observer.report().expect("a report")
}

fn processes(report: &Report) -> impl Iterator<Item = &ProcessReport> {
    report.contexts.iter().flat_map(|context| &context.processes)
}

fn check_threads(peer: &Peer) {
    let process = peer.process;
    let state = peer.program.device.engine().lock();
    for (tid, thread) in state.threads.iter() {
        assert!(thread.stack.is_empty(), "{process}.{tid} is left with {:?}", thread.stack);
        assert!(!thread.todo.urgent, "{process}.{tid} sleeps over its work");
    }
    assert_eq!(state.outstanding, 0, "{process} owes answers");
    let reads = |(tid, _)| state.would_read(tid);
    assert!(!state.threads.iter().any(reads), "{process} sleeps over its work");
    assert_eq!(state.contents.len(), peer.model().buffers.len(), "buffers of {process}");
    assert!(state.is_settled(), "{process} is left with tickets or notices: {:?}", *state);
}

/// The engine's counts are the program's, the manager's pin, and what buffers mention.
fn check_references(peer: &Peer) {
    let process = peer.process;
    let state = peer.program.device.engine().lock();
    let model = peer.model();
    for (handle, reference) in state.references.iter() {
        let known = model.references.get(&handle).copied().unwrap_or_default();
        let pin = u32::from(state.manager == Some(handle));
        let counts = reference.counts;
        let strong = known.strong + pin;
        assert!(counts.strong >= strong, "{process}'s {handle}: {counts:?}, {known:?}");
        let may_be_more = known.in_buffers > 0;
        assert!(may_be_more || counts.strong == strong, "{process}'s {handle}: {counts:?}");
        assert_eq!(reference.sending, 0, "{process}'s {handle} is being sent");
    }
    for (handle, known) in &model.references {
        assert!(state.references.get(*handle).is_some(), "{process} lacks {handle}: {known:?}");
    }
}

/// How often a node was granted to a process, by the owner itself: strong grants, and all.
type Outstanding = BTreeMap<(ProcessId, NodeId, ProcessId), (u64, u64)>;

/// Owners have granted exactly what holders have not returned, and the broker says of each node
/// who holds it, by its own grants and by the owner's list. Hostile processes say what they like.
fn check_grants(world: &World, report: &Report) {
    let honest: BTreeSet<ProcessId> =
        world.peers().iter().map(|peer| peer.program.device.engine().lock().id).collect();
    let (mut granted, mut held) = (Outstanding::new(), Outstanding::new());
    let mut holdings = BTreeSet::new();
    for peer in world.peers() {
        let state = peer.program.device.engine().lock();
        for (&holder, known) in state.peers.iter().filter(|(holder, _)| honest.contains(holder)) {
            let of_holder = known.granted.iter();
            granted.extend(
                of_holder.map(|(&node, it)| ((state.id, node, holder), (it.strong, it.all))),
            );
        }
        let references = state.references.iter().map(|(_, reference)| reference);
        for reference in references.filter(|it| !it.dead && honest.contains(&it.owner)) {
            let (owner, node, grants) = (reference.owner, reference.node, reference.grants);
            if grants.owner.all > 0 {
                let counts = (grants.owner.strong.into(), grants.owner.all.into());
                held.insert((owner, node, state.id), counts);
            }
            let strong = grants.owner.strong > 0 || grants.broker.strong > 0;
            holdings.insert((owner.0, node.0, state.id.0, strong));
        }
    }
    let differ = |(key, count): &(&_, &_)| held.get(key) != Some(count);
    let leaked: Vec<_> = granted.iter().filter(differ).collect();
    let differ = |(key, count): &(&_, &_)| granted.get(key) != Some(count);
    let lost: Vec<_> = held.iter().filter(differ).collect();
    assert!(leaked.is_empty() && lost.is_empty(), "granted {leaked:?}, held {lost:?}");
    let is_honest = |process| honest.contains(&ProcessId(process));
    let of_broker: BTreeSet<_> = processes(report)
        .filter(|owner| is_honest(owner.process))
        .flat_map(|owner| {
            owner
                .holdings
                .iter()
                .map(|&(node, holder, strong)| (owner.process, node, holder, strong))
        })
        .filter(|&(_, _, holder, _)| is_honest(holder))
        .collect();
    assert_eq!(of_broker, holdings, "who holds what, by the broker and by the engines");
}

fn check_notices(world: &World, peer: &Peer, report: &Report) {
    let model = peer.model();
    for (cookie, notice) in model.notices.iter().filter(|(_, notice)| !notice.is_dropped) {
        assert!(!notice.is_cleared, "the end of {cookie} is missing: {notice:?}");
        let owner = notice.name.owner;
        if notice.is_of_freezes {
            let is_frozen = processes(report).find(|it| u64::from(it.pid - FIRST_PID) == owner);
            let is_frozen = is_frozen.map(|process| process.frozen);
            let is_told = is_frozen.is_none() || notice.is_frozen == is_frozen;
            assert!(is_told, "BR_FROZEN_BINDER missing: {cookie} {notice:?}, {is_frozen:?}");
        } else {
            let is_told = notice.is_delivered || !world.is_dead(owner);
            assert!(is_told, "BR_DEAD_BINDER missing: {cookie} {notice:?}");
        }
    }
}

/// Each node is an object of the program, and the program was told of its counts.
fn check_objects(peer: &Peer) {
    let process = peer.process;
    let state = peer.program.device.engine().lock();
    let model = peer.model();
    for (id, node) in state.nodes.iter().filter(|(_, node)| node.ptr != 0) {
        let object = model.objects.get(&node.ptr);
        let object = object.unwrap_or_else(|| panic!("{process}'s {id:?} has no object: {node:?}"));
        let told = (object.strong == 1, object.weak == 1);
        assert_eq!(told, node.told(), "{process}'s {id:?}: {object:?} and {node:?}");
        assert!(!node.one_way_busy && node.one_way_todo.is_empty(), "{process}: {node:?}");
    }
    for (ptr, object) in &model.objects {
        let counts = (object.strong, object.weak);
        assert!([(0, 0), (0, 1), (1, 1)].contains(&counts), "{process}'s {ptr:#x}: {object:?}");
        assert_eq!(object.sending, 0, "{process}'s {ptr:#x} was not told");
    }
}

/// The lanes that threads keep which live. A looper keeps those of its nested calls until it is
/// relieved, or calls again as an ordinary thread.
fn reserved_lanes(world: &World) -> BTreeSet<(u64, u32)> {
    let mut reserved = BTreeSet::new();
    for peer in world.peers() {
        let loopers = peer.loopers();
        for (lane, tid) in peer.program.device.engine().reserved_lanes() {
            let lives = world.machine.lives(tid) && loopers.contains_key(&tid);
            assert!(lives, "{} keeps {lane:?} for {tid}, which has ended", peer.process);
            reserved.insert((lane.channel.0, lane.lane));
        }
    }
    reserved
}

/// Only what serves a reserved lane is kept for real-time callers, at either end and at the broker,
/// and only its looper has a priority that is not its own.
fn check_real_time(world: &World, peer: &Peer, report: &Report) {
    let (process, reserved) = (peer.process, reserved_lanes(world));
    let engine = peer.program.device.engine();
    for (lane, what) in engine.kept_for_real_time() {
        let is_reserved = lane.is_some_and(|it| reserved.contains(&(it.channel.0, it.lane)));
        let is_in_use = what == "in use" || what == "served";
        assert!(is_reserved && !is_in_use, "{process} keeps {lane:?} for nobody: {what}");
    }
    let identity = engine.lock().id.0;
    let mut promoted = BTreeMap::new();
    for lane in processes(report).filter(|it| it.process == identity).flat_map(|it| &it.real_time) {
        let is_reserved = reserved.contains(&(lane.channel, lane.lane));
        assert!(is_reserved, "the broker keeps a lane of {process} for nobody: {lane:?}");
        if let Some(looper) = lane.looper.as_ref().filter(|looper| looper.promoted) {
            promoted.insert(looper.tid, lane.priority);
        }
    }
    for (tid, own) in peer.loopers() {
        let schedule = world.machine.schedule(tid).expect("a thread of a process that lives");
        let lane = engine.lock().dedicated_to(tid);
        match promoted.get(&tid) {
            // The broker that promoted it has died, and its caller has not called since.
            None if lane.is_some() => {}
            None => assert_eq!(schedule, own, "looper {tid} of {process} serves nobody"),
            Some(priority) => {
                let policy = schedule.policy & !libc::SCHED_RESET_ON_FORK;
                let has = SchedPriority::of_real_time(policy, schedule.priority);
                assert_eq!(has, Some(*priority), "looper {tid} of {process} serves a caller");
            }
        }
    }
}

/// Every program has given back what it held: only the managers' pins remain.
pub fn given_back(world: &World) {
    for peer in world.peers() {
        let process = peer.process;
        let state = peer.program.device.engine().lock();
        // A looper at a real-time priority of its own may keep a lane, and so a slot here.
        let is_slot = |(_, what): &(_, String)| what.starts_with("ReservedSlot");
        let slots = state.kept_for_real_time().into_iter().filter(is_slot).count();
        let (_, taken) = state.buffers.used();
        assert_eq!(taken, slots, "{process} is left with room that is taken");
        let handles: Vec<u32> = state.references.iter().map(|(handle, _)| handle).collect();
        let pins: Vec<u32> = state.manager.into_iter().collect();
        assert_eq!(handles, pins, "{process} is left with handles");
        for (_, node) in state.nodes.iter() {
            assert_eq!(
                node.ptr,
                0,
                "{process} is left with {node:?}, {:?} {:?}",
                state.peers,
                world.machine.summary()
            );
        }
        let model = peer.model();
        assert!(model.objects.is_empty(), "{process} is left with {:?}", model.objects);
    }
}

/// The broker has forgotten everybody.
pub fn nobody_left(world: &World) {
    let report = report(world);
    let left: Vec<_> = processes(&report).collect();
    assert!(left.is_empty(), "the broker is left with {left:?}");
}
