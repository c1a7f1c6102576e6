//! A process names nodes that it was not given: in calls, in messages, to the broker.

use crate::attacker::Attacker;
use crate::client::{AT_MOST, BareClient};
use crate::honest::{CALL_BACK, ECHO};
use crate::play::{Attack, Load, Play, Whose, strangers};
use baton_abi::control::{Event, Granted, HeldNode, NodeId, ProcessId, Reply, Request, Strength};
use baton_abi::lane::{Carried, Kind};
use baton_hostile::channel::{BareCall, of_receiver, of_third, with_objects};
use baton_hostile::engine::{BareEngine, carried};
use rustix::io::Errno;
use std::io;

const NAME: &str = "stolen_names";
/// Nodes of the server that are named. The server has lent some of them to its client.
const NODES: u64 = 16;
/// Entries of other processes' lists that are named.
const STOLEN_ENTRIES: u32 = 16;
/// Processes before this one whose names are tried.
const PROCESSES: u64 = 16;

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "a process names nodes and entries of lists that are not its own",
    whose: Whose::Strangers,
    play: Play::Load(|_| Load::of([strangers(NAME, 2)])),
    attack,
};

fn attack(attacker: &Attacker) -> io::Result<()> {
    attacker.ready();
    let mut rounds = 0u32;
    while attacker.must_continue() {
        let names = name_to_server(attacker)? + name_to_broker(attacker)?;
        attacker.count(names);
        rounds += 1;
        if rounds == 1 {
            attacker.holding(&format!("{names} names"));
        }
    }
    Ok(())
}

/// Names nodes in messages to the server, each of which has to end its channel. Returns the number
/// of messages.
fn name_to_server(attacker: &Attacker) -> io::Result<u64> {
    let mut names = 0;
    let mut ends = |what: &str, act: &dyn Fn(&BareClient) -> Result<(), Errno>| {
        let client = BareClient::open(attacker)?;
        match act(&client) {
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => {}
            Err(errno) => return Err(io::Error::from(errno)),
        }
        if client.channel.await_end(AT_MOST).is_err() {
            attacker.harms(&format!("a client may send {what}"));
        }
        names += 1;
        Ok(())
    };
    for number in (0..NODES).chain([u64::MAX]) {
        let stolen = NodeId(number);
        let is_stolen = |client: &BareClient| client.node != stolen;
        ends(&format!("a call to node {number}"), &|client| {
            let node = if is_stolen(client) { stolen } else { NodeId(NODES) };
            let (data, offsets, objects) = (&[7; 8], &[], &[]);
            let call = BareCall { node, code: ECHO, data, offsets, objects, ticket: 0 };
            client.channel.post(&call)
        })?;
        ends(&format!("node {number} back to its owner"), &|client| {
            let node = if is_stolen(client) { stolen } else { NodeId(NODES) };
            client.send(ECHO, &[], &[of_receiver(client.node), of_receiver(node)])
        })?;
        // The nested call lies in the same lane, and so does its answer.
        ends(&format!("node {number} in an answer"), &|client| {
            let node = if is_stolen(client) { stolen } else { NodeId(NODES) };
            let own = client.engine.carry(0, NodeId(1), client.server)?;
            let nested = client.call(CALL_BACK, &[7; 16], &[own])?;
            if nested.head.kind != Kind::Request as u32 {
                return Err(Errno::PROTO);
            }
            let (data, offsets) = with_objects(&[], 1);
            let (data, offsets, objects) = (&data[..], &offsets[..], &[of_receiver(node)][..]);
            client.channel.reply(&BareCall { node, code: 0, data, offsets, objects, ticket: 0 })
        })?;
    }
    for origin in [0, 4, u32::MAX] {
        ends(&format!("a node of origin {origin}"), &|client| {
            client.send(ECHO, &[], &[Carried { origin, ..carried(0, client.node) }])
        })?;
    }
    ends("a third process's node without a ticket", &|client| {
        client.send(ECHO, &[], &[of_third()])
    })?;
    let third = attacker.engine()?;
    // Introduced nodes, and nodes in the message with their ticket.
    for (introduced, sent) in [(1, 0), (1, 2), (2, 1)] {
        ends(&format!("{sent} nodes by a ticket for {introduced}"), &|client| {
            let ticket = introduce(client, &third, introduced)?;
            let (data, offsets) = with_objects(&[], sent);
            let (data, offsets, objects) = (&data[..], &offsets[..], &vec![of_third(); sent][..]);
            let node = client.node;
            client.channel.post(&BareCall { node, code: ECHO, data, offsets, objects, ticket })
        })?;
    }
    let other = BareClient::open(attacker)?;
    ends("another sender's ticket", &|client| {
        let ticket = introduce(&other, &third, 1)?;
        let (data, offsets) = with_objects(&[], 1);
        let (data, offsets, objects) = (&data[..], &offsets[..], &[of_third()][..]);
        let node = client.node;
        client.channel.post(&BareCall { node, code: ECHO, data, offsets, objects, ticket })
    })?;
    ends("more nodes than objects", &|client| {
        let own = client.engine.carry(0, NodeId(1), client.server)?;
        let (data, offsets) = with_objects(&[], 1);
        let (data, offsets, objects) = (&data[..], &offsets[..], &[own, own][..]);
        let node = client.node;
        client.channel.post(&BareCall { node, code: ECHO, data, offsets, objects, ticket: 0 })
    })?;
    ends("more objects than nodes", &|client| {
        let own = client.engine.carry(0, NodeId(1), client.server)?;
        let (data, offsets) = with_objects(&[], 2);
        let (data, offsets, objects) = (&data[..], &offsets[..], &[own][..]);
        let node = client.node;
        client.channel.post(&BareCall { node, code: ECHO, data, offsets, objects, ticket: 0 })
    })?;
    if !other.is_served() {
        attacker.harms("the server ends the channel of another engine");
    }
    Ok(names)
}

