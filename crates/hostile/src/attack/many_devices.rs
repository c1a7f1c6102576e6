//! Two users' devices use up the broker's descriptors.

use crate::attacker::Attacker;
use crate::play::{Attack, Load, Play, STRANGER, Whose, strangers};
use crate::stage::{Group, Setting};
use std::io;

const NAME: &str = "many_devices";
/// Devices of each process.
const DEVICES: usize = 1_500;

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "two users open as many devices as they may",
    whose: Whose::Strangers,
    play: Play::Load(|run| {
        let broker_descriptors = run.scale.of(2_048, 16_384);
        let processes = run.scale.of(1, 5);
        let other = Group { attack: NAME, user: Some(STRANGER + 1), processes };
        let groups = [strangers(NAME, processes), other];
        let setting = Setting { broker_descriptors, ..Setting::default() };
        Load { setting, ..Load::of(groups) }
    }),
    attack,
};

fn attack(attacker: &Attacker) -> io::Result<()> {
    attacker.ready();
    // The other resources of a device cost only this process.
    let mut sockets = Vec::new();
    let why = loop {
        if sockets.len() == DEVICES || !attacker.must_continue() {
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
    attacker.wait_until_dismissed();
    Ok(())
}
