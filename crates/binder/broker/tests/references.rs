//! The rules of references: grants, introductions, tickets, and events for owners.

mod model;
mod test_state;

use baton_abi::control::*;
use baton_abi::holder_list::{Entry, Holding};
use baton_broker::state::Violation;
use model::Rng;
use rustix::io::Errno;
use test_state::*;

#[test]
fn the_broker_grants_the_context_managers_node() {
    let mut core = TestState::new();
    let (manager, client) = (core.admit(10, OWNER), core.admit(11, OWNER));
    assert_eq!(core.ask(client, Request::ContextManager), refused(Errno::SRCH));
    assert_eq!(core.ask(manager, become_manager(1)), Some(Reply::Done));
    assert_eq!(core.ask(manager, Request::ContextManager), refused(Errno::INVAL));
    assert_eq!(core.events(), []);
    let ticket = TicketId(1);
    assert_eq!(core.ask(client, Request::ContextManager), Some(Reply::Ticket { ticket }));
    let objects = vec![granted_manager(manager, 1, Strong)];
    assert_eq!(
        core.events(),
        [
            (manager, references(1, true, true, (client, Some(Strong)))),
            (client, Event::Ticket { from: ProcessId::BROKER, ticket, objects }),
        ]
    );
    // Another grant on the node sends the manager no event.
    assert!(matches!(core.ask(client, Request::ContextManager), Some(Reply::Ticket { .. })));
    assert!(matches!(&core.events()[..], [(to, Event::Ticket { .. })] if *to == client));
    assert_eq!(core.grants(client, manager, 1), Some((2, 2)));
}

#[test]
fn a_context_has_one_manager_always_of_one_user() {
    let mut core = TestState::new();
    let first = core.admit(10, OWNER);
    let (same, other) = (core.admit(11, OWNER), core.admit(12, 2000));
    assert_eq!(core.ask(first, become_manager(1)), Some(Reply::Done));
    for process in [first, same, other] {
        assert_eq!(core.ask(process, become_manager(2)), refused(Errno::BUSY));
    }
    core.gone(first);
    assert_eq!(core.ask(other, become_manager(2)), refused(Errno::PERM));
    assert_eq!(core.ask(same, become_manager(2)), Some(Reply::Done));
    // Another context may have another manager.
    let elsewhere = core.admit_to(13, 2000, "hwbinder").unwrap();
    assert_eq!(core.ask(elsewhere, Request::ContextManager), refused(Errno::SRCH));
    assert_eq!(core.ask(elsewhere, become_manager(1)), Some(Reply::Done));
}

#[test]
fn an_owner_gets_events_only_when_its_holders_change() {
    let (mut core, manager, [one, two, three]) = TestState::with_manager();
    let (weak, strong) = (core.list(one, 7, manager, Weak), core.list(one, 7, manager, Strong));
    let told = |core: &mut TestState, to| {
        let events = core.events().into_iter();
        let told = events.filter(|(_, event)| matches!(event, Event::References { .. }));
        told.inspect(|(told, _)| assert_eq!(*told, to)).map(|(_, event)| event).collect::<Vec<_>>()
    };
    core.ask(manager, introduce(two, &[weak]));
    assert_eq!(told(&mut core, one), [references(7, false, true, (two, Some(Weak)))]);
    core.ask(manager, introduce(two, &[weak]));
    assert_eq!(told(&mut core, one), []);
    core.ask(manager, introduce(two, &[strong]));
    assert_eq!(told(&mut core, one), [references(7, true, true, (two, Some(Strong)))]);
    core.ask(manager, introduce(three, &[strong]));
    assert_eq!(told(&mut core, one), [references(7, true, true, (three, Some(Strong)))]);
    // One of two strong holders keeps a weak grant, then none.
    core.ask(two, release(one, 7, 1, 1));
    assert_eq!(told(&mut core, one), [references(7, true, true, (two, Some(Weak)))]);
    core.ask(two, release(one, 7, 0, 2));
    assert_eq!(told(&mut core, one), [references(7, true, true, (two, None))]);
    core.ask(three, release(one, 7, 1, 0));
    assert_eq!(told(&mut core, one), [references(7, false, true, (three, Some(Weak)))]);
    core.ask(three, release(one, 7, 0, 1));
    assert_eq!(told(&mut core, one), [references(7, false, false, (three, None))]);
}

