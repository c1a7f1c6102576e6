//! The rules of rejoining: claims in any order, true and false, and processes that do not return.

mod test_state;

use baton_abi::claim::Claim;
use baton_abi::control::*;
use baton_broker::limits::{Limits, Rights, Usage};
use baton_broker::state::{Effect, PidNamespace, Rule, State, Violation};
use rustix::io::Errno;
use std::collections::BTreeMap;
use test_state::*;

/// The owner of all nodes. Node 1 is the manager's in all tests.
const OWNING: ProcessId = ProcessId(1);
const HOLDING: ProcessId = ProcessId(2);
const THIRD: ProcessId = ProcessId(3);

fn successor() -> TestState {
    successor_of(Limits::default(), OWNING, 1)
}

fn successor_of(limits: Limits, manager: ProcessId, node: u64) -> TestState {
    let rule = Rule {
        manager: Some((manager, NodeId(node))),
        manager_uid: Some(OWNER),
        ..Rule::default()
    };
    let rules = BTreeMap::from([("binder".to_owned(), rule)]);
    TestState::of(State::succeed(limits, OWNER, 1, rules))
}

fn identity(process: ProcessId) -> Identity {
    let (pid, security_context) = (process.0 as u32, "label".to_owned());
    Identity { process, pid, uid: OWNER, security_context, is_served_by_root: false }
}

fn readmit(broker: &mut TestState, process: ProcessId) -> Result<(), Errno> {
    broker.state.readmit(
        identity(process),
        PidNamespace::Brokers,
        Rights::default(),
        "binder",
        u32::MAX,
        false,
    )
}

/// Lets a process rejoin with these claims.
fn rejoin(broker: &mut TestState, process: ProcessId, claims: &[Claim]) {
    readmit(broker, process).unwrap();
    for part in claims.chunks(2) {
        assert_eq!(broker.ask(process, Request::Claim { claims: part.to_vec() }), None);
    }
    assert_eq!(broker.ask(process, Request::Rejoin { manages: Vec::new() }), None);
}

fn end_rejoin(broker: &mut TestState) {
    broker.state.end_rejoin(&mut broker.effects);
}

fn held_by(node: u64, strong: bool, holder: ProcessId) -> Claim {
    Claim::Node { node: NodeId(node), flags: FLAGS, strong, holder }
}

fn holds(node: u64, strong: u32, grants: u32) -> Claim {
    Claim::Granted { owner: OWNING, node: NodeId(node), strong, grants }
}

fn denied(node: u64) -> Event {
    Event::Denied { owner: OWNING, node: NodeId(node) }
}

fn channel(channel: u64, end: End, peer: ProcessId) -> Claim {
    Claim::Channel { channel: ChannelId(channel), end, peer }
}

fn frozen(process: ProcessId, frozen: bool) -> Event {
    Event::Frozen { process, frozen }
}

fn dead(process: ProcessId) -> Event {
    Event::Dead { process }
}

