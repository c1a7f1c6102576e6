//! A process freezes and thaws itself: everybody who holds a node of its is told each time, also one
//! that is stopped and cannot read.

use super::{Attack, Run, Whose, strangers};
use crate::attacker::Attacker;
use crate::stage::{Setting, Stage};
use crate::verdict::Findings;
use baton_abi::control::{NodeId, Object, Reply, Request, Strength};
use rustix::process::Signal;
use std::io;

const NAME: &str = "freeze_toggles";
/// More than the broker keeps for one that does not read.
const TOGGLES: u32 = 70_000;

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "a process freezes and thaws itself while a holder of its node is stopped",
    whose: Whose::Strangers,
    play,
    attack,
};

fn play(run: &Run) -> io::Result<Findings> {
    let mut stage = Stage::set(run, Setting::default())?;
    stage.prepare(&[strangers(NAME, 1)])?;
    stage.server.signal(Signal::STOP);
    stage.go();
    stage.await_attackers();
    stage.server.signal(Signal::CONT);
    stage.endure(run.at_least());
    Ok(stage.finish())
}

fn attack(attacker: &Attacker) -> io::Result<()> {
    let engine = attacker.engine()?;
    let target = engine.manager()?;
    let _channel = engine.channel_to(target)?;
    let object = Object::Node { node: NodeId(1), strength: Strength::Strong, flags: 0 };
    engine.translate(target, vec![object])?;
    attacker.ready();
    let pid = std::process::id();
    let mut toggled = 0;
    while toggled < TOGGLES && attacker.goes_on() {
        let frozen = toggled.is_multiple_of(2);
        match engine.ask(&Request::Freeze { pid, frozen }) {
            Ok(Reply::Freeze { .. }) => toggled += 1,
            // Thawed or not, it has done what it may.
            _ => break,
        }
        engine.skip_events();
    }
    attacker.holding(&format!("{toggled} toggles"));
    attacker.stay();
    Ok(())
}
