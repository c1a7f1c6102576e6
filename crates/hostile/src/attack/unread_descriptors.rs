//! Engines leave descriptors unread. Those count against the broker's user, and past the limit the
//! kernel lets the broker send none to any engine.

use crate::attacker::Attacker;
use crate::play::{Attack, Load, Play, Whose, strangers};
use crate::stage::Setting;
use baton_abi::control::{Reply, Request};
use std::io;

const NAME: &str = "unread_descriptors";
/// Engines of each process.
const ENGINES: usize = 40;
/// Channels of each engine, whose events it never reads: four descriptors in flight each.
const CHANNELS: usize = 16;

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "engines open channels and leave the descriptors unread",
    whose: Whose::Strangers,
    play: Play::Load(|run| {
        let broker_descriptors = run.scale.of(1_500, 6_000);
        let groups = [strangers(NAME, run.scale.of(2, 8))];
        let setting = Setting { broker_descriptors, ..Setting::default() };
        Load { setting, ..Load::of(groups) }
    }),
    attack,
};

fn attack(attacker: &Attacker) -> io::Result<()> {
    let (engines, why) = attacker.engines(ENGINES);
    let managers: Vec<_> = engines.iter().map(|engine| engine.manager()).collect();
    attacker.ready();
    let mut opened = 0;
    for (engine, manager) in engines.iter().zip(managers) {
        let Ok(target) = manager else { continue };
        for _ in 0..CHANNELS {
            match engine.ask(&Request::OpenChannel { target, entry: None }) {
                Ok(Reply::Done) => opened += 1,
                _ => break,
            }
        }
    }
    let why = why.map(|errno| format!(", no more engines: {errno}")).unwrap_or_default();
    attacker.holding(&format!("{opened} channels unread{why}"));
    attacker.wait_until_dismissed();
    Ok(())
}