#[test]
fn a_new_managers_node_manages_and_the_dead_ones_does_not() {
    let (mut core, first, [client, other]) = TestState::with_manager();
    core.gone(first);
    let second = core.admit(20, OWNER);
    core.ask(second, become_manager(1));
    for process in [client, other] {
        core.connect_to_manager(process, second);
        assert_eq!(core.grants(process, first, 1), None);
        assert_eq!(core.grants(process, second, 1), Some((1, 1)));
    }
    let listed = core.list(client, 6, other, Weak);
    let connect = Request::OpenChannel { target: client, entry: listed.entry };
    assert_eq!(core.ask(other, connect), Some(Reply::Done));
    core.effects();
    let both = [held(second, 1, Weak), held(first, 1, Weak)];
    let expect = [granted_manager(second, 1, Weak), granted_dead(first, 1, Weak)];
    assert_eq!(core.pass_on(client, other, &both), expect);
    // The old manager's record is gone with it, and another node of the new one does not manage.
    let another = core.list(second, 2, client, Weak);
    assert_eq!(core.pass_on(client, other, &[another]), [granted(second, 2, Weak)]);
}

#[test]
fn a_ticket_lists_its_objects_in_order() {
    let (mut core, manager, [one, two, three]) = TestState::with_manager();
    let a = core.list(one, 7, manager, Strong);
    let b = core.list(three, 7, manager, Strong);
    let weakly = |object| HeldNode { strength: Weak, ..object };
    let objects = [weakly(b), a, b, core.list(three, 4, manager, Strong), weakly(a)];
    let expect = [
        granted(three, 7, Weak),
        granted(one, 7, Strong),
        granted(three, 7, Strong),
        granted(three, 4, Strong),
        granted(one, 7, Weak),
    ];
    assert_eq!(core.pass_on(manager, two, &objects), expect);
    assert_eq!(core.grants(two, three, 7), Some((1, 2)));
    assert_eq!(core.grants(two, one, 7), Some((1, 2)));
    assert_eq!(core.grants(two, three, 4), Some((1, 1)));
    assert_eq!(core.grants(manager, one, 7), None, "its owner granted it");
    assert_eq!(core.pass_on(two, manager, &[]), []);
    // A node is passed on by the broker's grants, too.
    assert_eq!(core.pass_on(two, manager, &[held(one, 7, Weak)]), [granted(one, 7, Weak)]);
    assert_eq!(core.grants(manager, one, 7), Some((0, 1)));
}

#[test]
fn a_node_keeps_the_flags_of_its_first_introduction() {
    let (mut core, manager, [owner, one, two]) = TestState::with_manager();
    let holding = |flags| Holding { holder: manager, node: NodeId(7), flags, strength: Strong };
    let entry = |entry| HeldNode { entry: Some(entry), ..held(owner, 7, Strong) };
    core.lists.write(owner, 5, Entry::of(holding(5)));
    core.lists.write(owner, 6, Entry::of(holding(6)));
    assert_eq!(core.pass_on(manager, one, &[entry(5)])[0].flags, 5);
    assert_eq!(core.pass_on(manager, two, &[entry(6)])[0].flags, 5);
    core.ask(one, release(owner, 7, 1, 1));
    core.ask(two, release(owner, 7, 1, 1));
    assert_eq!(core.pass_on(manager, two, &[entry(6)])[0].flags, 6);
}

