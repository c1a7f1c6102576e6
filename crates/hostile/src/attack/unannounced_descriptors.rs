//! A client sends descriptors with doorbells, and others than it announces.

use crate::attacker::Attacker;
use crate::honest::ECHO;
use crate::play::{Attack, Load, Play, Whose, strangers};
use crate::stage::Setting;
use baton_hostile::channel::BareCall;
use baton_hostile::engine::{self, MAX_DESCRIPTORS};
use rustix::fd::AsFd;
use rustix::io::Errno;
use std::io;
use std::time::{Duration, Instant};

const NAME: &str = "unannounced_descriptors";
/// Channels that are used in turn, because a server may close the channel of a liar.
const CHANNELS: usize = 8;
/// Honest calls on each, before the lies.
const CALLS: usize = 4;
/// Messages on each.
const MESSAGES: u32 = 64;
const AT_MOST: Duration = Duration::from_secs(1);

/// A packet, how many descriptors come with it, and whether it is one for descriptors: then it says
/// a number and a count, else it is a doorbell or says which message will not come.
const LIES: [([u32; 2], usize, bool); 8] = [
    ([0, 0], MAX_DESCRIPTORS, false),
    ([1, 0], MAX_DESCRIPTORS, false),
    ([2, 1], 1, false),
    ([0, 1], MAX_DESCRIPTORS, true),
    ([0, MAX_DESCRIPTORS as u32], 1, true),
    ([0, u32::MAX], 1, true),
    ([0, 0], 1, true),
    ([3, 1], 1, true),
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
    let (manager, node) = engine.manager_node()?;
    let file = engine::status_page()?;
    let many = [file.as_fd(); MAX_DESCRIPTORS];
    attacker.ready();
    let late = Instant::now() + AT_MOST;
    let (mut sent, mut n_known) = (0, 0);
    // The channels stay open.
    let mut channels = Vec::new();
    for at in 0..CHANNELS {
        let Ok(channel) = engine.channel_to(manager) else { break };
        // The server's loopers know the client by then, and take its calls on the fast path.
        let plain =
            BareCall { node, code: ECHO, data: &[0; 4], offsets: &[], objects: &[], ticket: 0 };
        let is_known = (0..CALLS).all(|_| channel.call(&plain, AT_MOST).is_ok());
        n_known += usize::from(is_known);
        let (packet, descriptors, for_descriptors) = LIES[at % LIES.len()];
        let lie = &many[..descriptors];
        let mut left = MESSAGES;
        while left > 0 && attacker.must_continue() && Instant::now() < late {
            let said = match for_descriptors {
                true => channel.send_descriptors(packet[0], packet[1], lie),
                false => channel.send_with_doorbell(packet, lie),
            };
            match said {
                Ok(()) => (left, sent) = (left - 1, sent + 1),
                Err(Errno::AGAIN | Errno::TOOMANYREFS) => std::thread::yield_now(),
                Err(_) => break,
            }
        }
        let _ = channel.post_for_descriptor(node, ECHO, 1);
        channels.push(channel);
    }
    let n_channels = channels.len();
    attacker.holding(&format!("{sent} messages on {n_channels} channels, {n_known} of them known"));
    attacker.wait_until_dismissed();
    Ok(())
}
