//! Clients of the typed API send one-way calls as fast as they can.

use crate::attacker::{Attacker, CONTEXT};
use crate::play::{Attack, Load, Play, Whose, strangers};
use baton::{Parcel, Process};
use std::io;

const NAME: &str = "one_way_flood";

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "clients send a server one-way calls as fast as they can",
    whose: Whose::Strangers,
    play: Play::Load(|_| Load::of([strangers(NAME, 2)])),
    attack,
};

fn attack(attacker: &Attacker) -> io::Result<()> {
    let process = Process::open(CONTEXT, &attacker.socket).map_err(io::Error::other)?;
    let manager = process.context_manager().map_err(io::Error::other)?;
    let parcel = Parcel::from(&[7; 256][..]);
    attacker.ready();
    attacker.holding("");
    while attacker.must_continue() {
        // That there is no room is what it wants.
        if manager.one_way(1, &parcel).is_ok() {
            attacker.count(1);
        }
    }
    Ok(())
}
