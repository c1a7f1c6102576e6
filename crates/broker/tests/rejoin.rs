//! The truth rebuilt from claims: who comes back with what, in which order, and who lies.

mod core;

use baton_abi::claim::Claim;
use baton_abi::control::*;
use baton_broker::limits::{Limits, Rights, Usage};
use baton_broker::state::{Effect, Rule, State, Violation};
use core::*;
use rustix::io::Errno;
use std::collections::BTreeMap;

const OWNING: ProcessId = ProcessId(1);
const HOLDING: ProcessId = ProcessId(2);
const THIRD: ProcessId = ProcessId(3);
/// Node 1 is the manager's in all that follows.
const FLAGS: u32 = 0x100;

fn heir() -> Core {
    heir_of(Limits::default(), OWNING, 1)
}

fn heir_of(limits: Limits, manager: ProcessId, node: u64) -> Core {
    let rule = Rule { manager: Some((manager, NodeId(node))), manager_uid: Some(OWNER) };
    let rules = BTreeMap::from([("binder".to_owned(), rule)]);
    Core { state: State::succeed(limits, OWNER, 1, rules), effects: Vec::new() }
}

fn identity(process: ProcessId) -> Identity {
    let (pid, security_context) = (process.0 as u32, "label".to_owned());
    Identity { process, pid, uid: OWNER, security_context }
}

fn readmit(core: &mut Core, process: ProcessId) -> Result<(), Errno> {
    core.state.readmit(identity(process), Rights::default(), "binder", u32::MAX, false)
}

/// A process that comes back with these claims.
fn rejoin(core: &mut Core, process: ProcessId, claims: &[Claim]) {
    readmit(core, process).unwrap();
    for part in claims.chunks(2) {
        assert_eq!(core.ask(process, Request::Claim { claims: part.to_vec() }), None);
    }
    assert_eq!(core.ask(process, Request::Rejoin { manages: Vec::new() }), None);
}

fn settle(core: &mut Core) {
    core.state.end_rejoin(&mut core.effects);
}

fn held(node: u64, strong: bool, holder: ProcessId) -> Claim {
    Claim::Node { node: NodeId(node), flags: FLAGS, strong, holder }
}

