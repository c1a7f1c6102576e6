//! The rules of processes: contexts, channels, freezing, deaths, limits and reports.

mod test_state;

use baton_abi::control::*;
use baton_abi::holder_list::{ENTRIES, Holding};
use baton_broker::limits::{Limits, Usage};
use baton_broker::state::{CONTEXTS, Effect, HolderList, HolderLists, NewProcess, PidNamespace};
use rustix::io::Errno;
use test_state::*;

#[test]
fn processes_join_contexts_by_name() {
    let mut core = TestState::new();
    let admit = |core: &mut TestState, name| core.admit_to(1, 1, name).map(drop);
    for name in ["binder", "hwbinder", "vndbinder"] {
        assert_eq!(admit(&mut core, name), Ok(()));
    }
    assert_eq!(admit(&mut core, "mine"), Err(Errno::NOENT));
    let long = "x".repeat(255);
    let too_long = "x".repeat(256);
    let cases: [(u32, &str, Result<(), Errno>); 12] = [
        (2000, "mine", Err(Errno::PERM)),
        (2000, "binder", Err(Errno::PERM)),
        (OWNER, "", Err(Errno::INVAL)),
        (OWNER, "a/b", Err(Errno::INVAL)),
        (OWNER, "a\0b", Err(Errno::INVAL)),
        (OWNER, "..", Err(Errno::INVAL)),
        (OWNER, "binder-control", Err(Errno::INVAL)),
        (OWNER, &too_long, Err(Errno::INVAL)),
        (OWNER, "binder", Err(Errno::EXIST)),
        (OWNER, "mine", Ok(())),
        (0, &long, Ok(())),
        (0, "mine", Err(Errno::EXIST)),
    ];
    for (uid, name, expect) in cases {
        assert_eq!(core.state.add_context(uid, name), expect, "{uid} {name:?}");
    }
    assert_eq!(admit(&mut core, "mine"), Ok(()));
    let names = ["binder", "hwbinder", "mine", "vndbinder", &long].map(String::from).to_vec();
    let contexts = Some(Reply::Contexts { names });
    assert_eq!(core.observe(2000, &Request::Contexts), contexts);
    let engine = core.admit(1, 2000);
    assert_eq!(core.ask(engine, Request::Contexts), contexts);
    let add = |name: &str| Request::AddContext { name: name.into() };
    assert_eq!(core.ask(engine, add("other")), refused(Errno::PERM));
    assert_eq!(core.observe(0, &add("other")), Some(Reply::Done));
    assert_eq!(core.observe(0, &Request::ContextManager), None);
}

#[test]
fn a_channel_needs_a_grant_or_an_entry_or_the_manager() {
    let mut core = TestState::new();
    let [manager, client, other] = [10, 11, 12].map(|pid| core.admit(pid, OWNER));
    assert_eq!(core.ask(client, open(manager)), refused(Errno::PERM));
    core.ask(manager, become_manager(1));
    // Every process in the manager's context may call it, and no other.
    let channel = ChannelId(1);
    assert_eq!(core.ask(client, open(manager)), Some(Reply::Done));
    assert_eq!(core.effects(), [Effect::OpenChannel { channel, client, server: manager }]);
    let elsewhere = core.admit_to(13, OWNER, "hwbinder").unwrap();
    assert_eq!(core.ask(elsewhere, open(manager)), refused(Errno::PERM));
    assert_eq!(core.ask(manager, open(manager)), refused(Errno::PERM));
    assert_eq!(core.ask(manager, open(client)), refused(Errno::PERM));
    assert_eq!(core.ask(client, open(ProcessId(99))), refused(Errno::SRCH));
    // A weak grant also suffices, as long as it is held: the owner's own,
    let listed = core.list(client, 7, manager, Weak);
    let by = |entry| Request::OpenChannel { target: client, entry };
    let entry = listed.entry;
    for (from, entry) in [(manager, None), (other, entry), (elsewhere, entry)] {
        assert_eq!(core.ask(from, by(entry)), refused(Errno::PERM), "{from:?}");
    }
    assert_eq!(core.ask(manager, by(Some(1))), refused(Errno::PERM));
    let foreign = core.list(client, 7, elsewhere, Strong);
    assert_eq!(core.ask(elsewhere, by(foreign.entry)), refused(Errno::PERM), "another context's");
    assert_eq!(core.ask(manager, by(entry)), Some(Reply::Done));
    core.lists.free(client, 0);
    assert_eq!(core.ask(manager, by(entry)), refused(Errno::PERM));
    // or the broker's.
    core.connect_to_manager(other, manager);
    core.effects();
    let listed = core.list(client, 7, manager, Weak);
    core.pass_on(manager, other, &[listed]);
    assert_eq!(core.ask(other, open(client)), Some(Reply::Done));
    core.ask(other, release(client, 7, 0, 1));
    assert_eq!(core.ask(other, open(client)), refused(Errno::PERM));
}

