//! A client rings its doorbell without a message, by the socket and by the words of its channel.

use crate::attacker::Attacker;
use crate::play::{Attack, Load, Play, Whose, strangers};
use baton_abi::lane::header;
use std::io;
use std::sync::atomic::Ordering;

const NAME: &str = "doorbells";

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "a client rings its doorbell and says that lanes are ready which are not",
    whose: Whose::Strangers,
    play: Play::Load(|_| Load::of([strangers(NAME, 2)])),
    attack,
};

fn attack(attacker: &Attacker) -> io::Result<()> {
    let engine = attacker.engine()?;
    let manager = engine.manager()?;
    let channel = engine.channel_to(manager)?;
    attacker.ready();
    attacker.holding("");
    while attacker.must_continue() {
        channel.head.double_word(header::READY).store(u64::MAX, Ordering::SeqCst);
        if channel.ring().is_err() {
            break;
        }
        attacker.count(1);
    }
    Ok(())
}