fn holds(handle: u32, node: u64, strong: u32, grants: u32) -> Claim {
    Claim::Handle { handle, owner: OWNING, node: NodeId(node), strong, grants }
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

/// What an owner and a holder say, in either order, and what each is told of it.
#[test]
fn a_handle_counts_as_far_as_the_owner_confirms_it() {
    let thawed = || vec![frozen(OWNING, false)];
    let denied = || vec![Event::Denied { handle: 5 }];
    let gone = |strong, held| vec![references(7, strong, held, (HOLDING, None))];
    #[rustfmt::skip]
    #[expect(clippy::type_complexity, reason = "a table's columns")]
    let cases: [(&str, Vec<Claim>, Vec<Claim>, Option<(u32, u32)>, Vec<Event>, Vec<Event>); 7] = [
        ("both say so", vec![held(7, true, HOLDING)], vec![holds(5, 7, 2, 3)],
            Some((2, 3)), vec![], thawed()),
        ("weakly, and somebody did strongly", vec![held(7, true, HOLDING)], vec![holds(5, 7, 0, 1)],
            Some((0, 1)), vec![references(7, false, true, (HOLDING, Some(Weak)))], thawed()),
        ("weakly", vec![held(7, false, HOLDING)], vec![holds(5, 7, 0, 1)],
            Some((0, 1)), vec![], thawed()),
        ("strongly, and nobody did", vec![held(7, false, HOLDING)], vec![holds(5, 7, 1, 1)],
            Some((1, 1)), gone(false, false), denied()),
        ("the owner knows of no holder", vec![], vec![holds(5, 7, 1, 1)],
            Some((1, 1)), vec![], denied()),
        ("the owner knows of another node", vec![held(8, true, HOLDING)], vec![holds(5, 7, 1, 1)],
            Some((1, 1)), vec![references(8, false, false, (HOLDING, None))], denied()),
        ("the holder has returned it", vec![held(7, true, HOLDING)], vec![],
            None, gone(false, false), vec![]),
    ];
    for (what, owner, holder, grants, owner_hears, holder_hears) in cases {
        for owner_first in [true, false] {
            let mut core = heir();
            let mut both = [(OWNING, &owner), (HOLDING, &holder)];
            if !owner_first {
                both.reverse();
            }
            for (process, claims) in both {
                rejoin(&mut core, process, claims);
            }
            settle(&mut core);
            let events = core.events();
            let heard = |by| {
                let of = events.iter().filter(|(to, _)| *to == by);
                of.map(|(_, event)| event.clone()).collect::<Vec<_>>()
            };
            let what = format!("{what}, the owner first: {owner_first}");
            assert_eq!(heard(OWNING), owner_hears, "{what}");
            assert_eq!(heard(HOLDING), holder_hears, "{what}");
            assert_eq!(core.state.grants(HOLDING, 5), grants, "{what}");
            // What it holds it can return, true or not, and no more than that.
            if let Some((strong, grants)) = grants {
                core.ask(HOLDING, release(5, strong, grants));
                core.ask(HOLDING, release(5, 0, 1));
                let why = Violation::OverReturn { handle: 5 };
                assert_eq!(core.effects().last(), Some(&violation(HOLDING, why)), "{what}");
            }
            core.gone(OWNING);
            core.gone(HOLDING);
            assert!(core.state.is_empty(), "{what}: {:?}", core.state);
        }
    }
}

#[test]
fn a_denied_handle_gives_nothing() {
    for liar_first in [true, false] {
        let mut core = heir();
        let (owner, friend) =
            ([channel(9, End::Server, THIRD)], [channel(8, End::Client, HOLDING)]);
        let liar = [holds(5, 7, 1, 1), channel(8, End::Server, THIRD)];
        if liar_first {
            rejoin(&mut core, HOLDING, &liar);
        }
        rejoin(&mut core, OWNING, &owner);
        rejoin(&mut core, THIRD, &friend);
        if !liar_first {
            rejoin(&mut core, HOLDING, &liar);
        }
        assert!(core.events().contains(&(HOLDING, Event::Denied { handle: 5 })));
        // Not yet: the broker does not say who else may come.
        let pass = translate(THIRD, &[handle(5, Strong)]);
        assert_eq!(core.ask(HOLDING, pass), refused(Errno::AGAIN));
        settle(&mut core);
        let open = Request::OpenChannel { target: OWNING };
        assert_eq!(core.ask(HOLDING, open.clone()), refused(Errno::PERM));
        // It can be passed on, as a handle to what is dead.
        let passed = core.pass(HOLDING, THIRD, &[handle(5, Strong)]);
        let nobodys = ProcessId::BROKER;
        let [Granted::Handle { owner, .. }] = passed[..] else { panic!("{passed:?}") };
        assert_eq!(owner, nobodys);
        assert_eq!(core.ask(THIRD, open), refused(Errno::PERM));
        assert_eq!(core.state.grants(OWNING, 5), None);
    }
}

#[test]
fn a_handle_is_not_used_before_its_owner_is_heard() {
    let mut core = heir();
    let holder = [holds(5, 7, 1, 2), channel(8, End::Client, THIRD)];
    rejoin(&mut core, HOLDING, &holder);
    rejoin(&mut core, THIRD, &[channel(8, End::Server, HOLDING)]);
    assert_eq!(core.effects(), []);
    let open = Request::OpenChannel { target: OWNING };
    let pass = translate(THIRD, &[handle(5, Strong)]);
    let send = translate(OWNING, &[]);
    for request in [open, pass.clone(), send] {
        assert_eq!(core.ask(HOLDING, request), refused(Errno::AGAIN));
    }
    // What is returned meanwhile is not the owner's to know.
    assert_eq!(core.ask(HOLDING, release(5, 0, 1)), None);
    rejoin(&mut core, OWNING, &[held(7, true, HOLDING)]);
    assert_eq!(core.events(), [(HOLDING, frozen(OWNING, false))]);
    assert!(matches!(core.ask(HOLDING, pass), Some(Reply::Ticket { .. })));
    let knows = (OWNING, references(7, true, true, (THIRD, Some(Strong))));
    assert!(core.events().contains(&knows));
}

#[test]
fn whoever_does_not_come_back_is_dead() {
    let mut core = heir();
    rejoin(&mut core, HOLDING, &[holds(5, 7, 1, 1)]);
    let third = [held(3, true, OWNING), held(4, false, HOLDING), channel(9, End::Client, OWNING)];
    rejoin(&mut core, THIRD, &third);
    // The holder of node 4 is here, and does not hold it.
    let let_go = (THIRD, references(4, false, false, (HOLDING, None)));
    assert_eq!(core.events(), [let_go]);
    settle(&mut core);
    let expect = [
        (HOLDING, dead(OWNING)),
        (THIRD, dead(OWNING)),
        (THIRD, references(3, false, false, (OWNING, None))),
    ];
    assert_eq!(core.events(), expect);
    assert_eq!(readmit(&mut core, OWNING), Err(Errno::TIME));
    assert!(core.state.is_rejoin_over());
    assert_eq!(core.ask(HOLDING, Request::OpenChannel { target: OWNING }), refused(Errno::SRCH));
    core.gone(HOLDING);
    core.gone(THIRD);
    assert!(core.state.is_empty(), "{:?}", core.state);
}

/// An owner that denied a handle and then gave another one for the same node: both are claimed.
#[test]
fn two_handles_for_a_node_are_one_and_one_of_nobodys() {
    for owner_first in [true, false] {
        let mut core = heir();
        let owner = [held(7, true, HOLDING)];
        let holder = [holds(5, 7, 1, 1), holds(6, 7, 1, 1)];
        let mut both = [(OWNING, &owner[..]), (HOLDING, &holder[..])];
        if !owner_first {
            both.reverse();
        }
        both.iter().for_each(|(process, claims)| rejoin(&mut core, *process, claims));
        let told = core.events();
        let expect = [Event::Denied { handle: 6 }, frozen(OWNING, false)];
        assert!(told.iter().map(|(_, event)| event).eq(&expect), "{told:?}");
    }
}

/// Who told of a death while others come back tells of it no more at the end.
#[test]
fn a_death_is_told_once() {
    let mut core = heir();
    rejoin(&mut core, HOLDING, &[holds(5, 7, 1, 1)]);
    rejoin(&mut core, OWNING, &[held(7, true, HOLDING)]);
    core.effects();
    core.gone(OWNING);
    assert_eq!(core.events(), [(HOLDING, dead(OWNING))]);
    settle(&mut core);
    assert_eq!(core.events(), []);
}

/// Whoever comes back and goes again before all are here is told of once, by its death.
#[test]
fn whoever_goes_again_is_dead_too() {
    let mut core = heir();
    rejoin(&mut core, OWNING, &[held(7, true, HOLDING), held(7, true, THIRD)]);
    core.gone(OWNING);
    assert_eq!(core.events(), []);
    rejoin(&mut core, HOLDING, &[holds(5, 7, 1, 1)]);
    assert_eq!(core.events(), []);
    assert_eq!(readmit(&mut core, OWNING), Err(Errno::TIME), "others may know of its death");
    settle(&mut core);
    assert_eq!(core.events(), [(HOLDING, dead(OWNING))]);
    core.gone(HOLDING);
    assert!(core.state.is_empty(), "{:?}", core.state);
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
            let mut core = heir();
            let mut both = [(OWNING, server), (HOLDING, claim)];
            if !server_first {
                both.reverse();
            }
            both.iter().for_each(|(process, claim)| rejoin(&mut core, *process, &[*claim]));
            settle(&mut core);
            core.effects();
            let expect = if expect { None } else { Some(Errno::PERM) };
            for (from, to) in [(OWNING, HOLDING), (HOLDING, OWNING)] {
                let reply = core.ask(from, translate(to, &[]));
                let errno = match reply {
                    Some(Reply::Refused { errno }) => Some(Errno::from_raw_os_error(errno)),
                    _ => None,
                };
                assert_eq!(errno, expect, "{claim:?}");
            }
        }
    }
}

