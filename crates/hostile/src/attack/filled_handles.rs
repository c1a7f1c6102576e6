//! A stranger sends a victim references to its own nodes, until the victim's table is full.

use crate::attacker::Attacker;
use crate::play::{Attack, Load, Play, Whose, strangers};
use baton_abi::control::{NodeId, Object, Request, Strength};
use std::io;

const NAME: &str = "filled_handles";
/// References that each process tries to send.
const HANDLES: u64 = 70_000;
/// References in the first transactions.
const STEP: u64 = 512;

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "a client sends a server references to its own nodes until the table of handles is full",
    whose: Whose::Strangers,
    play: Play::Load(|run| Load::of([strangers(NAME, run.scale.of(2, 8))])),
    attack,
};

fn attack(attacker: &Attacker) -> io::Result<()> {
    let engine = attacker.engine()?;
    let target = engine.manager()?;
    let _channel = engine.channel_to(target)?;
    attacker.ready();
    let (mut held, mut step, mut why) = (0, STEP, None);
    // Fewer references each time, for the rest of the table.
    while held < HANDLES && step > 0 && attacker.must_continue() {
        let node = |node| Object::Node { node: NodeId(node), strength: Strength::Strong, flags: 0 };
        let objects = (held..held + step).map(|number| node(number + 1)).collect();
        match engine.must(&Request::Translate { target, objects }) {
            Ok(_) => held += step,
            Err(errno) => (step, why) = (step / 2, Some(errno)),
        }
        engine.skip_events();
    }
    let why = why.map(|errno| format!(": {errno}")).unwrap_or_default();
    attacker.holding(&format!("{held} references{why}"));
    attacker.wait_until_dismissed();
    Ok(())
}