/// Introduces the server to nodes of a third engine, which lists the sender. Returns the ticket.
fn introduce(client: &BareClient, third: &BareEngine, n: u32) -> Result<u64, Errno> {
    let name = |entry: u32| third.grant(entry, NodeId(u64::from(entry) + 1), client.engine.id());
    let objects = (0..n).map(name).collect::<Result<_, Errno>>()?;
    client.engine.introduce(client.server, objects).map(|ticket| ticket.0)
}

/// Names nodes and entries to the broker, which refuses them or grants dead nodes. Returns the
/// number of names.
fn name_to_broker(attacker: &Attacker) -> io::Result<u64> {
    let client = BareClient::open(attacker)?;
    let (engine, accomplice) = (&client.engine, attacker.engine()?);
    accomplice.grant(0, NodeId(1), engine.id())?;
    let _channel = engine.channel_by(accomplice.id(), Some(0))?;
    let own = engine.id().0;
    let others = (own.saturating_sub(PROCESSES)..own).map(ProcessId);
    let mut names = 0;
    for owner in others {
        for entry in (0..STOLEN_ENTRIES).map(Some).chain([None]) {
            let reply = engine.ask(&Request::OpenChannel { target: owner, entry })?;
            if reply == Reply::Done && owner != client.server {
                attacker.harms(&format!("a process may open a channel by entry {entry:?}"));
            }
            engine.skip_events();
            let name = |node| {
                let strength = Strength::Strong;
                HeldNode { owner, node: NodeId(node), strength, entry }
            };
            let is_stolen = |held: &HeldNode| (owner, held.node) != (client.server, client.node);
            let objects: Vec<_> = (0..NODES).map(name).filter(is_stolen).collect();
            names += objects.len() as u64 + 1;
            accomplice.skip_events();
            match engine.introduce(accomplice.id(), objects) {
                Ok(_) => {}
                // The broker accepts no node of one of the two.
                Err(Errno::INVAL | Errno::AGAIN) => continue,
                Err(errno) => return Err(errno.into()),
            }
            let is_live = |granted: &Granted| granted.owner != ProcessId::BROKER;
            while let Ok((event, _)) = accomplice.event_now() {
                if let Event::Ticket { objects, .. } = event
                    && objects.iter().any(is_live)
                    && is_alive(engine, owner)
                {
                    attacker.harms(&format!("a process may pass on nodes by entry {entry:?}"));
                }
            }
        }
        for request in [
            Request::NodeInfo { owner, node: client.node },
            Request::BecomeContextManager { node: NodeId(1), flags: 0 },
        ] {
            if !matches!(engine.ask(&request)?, Reply::Refused { .. }) {
                attacker.harms(&format!("a process may send {request:?}"));
            }
            names += 1;
        }
    }
    Ok(names)
}

/// Whether the broker knows a process that has ended by no other sign: a channel to it is refused
/// for another reason.
fn is_alive(engine: &BareEngine, process: ProcessId) -> bool {
    let open = Request::OpenChannel { target: process, entry: None };
    let gone = Reply::Refused { errno: Errno::SRCH.raw_os_error() };
    !engine.ask(&open).is_ok_and(|reply| reply == gone)
}
