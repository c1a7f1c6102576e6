//! Events that their engine does not read wait at the broker.

use super::{Attack, Whose, besiege, strangers};
use crate::attacker::Attacker;
use crate::stage::Setting;
use baton_abi::control::{Request, encode};
use baton_hostile::engine::send_now;
use rustix::io::Errno;
use std::io;

const NAME: &str = "unread_events";
/// Engines of each process.
const ENGINES: usize = 10;
/// Events that each causes: as many as the broker keeps before it takes offence.
const EVENTS: u64 = 60_000;

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "engines cause themselves events and do not read them",
    whose: Whose::Strangers,
    play: |run| besiege(run, Setting::default(), &[strangers(NAME, run.scale.of(2, 10))]),
    attack,
};

fn attack(attacker: &Attacker) -> io::Result<()> {
    let (engines, _) = attacker.engines(ENGINES);
    attacker.ready();
    // Each engine, and how many events it has caused; none of the broker's patience is left for one
    // that is disconnected.
    let mut busy: Vec<_> = engines.iter().map(|engine| (engine, 0)).collect();
    let mut caused = 0;
    while attacker.goes_on() && !busy.is_empty() {
        busy.retain_mut(|(engine, number)| {
            let request = encode(&Request::Barrier { number: *number });
            match send_now(&engine.requests, &request, &[]) {
                Ok(()) => (*number, caused) = (*number + 1, caused + 1),
                // A broker that does not read is let be.
                Err(Errno::AGAIN) => std::thread::yield_now(),
                Err(_) => return false,
            }
            *number < EVENTS
        });
    }
    attacker.holding(&format!("{caused} events unread"));
    attacker.stay();
    Ok(())
}