#[test]
fn a_ticket_is_all_or_nothing() {
    let (mut core, manager, [one, two, three]) = TestState::with_manager();
    let good = core.list(three, 5, manager, Strong);
    let of_one = core.list(three, 5, one, Strong);
    let before = format!("{:?}", core.state);
    let cases: [(ProcessId, ProcessId, HeldNode, Errno); 6] = [
        (manager, two, held(two, 1, Weak), Errno::INVAL), // the target's
        (manager, two, held(manager, 1, Weak), Errno::INVAL), // the sender's own
        (manager, manager, good, Errno::PERM),
        (one, two, of_one, Errno::PERM), // no channel
        (one, ProcessId(99), of_one, Errno::SRCH),
        (one, ProcessId::BROKER, of_one, Errno::SRCH),
    ];
    for (from, to, object, errno) in cases {
        assert_eq!(core.ask(from, introduce(to, &[good, object])), refused(errno));
        assert_eq!(core.effects(), []);
        assert_eq!(format!("{:?}", core.state), before);
    }
    // A channel in either direction suffices.
    assert_eq!(core.pass_on(one, manager, &[of_one]), [granted(three, 5, Strong)]);
    assert_eq!(core.pass_on(manager, one, &[good]), [granted(three, 5, Strong)]);
}

/// A sender passes on a node that it does not hold, or not so strongly.
#[test]
fn a_node_that_is_not_held_is_dead_at_its_receiver_and_changes_nothing_else() {
    let (mut core, manager, [owner, other, target]) = TestState::with_manager();
    let elsewhere = core.admit_to(30, OWNER, "hwbinder").unwrap();
    let weak = core.list(owner, 7, manager, Weak);
    let of_other = core.list(owner, 7, other, Strong);
    let of_another_node = core.list(owner, 8, manager, Strong);
    let foreign = core.list(elsewhere, 7, manager, Strong);
    let free = HeldNode { entry: Some(90), ..weak };
    let torn = HeldNode { entry: Some(91), ..weak };
    let entry =
        |holder| Entry::of(Holding { holder, node: NodeId(7), flags: FLAGS, strength: Strong });
    let (mut half, whole) = (bytemuck::bytes_of(&entry(manager)).to_vec(), entry(other));
    half[24..].copy_from_slice(&bytemuck::bytes_of(&whole)[24..]);
    core.lists.write(owner, 91, bytemuck::pod_read_unaligned(&half));
    // By the broker's book, `manager` holds node 9 weakly.
    let by_book = core.list(owner, 9, other, Weak);
    core.pass_on(other, manager, &[by_book]);
    let strongly = |object| HeldNode { strength: Strong, ..object };
    let cases = [
        ("held weakly, by the owner's list", strongly(weak)),
        ("held weakly, by the broker's book", held(owner, 9, Strong)),
        ("held by another process", of_other),
        ("another node's entry", HeldNode { node: NodeId(7), ..of_another_node }),
        ("a free entry", free),
        ("an entry that is being written", torn),
        ("an entry out of bounds", HeldNode { entry: Some(u32::MAX), ..weak }),
        ("no entry", HeldNode { entry: None, ..weak }),
        ("an owner of another context", foreign),
        ("an owner that is yet to come", held(ProcessId(elsewhere.0 + 1), 7, Strong)),
    ];
    for (number, (what, object)) in cases.into_iter().enumerate() {
        let strength = object.strength;
        let (before, grants) = (core.report(), core.grants(manager, owner, 9));
        let ticket = TicketId(0);
        let reply = core.ask(manager, introduce(target, &[object]));
        let ticket = match reply {
            Some(Reply::Ticket { ticket }) => ticket,
            other => panic!("{what}: {other:?} {ticket:?}"),
        };
        let nobodys = granted_dead(ProcessId::BROKER, number as u64 + 1, strength);
        let expect = [
            (target, Event::Ticket { from: manager, ticket, objects: vec![nobodys] }),
            (target, Event::Dead { process: ProcessId::BROKER }),
        ];
        assert_eq!(core.events(), expect, "{what}");
        assert_eq!((core.report(), core.grants(manager, owner, 9)), (before, grants), "{what}");
        // Such a grant is not returned; a return has no effect.
        core.ask(target, release(ProcessId::BROKER, number as u64 + 1, 0, 1));
        assert_eq!(core.effects(), [], "{what}");
    }
    // Beside a node that is held.
    let both = [of_other, weak];
    let passed = core.pass_on(manager, target, &both);
    assert_eq!(passed[0].owner, ProcessId::BROKER);
    assert_eq!(passed[1], granted(owner, 7, Weak));
    // A dead node can be passed on.
    let dead = HeldNode { entry: None, ..held(ProcessId::BROKER, 3, Weak) };
    let expect = [granted_dead(ProcessId::BROKER, 3, Weak)];
    assert_eq!(core.pass_on(target, manager, &[dead]), expect);
}