#[test]
fn a_channel_that_could_not_be_made_is_forgotten() {
    let mut core = TestState::new();
    let (manager, client) = (core.admit(10, OWNER), core.admit(11, OWNER));
    core.ask(manager, become_manager(1));
    let before = format!("{:?}", core.report());
    core.ask(client, open(manager));
    core.state.end_channel(client, ChannelId(1), &mut core.effects);
    assert_eq!(format!("{:?}", core.report()), before);
    assert_eq!(core.ask(client, introduce(manager, &[])), refused(Errno::PERM));
}

#[test]
fn a_death_is_announced_once_before_the_lost_references() {
    let (mut core, manager, [one, two, three]) = TestState::with_manager();
    // The manager passes a node of `one` to `two`, which has no channel to `one`.
    let listed = core.list(one, 7, manager, Strong);
    core.pass_on(manager, two, &[listed]);
    let listed = core.list(three, 8, manager, Strong);
    core.pass_on(manager, one, &[listed]);
    core.gone(one);
    let dead = Event::Dead { process: one };
    assert_eq!(
        core.events(),
        [
            (manager, dead.clone()),
            (two, dead),
            (manager, references(1, true, true, (one, None))),
            (three, references(8, false, false, (one, None))),
        ]
    );
    assert_eq!(core.ask(manager, open(one)), refused(Errno::SRCH));
    assert_eq!(core.ask(manager, introduce(one, &[])), refused(Errno::SRCH));
    // Requests of a removed process do nothing.
    assert_eq!(core.ask(one, open(manager)), None);
    core.gone(one);
    assert_eq!(core.effects(), []);
}

/// Two processes that had a channel may hold each other's nodes by grants of their own.
#[test]
fn deaths_and_freezes_are_told_to_processes_of_ended_channels() {
    for (closer, dying) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let mut core = TestState::new();
        let [manager, client, other] = [10, 11, 12].map(|pid| core.admit(pid, OWNER));
        core.ask(manager, become_manager(1));
        core.ask(client, open(manager));
        core.ask(other, open(manager));
        let both = [manager, client];
        core.ask(both[closer], Request::CloseChannel { channel: ChannelId(1) });
        core.effects();
        assert_eq!(core.ask(client, introduce(manager, &[])), refused(Errno::PERM));
        let (dying, survivor) = (both[dying], both[1 - dying]);
        let is_frozen = Request::IsFrozen { target: dying };
        assert_eq!(core.ask(survivor, is_frozen), Some(Reply::Frozen { frozen: false }));
        let pid = if dying == manager { 10 } else { 11 };
        core.ask(survivor, Request::Freeze { pid, frozen: true });
        let told = (survivor, Event::Frozen { process: dying, frozen: true });
        let told = Effect::Event { to: told.0, event: told.1 };
        assert!(core.effects().contains(&told));
        core.gone(dying);
        let dead = |to| (to, Event::Dead { process: dying });
        let also = (dying == manager).then(|| dead(other));
        assert!(core.events().into_iter().eq([dead(survivor)].into_iter().chain(also)));
        core.gone(survivor);
        core.gone(other);
        assert!(core.state.is_empty(), "{:?}", core.state);
    }
}

#[test]
fn a_dead_node_can_be_passed_on_and_nothing_is_booked() {
    let (mut core, manager, [one, two, three]) = TestState::with_manager();
    let dead = core.list(one, 7, manager, Strong);
    let alive = core.list(three, 5, manager, Strong);
    core.pass_on(manager, two, &[dead]);
    core.gone(one);
    core.effects();
    assert_eq!(core.grants(two, one, 7), None, "it went with its owner");
    let weakly = HeldNode { strength: Weak, ..dead };
    assert!(matches!(
        core.ask(manager, introduce(two, &[dead, alive, weakly])),
        Some(Reply::Ticket { .. })
    ));
    let events = core.events();
    let ticket =
        [granted_dead(one, 7, Strong), granted(three, 5, Strong), granted_dead(one, 7, Weak)];
    let [(_, Event::References { .. }), (to, Event::Ticket { objects, .. }), dead] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!((*to, &objects[..]), (two, &ticket[..]));
    assert_eq!(*dead, (two, Event::Dead { process: one }));
    assert_eq!(core.grants(two, one, 7), None);
    for process in [manager, two, three] {
        core.gone(process);
    }
    assert!(core.state.is_empty(), "{:?}", core.state);
}