/// Claims of an owner and a holder, in either order, and the resulting events of both.
#[test]
fn a_grant_is_valid_only_as_far_as_the_owner_confirms_it() {
    let thawed = || vec![frozen(OWNING, false)];
    let gone = |strong, held| vec![references(7, strong, held, (HOLDING, None))];
    #[rustfmt::skip]
    #[expect(clippy::type_complexity, reason = "a table's columns")]
    let cases: [(&str, Vec<Claim>, Vec<Claim>, Option<(u32, u32)>, Vec<Event>, Vec<Event>); 7] = [
        ("both say so", vec![held_by(7, true, HOLDING)], vec![holds(7, 2, 3)],
            Some((2, 3)), vec![], thawed()),
        ("weakly, and somebody did strongly", vec![held_by(7, true, HOLDING)], vec![holds(7, 0, 1)],
            Some((0, 1)), vec![references(7, false, true, (HOLDING, Some(Weak)))], thawed()),
        ("weakly", vec![held_by(7, false, HOLDING)], vec![holds(7, 0, 1)],
            Some((0, 1)), vec![], thawed()),
        ("strongly, and nobody did", vec![held_by(7, false, HOLDING)], vec![holds(7, 1, 1)],
            None, gone(false, false), vec![denied(7)]),
        ("the owner knows no holder", vec![], vec![holds(7, 1, 1)],
            None, vec![], vec![denied(7)]),
        ("the owner knows another node", vec![held_by(8, true, HOLDING)], vec![holds(7, 1, 1)],
            None, vec![references(8, false, false, (HOLDING, None))], vec![denied(7)]),
        ("the holder has returned it", vec![held_by(7, true, HOLDING)], vec![],
            None, gone(false, false), vec![]),
    ];
    for (what, owner, holder, grants, owner_hears, holder_hears) in cases {
        for owner_first in [true, false] {
            let mut broker = successor();
            let mut both = [(OWNING, &owner), (HOLDING, &holder)];
            if !owner_first {
                both.reverse();
            }
            for (process, claims) in both {
                rejoin(&mut broker, process, claims);
            }
            end_rejoin(&mut broker);
            let events = broker.events();
            let events_of = |by| {
                let of = events.iter().filter(|(to, _)| *to == by);
                of.map(|(_, event)| event.clone()).collect::<Vec<_>>()
            };
            let what = format!("{what}, the owner first: {owner_first}");
            assert_eq!(events_of(OWNING), owner_hears, "{what}");
            assert_eq!(events_of(HOLDING), holder_hears, "{what}");
            assert_eq!(broker.grants(HOLDING, OWNING, 7), grants, "{what}");
            // The holder can return the grants that it has, and no more.
            if let Some((strong, grants)) = grants {
                broker.ask(HOLDING, release(OWNING, 7, strong, grants));
                broker.ask(HOLDING, release(OWNING, 7, 0, 1));
                let last = broker.effects().pop();
                assert_eq!(last, Some(over_return(HOLDING, OWNING, 7)), "{what}");
            }
            broker.gone(OWNING);
            broker.gone(HOLDING);
            assert!(broker.state.is_empty(), "{what}: {:?}", broker.state);
        }
    }
}

#[test]
fn a_denied_grant_gives_no_access() {
    for liar_first in [true, false] {
        let mut broker = successor();
        let (owner, friend) =
            ([channel(9, End::Server, THIRD)], [channel(8, End::Client, HOLDING)]);
        let liar = [holds(7, 1, 1), channel(8, End::Server, THIRD)];
        if liar_first {
            rejoin(&mut broker, HOLDING, &liar);
            let send = introduce(THIRD, &[held(OWNING, 7, Strong)]);
            assert_eq!(broker.ask(HOLDING, send), refused(Errno::AGAIN), "it may yet connect");
        }
        rejoin(&mut broker, OWNING, &owner);
        rejoin(&mut broker, THIRD, &friend);
        if !liar_first {
            rejoin(&mut broker, HOLDING, &liar);
        }
        assert!(broker.events().contains(&(HOLDING, denied(7))));
        for is_over in [false, true] {
            if is_over {
                end_rejoin(&mut broker);
            }
            assert_eq!(broker.ask(HOLDING, open(OWNING)), refused(Errno::PERM));
            let passed = broker.pass_on(HOLDING, THIRD, &[held(OWNING, 7, Strong)]);
            assert_eq!(passed[0].owner, ProcessId::BROKER);
            assert_eq!(broker.ask(THIRD, open(OWNING)), refused(Errno::PERM));
        }
        assert_eq!(broker.grants(HOLDING, OWNING, 7), None);
        for process in [OWNING, HOLDING, THIRD] {
            broker.gone(process);
        }
        assert!(broker.state.is_empty(), "{:?}", broker.state);
    }
}

/// An owner that lies denies what the holder was given, and the holder returns it before it hears.
#[test]
fn a_return_that_crosses_a_denial_is_no_violation() {
    for owner_first in [true, false] {
        let mut broker = successor();
        let mut both = [(OWNING, &[][..]), (HOLDING, &[holds(7, 2, 3)][..])];
        if !owner_first {
            both.reverse();
        }
        both.iter().for_each(|(process, claims)| rejoin(&mut broker, *process, claims));
        rejoin(&mut broker, THIRD, &[channel(9, End::Server, HOLDING)]);
        assert_eq!(broker.events(), [(HOLDING, denied(7))]);
        broker.ask(HOLDING, release(OWNING, 7, 1, 2));
        // The owner gives it anew, and what was void and what is valid come back at once.
        broker.ask(OWNING, become_manager(7));
        broker.ask(HOLDING, Request::ContextManager);
        broker.ask(HOLDING, release(OWNING, 7, 2, 2));
        assert_eq!(broker.grants(HOLDING, OWNING, 7), None);
        broker.ask(HOLDING, release(OWNING, 7, 0, 0));
        let disconnected = |effect: &Effect| matches!(effect, Effect::Disconnect { .. });
        assert!(!broker.effects().iter().any(disconnected));
        // The owner, which was denied nothing, returns what it never had.
        broker.ask(OWNING, release(HOLDING, 7, 0, 0));
        assert_eq!(broker.effects(), [over_return(OWNING, HOLDING, 7)]);
    }
}

