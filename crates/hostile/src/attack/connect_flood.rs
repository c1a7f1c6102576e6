//! A user's processes connect and close in a loop.

use crate::attacker::Attacker;
use crate::play::{Attack, Load, Play, Whose, strangers};
use baton_hostile::engine;
use std::io;

const NAME: &str = "connect_flood";

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "a user connects and closes without a pause",
    whose: Whose::Strangers,
    play: Play::Load(|run| Load::of([strangers(NAME, run.scale.of(1, 4))])),
    attack,
};

/// The broker makes the user's connections wait, so the run may tell this process to leave
/// meanwhile.
fn attack(attacker: &Attacker) -> io::Result<()> {
    attacker.ready();
    let socket = attacker.socket.clone();
    std::thread::spawn(move || while engine::connect(&socket).is_ok() {});
    attacker.holding("one connection after the other");
    attacker.wait_until_dismissed();
    Ok(())
}
