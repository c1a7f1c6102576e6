//! Two users open connections and never send a greeting.

use crate::attacker::Attacker;
use crate::play::{Attack, Load, Play, STRANGER, Whose, strangers};
use crate::stage::{Group, Setting};
use baton_hostile::engine;
use std::io;

const NAME: &str = "silent_guests";
/// Connections of each process.
const CONNECTIONS: usize = 2_000;

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "two users connect as often as they may, and say nothing",
    whose: Whose::Strangers,
    play: Play::Load(|run| {
        let broker_descriptors = run.scale.of(2_048, 8_192);
        let processes = run.scale.of(1, 4);
        let other = Group { attack: NAME, user: Some(STRANGER + 1), processes };
        let groups = [strangers(NAME, processes), other];
        let setting = Setting { broker_descriptors, ..Setting::default() };
        Load { setting, ..Load::of(groups) }
    }),
    attack,
};

fn attack(attacker: &Attacker) -> io::Result<()> {
    attacker.ready();
    let mut guests = Vec::new();
    for _ in 0..CONNECTIONS {
        if !attacker.must_continue() {
            break;
        }
        guests.extend(engine::connect(&attacker.socket));
    }
    attacker.holding(&format!("{} connections", guests.len()));
    attacker.wait_until_dismissed();
    Ok(())
}