#[test]
fn nothing_is_left_when_all_processes_have_died() {
    let (mut core, manager, [one, two]) = TestState::with_manager();
    let empty = format!("{:?}", TestState::new().report());
    let listed = core.list(one, 7, manager, Strong);
    core.pass_on(manager, two, &[listed]);
    core.ask(two, open(one));
    core.ask(two, Request::CloseChannel { channel: ChannelId(3) });
    core.ask(two, open(one));
    core.pass_on(one, two, &[held(manager, 1, Strong)]);
    for process in [one, manager, two] {
        assert!(!core.state.is_empty());
        core.gone(process);
    }
    assert!(core.state.is_empty(), "{:?}", core.state);
    assert_eq!(format!("{:?}", core.report()), empty);
}

#[test]
fn holders_are_told_when_freezing_changes() {
    let (mut core, manager, [client]) = TestState::with_manager();
    let freeze = |pid, frozen| Request::Freeze { pid, frozen };
    let status = |two_way_received, one_way_received| {
        Some(Reply::Freeze { outstanding: 0, two_way_received, one_way_received })
    };
    let touched = |two_way| Request::FrozenTouched { target: manager, two_way };
    let is_frozen = Request::IsFrozen { target: manager };
    core.ask(client, touched(true));
    assert_eq!(core.ask(client, freeze(10, true)), status(false, false));
    let event = |frozen| Event::Frozen { process: manager, frozen };
    assert_eq!(
        core.effects(),
        [
            Effect::SetFrozen { process: manager, frozen: true },
            Effect::Event { to: manager, event: event(true) },
            Effect::Event { to: client, event: event(true) },
        ]
    );
    assert_eq!(core.ask(client, is_frozen.clone()), Some(Reply::Frozen { frozen: true }));
    let info = Request::FrozenInfo { pid: 10 };
    assert_eq!(core.ask(client, touched(true)), None);
    assert_eq!(core.ask(client, info.clone()), status(true, false));
    core.ask(client, touched(false));
    assert_eq!(core.ask(client, info.clone()), status(true, true));
    // A second freeze sends no event and resets the record of attempts.
    assert_eq!(core.ask(client, freeze(10, true)), status(false, false));
    assert_eq!(core.effects(), []);
    core.ask(client, touched(true));
    assert_eq!(core.ask(client, freeze(10, false)), status(false, false));
    assert_eq!(
        core.effects(),
        [
            Effect::SetFrozen { process: manager, frozen: false },
            Effect::Event { to: manager, event: event(false) },
            Effect::Event { to: client, event: event(false) },
        ]
    );
    assert_eq!(core.ask(client, is_frozen), Some(Reply::Frozen { frozen: false }));
    assert_eq!(core.ask(client, info), status(false, false));
}

/// Two processes of the broker's namespace, two of a namespace below it, one of another, and two
/// that the broker does not see.
#[test]
fn a_pid_is_of_its_readers_namespace_or_0() {
    let mut core = TestState::new();
    let below = |number, pid| PidNamespace::Other { number, pid };
    let all = [
        (10, PidNamespace::Brokers),
        (11, PidNamespace::Brokers),
        (12, below(7, 2)),
        (13, below(7, 3)),
        (14, below(8, 2)),
        (0, PidNamespace::Unknown),
        (0, PidNamespace::Unknown),
    ]
    .map(|(pid, pid_namespace)| {
        let new = NewProcess { pid, pid_namespace, uid: OWNER, ..NewProcess::default() };
        (pid_namespace, core.state.admit(new, "binder", u32::MAX).unwrap().process)
    });
    let freeze = |pid, frozen| Request::Freeze { pid, frozen };
    for (viewer, pids) in [
        (0, [10, 11, 12, 13, 14, 0, 0]),
        (2, [0, 0, 2, 3, 0, 0, 0]),
        (4, [0, 0, 0, 0, 2, 0, 0]),
        (5, [0; 7]),
    ] {
        let (namespace, viewer) = all[viewer];
        let seen = all.map(|(_, id)| core.state.identity_for(viewer, id).unwrap().pid);
        assert_eq!(seen, pids, "by {namespace:?}");
        let report = core.state.report(OWNER, namespace, Cursor::default(), &core.lists).0;
        let binder = report.contexts.iter().find(|context| context.name == "binder").unwrap();
        assert!(binder.processes.iter().map(|process| process.pid).eq(pids), "by {namespace:?}");
        // A freeze is of the process that the viewer sees by that pid.
        for (pid, (_, process)) in pids.into_iter().zip(all) {
            let frozen = Effect::SetFrozen { process, frozen: true };
            let answer = core.ask(viewer, freeze(pid, true));
            if pid == 0 {
                assert_eq!(answer, refused(Errno::INVAL), "by {namespace:?}");
            } else {
                assert_eq!(core.effects()[0], frozen, "by {namespace:?}");
                core.ask(viewer, freeze(pid, false));
            }
            core.effects();
        }
    }
    assert_eq!(core.ask(all[2].1, freeze(12, true)), refused(Errno::INVAL), "the broker's number");
}

