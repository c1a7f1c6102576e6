//! Descriptors for messages that never come fill a server's table: a message for the descriptors
//! behind them makes the server read those, too. The server then cannot take a channel from the
//! broker. It must not mistake that for the broker's end, and must recover.

use crate::attacker::Attacker;
use crate::honest::ECHO;
use crate::play::{Attack, Load, Play, Whose, strangers};
use crate::stage::Setting;
use baton_hostile::engine::{self, MAX_DESCRIPTORS};
use rustix::fd::AsFd;
use rustix::io::Errno;
use std::io;
use std::time::{Duration, Instant};

const NAME: &str = "full_table";
/// Descriptors per packet and number of such packets. The server reads them in this order, until
/// one has no room.
const PACKETS: [(usize, u32); 4] = [(1, 64), (4, 16), (32, 16), (MAX_DESCRIPTORS, 64)];
/// Time for a server to read one packet.
const PACE: Duration = Duration::from_millis(2);
const AT_MOST: Duration = Duration::from_secs(1);

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "one client sends a server descriptors for messages that never come",
    whose: Whose::Strangers,
    play: Play::Load(|run| {
        let server_descriptors = run.scale.of(1024, 8192);
        let setting = Setting { server_descriptors, ..Setting::default() };
        Load { setting, ..Load::of([strangers(NAME, 1)]) }
    }),
    attack,
};

fn attack(attacker: &Attacker) -> io::Result<()> {
    let engine = attacker.engine()?;
    let (manager, node) = engine.manager_node()?;
    let channel = engine.channel_to(manager)?;
    let file = engine::status_page()?;
    let many = [file.as_fd(); MAX_DESCRIPTORS];
    attacker.ready();
    let late = Instant::now() + AT_MOST;
    let (mut number, mut sent) = (0u32, 0);
    for (descriptors, packets) in PACKETS {
        let end = number + packets;
        while number < end && attacker.must_continue() && Instant::now() < late {
            let these = &many[..descriptors];
            match channel.send_descriptors(number, descriptors as u32, these) {
                Ok(()) => (number, sent) = (number + 1, sent + descriptors),
                // The server's queue, or this user's limit of descriptors in flight, is full until
                // the server reads.
                Err(Errno::AGAIN | Errno::TOOMANYREFS) => std::thread::sleep(PACE),
                Err(_) => break,
            }
        }
    }
    // The server reads all before the last one, as far as this user's share goes.
    let _ = channel.post_for_descriptor(node, ECHO, number.saturating_sub(1));
    attacker.holding(&format!("{sent} descriptors sent"));
    attacker.wait_until_dismissed();
    Ok(())
}