#[test]
fn a_grant_is_unusable_until_the_owner_rejoins() {
    let mut broker = successor();
    let holder = [holds(7, 1, 2), channel(8, End::Client, THIRD)];
    rejoin(&mut broker, HOLDING, &holder);
    rejoin(&mut broker, THIRD, &[channel(8, End::Server, HOLDING)]);
    let met = [(HOLDING, frozen(THIRD, false)), (THIRD, frozen(HOLDING, false))];
    assert_eq!(broker.events(), met);
    let listed = broker.list(OWNING, 9, HOLDING, Strong);
    for object in [held(OWNING, 7, Strong), listed] {
        assert_eq!(broker.ask(HOLDING, introduce(THIRD, &[object])), refused(Errno::AGAIN));
    }
    for request in [open(OWNING), introduce(OWNING, &[])] {
        assert_eq!(broker.ask(HOLDING, request), refused(Errno::AGAIN));
    }
    // The owner does not learn of a grant that was returned before it rejoined.
    assert_eq!(broker.ask(HOLDING, release(OWNING, 7, 0, 1)), None);
    rejoin(&mut broker, OWNING, &[held_by(7, true, HOLDING)]);
    assert_eq!(broker.events(), [(HOLDING, frozen(OWNING, false))]);
    // Its list holds over the restart.
    for object in [held(OWNING, 7, Strong), listed] {
        let node = object.node.0;
        let reply = broker.ask(HOLDING, introduce(THIRD, &[object]));
        assert!(matches!(reply, Some(Reply::Ticket { .. })), "{reply:?}");
        let told = (OWNING, references(node, true, true, (THIRD, Some(Strong))));
        assert!(broker.events().contains(&told));
    }
    let entry = listed.entry;
    let by_entry = Request::OpenChannel { target: OWNING, entry };
    assert_eq!(broker.ask(HOLDING, by_entry), Some(Reply::Done));
}

#[test]
fn processes_that_do_not_rejoin_are_dead() {
    let mut broker = successor();
    let friends = [channel(8, End::Client, THIRD), holds(7, 1, 1)];
    rejoin(&mut broker, HOLDING, &friends);
    let third = [
        held_by(3, true, OWNING),
        held_by(4, false, HOLDING),
        channel(9, End::Client, OWNING),
        channel(8, End::Server, HOLDING),
    ];
    rejoin(&mut broker, THIRD, &third);
    // The named holder of node 4 has rejoined and does not hold it.
    let let_go = (THIRD, references(4, false, false, (HOLDING, None)));
    assert_eq!(broker.events()[0], let_go);
    end_rejoin(&mut broker);
    let expect = [
        (HOLDING, dead(OWNING)),
        (THIRD, dead(OWNING)),
        (THIRD, references(3, false, false, (OWNING, None))),
    ];
    assert_eq!(broker.events(), expect);
    assert_eq!(readmit(&mut broker, OWNING), Err(Errno::TIME));
    assert!(broker.state.is_rejoin_over());
    assert_eq!(broker.ask(HOLDING, open(OWNING)), refused(Errno::SRCH));
    // Nothing is left of its nodes. They can be passed on as dead ones.
    assert_eq!(broker.grants(HOLDING, OWNING, 7), None);
    broker.ask(HOLDING, release(OWNING, 7, 1, 1));
    assert_eq!(broker.effects(), []);
    let passed = broker.pass_on(HOLDING, THIRD, &[held(OWNING, 7, Strong)]);
    assert_eq!(passed, [granted_dead(OWNING, 7, Strong)]);
    broker.gone(HOLDING);
    broker.gone(THIRD);
    assert!(broker.state.is_empty(), "{:?}", broker.state);
}

