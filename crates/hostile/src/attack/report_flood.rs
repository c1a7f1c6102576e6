//! Reports are asked for that cost as much as there are handles, by processes that have ended.

use super::{Attack, STRANGER, Whose, strangers};
use crate::attacker::Attacker;
use crate::stage::{Force, Setting, Stage};
use baton_abi::control::{NodeId, Object, Request, Strength, encode};
use baton_hostile::engine;
use rustix::io::Errno;
use std::io;

const NAME: &str = "report_flood";
/// Each pair of engines has so many handles.
const HANDLES: u64 = 50_000;
/// Objects in one transaction.
const STEP: u64 = 2_000;
/// Connections of observers that each process has.
const OBSERVERS: usize = 16;
/// Reports that are asked for on each.
const REPORTS: usize = 500;

/// Processes that make handles.
const HOLDERS: usize = 4;

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "observers of a state with many handles ask for reports and leave without reading them",
    whose: Whose::Strangers,
    play: |run| {
        let mut stage = Stage::set(run, Setting::default())?;
        stage.prepare(&[strangers(NAME, HOLDERS)])?;
        stage.go();
        stage.endure(run.at_least());
        // Others of that user ask, and end while they are asking: their number says that.
        let asking = Force { attack: NAME, user: Some(STRANGER + 1), processes: 1 };
        stage.prepare(&[asking])?;
        stage.go();
        stage.endure(run.at_least());
        Ok(stage.finish())
    },
    attack,
};

fn attack(attacker: &Attacker) -> io::Result<()> {
    if rustix::process::getuid().as_raw() == STRANGER { hold(attacker) } else { ask(attacker) }
}

/// One engine sends another one, to which it has a channel, all the nodes that it can.
fn hold(attacker: &Attacker) -> io::Result<()> {
    let engine = attacker.engine()?;
    let target = engine.manager()?;
    let _channel = engine.channel_to(target)?;
    attacker.ready();
    let mut held = 0;
    while held < HANDLES && attacker.goes_on() {
        let object = |node| Object::Node { node: NodeId(node), strength: Strength::Strong, flags: 0 };
        let objects = (held..held + STEP).map(|node| object(node + 1)).collect();
        match engine.must(&Request::Translate { target, objects }) {
            Ok(_) => held += STEP,
            Err(_) => break,
        }
        engine.skip_events();
    }
    attacker.holding(&format!("{held} handles"));
    attacker.stay();
    Ok(())
}

fn ask(attacker: &Attacker) -> io::Result<()> {
    let observers: Result<Vec<_>, Errno> =
        (0..OBSERVERS).map(|_| engine::observe(&attacker.socket)).collect();
    let observers = observers?;
    attacker.ready();
    let report = encode(&Request::Report);
    let mut asked = 0;
    for observer in &observers {
        asked += (0..REPORTS)
            .take_while(|_| engine::send_now(observer, &report, &[]).is_ok())
            .count();
    }
    attacker.holding(&format!("{asked} reports asked for"));
    Ok(())
}
