//! Clients send all requests that cause events for a server, while that server is stopped.

use crate::attacker::Attacker;
use crate::play::{Attack, Load, Play, Whose, strangers};
use baton_abi::control::{HeldNode, NodeId, Reply, Request, Strength, TicketId};
use std::io;

const NAME: &str = "stopped_server";
/// Rounds, each with one request of every kind.
const ROUNDS: u64 = 20_000;
/// Objects of a ticket.
const OBJECTS: usize = 1_024;
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
    let (engine, owner) = (attacker.engine()?, attacker.engine()?);
    let target = engine.manager()?;
    let _channel = engine.channel_to(target)?;
    attacker.ready();
    let object = |number: u64| {
        let strong = owner.grant(number as u32, NodeId(number), engine.id())?;
        let strengths = [Strength::Strong, Strength::Weak];
        io::Result::Ok(HeldNode { strength: strengths[number as usize % 2], ..strong })
    };
    let mut refused = 0;
    for round in 0..ROUNDS {
        if !attacker.must_continue() {
            break;
        }
        let objects = vec![object(round % 64)?; OBJECTS];
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
        owner.skip_events();
    }
    attacker.holding(&format!("{refused} of {} requests refused", 2 * ROUNDS));
    attacker.wait_until_dismissed();
    Ok(())
}
