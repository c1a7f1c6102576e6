//! The rules of references: handles, grants, tickets, and events for owners.

mod model;
mod test_state;

use baton_abi::control::*;
use baton_broker::state::Violation;
use model::Rng;
use rustix::io::Errno;
use test_state::*;

#[test]
fn the_context_manager_is_handle_0() {
    let mut core = TestState::new();
    let (manager, client) = (core.admit(10, OWNER), core.admit(11, OWNER));
    assert_eq!(core.ask(client, Request::ContextManager), refused(Errno::SRCH));
    assert_eq!(core.ask(manager, become_manager(1)), Some(Reply::Done));
    assert_eq!(core.ask(manager, Request::ContextManager), refused(Errno::INVAL));
    assert_eq!(core.events(), []);
    let ticket = TicketId(1);
    assert_eq!(core.ask(client, Request::ContextManager), Some(Reply::Ticket { ticket }));
    let objects = vec![granted(0, manager, 1, Strong)];
    assert_eq!(
        core.events(),
        [
            (manager, references(1, true, true, (client, Some(Strong)))),
            (client, Event::Ticket { from: ProcessId::BROKER, ticket, objects }),
        ]
    );
    // Another grant on a handle sends the manager no event.
    assert!(matches!(core.ask(client, Request::ContextManager), Some(Reply::Ticket { .. })));
    assert!(matches!(&core.events()[..], [(to, Event::Ticket { .. })] if *to == client));
    assert_eq!(core.state.grants(client, 0), Some((2, 2)));
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
    let (mut core, manager, [one, two]) = TestState::with_manager();
    let told = |core: &mut TestState, to| {
        let events = core.events().into_iter();
        let told = events.filter(|(_, event)| matches!(event, Event::References { .. }));
        told.inspect(|(told, _)| assert_eq!(*told, to)).map(|(_, event)| event).collect::<Vec<_>>()
    };
    core.ask(one, translate(manager, &[node(7, Weak)]));
    assert_eq!(told(&mut core, one), [references(7, false, true, (manager, Some(Weak)))]);
    core.ask(one, translate(manager, &[node(7, Weak)]));
    assert_eq!(told(&mut core, one), []);
    core.ask(one, translate(manager, &[node(7, Strong)]));
    assert_eq!(told(&mut core, one), [references(7, true, true, (manager, Some(Strong)))]);
    core.ask(manager, translate(two, &[handle(1, Strong)]));
    assert_eq!(told(&mut core, one), [references(7, true, true, (two, Some(Strong)))]);
    // One of two strong holders keeps a weak grant, then none.
    core.ask(manager, release(1, 1, 1));
    assert_eq!(told(&mut core, one), [references(7, true, true, (manager, Some(Weak)))]);
    core.ask(manager, release(1, 0, 2));
    assert_eq!(told(&mut core, one), [references(7, true, true, (manager, None))]);
    core.ask(two, release(1, 1, 0));
    assert_eq!(told(&mut core, one), [references(7, false, true, (two, Some(Weak)))]);
    core.ask(two, release(1, 0, 1));
    assert_eq!(told(&mut core, one), [references(7, false, false, (two, None))]);
}

#[test]
fn handles_are_the_lowest_free_numbers() {
    let (mut core, manager, [client]) = TestState::with_manager();
    for number in 1..=4 {
        assert_eq!(core.send_handle(client, manager, node(number, Strong)), number as u32);
    }
    core.ask(manager, release(3, 1, 1));
    core.ask(manager, release(2, 1, 1));
    assert_eq!(core.send_handle(client, manager, node(4, Strong)), 4);
    assert_eq!(core.send_handle(client, manager, node(30, Strong)), 2);
    assert_eq!(core.send_handle(client, manager, node(40, Strong)), 3);
    assert_eq!(core.send_handle(client, manager, node(50, Strong)), 5);
    // Only a context manager's node may get a free handle 0.
    core.ask(client, release(0, 1, 1));
    assert_eq!(core.send_handle(manager, client, node(9, Strong)), 1);
    assert_eq!(core.send_handle(manager, client, node(1, Weak)), 0);
}

#[test]
fn a_new_manager_does_not_take_handle_0_from_a_dead_one() {
    let (mut core, manager, [client]) = TestState::with_manager();
    core.gone(manager);
    let next = core.admit(20, OWNER);
    core.ask(next, become_manager(1));
    core.connect_to_manager(client, next);
    assert_eq!(core.state.grants(client, 1), Some((1, 1)));
    core.ask(client, release(0, 1, 1));
    core.ask(client, release(1, 1, 1));
    core.effects();
    core.connect_to_manager(client, next);
    assert_eq!(core.state.grants(client, 0), Some((1, 1)));
}