#[test]
fn a_user_may_freeze_only_its_own_processes() {
    let mut core = TestState::new();
    let [root, one, again] = [(1, 0), (5, 500), (5, 500)].map(|(pid, uid)| core.admit(pid, uid));
    let other = core.admit(6, 600);
    let elsewhere = core.admit_to(7, 500, "hwbinder").unwrap();
    let freeze = |pid| Request::Freeze { pid, frozen: true };
    assert_eq!(core.ask(one, freeze(99)), refused(Errno::INVAL));
    assert_eq!(core.ask(one, Request::FrozenInfo { pid: 99 }), refused(Errno::INVAL));
    assert_eq!(core.ask(one, freeze(6)), refused(Errno::PERM));
    assert_eq!(core.ask(one, freeze(7)), refused(Errno::INVAL));
    assert_eq!(core.ask(elsewhere, freeze(5)), refused(Errno::INVAL));
    assert_eq!(core.effects(), []);
    // A freeze applies to every device that the process has open.
    assert!(matches!(core.ask(root, freeze(5)), Some(Reply::Freeze { .. })));
    let set = |process| Effect::SetFrozen { process, frozen: true };
    let told =
        |process| Effect::Event { to: process, event: Event::Frozen { process, frozen: true } };
    assert_eq!(core.effects(), [set(one), told(one), set(again), told(again)]);
    // Processes without a relation learn nothing and leave no record.
    assert_eq!(core.ask(other, Request::IsFrozen { target: one }), refused(Errno::PERM));
    assert_eq!(core.ask(other, Request::IsFrozen { target: ProcessId(99) }), refused(Errno::SRCH));
    core.ask(other, Request::FrozenTouched { target: one, two_way: true });
    let clean = Reply::Freeze { outstanding: 0, two_way_received: false, one_way_received: false };
    assert_eq!(core.ask(one, Request::FrozenInfo { pid: 5 }), Some(clean));
}

/// Small limits: two of every resource for a process, three for its user.
fn small_limits() -> Limits {
    Limits {
        process: Usage { processes: 1, handles: 2, nodes: 2, channels: 2 },
        user: Usage { processes: 3, handles: 3, nodes: 3, channels: 3 },
        all: Usage { processes: 100, handles: 100, nodes: 100, channels: 100 },
        channels_per_server: 1,
        objects_per_ticket: 4,
        contexts: 4,
        context_name_bytes: "binderhwbindervndbinder".len() + 8,
        ..Limits::default()
    }
}

#[test]
fn the_processes_of_a_user_are_limited() {
    let mut core = TestState::with(small_limits());
    let admit = |core: &mut TestState, uid| core.admit_to(1, uid, "binder");
    let first = admit(&mut core, 1).unwrap();
    for _ in 0..2 {
        admit(&mut core, 1).unwrap();
    }
    assert_eq!(admit(&mut core, 1), Err(Errno::DQUOT));
    assert!(admit(&mut core, 2).is_ok());
    core.gone(first);
    assert!(admit(&mut core, 1).is_ok());
}