#[test]
fn the_manager_is_who_was_written_down_and_says_so() {
    let manages = |node| Request::Rejoin { manages: vec![(NodeId(9), 0), (NodeId(node), 0x13)] };
    #[rustfmt::skip]
    let cases = [
        (OWNING, manages(1), true),
        (OWNING, manages(2), false),
        (OWNING, Request::Rejoin { manages: Vec::new() }, false),
        (HOLDING, manages(1), false),
    ];
    for (process, request, expect) in cases {
        let mut core = heir();
        readmit(&mut core, process).unwrap();
        core.ask(process, request.clone());
        let client = core.admit(9, OWNER);
        let found = core.ask(client, Request::ContextManager);
        assert_eq!(matches!(found, Some(Reply::Ticket { .. })), expect, "{process:?} {request:?}");
        // Nobody takes the place while its holder may come back.
        let free = expect || process == HOLDING;
        let expect = if free { refused(Errno::BUSY) } else { Some(Reply::Done) };
        assert_eq!(core.ask(client, become_manager(5)), expect, "{process:?} {request:?}");
    }
    let mut core = heir();
    settle(&mut core);
    let (other, same) = (core.admit(9, OWNER + 1), core.admit(9, OWNER));
    assert_eq!(core.ask(other, become_manager(5)), refused(Errno::PERM));
    assert_eq!(core.ask(same, become_manager(5)), Some(Reply::Done));
    let rules = core.state.changed_rules().expect("changed");
    assert_eq!(rules["binder"].manager, Some((same, NodeId(5))));
    assert_eq!(core.state.changed_rules(), None);
}