#[test]
fn a_holder_by_book_and_list_passes_on_the_stronger() {
    let (mut core, manager, [owner, other, target]) = TestState::with_manager();
    let by_book = core.list(owner, 7, other, Weak);
    core.pass_on(other, manager, &[by_book]);
    let listed = core.list(owner, 7, manager, Strong);
    assert_eq!(core.pass_on(manager, target, &[listed]), [granted(owner, 7, Strong)]);
    // The owner has freed the entry.
    core.lists.free(owner, listed.entry.unwrap());
    assert_eq!(core.pass_on(manager, target, &[listed])[0].owner, ProcessId::BROKER);
    let weakly = HeldNode { strength: Weak, ..listed };
    assert_eq!(core.pass_on(manager, target, &[weakly]), [granted(owner, 7, Weak)]);
}

#[test]
fn returning_too_many_grants_disconnects_only_the_sender() {
    // Columns: grants given (strong, all), grants returned, whether that is legal.
    let cases = [
        ((1, 1), (1, 1), true),
        ((1, 1), (1, 0), true),
        ((1, 1), (0, 0), true),
        ((1, 2), (0, 1), true),
        ((1, 2), (1, 1), true),
        ((2, 2), (2, 1), true),
        ((1, 1), (0, 1), false),
        ((1, 2), (0, 2), false),
        ((1, 1), (2, 2), false),
        ((1, 1), (1, 2), false),
        ((0, 1), (1, 1), false),
        ((1, 1), (u32::MAX, u32::MAX), false),
    ];
    for ((strong, all), (returned_strong, returned), legal) in cases {
        let (mut core, manager, [owner, client]) = TestState::with_manager();
        let listed = core.list(owner, 7, manager, Strong);
        for number in 0..all {
            let strength = if number < strong { Strong } else { Weak };
            core.pass_on(manager, client, &[HeldNode { strength, ..listed }]);
        }
        let before = format!("{:?}", core.state);
        assert_eq!(core.ask(client, release(owner, 7, returned_strong, returned)), None);
        if legal {
            let left = (strong - returned_strong, all - returned);
            let left = Some(left).filter(|(_, all)| *all > 0);
            assert_eq!(core.grants(client, owner, 7), left, "{returned_strong} {returned}");
        } else {
            assert_eq!(core.effects(), [over_return(client, owner, 7)]);
            assert_eq!(format!("{:?}", core.state), before);
        }
    }
    let (mut core, manager, [client]) = TestState::with_manager();
    core.ask(client, release(manager, 4, 0, 0));
    assert_eq!(core.effects(), [over_return(client, manager, 4)]);
    // Grants of the owner's own are not the broker's.
    let listed = core.list(manager, 4, client, Strong);
    core.ask(client, release(manager, listed.node.0, 1, 1));
    assert_eq!(core.effects(), [over_return(client, manager, 4)]);
}

#[test]
fn a_return_to_a_dead_owner_is_ignored() {
    let (mut core, manager, [owner, client]) = TestState::with_manager();
    let listed = core.list(owner, 7, manager, Strong);
    core.pass_on(manager, client, &[listed]);
    core.gone(owner);
    core.effects();
    let before = format!("{:?}", core.state);
    for owner in [owner, ProcessId::BROKER, ProcessId(99)] {
        core.ask(client, release(owner, 7, 1, 1));
        core.ask(client, release(owner, 7, u32::MAX, u32::MAX));
    }
    assert_eq!(core.effects(), []);
    assert_eq!(format!("{:?}", core.state), before);
}