#[test]
fn grants_have_limits_for_process_and_user() {
    // Other users may fill two of a process's four handles.
    let process = Usage { handles: 4, nodes: 9, ..small_limits().process };
    let user = Usage { nodes: 9, ..small_limits().user };
    let mut core = TestState::with(Limits { process, user, ..small_limits() });
    let [manager, one, two] = [(1, 1), (2, 2), (3, 2)].map(|(pid, uid)| core.admit(pid, uid));
    let owner = core.admit(4, OWNER);
    core.ask(manager, become_manager(1));
    for client in [one, two] {
        core.connect_to_manager(client, manager);
    }
    core.effects();
    let before = format!("{:?}", core.report());
    let listed = |core: &mut TestState, holder, nodes: &[u64]| -> Vec<HeldNode> {
        nodes.iter().map(|id| core.list(owner, *id, holder, Strong)).collect()
    };
    let ask = |core: &mut TestState, from, to, these: &[u64]| {
        let objects = listed(core, from, these);
        core.ask(from, introduce(to, &objects))
    };
    let entries = |core: &mut TestState| core.lists.remove(owner);
    // The receiver may have two more handles of this giver's.
    assert_eq!(ask(&mut core, one, manager, &[1, 2, 3]), refused(Errno::MFILE));
    assert_eq!(ask(&mut core, manager, one, &[2, 3]), refused(Errno::MFILE));
    assert_eq!(ask(&mut core, one, manager, &[1, 1, 1, 1, 1]), refused(Errno::NOSPC));
    entries(&mut core);
    assert_eq!(format!("{:?}", core.report()), before);
    assert_eq!(core.effects(), []);
    let done = |reply| assert!(matches!(reply, Some(Reply::Ticket { .. })), "{reply:?}");
    done(ask(&mut core, one, manager, &[1, 2, 2, 1]));
    // `one` and `two` belong to one user, which may have three handles.
    done(ask(&mut core, manager, one, &[2]));
    assert_eq!(ask(&mut core, manager, two, &[2]), refused(Errno::DQUOT));
    // Returned grants make room for others, and so does the death of an owner.
    core.ask(one, release(owner, 2, 1, 1));
    done(ask(&mut core, manager, two, &[2]));
    assert_eq!(ask(&mut core, manager, one, &[2]), refused(Errno::DQUOT));
    core.gone(owner);
    let owner = core.admit(5, OWNER);
    let object = core.list(owner, 3, manager, Strong);
    done(core.ask(manager, introduce(one, &[object])));
    for process in [manager, one, two, owner] {
        core.gone(process);
    }
    assert!(core.state.is_empty(), "{:?}", core.state);
}

#[test]
fn nodes_count_against_their_owner() {
    let limits = Limits {
        process: Usage { nodes: 2, ..Limits::default().process },
        user: Usage { nodes: 3, ..Limits::default().user },
        ..Limits::default()
    };
    let mut core = TestState::with(limits);
    let [manager, one, two] = [(1, 1), (2, 2), (3, 2)].map(|(pid, uid)| core.admit(pid, uid));
    let target = core.admit(5, 3);
    core.ask(manager, become_manager(1));
    core.connect_to_manager(target, manager);
    let listed = |core: &mut TestState, nodes: &[(ProcessId, u64)]| -> Vec<HeldNode> {
        nodes.iter().map(|(owner, id)| core.list(*owner, *id, manager, Weak)).collect()
    };
    let ask = |core: &mut TestState, nodes: &[(ProcessId, u64)]| {
        let objects = listed(core, nodes);
        core.ask(manager, introduce(target, &objects))
    };
    let done = |reply| assert!(matches!(reply, Some(Reply::Ticket { .. })), "{reply:?}");
    // Two owners of one user exceed its limit together.
    assert_eq!(ask(&mut core, &[(one, 1), (one, 2), (two, 1), (two, 2)]), refused(Errno::DQUOT));
    assert_eq!(ask(&mut core, &[(one, 1), (one, 2), (one, 3)]), refused(Errno::NOSPC));
    for id in [1, 2, 2, 1] {
        done(ask(&mut core, &[(one, id)]));
    }
    assert_eq!(ask(&mut core, &[(one, 3)]), refused(Errno::NOSPC));
    done(ask(&mut core, &[(two, 1)]));
    assert_eq!(ask(&mut core, &[(two, 2)]), refused(Errno::DQUOT));
    core.ask(target, release(one, 1, 0, 2));
    done(ask(&mut core, &[(two, 2)]));
    let late = core.admit(4, 2);
    core.gone(manager);
    assert_eq!(core.ask(late, become_manager(1)), refused(Errno::PERM));
    for process in [one, two, late, target] {
        core.gone(process);
    }
    assert!(core.state.is_empty(), "{:?}", core.state);
}