/// A death that was announced during rejoining is not announced again at its end.
#[test]
fn a_death_is_announced_once() {
    let mut broker = successor();
    rejoin(&mut broker, HOLDING, &[holds(7, 1, 1)]);
    rejoin(&mut broker, OWNING, &[held_by(7, true, HOLDING)]);
    broker.effects();
    broker.gone(OWNING);
    assert_eq!(broker.events(), [(HOLDING, dead(OWNING))]);
    end_rejoin(&mut broker);
    assert_eq!(broker.events(), []);
}

/// A process that rejoins and dies before all have rejoined is announced once, by its death.
#[test]
fn a_process_that_rejoined_and_died_is_announced_once() {
    let mut broker = successor();
    rejoin(&mut broker, OWNING, &[held_by(7, true, HOLDING), held_by(7, true, THIRD)]);
    broker.gone(OWNING);
    assert_eq!(broker.events(), []);
    rejoin(&mut broker, HOLDING, &[holds(7, 1, 1)]);
    assert_eq!(broker.events(), []);
    assert_eq!(readmit(&mut broker, OWNING), Err(Errno::TIME), "others may know of its death");
    end_rejoin(&mut broker);
    assert_eq!(broker.events(), [(HOLDING, dead(OWNING))]);
    broker.gone(HOLDING);
    assert!(broker.state.is_empty(), "{:?}", broker.state);
}

#[test]
fn a_channel_counts_if_both_ends_claim_it() {
    let server = channel(8, End::Server, HOLDING);
    let cases = [
        (channel(8, End::Client, OWNING), true),
        (channel(8, End::Server, OWNING), false),
        (channel(9, End::Client, OWNING), false),
        (channel(8, End::Client, THIRD), false),
    ];
    for (claim, expect) in cases {
        for server_first in [true, false] {
            let mut broker = successor();
            let mut both = [(OWNING, server), (HOLDING, claim)];
            if !server_first {
                both.reverse();
            }
            both.iter().for_each(|(process, claim)| rejoin(&mut broker, *process, &[*claim]));
            end_rejoin(&mut broker);
            broker.effects();
            let expect = if expect { None } else { Some(Errno::PERM) };
            for (from, to) in [(OWNING, HOLDING), (HOLDING, OWNING)] {
                let reply = broker.ask(from, introduce(to, &[]));
                let errno = match reply {
                    Some(Reply::Refused { errno }) => Some(Errno::from_raw_os_error(errno)),
                    _ => None,
                };
                assert_eq!(errno, expect, "{claim:?}");
            }
        }
    }
}

/// A channel that both claim and that has no room gives no rights. Its ends may still hold each
/// other's nodes.
#[test]
fn deaths_are_told_over_a_channel_without_room() {
    let mut broker = successor();
    let rights = Rights::default();
    broker
        .state
        .readmit(identity(OWNING), PidNamespace::Brokers, rights, "binder", 0, false)
        .unwrap();
    broker.ask(OWNING, Request::Claim { claims: vec![channel(8, End::Server, HOLDING)] });
    broker.ask(OWNING, Request::Rejoin { manages: Vec::new() });
    // A client of another user takes from the server's room, which is none.
    let stranger = Identity { uid: OWNER + 1, ..identity(HOLDING) };
    broker.state.readmit(stranger, PidNamespace::Brokers, rights, "binder", 9, false).unwrap();
    broker.ask(HOLDING, Request::Claim { claims: vec![channel(8, End::Client, OWNING)] });
    broker.ask(HOLDING, Request::Rejoin { manages: Vec::new() });
    end_rejoin(&mut broker);
    broker.effects();
    assert_eq!(broker.ask(HOLDING, introduce(OWNING, &[])), refused(Errno::PERM));
    broker.gone(OWNING);
    assert_eq!(broker.events(), [(HOLDING, dead(OWNING))]);
    broker.gone(HOLDING);
    assert!(broker.state.is_empty(), "{:?}", broker.state);
}

