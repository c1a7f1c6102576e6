//! A client introduces a server to nodes for transactions that never come; their grants wait at the
//! server.

use crate::attacker::Attacker;
use crate::play::{Attack, Load, Play, Whose, strangers};
use baton_abi::control::{MAX_OBJECTS, NodeId, Reply, Request};
use rustix::io::Errno;
use std::io;

const NAME: &str = "unclaimed_tickets";
/// Tickets of each process.
const TICKETS: u32 = 1_024;
/// Different nodes in the tickets: more than a process may have handles by the broker's grants.
const NODES: u32 = 70_000;
/// Number of refusals after which the attack ends.
const REFUSALS: u32 = 1_000;

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "a client announces transactions with a third process's objects and sends none",
    whose: Whose::Strangers,
    play: Play::Load(|run| Load::of([strangers(NAME, run.scale.of(2, 8))])),
    attack,
};

fn attack(attacker: &Attacker) -> io::Result<()> {
    let (sender, third) = (attacker.engine()?, attacker.engine()?);
    let target = sender.manager()?;
    let _channel = sender.channel_to(target)?;
    let grant = |entry: u32| third.grant(entry, NodeId(entry.into()), sender.id());
    let held = (0..NODES).map(grant).collect::<Result<Vec<_>, _>>()?;
    attacker.ready();
    let (mut tickets, mut refusals) = (0, 0);
    while tickets < TICKETS && refusals < REFUSALS && attacker.must_continue() {
        let first = (tickets + refusals) as usize * MAX_OBJECTS % held.len();
        let objects = held.iter().cycle().skip(first).take(MAX_OBJECTS).copied().collect();
        match sender.ask(&Request::Introduce { target, objects }) {
            Ok(Reply::Ticket { .. }) => tickets += 1,
            Ok(_) => refusals += 1,
            Err(Errno::CONNRESET | Errno::PIPE) => break,
            Err(errno) => return Err(errno.into()),
        }
        sender.skip_events();
        third.skip_events();
    }
    attacker.holding(&format!("{tickets} tickets of {MAX_OBJECTS} objects, {refusals} refused"));
    attacker.wait_until_dismissed();
    Ok(())
}