#[test]
fn channels_count_against_their_client() {
    let mut core = TestState::with(Limits { channels_per_server: 2, ..small_limits() });
    let [manager, one, two] = [(1, 1), (2, 2), (3, 2)].map(|(pid, uid)| core.admit(pid, uid));
    core.ask(manager, become_manager(1));
    assert_eq!(core.ask(one, open(manager)), Some(Reply::Done));
    assert_eq!(core.ask(one, open(manager)), Some(Reply::Done));
    assert_eq!(core.ask(one, open(manager)), refused(Errno::MFILE));
    assert_eq!(core.ask(two, open(manager)), Some(Reply::Done));
    assert_eq!(core.ask(two, open(manager)), refused(Errno::MFILE));
    core.state.end_channel(one, ChannelId(2), &mut core.effects);
    assert_eq!(core.ask(two, open(manager)), Some(Reply::Done));
    // The last channel to a server counts until one of the two is dead, and can be had again.
    core.state.end_channel(one, ChannelId(1), &mut core.effects);
    core.state.end_channel(two, ChannelId(4), &mut core.effects);
    let elsewhere = core.admit(5, 2);
    assert_eq!(core.ask(elsewhere, open(manager)), Some(Reply::Done));
    assert_eq!(core.ask(elsewhere, open(manager)), refused(Errno::MFILE));
    assert_eq!(core.ask(one, open(manager)), Some(Reply::Done));
    assert_eq!(core.ask(one, open(manager)), refused(Errno::MFILE));
    core.state.end_channel(one, ChannelId(6), &mut core.effects);
    core.gone(elsewhere);
    core.gone(manager);
    let next = core.admit(4, 1);
    core.ask(next, become_manager(1));
    assert_eq!(core.ask(one, open(next)), Some(Reply::Done));
    assert_eq!(core.ask(one, open(next)), Some(Reply::Done));
    for process in [next, one, two] {
        core.gone(process);
    }
    assert!(core.state.is_empty(), "{:?}", core.state);
}

#[test]
fn the_number_of_contexts_is_limited() {
    let mut core = TestState::with(small_limits());
    assert_eq!(core.state.add_context(0, "too long!"), Err(Errno::NOSPC), "9 bytes of 8");
    assert_eq!(core.state.add_context(0, "four"), Ok(()));
    assert_eq!(core.state.add_context(0, "five"), Err(Errno::NOSPC));
    let remove = Request::RemoveContext { name: "four".into() };
    assert_eq!(core.observe(0, &remove), Some(Reply::Done));
    assert_eq!(core.state.add_context(0, "five"), Ok(()));
}

#[test]
fn a_removed_context_goes_with_the_last_process_in_it() {
    let mut core = TestState::new();
    let remove = |name: &str| Request::RemoveContext { name: name.into() };
    let names = |core: &mut TestState| match core.observe(0, &Request::Contexts) {
        Some(Reply::Contexts { names }) => names,
        other => panic!("{other:?}"),
    };
    core.state.add_context(0, "mine").unwrap();
    let [first, second] = [10, 11].map(|pid| core.admit_to(pid, OWNER, "mine").unwrap());
    assert_eq!(core.ask(first, become_manager(1)), Some(Reply::Done));
    let cases =
        [(2000, "mine", Errno::PERM), (0, "none", Errno::NOENT), (0, "binder", Errno::INVAL)];
    for (uid, name, errno) in cases {
        assert_eq!(core.observe(uid, &remove(name)), refused(errno), "{uid} {name}");
    }
    assert_eq!(core.observe(0, &remove("mine")), Some(Reply::Done));
    assert_eq!(core.observe(0, &remove("mine")), refused(Errno::NOENT), "once");
    assert_eq!(names(&mut core), CONTEXTS.map(String::from));
    assert_eq!(core.admit_to(12, OWNER, "mine"), Err(Errno::NOENT));
    // Who is in it stays in it.
    assert!(matches!(core.ask(second, Request::ContextManager), Some(Reply::Ticket { .. })));
    core.gone(first);
    assert_eq!(core.report().contexts.len(), 4);
    core.gone(second);
    assert_eq!(core.report().contexts.len(), 3);
    // One of the same name has no first manager yet.
    core.state.add_context(0, "mine").unwrap();
    let other = core.admit_to(13, 2000, "mine").unwrap();
    assert_eq!(core.ask(other, become_manager(1)), Some(Reply::Done));
}

