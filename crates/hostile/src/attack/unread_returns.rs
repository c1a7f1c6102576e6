//! An owner grants nodes all the time and never reads which grants come back. The holder must not
//! keep them for it without bound.

use crate::attacker::Attacker;
use crate::client::BareClient;
use crate::honest::ECHO;
use crate::play::{Attack, Load, Play, Whose, strangers};
use baton_abi::control::MAX_OBJECTS;
use std::io;

const NAME: &str = "unread_returns";
/// Nodes in one transaction.
const STEP: u32 = MAX_OBJECTS as u32;
/// Transactions of each process.
const CALLS: u32 = 2_000;

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "an owner grants nodes and does not read which grants come back",
    whose: Whose::Strangers,
    play: Play::Load(|_| Load::of([strangers(NAME, 2)])),
    attack,
};

fn attack(attacker: &Attacker) -> io::Result<()> {
    let client = BareClient::open(attacker)?;
    attacker.ready();
    let (mut calls, mut why) = (0, None);
    while calls < CALLS && why.is_none() && attacker.must_continue() {
        why = client.give(ECHO, 0, STEP).err();
        calls += 1;
        attacker.count(1);
    }
    let why = why.map(|errno| format!(", then {errno}")).unwrap_or_default();
    attacker.holding(&format!("{calls} calls with {STEP} nodes{why}"));
    attacker.wait_until_dismissed();
    Ok(())
}
