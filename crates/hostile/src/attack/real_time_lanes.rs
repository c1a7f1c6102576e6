//! A client without the right to real-time lanes asks for them.

use crate::attacker::Attacker;
use crate::play::{Attack, Load, Play, Whose, strangers};
use baton_abi::control::Request;
use baton_abi::lane::LANES;
use std::io;

const NAME: &str = "real_time_lanes";
/// Channels of each process.
const CHANNELS: usize = 8;

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "a client asks for real-time loopers for all of its lanes, and as a looper, all the time",
    whose: Whose::Strangers,
    play: Play::Load(|_| Load::of([strangers(NAME, 2)])),
    attack,
};

fn attack(attacker: &Attacker) -> io::Result<()> {
    let engine = attacker.engine()?;
    let manager = engine.manager()?;
    let channels: Result<Vec<_>, _> = (0..CHANNELS).map(|_| engine.channel_to(manager)).collect();
    let channels = channels?;
    let tid = std::process::id();
    attacker.ready();
    attacker.holding("");
    while attacker.must_continue() {
        for channel in &channels {
            for lane in 0..LANES as u32 {
                let requests = [
                    Request::RealTime { channel: channel.id, lane, tid },
                    Request::RealTimeLooper { channel: channel.id, lane, tid },
                    Request::StandbyLooper { tid },
                ];
                for request in requests {
                    if engine.ask(&request).is_err() {
                        return Ok(());
                    }
                    attacker.count(1);
                }
                engine.skip_events();
            }
        }
    }
    Ok(())
}