#[test]
fn a_removed_context_that_is_added_again_stays() {
    let mut core = TestState::new();
    core.state.add_context(0, "mine").unwrap();
    let process = core.admit_to(10, OWNER, "mine").unwrap();
    let remove = Request::RemoveContext { name: "mine".into() };
    assert_eq!(core.observe(0, &remove), Some(Reply::Done));
    core.state.add_context(0, "mine").unwrap();
    core.gone(process);
    assert!(core.admit_to(11, OWNER, "mine").is_ok());
}

#[test]
fn a_report_shows_everything() {
    let (mut core, manager, [client]) = TestState::with_manager();
    core.list(client, 7, manager, Weak);
    core.ask(client, Request::Freeze { pid: 10, frozen: true });
    let process = |process: ProcessId, pid| ProcessReport {
        process: process.0,
        pid,
        uid: OWNER,
        ..ProcessReport::default()
    };
    let binder = ContextReport {
        name: "binder".into(),
        manager: Some(manager.0),
        processes: vec![
            ProcessReport {
                frozen: true,
                holdings: vec![(1, client.0, true)],
                channels: vec![(1, client.0, true)],
                ..process(manager, 10)
            },
            ProcessReport {
                holdings: vec![(7, manager.0, false)],
                channels: vec![(1, manager.0, false)],
                ..process(client, 11)
            },
        ],
    };
    let empty = |name: &str| ContextReport { name: name.into(), ..ContextReport::default() };
    let contexts = vec![binder, empty("hwbinder"), empty("vndbinder")];
    let report = Report { contexts };
    assert_eq!(core.report(), report);
    // Another user sees the contexts, and only its own processes.
    let own = core.admit(12, 2000);
    let seen = report_of(&core, 2000);
    let processes: Vec<u64> =
        seen.contexts.iter().flat_map(|it| &it.processes).map(|it| it.process).collect();
    assert_eq!((seen.contexts.len(), processes), (3, vec![own.0]));
    let Some(Reply::Report { page, next: None }) =
        core.ask(own, Request::Report { from: Cursor::default() })
    else {
        panic!("no page, or more than one")
    };
    assert_eq!(page, seen);
}

#[test]
fn holders_by_book_and_list_are_reported_once_and_in_order() {
    let (mut core, manager, [owner, one, two]) = TestState::with_manager();
    for (node, to, strength) in [(9, two, Weak), (9, one, Strong), (4, two, Weak), (9, two, Weak)] {
        let listed = core.list(owner, node, manager, strength);
        core.pass_on(manager, to, &[listed]);
        core.lists.remove(owner);
    }
    core.list(owner, 9, one, Weak);
    core.list(owner, 4, two, Strong);
    core.list(owner, 4, manager, Weak);
    core.list(owner, 0, one, Weak);
    // What no owner says truly: of itself, and of processes that do not live.
    core.list(owner, 9, owner, Strong);
    core.list(owner, 9, ProcessId(99), Strong);
    let report = core.report();
    let shown = report.contexts[0].processes.iter().find(|it| it.process == owner.0).unwrap();
    let expect = [
        (0, one.0, false),
        (4, manager.0, false),
        (4, two.0, true),
        (9, one.0, true),
        (9, two.0, false),
    ];
    assert_eq!(shown.holdings, expect);
}

#[test]
fn a_long_report_comes_in_pages_and_is_complete() {
    const NODES: u64 = 5_000;
    let (mut core, manager, [one, two, three]) = TestState::with_manager();
    for first in (1..=NODES).step_by(1_000) {
        let nodes = first..first + 1_000;
        let nodes: Vec<_> = nodes.map(|id| core.list(one, 10 + id, manager, Strong)).collect();
        core.pass_on(manager, two, &nodes);
    }
    core.ask(three, open(manager));
    for pid in 100..100 + 3 * PAGE_ENTRIES as u32 {
        core.admit(pid, 2000);
    }
    let report = core.report();
    let binder = &report.contexts[0];
    let of = |id: ProcessId| binder.processes.iter().find(|it| it.process == id.0).unwrap();
    let expect = (1..=NODES).flat_map(|id| [manager, two].map(|by| (10 + id, by.0, true)));
    assert!(of(one).holdings.iter().copied().eq(expect));
    assert_eq!((of(manager).channels.len(), of(three).channels.len()), (4, 2));
    assert_eq!(binder.processes.len(), 4 + 3 * PAGE_ENTRIES);
    // Each page is bounded, even where no process may be shown.
    let mut from = Some(Cursor::default());
    let mut pages = 0;
    while let Some(begin) = from {
        let (page, next) = core.state.report(3000, PidNamespace::Brokers, begin, &core.lists);
        assert!(page.contexts.iter().all(|context| context.processes.is_empty()));
        (from, pages) = (next, pages + 1);
    }
    assert_eq!(pages, 4, "of so many processes, none of which is shown");
}