/// A client says of lanes that they are ordinary again, before or after their server has rejoined.
#[test]
fn a_server_hears_of_lanes_that_ended_while_there_was_no_broker() {
    let ends = |channel, lane| Request::Ordinary { channel: ChannelId(channel), lane };
    let new = 1 << 32 | 8;
    #[rustfmt::skip]
    let cases: [(&str, ProcessId, &[Request], &[u32]); 6] = [
        ("two lanes", HOLDING, &[ends(8, 3), ends(8, 63)], &[3, 63]),
        ("no lane of the channel's", HOLDING, &[ends(8, 64)], &[]),
        ("another channel", HOLDING, &[ends(9, 3)], &[]),
        ("a channel of this broker", HOLDING, &[ends(new, 3)], &[]),
        ("by its server", OWNING, &[ends(8, 3)], &[]),
        ("by a stranger", THIRD, &[ends(8, 3)], &[]),
    ];
    for (what, from, requests, told) in cases {
        for server_first in [true, false] {
            let mut broker = successor();
            rejoin(&mut broker, THIRD, &[]);
            let client = [channel(8, End::Client, OWNING)];
            let mut both = [(OWNING, channel(8, End::Server, HOLDING)), (HOLDING, client[0])];
            if !server_first {
                both.reverse();
            }
            for (process, claim) in both {
                rejoin(&mut broker, process, &[claim]);
                let is_here = process == from || from == THIRD;
                for request in requests.iter().filter(|_| is_here) {
                    assert_eq!(broker.ask(from, request.clone()), None);
                }
            }
            let channel = ChannelId(8);
            let mut events = broker.events();
            events.retain(|(_, event)| !matches!(event, Event::Frozen { .. }));
            let expected: Vec<(ProcessId, Event)> =
                told.iter().map(|&lane| (OWNING, Event::OrdinaryLane { channel, lane })).collect();
            assert_eq!(events, expected, "{what}, the server first: {server_first}");
            [OWNING, HOLDING, THIRD].iter().for_each(|process| broker.gone(*process));
            end_rejoin(&mut broker);
            assert!(broker.state.is_empty(), "{what}: {:?}", broker.state);
        }
    }
}

#[test]
fn the_manager_is_the_recorded_one_that_claims_to_be() {
    let manages = |node| Request::Rejoin { manages: vec![(NodeId(9), 0), (NodeId(node), 0x13)] };
    #[rustfmt::skip]
    let cases = [
        (OWNING, manages(1), true),
        (OWNING, manages(2), false),
        (OWNING, Request::Rejoin { manages: Vec::new() }, false),
        (HOLDING, manages(1), false),
    ];
    for (process, request, expect) in cases {
        let mut broker = successor();
        readmit(&mut broker, process).unwrap();
        broker.ask(process, request.clone());
        let client = broker.admit(9, OWNER);
        let found = broker.ask(client, Request::ContextManager);
        assert_eq!(matches!(found, Some(Reply::Ticket { .. })), expect, "{process:?} {request:?}");
        // No other process becomes manager while the recorded one may rejoin.
        let free = expect || process == HOLDING;
        let expect = if free { refused(Errno::BUSY) } else { Some(Reply::Done) };
        assert_eq!(broker.ask(client, become_manager(5)), expect, "{process:?} {request:?}");
    }
    // The awaited manager has ended.
    let mut broker = successor();
    let client = broker.admit(9, OWNER);
    assert_eq!(broker.state.awaited_manager(client), Some(OWNING));
    assert_eq!(broker.ask(client, become_manager(5)), refused(Errno::BUSY));
    broker.state.forget_awaited_manager(client);
    assert_eq!(broker.state.awaited_manager(client), None);
    assert_eq!(broker.ask(client, become_manager(5)), Some(Reply::Done));
    let mut broker = successor();
    end_rejoin(&mut broker);
    let (other, same) = (broker.admit(9, OWNER + 1), broker.admit(9, OWNER));
    assert_eq!(broker.ask(other, become_manager(5)), refused(Errno::PERM));
    assert_eq!(broker.ask(same, become_manager(5)), Some(Reply::Done));
    let rules = broker.state.changed_rules().expect("changed");
    assert_eq!(rules["binder"].manager, Some((same, NodeId(5))));
    assert_eq!(broker.state.changed_rules(), None);
}

#[test]
fn brokers_never_reuse_ids_of_their_predecessors() {
    let mut broker = successor();
    let new = broker.admit(9, OWNER);
    assert_eq!(new.era(), 1);
    assert_eq!(readmit(&mut broker, new), Err(Errno::KEYREJECTED));
    let next = ProcessId(new.0 + 1);
    assert_eq!(readmit(&mut broker, next), Err(Errno::KEYREJECTED));
    assert_eq!(readmit(&mut broker, OWNING), Ok(()));
    assert_eq!(readmit(&mut broker, OWNING), Err(Errno::BUSY));
    broker.ask(OWNING, Request::Rejoin { manages: Vec::new() });
    assert_eq!(readmit(&mut broker, OWNING), Err(Errno::BUSY));
    assert_eq!(
        TestState::new().state.readmit(
            identity(OWNING),
            PidNamespace::Brokers,
            Rights::default(),
            "binder",
            u32::MAX,
            false
        ),
        Err(Errno::KEYREJECTED)
    );
}