#[test]
fn a_ticket_lists_its_objects_in_order() {
    let (mut core, manager, [one, two]) = TestState::with_manager();
    core.send_handle(one, manager, node(7, Strong));
    let objects =
        [node(3, Weak), handle(1, Strong), node(3, Strong), node(4, Strong), handle(1, Weak)];
    let expect = [
        granted(1, manager, 3, Weak),
        granted(2, one, 7, Strong),
        granted(1, manager, 3, Strong),
        granted(3, manager, 4, Strong),
        granted(2, one, 7, Weak),
    ];
    assert_eq!(core.send_objects(manager, two, &objects), expect);
    assert_eq!(core.state.grants(two, 1), Some((1, 2)));
    assert_eq!(core.state.grants(two, 2), Some((1, 2)));
    // The node returns to its owner without a grant.
    let home = [
        Granted::Own { node: NodeId(3), strength: Strong },
        Granted::Own { node: NodeId(1), strength: Weak },
    ];
    assert_eq!(core.send_objects(two, manager, &[handle(1, Strong), handle(0, Weak)]), home);
    assert_eq!(core.send_objects(two, manager, &[]), []);
}

#[test]
fn a_node_keeps_the_flags_of_its_first_appearance() {
    let (mut core, manager, [client]) = TestState::with_manager();
    let with_flags = |flags| Object::Node { node: NodeId(7), strength: Strong, flags };
    let flags = |granted: &[Granted]| match granted {
        [Granted::Handle { flags, .. }] => *flags,
        other => panic!("{other:?}"),
    };
    assert_eq!(flags(&core.send_objects(client, manager, &[with_flags(5)])), 5);
    assert_eq!(flags(&core.send_objects(client, manager, &[with_flags(6)])), 5);
    core.ask(manager, release(1, 2, 2));
    assert_eq!(flags(&core.send_objects(client, manager, &[with_flags(6)])), 6);
}

#[test]
fn a_ticket_is_all_or_nothing() {
    let (mut core, manager, [one, two]) = TestState::with_manager();
    core.send_handle(one, manager, node(7, Weak));
    let before = format!("{:?}", core.state);
    let cases: [(ProcessId, ProcessId, Object, Errno); 6] = [
        (manager, two, handle(9, Weak), Errno::INVAL), // no such handle
        (manager, two, handle(1, Strong), Errno::INVAL), // held weakly
        (manager, manager, node(1, Strong), Errno::PERM),
        (one, two, node(1, Strong), Errno::PERM), // no channel
        (one, ProcessId(99), node(1, Strong), Errno::SRCH),
        (one, ProcessId::BROKER, node(1, Strong), Errno::SRCH),
    ];
    for (from, to, object, errno) in cases {
        assert_eq!(core.ask(from, translate(to, &[node(5, Strong), object])), refused(errno));
        assert_eq!(core.effects(), []);
        assert_eq!(format!("{:?}", core.state), before);
    }
    // A channel in either direction suffices.
    assert_eq!(core.send_handle(manager, one, node(5, Strong)), 1);
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
        let (mut core, manager, [client]) = TestState::with_manager();
        for number in 0..all {
            let strength = if number < strong { Strong } else { Weak };
            core.send_objects(client, manager, &[node(7, strength)]);
        }
        let before = format!("{:?}", core.state);
        assert_eq!(core.ask(manager, release(1, returned_strong, returned)), None);
        if legal {
            let left = (strong - returned_strong, all - returned);
            let left = Some(left).filter(|(_, all)| *all > 0);
            assert_eq!(core.state.grants(manager, 1), left, "{returned_strong} {returned}");
        } else {
            let why = Violation::OverReturn { handle: 1 };
            assert_eq!(core.effects(), [violation(manager, why)]);
            assert_eq!(format!("{:?}", core.state), before);
        }
    }
    let (mut core, _, [client]) = TestState::with_manager();
    core.ask(client, release(4, 0, 0));
    assert_eq!(core.effects(), [violation(client, Violation::OverReturn { handle: 4 })]);
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
    let (mut core, manager, [one, two]) = TestState::with_manager();
    let info = |handle| Request::NodeInfo { handle };
    core.send_handle(one, manager, node(7, Strong));
    core.send_handle(manager, two, handle(1, Weak));
    let counts = Some(Reply::Counts { strong: 1, weak: 1 });
    assert_eq!(core.ask(manager, info(1)), counts);
    assert_eq!(core.ask(two, info(1)), refused(Errno::PERM));
    assert_eq!(core.ask(manager, info(2)), refused(Errno::INVAL));
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
    let hello = Request::Hello { version: VERSION, context: "binder".into(), channels: 4096 };
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
            let number = rng.below(3) as u32;
            let request = match rng.below(5) {
                0 => Request::BecomeContextManager { node: NodeId(1), flags: 0 },
                1 => Request::ContextManager,
                2 => Request::OpenChannel { target: to },
                3 => translate(to, &[node(3, rng.strength()), handle(number, rng.strength())]),
                _ => translate(to, &[node(rng.below(5), rng.strength())]),
            };
            core.ask(from, request);
        }
        core.gone(processes[0]);
        core.effects()
    };
    assert_eq!(trace(5), trace(5));
    assert!(trace(5).len() > 50);
}