#[test]
fn numbers_of_one_broker_are_not_anothers() {
    let mut core = heir();
    let new = core.admit(9, OWNER);
    assert_eq!(new.era(), 1);
    assert_eq!(readmit(&mut core, new), Err(Errno::KEYREJECTED));
    let next = ProcessId(new.0 + 1);
    assert_eq!(readmit(&mut core, next), Err(Errno::KEYREJECTED));
    assert_eq!(readmit(&mut core, OWNING), Ok(()));
    assert_eq!(readmit(&mut core, OWNING), Err(Errno::BUSY));
    core.ask(OWNING, Request::Rejoin { manages: Vec::new() });
    assert_eq!(readmit(&mut core, OWNING), Err(Errno::BUSY));
    assert_eq!(
        Core::new().state.readmit(identity(OWNING), Rights::default(), "binder", u32::MAX, false),
        Err(Errno::KEYREJECTED)
    );
}

#[test]
fn claims_that_cannot_be_cost_the_connection() {
    let limits = Limits {
        process: Usage { processes: 1, handles: 4, nodes: 2, channels: 2 },
        claims: 6,
        ..Limits::default()
    };
    let handle = |handle, owner, node, strong, grants| Claim::Handle {
        handle,
        owner,
        node: NodeId(node),
        strong,
        grants,
    };
    let new = ProcessId(1 << 32 | 1);
    let cases: [(&str, Vec<Claim>); 13] = [
        ("a node twice held by one", vec![held(1, true, THIRD), held(1, true, THIRD)]),
        ("its own holder", vec![held(1, true, HOLDING)]),
        ("a holder of today", vec![held(1, true, new)]),
        ("too many nodes", (1..=3).map(|node| held(node, true, THIRD)).collect()),
        ("a handle twice", vec![handle(1, OWNING, 1, 1, 1), handle(1, OWNING, 2, 1, 1)]),
        ("a handle to itself", vec![handle(1, HOLDING, 1, 1, 1)]),
        ("an owner of today", vec![handle(1, new, 1, 1, 1)]),
        ("no grants", vec![handle(1, OWNING, 1, 0, 0)]),
        ("more strong than all", vec![handle(1, OWNING, 1, 2, 1)]),
        ("a number too high", vec![handle(5, OWNING, 1, 1, 1)]),
        ("too many handles", (0..5).map(|n| handle(n, OWNING, n.into(), 1, 1)).collect()),
        ("a channel of today", vec![channel(1 << 32 | 1, End::Client, OWNING)]),
        ("too many claims", (1..=7).map(|id| channel(id, End::Server, OWNING)).collect()),
    ];
    for (what, claims) in cases {
        let mut core = heir_of(limits, OWNING, 1);
        readmit(&mut core, HOLDING).unwrap();
        core.ask(HOLDING, Request::Claim { claims });
        core.ask(HOLDING, Request::Rejoin { manages: Vec::new() });
        let last = core.effects().pop();
        assert_eq!(last, Some(violation(HOLDING, Violation::Claims)), "{what}");
        core.gone(HOLDING);
        settle(&mut core);
        assert!(core.state.is_empty(), "{what}: {:?}", core.state);
    }
    // Nor does anything else come amid claims, nor claims at any other time.
    for request in [Request::ContextManager, Request::Barrier { number: 1 }] {
        let mut core = heir();
        readmit(&mut core, HOLDING).unwrap();
        assert_eq!(core.ask(HOLDING, request), None);
        assert_eq!(core.effects(), [violation(HOLDING, Violation::Claims)]);
    }
    let mut core = heir();
    rejoin(&mut core, HOLDING, &[]);
    core.ask(HOLDING, Request::Claim { claims: Vec::new() });
    assert_eq!(core.effects(), [violation(HOLDING, Violation::Greeting)]);
    // Whoever has not made its claims in time has come too late.
    let mut core = heir();
    readmit(&mut core, HOLDING).unwrap();
    settle(&mut core);
    assert_eq!(core.effects(), [violation(HOLDING, Violation::Claims)]);
    core.gone(HOLDING);
    assert!(core.state.is_empty());
}