#[test]
fn a_cancelled_ticket_is_forwarded() {
    let (mut core, manager, [one, two]) = TestState::with_manager();
    let ticket = TicketId(3);
    let cancel = |target| Request::CancelTicket { target, ticket };
    assert_eq!(core.ask(one, cancel(manager)), None);
    assert_eq!(core.events(), [(manager, Event::TicketCancelled { from: one, ticket })]);
    assert_eq!(core.ask(one, cancel(two)), None);
    assert_eq!(core.effects(), [], "there is no channel, or none any more");
    core.gone(manager);
    core.effects();
    assert_eq!(core.ask(one, cancel(manager)), None);
    assert_eq!(core.effects(), []);
}

#[test]
fn only_the_manager_may_ask_for_counts() {
    let (mut core, manager, [one, two, three]) = TestState::with_manager();
    let info = |owner, node| Request::NodeInfo { owner, node: NodeId(node) };
    let counts = |strong, weak| Some(Reply::Counts { strong, weak });
    assert_eq!(core.ask(manager, info(one, 7)), refused(Errno::INVAL));
    let listed = core.list(one, 7, manager, Strong);
    assert_eq!(core.ask(manager, info(one, 7)), counts(1, 0));
    assert_eq!(core.ask(manager, info(one, 8)), refused(Errno::INVAL));
    core.pass_on(manager, two, &[HeldNode { strength: Weak, ..listed }]);
    assert_eq!(core.ask(manager, info(one, 7)), counts(1, 1));
    // A process that holds it by both counts once, as the stronger.
    core.list(one, 7, two, Strong);
    assert_eq!(core.ask(manager, info(one, 7)), counts(2, 0));
    core.list(one, 7, three, Weak);
    core.list(one, 7, one, Strong);
    core.list(one, 7, ProcessId(99), Strong);
    assert_eq!(core.ask(manager, info(one, 7)), counts(2, 1), "the owner, or the dead, hold it");
    assert_eq!(core.ask(two, info(one, 7)), refused(Errno::PERM));
    let elsewhere = core.admit_to(30, OWNER, "hwbinder").unwrap();
    core.list(elsewhere, 7, manager, Strong);
    assert_eq!(core.ask(manager, info(elsewhere, 7)), refused(Errno::INVAL));
    assert_eq!(core.ask(manager, info(ProcessId(99), 7)), refused(Errno::INVAL));
}

#[test]
fn a_barrier_is_returned_as_an_event() {
    let (mut core, _, [client]) = TestState::with_manager();
    assert_eq!(core.ask(client, Request::Barrier { number: 8 }), None);
    assert_eq!(core.events(), [(client, Event::Barrier { number: 8 })]);
}

#[test]
fn a_second_greeting_is_a_violation() {
    let (mut core, _, [client]) = TestState::with_manager();
    let hello = Request::Hello {
        version: VERSION,
        context: "binder".into(),
        channels: 4096,
        connection: 0,
    };
    for greeting in [hello, Request::Observe { version: VERSION }] {
        assert_eq!(core.ask(client, greeting), None);
        assert_eq!(core.effects(), [violation(client, Violation::Greeting)]);
    }
}

#[test]
fn equal_runs_have_equal_effects() {
    let trace = |seed| {
        let mut core = TestState::new();
        let mut rng = Rng(seed);
        let processes = [1, 2, 3].map(|pid| core.admit(pid, 1));
        for _ in 0..200 {
            let from = processes[rng.below(3) as usize];
            let to = processes[rng.below(3) as usize];
            let (owner, node) = (processes[rng.below(3) as usize], rng.below(3));
            let listed = core.list(owner, node, from, rng.strength());
            let request = match rng.below(5) {
                0 => Request::BecomeContextManager { node: NodeId(1), flags: 0 },
                1 => Request::ContextManager,
                2 => open(to),
                3 => introduce(to, &[held(owner, node, rng.strength()), listed]),
                _ => introduce(to, &[listed]),
            };
            core.ask(from, request);
        }
        core.gone(processes[0]);
        core.effects()
    };
    assert_eq!(trace(5), trace(5));
    assert!(trace(5).len() > 50);
}