/// Lists that take long to read and say nothing.
struct Rubbish;

impl HolderLists for Rubbish {
    fn entry(&self, _: ProcessId, _: u32) -> Option<Holding> {
        None
    }

    fn all(&self, _: ProcessId) -> HolderList {
        HolderList { holdings: Vec::new(), n_read: ENTRIES as usize }
    }
}

#[test]
fn a_page_reads_few_long_lists_and_the_report_goes_on() {
    let (core, ..) = TestState::with_manager::<5>();
    let (mut report, mut from) = (Report::default(), Some(Cursor::default()));
    let mut pages = 0;
    while let Some(begin) = from {
        let (page, next) = core.state.report(0, PidNamespace::Brokers, begin, &Rubbish);
        let begun = page.contexts.iter().map(|context| context.processes.len()).sum::<usize>();
        assert!(begun <= 2, "{begun} lists for one page");
        assert!(next.is_none_or(|next| next > begin), "it goes on");
        report.add_page(page);
        (from, pages) = (next, pages + 1);
    }
    assert!(pages > 5);
    assert_eq!(report, core.report());
}

#[test]
fn accounts_show_what_users_have_and_may_still_take() {
    let mut core = TestState::with(small_limits());
    let [manager, one] = [(1, OWNER), (2, 2)].map(|(pid, uid)| core.admit(pid, uid));
    core.ask(manager, become_manager(1));
    core.connect_to_manager(one, manager);
    let accounts = |core: &mut TestState, uid| match core.observe(uid, &ACCOUNTS) {
        Some(Reply::Accounts { accounts, next: None }) => accounts,
        other => panic!("{other:?}"),
    };
    const ACCOUNTS: Request = Request::Accounts { from: 0 };
    let all = accounts(&mut core, OWNER);
    let shares = |account: &Account| -> Vec<(u64, u64)> {
        account.shares.iter().map(|share| (share.taken, share.left)).collect()
    };
    assert_eq!(
        all.iter().map(|it| (it.uid, it.reserve)).collect::<Vec<_>>(),
        [(2, false), (OWNER, true)]
    );
    assert_eq!(shares(&all[0]), [(1, 2), (1, 2), (0, 3), (1, 2)]);
    let (processes, few) = (u64::from(small_limits().all.processes), (0, 2));
    assert_eq!(shares(&all[1])[0], (1, processes - few.1));
    assert_eq!(accounts(&mut core, 2), all[..1]);
}

#[test]
fn calls_are_described_to_whoever_may_see_their_process() {
    let mut core = TestState::new();
    let (own, other) = (core.admit(1, 2000), core.admit(2, 3000));
    let call =
        |tid| CallReport { end: End::Client, tid, peer: 9, channel: 8, lane: 7, request: None };
    let shown = |core: &mut TestState, uid| {
        let (report, _) =
            core.state.report(uid, PidNamespace::Brokers, Cursor::default(), &core.lists);
        let processes = report.contexts.into_iter().flat_map(|context| context.processes);
        processes.map(|process| process.calls).collect::<Vec<_>>()
    };
    // Nobody has asked.
    assert_eq!(core.ask(own, Request::Calls { calls: vec![call(1)] }), None);
    assert_eq!(shown(&mut core, 2000), [None]);
    for _ in 0..2 {
        assert_eq!(core.observe(2000, &Request::DescribeCalls), Some(Reply::Done));
    }
    assert_eq!(core.events(), [(own, Event::DescribeCalls)], "it owes one answer");
    assert_eq!(shown(&mut core, 2000), [None]);
    core.ask(own, Request::Calls { calls: vec![call(1)] });
    core.ask(own, Request::Calls { calls: vec![call(2)] });
    assert_eq!(shown(&mut core, 2000), [Some(vec![call(1)])]);
    assert_eq!(core.observe(0, &Request::DescribeCalls), Some(Reply::Done));
    assert_eq!(core.events(), [(own, Event::DescribeCalls), (other, Event::DescribeCalls)]);
    core.ask(other, Request::Calls { calls: vec![call(3); MAX_CALLS + 1] });
    assert_eq!(shown(&mut core, 0), [None, Some(vec![call(3); MAX_CALLS])]);
}