#[test]
fn frozen_processes_stay_frozen_and_holders_know() {
    for owner_first in [true, false] {
        let mut core = heir();
        if !owner_first {
            rejoin(&mut core, HOLDING, &[holds(5, 7, 1, 1)]);
        }
        let rights = Rights::default();
        core.state.readmit(identity(OWNING), rights, "binder", u32::MAX, true).unwrap();
        core.ask(OWNING, Request::Claim { claims: vec![held(7, true, HOLDING)] });
        core.ask(OWNING, Request::Rejoin { manages: Vec::new() });
        if owner_first {
            rejoin(&mut core, HOLDING, &[holds(5, 7, 1, 1)]);
        }
        assert_eq!(core.events(), [(HOLDING, frozen(OWNING, true))]);
        let asked = core.ask(HOLDING, Request::IsFrozen { target: OWNING });
        assert_eq!(asked, Some(Reply::Frozen { frozen: true }));
        let thaw = Request::Freeze { pid: OWNING.0 as u32, frozen: false };
        core.ask(HOLDING, thaw);
        let told = core.effects();
        assert!(told.contains(&Effect::SetFrozen { process: OWNING, frozen: false }), "{told:?}");
    }
}

#[test]
fn handles_keep_their_numbers_and_leave_the_others_free() {
    let mut core = heir();
    let vouched: Vec<Claim> = [1, 2, 3].map(|node| held(node, true, HOLDING)).to_vec();
    let with_third = channel(9, End::Server, THIRD);
    let held = [holds(4, 1, 1, 1), holds(2, 2, 1, 1), holds(0, 3, 1, 1), with_third];
    rejoin(&mut core, HOLDING, &held);
    rejoin(&mut core, OWNING, &[vouched, vec![channel(8, End::Server, HOLDING)]].concat());
    rejoin(&mut core, THIRD, &[channel(9, End::Client, HOLDING)]);
    core.effects();
    assert_eq!(core.state.grants(HOLDING, 4), Some((1, 1)));
    let numbers = [1, 3, 5].map(|_| ());
    let mut next = 10;
    let got = numbers.map(|()| {
        next += 1;
        core.pass_handle(THIRD, HOLDING, node(next, Strong))
    });
    assert_eq!(got, [1, 3, 5]);
}