#[test]
fn impossible_claims_disconnect_their_sender() {
    let limits = Limits {
        process: Usage { processes: 1, handles: 4, nodes: 2, channels: 2 },
        claims: 6,
        ..Limits::default()
    };
    let granted =
        |owner, node, strong, grants| Claim::Granted { owner, node: NodeId(node), strong, grants };
    let new = ProcessId(1 << 32 | 1);
    let nobody = ProcessId::BROKER;
    let cases: [(&str, Vec<Claim>); 15] = [
        ("a node twice held by one", vec![held_by(1, true, THIRD), held_by(1, true, THIRD)]),
        ("its own holder", vec![held_by(1, true, HOLDING)]),
        ("a holder of today", vec![held_by(1, true, new)]),
        ("too many nodes", (1..=3).map(|node| held_by(node, true, THIRD)).collect()),
        ("a node twice granted", vec![granted(OWNING, 1, 1, 1), granted(OWNING, 1, 1, 2)]),
        ("a grant to itself", vec![granted(HOLDING, 1, 1, 1)]),
        ("an owner of today", vec![granted(new, 1, 1, 1)]),
        ("nobody's node", vec![granted(nobody, 1, 1, 1)]),
        ("held by nobody", vec![held_by(1, true, nobody)]),
        ("a channel to nobody", vec![channel(1, End::Client, nobody)]),
        ("no grants", vec![granted(OWNING, 1, 0, 0)]),
        ("more strong than all", vec![granted(OWNING, 1, 2, 1)]),
        ("too many nodes of others", (0..5).map(|node| granted(OWNING, node, 1, 1)).collect()),
        ("a channel of today", vec![channel(1 << 32 | 1, End::Client, OWNING)]),
        ("too many claims", (1..=7).map(|id| channel(id, End::Server, OWNING)).collect()),
    ];
    for (what, claims) in cases {
        let mut broker = successor_of(limits, OWNING, 1);
        readmit(&mut broker, HOLDING).unwrap();
        broker.ask(HOLDING, Request::Claim { claims });
        broker.ask(HOLDING, Request::Rejoin { manages: Vec::new() });
        let last = broker.effects().pop();
        assert_eq!(last, Some(violation(HOLDING, Violation::Claims)), "{what}");
        broker.gone(HOLDING);
        end_rejoin(&mut broker);
        assert!(broker.state.is_empty(), "{what}: {:?}", broker.state);
    }
    // Other requests amid claims, and claims at any other time, also cost the connection.
    for request in [Request::ContextManager, Request::Barrier { number: 1 }] {
        let mut broker = successor();
        readmit(&mut broker, HOLDING).unwrap();
        assert_eq!(broker.ask(HOLDING, request), None);
        assert_eq!(broker.effects(), [violation(HOLDING, Violation::Claims)]);
    }
    let mut broker = successor();
    rejoin(&mut broker, HOLDING, &[]);
    broker.ask(HOLDING, Request::Claim { claims: Vec::new() });
    assert_eq!(broker.effects(), [violation(HOLDING, Violation::Greeting)]);
    // A process that has not finished its claims in time is disconnected.
    let mut broker = successor();
    readmit(&mut broker, HOLDING).unwrap();
    end_rejoin(&mut broker);
    assert_eq!(broker.effects(), [violation(HOLDING, Violation::Claims)]);
    broker.gone(HOLDING);
    assert!(broker.state.is_empty());
}

