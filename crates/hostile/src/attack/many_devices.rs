//! Devices of one user take the broker's descriptors.

use super::{Attack, Play, STRANGER, Siege, Whose, strangers};
use crate::attacker::Attacker;
use crate::stage::{Force, Setting};
use std::io;

const NAME: &str = "many_devices";
/// Devices of each process.
const DEVICES: usize = 1_500;

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "two users open as many devices as they may",
    whose: Whose::Strangers,
    play: Play::Siege(|run| {
        let broker_descriptors = run.scale.of(2_048, 16_384);
        let processes = run.scale.of(1, 5);
        let other = Force { attack: NAME, user: Some(STRANGER + 1), processes };
        let forces = [strangers(NAME, processes), other];
        let setting = Setting { broker_descriptors, ..Setting::default() };
        Siege { setting, ..Siege::of(forces) }
    }),
    attack,
};

fn attack(attacker: &Attacker) -> io::Result<()> {
    attacker.ready();
    // What a device has besides its sockets costs this process, and nobody else.
    let mut sockets = Vec::new();
    let why = loop {
        if sockets.len() == DEVICES || !attacker.goes_on() {
            break None;
        }
        let (mut engines, why) = attacker.engines(1);
        sockets.extend(engines.drain(..).map(|engine| (engine.requests, engine.events)));
        if why.is_some() {
            break why;
        }
    };
    let why = why.map(|errno| format!(": {errno}")).unwrap_or_default();
    attacker.holding(&format!("{} devices{why}", sockets.len()));
    attacker.stay();
    Ok(())
}
