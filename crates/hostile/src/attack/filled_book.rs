//! A stranger introduces a victim to its own nodes, until the broker's book for the victim is full.

use crate::attacker::Attacker;
use crate::play::{Attack, Load, Play, Whose, strangers};
use baton_abi::control::{HeldNode, NodeId, Request};
use rustix::io::Errno;
use std::io;

const NAME: &str = "filled_book";
/// References that each process tries to send.
const HANDLES: u64 = 70_000;
/// References in the first transactions.
const STEP: u64 = 512;

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "a client introduces a server to nodes until the broker has no room for more",
    whose: Whose::Strangers,
    play: Play::Load(|run| Load::of([strangers(NAME, run.scale.of(2, 8))])),
    attack,
};

fn attack(attacker: &Attacker) -> io::Result<()> {
    let (engine, owner) = (attacker.engine()?, attacker.engine()?);
    let target = engine.manager()?;
    let _channel = engine.channel_to(target)?;
    attacker.ready();
    let (mut held, mut step, mut why) = (0, STEP, None);
    // Fewer references each time, for the rest of the table.
    while held < HANDLES && step > 0 && attacker.must_continue() {
        let object = |number: u64| owner.grant(number as u32, NodeId(number + 1), engine.id());
        let objects: Result<Vec<HeldNode>, Errno> = (held..held + step).map(object).collect();
        match engine.must(&Request::Introduce { target, objects: objects? }) {
            Ok(_) => held += step,
            Err(errno) => (step, why) = (step / 2, Some(errno)),
        }
        engine.skip_events();
        owner.skip_events();
    }
    let why = why.map(|errno| format!(": {errno}")).unwrap_or_default();
    attacker.holding(&format!("{held} references{why}"));
    attacker.wait_until_dismissed();
    Ok(())
}
