//! A process freezes and thaws itself. Every holder of its node gets an event each time, even a
//! stopped one that cannot read.

use crate::attacker::Attacker;
use crate::play::{Attack, Load, Play, Whose, strangers};
use baton_abi::control::{NodeId, Reply, Request};
use std::io;

const NAME: &str = "freeze_toggles";
/// More events than the broker keeps for a process that does not read.
const TOGGLES: u32 = 70_000;

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "a process freezes and thaws itself while a holder of its node is stopped",
    whose: Whose::Strangers,
    play: Play::Load(|_| Load { stopped_server: true, ..Load::of([strangers(NAME, 1)]) }),
    attack,
};

fn attack(attacker: &Attacker) -> io::Result<()> {
    let (engine, friend) = (attacker.engine()?, attacker.engine()?);
    let target = engine.manager()?;
    let _channels = (engine.channel_to(target)?, friend.channel_to(target)?);
    let object = engine.grant(0, NodeId(1), friend.id())?;
    friend.introduce(target, vec![object])?;
    attacker.ready();
    let pid = std::process::id();
    let mut toggled = 0u32;
    while attacker.must_continue() {
        let frozen = toggled.is_multiple_of(2);
        let answer = engine.ask(&Request::Freeze { pid, frozen });
        engine.skip_events();
        friend.skip_events();
        let is_refused = !matches!(answer, Ok(Reply::Freeze { .. }));
        if is_refused || toggled == TOGGLES {
            attacker.holding(&format!("{toggled} toggles, the last one: {answer:?}"));
        }
        if is_refused {
            attacker.wait_until_dismissed();
        }
        toggled = toggled.wrapping_add(1);
        attacker.count(1);
    }
    Ok(())
}
