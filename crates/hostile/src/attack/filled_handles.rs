//! A stranger sends a victim references to its own nodes, until the victim takes no more.

use crate::attacker::Attacker;
use crate::client::BareClient;
use crate::honest::KEEP_ALL;
use crate::play::{Attack, Load, Play, Whose, strangers};
use std::io;

const NAME: &str = "filled_handles";
/// References that each process tries to send.
const HANDLES: u32 = 70_000;
/// References in the first transactions.
const STEP: u32 = 512;

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "a client sends a server references to its own nodes until the server takes no more",
    whose: Whose::Strangers,
    play: Play::Load(|run| Load::of([strangers(NAME, run.scale.of(2, 8))])),
    attack,
};

fn attack(attacker: &Attacker) -> io::Result<()> {
    let client = BareClient::open(attacker)?;
    attacker.ready();
    let (mut held, mut step, mut why) = (0, STEP, None);
    // Fewer references each time, for the rest of the share.
    while held < HANDLES && step > 0 && attacker.must_continue() {
        match client.give(KEEP_ALL, held, step) {
            Ok(()) => held += step,
            Err(errno) => (step, why) = (step / 2, Some(errno)),
        }
    }
    let why = why.map(|errno| format!(": {errno}")).unwrap_or_default();
    attacker.holding(&format!("{held} references{why}"));
    attacker.wait_until_dismissed();
    Ok(())
}
