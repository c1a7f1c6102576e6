//! Engines leave events unread, which wait at the broker.

use crate::attacker::Attacker;
use crate::play::{Attack, Load, Play, Whose, strangers};
use baton_abi::control::{HeldNode, MAX_OBJECTS, NodeId, Request, Strength, encode};
use baton_hostile::engine::send_now;
use rustix::io::Errno;
use std::io;

const NAME: &str = "unread_events";
/// Engines of each process that do not read their events.
const ENGINES: usize = 12;
/// Tickets for each engine: together as many as the broker keeps before it disconnects.
const TICKETS: usize = 1_000;
/// Events that each engine causes itself afterwards.
const BARRIERS: u64 = 5_000;

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "engines cause each other events and do not read them",
    whose: Whose::Strangers,
    play: Play::Load(|run| Load::of([strangers(NAME, run.scale.of(2, 8))])),
    attack,
};

fn attack(attacker: &Attacker) -> io::Result<()> {
    let sender = attacker.engine()?;
    let (owner, node) = sender.manager_node()?;
    let (receivers, _) = attacker.engines(ENGINES);
    let mut channels = Vec::new();
    for receiver in &receivers {
        receiver.grant(0, NodeId(1), sender.id())?;
        channels.push(sender.channel_by(receiver.id(), Some(0))?);
    }
    attacker.ready();
    let object = HeldNode { owner, node, strength: Strength::Strong, entry: None };
    let (mut tickets, mut barriers, mut why) = (0, 0, None);
    for receiver in &receivers {
        let target = receiver.id();
        for _ in 0..TICKETS {
            match sender.introduce(target, vec![object; MAX_OBJECTS]) {
                Ok(_) => tickets += 1,
                Err(errno) => {
                    why = Some(errno);
                    break;
                }
            }
            sender.skip_events();
            if !attacker.must_continue() {
                return Ok(());
            }
        }
        let mut number = 0;
        while number < BARRIERS && attacker.must_continue() {
            match send_now(&receiver.requests, &encode(&Request::Barrier { number }), &[]) {
                Ok(()) => number += 1,
                // A broker that does not read is let be.
                Err(Errno::AGAIN) => std::thread::yield_now(),
                Err(_) => break,
            }
        }
        barriers += number;
    }
    let why = why.map(|errno| format!(", {errno}")).unwrap_or_default();
    attacker.holding(&format!("{tickets} tickets{why}, and {barriers} other events unread"));
    attacker.wait_until_dismissed();
    Ok(())
}
