//! A client sends descriptors with doorbells, and more or fewer than a message announces.

use crate::attacker::Attacker;
use crate::play::{Attack, Load, Play, Whose, strangers};
use crate::stage::Setting;
use baton_hostile::engine::{self, MAX_DESCRIPTORS};
use rustix::fd::AsFd;
use rustix::io::Errno;
use std::io;
use std::time::{Duration, Instant};

const NAME: &str = "unannounced_descriptors";
/// Channels that are used in turn, because a server may close the channel of a liar.
const CHANNELS: usize = 8;
/// Messages on each.
const MESSAGES: u32 = 64;
const AT_MOST: Duration = Duration::from_secs(1);

/// A message's number, the announced count of descriptors, and the real count.
const LIES: [(u32, u32, usize); 5] = [
    (0, 0, MAX_DESCRIPTORS),
    (0, 1, MAX_DESCRIPTORS),
    (1, 1, MAX_DESCRIPTORS),
    (2, MAX_DESCRIPTORS as u32, 1),
    (3, u32::MAX, 1),
];

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "a client sends other descriptors than it announces",
    whose: Whose::Strangers,
    play: Play::Load(|_| {
        let setting = Setting { server_descriptors: 512, ..Setting::default() };
        Load { setting, ..Load::of([strangers(NAME, 2)]) }
    }),
    attack,
};

fn attack(attacker: &Attacker) -> io::Result<()> {
    let engine = attacker.engine()?;
    let manager = engine.manager()?;
    let file = engine::status_page()?;
    let many = [file.as_fd(); MAX_DESCRIPTORS];
    attacker.ready();
    let late = Instant::now() + AT_MOST;
    let mut sent = 0;
    // The channels stay open.
    let mut channels = Vec::new();
    for at in 0..CHANNELS {
        let Ok(channel) = engine.channel_to(manager) else { break };
        let (number, announced, descriptors) = LIES[at % LIES.len()];
        let mut left = MESSAGES;
        while left > 0 && attacker.must_continue() && Instant::now() < late {
            match channel.send_descriptors(number, announced, &many[..descriptors]) {
                Ok(()) => (left, sent) = (left - 1, sent + 1),
                Err(Errno::AGAIN | Errno::TOOMANYREFS) => std::thread::yield_now(),
                Err(_) => break,
            }
        }
        channels.push(channel);
    }
    attacker.holding(&format!("{sent} messages on {} channels", channels.len()));
    attacker.wait_until_dismissed();
    Ok(())
}
