//! A stranger sends a victim references to its own nodes, until the victim's table is full.

use super::{Attack, Whose, besiege, strangers};
use crate::attacker::Attacker;
use crate::stage::Setting;
use baton_abi::control::{NodeId, Object, Request, Strength};
use std::io;

const NAME: &str = "filled_handles";
/// References that each process tries to send.
const HANDLES: u64 = 70_000;
/// References in one transaction.
const STEP: u64 = 500;

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "a client sends a server references to its own nodes until the table of handles is full",
    whose: Whose::Strangers,
    play: |run| besiege(run, Setting::default(), &[strangers(NAME, run.scale.of(2, 8))]),
    attack,
};

fn attack(attacker: &Attacker) -> io::Result<()> {
    let engine = attacker.engine()?;
    let target = engine.manager()?;
    let _channel = engine.channel_to(target)?;
    attacker.ready();
    let (mut held, mut why) = (0, None);
    while held < HANDLES && attacker.goes_on() {
        let node = |node| Object::Node { node: NodeId(node), strength: Strength::Strong, flags: 0 };
        let objects = (held..held + STEP).map(|number| node(number + 1)).collect();
        match engine.must(&Request::Translate { target, objects }) {
            Ok(_) => held += STEP,
            Err(errno) => {
                why = Some(errno);
                break;
            }
        }
        engine.skip_events();
    }
    let why = why.map(|errno| format!(": {errno}")).unwrap_or_default();
    attacker.holding(&format!("{held} references{why}"));
    attacker.stay();
    Ok(())
}
