//! Clients send all requests that cause events for a server, while that server is stopped.

use crate::attacker::Attacker;
use crate::play::{Attack, Load, Play, Whose, strangers};
use baton_abi::control::{HeldNode, NodeId, Reply, Request, Strength, TicketId};
use std::io;

const NAME: &str = "stopped_server";
/// Rounds, each with one request of every kind.
const ROUNDS: u64 = 20_000;
/// Objects of a ticket, and different nodes among them.
const OBJECTS: usize = 1_024;
const NODES: u32 = 64;
/// Tickets that are cancelled before the server has read about them.
const CANCELS: u64 = 500;

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "clients flood a server that is stopped with tickets, channels and cancelled tickets",
    whose: Whose::Strangers,
    play: Play::Load(|_| Load { stopped_server: true, ..Load::of([strangers(NAME, 2)]) }),
    attack,
};

fn attack(attacker: &Attacker) -> io::Result<()> {
    let (engine, third) = (attacker.engine()?, attacker.engine()?);
    let target = engine.manager()?;
    let _channel = engine.channel_to(target)?;
    let grant = |entry: u32| third.grant(entry, NodeId(entry.into()), engine.id());
    let held = (0..NODES).map(grant).collect::<Result<Vec<_>, _>>()?;
    attacker.ready();
    let object = |entry: u32| HeldNode {
        strength: if entry.is_multiple_of(2) { Strength::Strong } else { Strength::Weak },
        ..held[entry as usize]
    };
    let mut refused = 0;
    for round in 0..ROUNDS {
        if !attacker.must_continue() {
            break;
        }
        let objects = vec![object(round as u32 % NODES); OBJECTS];
        let open = Request::OpenChannel { target, entry: None };
        let asked = [Request::Introduce { target, objects }, open];
        for request in asked {
            match engine.ask(&request) {
                Ok(Reply::Refused { .. }) => refused += 1,
                Ok(_) => {}
                Err(errno) => {
                    attacker.holding(&format!("disconnected: {errno}"));
                    return Ok(());
                }
            }
        }
        if round < CANCELS {
            engine.tell(&Request::CancelTicket { target, ticket: TicketId(round) })?;
        }
        engine.skip_events();
        third.skip_events();
    }
    attacker.holding(&format!("{refused} of {} requests refused", 2 * ROUNDS));
    attacker.wait_until_dismissed();
    Ok(())
}
