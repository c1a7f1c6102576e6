//! An owner grants new nodes all the time: as many as the holder takes, and then more. Another user
//! still gets its share.

use crate::attacker::Attacker;
use crate::client::BareClient;
use crate::honest::{ECHO, KEEP_ALL};
use crate::play::{Attack, Load, Play, STRANGER, Whose, strangers};
use crate::stage::Group;
use baton_abi::control::MAX_OBJECTS;
use baton_abi::holder_list::ENTRIES;
use rustix::io::Errno;
use std::io;

const NAME: &str = "grant_flood";
/// Nodes in one transaction of the flood.
const STEP: u32 = MAX_OBJECTS as u32;
/// Nodes that the other user has kept, in one transaction each, and nodes that it sends later.
const OF_OTHER: [u32; 4] = [2_000, 2_000, 2_000, 2_000];
const LATER: u32 = 64;

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "an owner grants new nodes in a flood, and another user grants some",
    whose: Whose::Strangers,
    play: Play::Load(|run| {
        let other = Group { attack: NAME, user: Some(STRANGER + 1), processes: 1 };
        Load::of([strangers(NAME, run.scale.of(2, 6)), other])
    }),
    attack,
};

/// The user id decides which of the two kinds a process is.
fn attack(attacker: &Attacker) -> io::Result<()> {
    match rustix::process::getuid().as_raw() {
        STRANGER => flood(attacker),
        _ => take_share(attacker),
    }
}

fn flood(attacker: &Attacker) -> io::Result<()> {
    let client = BareClient::open(attacker)?;
    let (mut next, mut kept) = (0, 0);
    let mut step = STEP;
    // The share is full before the other user begins.
    while step > 0 {
        match client.give(KEEP_ALL, next, step) {
            Ok(()) => kept += step,
            Err(Errno::DQUOT) => step /= 2,
            Err(errno) => return Err(errno.into()),
        }
        next = (next + step) % (ENTRIES - STEP);
        client.channel.skip_returned();
    }
    attacker.ready();
    let (mut sent, mut refused) = (0u64, 0u64);
    while attacker.must_continue() {
        let n = [1, 64, STEP][sent as usize % 3];
        match client.give(ECHO, next, n) {
            Ok(()) => {}
            Err(Errno::DQUOT) => refused += 1,
            Err(errno) => return Err(errno.into()),
        }
        next = (next + n) % (ENTRIES - STEP);
        client.channel.skip_returned();
        (sent, _) = (sent + 1, attacker.count(1));
        if sent == 1_000 {
            attacker.holding(&format!("{kept} nodes kept, {refused} of {sent} calls refused"));
        }
    }
    Ok(())
}

fn take_share(attacker: &Attacker) -> io::Result<()> {
    let client = BareClient::open(attacker)?;
    attacker.ready();
    let mut next = 0;
    let give = |code, next: &mut u32, n| {
        match client.give(code, *next, n) {
            // Beside all other attacks an answer takes long.
            Ok(()) | Err(Errno::TIMEDOUT) => {}
            Err(errno) => {
                attacker.harms(&format!("another user may not grant {n} nodes: {errno}"));
            }
        }
        *next = (*next + n) % (ENTRIES - STEP);
        client.channel.skip_returned();
    };
    OF_OTHER.into_iter().for_each(|n| give(KEEP_ALL, &mut next, n));
    attacker.holding("another user's nodes");
    while attacker.must_continue() {
        give(ECHO, &mut next, LATER);
    }
    Ok(())
}