#[test]
fn frozen_processes_stay_frozen_and_holders_are_told() {
    let cases = [(true, true), (true, false), (false, true), (false, false)];
    for (by_channel, owner_first) in cases {
        let mut broker = successor();
        let channel = |end, peer| channel(8, end, peer);
        let claims = match by_channel {
            true => channel(End::Client, OWNING),
            false => holds(7, 1, 1),
        };
        let owners = match by_channel {
            true => channel(End::Server, HOLDING),
            false => held_by(7, true, HOLDING),
        };
        if !owner_first {
            rejoin(&mut broker, HOLDING, &[claims]);
        }
        let rights = Rights::default();
        broker
            .state
            .readmit(identity(OWNING), PidNamespace::Brokers, rights, "binder", u32::MAX, true)
            .unwrap();
        broker.ask(OWNING, Request::Claim { claims: vec![owners] });
        broker.ask(OWNING, Request::Rejoin { manages: Vec::new() });
        if owner_first {
            rejoin(&mut broker, HOLDING, &[claims]);
        }
        let mut told = broker.events();
        told.retain(|(to, _)| *to == HOLDING);
        assert_eq!(told, [(HOLDING, frozen(OWNING, true))]);
        let asked = broker.ask(HOLDING, Request::IsFrozen { target: OWNING });
        assert_eq!(asked, Some(Reply::Frozen { frozen: true }));
        let thaw = Request::Freeze { pid: OWNING.0 as u32, frozen: false };
        broker.ask(HOLDING, thaw);
        let told = broker.effects();
        assert!(told.contains(&Effect::SetFrozen { process: OWNING, frozen: false }), "{told:?}");
    }
}

/// The broker does not see what owners grant, so each of the two says with whom it had to do. A
/// server that has not taken a channel up does not know of its client.
#[test]
fn claimed_peers_are_watched_and_nobody_else_is() {
    let claims = [|peer| Claim::Peer { peer }, |peer| channel(8, End::Client, peer)];
    for (claim, claimed_first) in claims.iter().flat_map(|claim| [(claim, true), (claim, false)]) {
        let mut broker = successor();
        let mut all = [(HOLDING, vec![claim(OWNING)]), (OWNING, Vec::new())];
        all.rotate_left(usize::from(!claimed_first));
        all.iter().for_each(|(process, claims)| rejoin(&mut broker, *process, claims));
        assert_eq!(broker.events(), []);
        broker.gone(OWNING);
        assert_eq!(broker.events(), [(HOLDING, dead(OWNING))], "{claimed_first}");
        broker.gone(HOLDING);
        assert_eq!(broker.events(), []);
    }
    let mut broker = successor();
    rejoin(&mut broker, HOLDING, &[]);
    rejoin(&mut broker, OWNING, &[Claim::Peer { peer: HOLDING }]);
    broker.gone(OWNING);
    assert_eq!(broker.events(), [], "{HOLDING:?} has not claimed it");
    let mut broker = successor();
    rejoin(&mut broker, HOLDING, &[Claim::Peer { peer: OWNING }]);
    end_rejoin(&mut broker);
    assert_eq!(broker.events(), [(HOLDING, dead(OWNING))], "it has not rejoined");
}

/// The owner has rejoined and died, while others may still rejoin.
#[test]
fn a_return_that_crosses_a_second_death_is_ignored() {
    let mut broker = successor();
    rejoin(&mut broker, OWNING, &[held_by(7, true, HOLDING)]);
    rejoin(&mut broker, HOLDING, &[holds(7, 1, 1)]);
    broker.gone(OWNING);
    broker.effects();
    assert_eq!(broker.ask(HOLDING, release(OWNING, 7, 1, 1)), None);
    assert_eq!(broker.effects(), [], "it stays connected");
}

#[test]
fn a_removed_context_waits_for_processes_that_may_rejoin() {
    let removed = Rule { is_removed: true, ..Rule::default() };
    let rules = BTreeMap::from([("mine".to_owned(), removed)]);
    let mut broker = TestState::of(State::succeed(Limits::default(), OWNER, 1, rules));
    let readmit = |broker: &mut TestState| {
        let (unknown, rights) = (PidNamespace::Brokers, Rights::default());
        broker.state.readmit(identity(OWNING), unknown, rights, "mine", u32::MAX, false)
    };
    assert_eq!(broker.admit_to(10, OWNER, "mine"), Err(Errno::NOENT), "a new one");
    readmit(&mut broker).unwrap();
    assert_eq!(broker.ask(OWNING, Request::Rejoin { manages: Vec::new() }), None);
    end_rejoin(&mut broker);
    assert_eq!(broker.report().contexts.len(), 4);
    broker.gone(OWNING);
    assert_eq!(broker.report().contexts.len(), 3);
}
