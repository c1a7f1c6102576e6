//! Channels of one user's many engines fill a server's descriptor table.

use crate::attacker::Attacker;
use crate::play::{Attack, Load, Play, Whose, strangers};
use crate::stage::Setting;
use baton_abi::control::{Reply, Request};
use std::io;

const NAME: &str = "many_channels";
/// Engines of each process.
const ENGINES: usize = 48;
/// Channels that each engine tries to open.
const CHANNELS: usize = 64;

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "one user's engines open as many channels to a server as they may",
    whose: Whose::Strangers,
    play: Play::Load(|run| {
        let server_descriptors = run.scale.of(1024, 4096);
        let groups = [strangers(NAME, run.scale.of(2, 8))];
        let setting = Setting { server_descriptors, ..Setting::default() };
        Load { setting, ..Load::of(groups) }
    }),
    attack,
};

fn attack(attacker: &Attacker) -> io::Result<()> {
    let (engines, why) = attacker.engines(ENGINES);
    attacker.ready();
    let mut sockets = Vec::new();
    for engine in &engines {
        let Ok(target) = engine.manager() else { continue };
        for _ in 0..CHANNELS {
            if !attacker.must_continue() {
                return Ok(());
            }
            match engine.ask(&Request::OpenChannel { target, entry: None }) {
                Ok(Reply::Done) => {
                    // The first socket keeps a channel open; the rest is not needed.
                    while let Ok((_, mut descriptors)) = engine.event_now() {
                        sockets.extend(descriptors.drain(..).nth(1));
                    }
                }
                _ => break,
            }
        }
    }
    let why = why.map(|errno| format!(", no more engines: {errno}")).unwrap_or_default();
    attacker.holding(&format!("{} channels{why}", sockets.len()));
    attacker.wait_until_dismissed();
    Ok(())
}
