//! A process freezes and thaws itself. Every holder of its node gets an event each time, even a
//! stopped one that cannot read.

use crate::attacker::Attacker;
use crate::honest::KEEP;
use crate::play::{Attack, Load, Play, Whose, strangers};
use baton_abi::control::{NodeId, Reply, Request};
use baton_hostile::channel::{BareCall, with_objects};
use std::io;
use std::time::Duration;

const NAME: &str = "freeze_toggles";
/// More events than the broker keeps for a process that does not read.
const TOGGLES: u32 = 70_000;
/// Timeout of a reply.
const AT_MOST: Duration = Duration::from_secs(5);

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "a process freezes and thaws itself while a holder of its node is stopped",
    whose: Whose::Strangers,
    play: Play::Load(|_| Load { stopped_server: true, ..Load::of([strangers(NAME, 1)]) }),
    attack,
};

fn attack(attacker: &Attacker) -> io::Result<()> {
    let engine = attacker.engine()?;
    let (target, node) = engine.manager_node()?;
    let channel = engine.channel_to(target)?;
    let objects = &[engine.carry(0, NodeId(1), target)?];
    let (data, offsets) = with_objects(&[0; 8], 1);
    let (data, offsets) = (&data[..], &offsets[..]);
    channel.call(&BareCall { node, code: KEEP, data, offsets, objects, ticket: 0 }, AT_MOST)?;
    attacker.ready();
    let pid = std::process::id();
    let mut toggled = 0u32;
    while attacker.must_continue() {
        let frozen = toggled.is_multiple_of(2);
        let answer = engine.ask(&Request::Freeze { pid, frozen });
        engine.skip_events();
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
