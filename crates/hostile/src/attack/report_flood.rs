//! Observers ask for reports with many handles and end without reading them.

use crate::attacker::Attacker;
use crate::play::{Attack, Load, Play, STRANGER, Whose, strangers};
use crate::stage::Group;
use baton_abi::control::{Cursor, HeldNode, NodeId, Request, encode};
use baton_hostile::engine::{self, BareChannel, BareEngine};
use rustix::io::Errno;
use std::io;

const NAME: &str = "report_flood";
/// References that each pair of engines has.
const HANDLES: u64 = 60_000;
/// References in one transaction.
const STEP: u64 = 2_000;
/// Connections of observers that the asking process has.
const OBSERVERS: usize = 8;
/// Reports that each observer asks for.
const REPORTS: usize = 300;

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "observers of a state with many handles ask for reports and leave without reading them",
    whose: Whose::Strangers,
    play: Play::Load(|run| {
        let preparers = vec![strangers(NAME, run.scale.of(4, 16))];
        let asking = Group { attack: NAME, user: Some(STRANGER + 1), processes: 1 };
        Load { preparers, ..Load::of([asking]) }
    }),
    attack,
};

/// The user id decides which of the two kinds a process is.
fn attack(attacker: &Attacker) -> io::Result<()> {
    if rustix::process::getuid().as_raw() == STRANGER {
        send_references(attacker)
    } else {
        ask(attacker)
    }
}

/// One engine introduces another one to as many nodes of a third one as possible.
fn send_references(attacker: &Attacker) -> io::Result<()> {
    let [owner, sender, receiver] = [attacker.engine()?, attacker.engine()?, attacker.engine()?];
    let _channel = connect(&sender, &receiver)?;
    let (mut held, mut why) = (0, None);
    while held < HANDLES {
        let object = |number: u64| owner.grant(number as u32, NodeId(number + 2), sender.id());
        let objects: Result<Vec<HeldNode>, Errno> = (held..held + STEP).map(object).collect();
        match sender.must(&Request::Introduce { target: receiver.id(), objects: objects? }) {
            Ok(_) => held += STEP,
            Err(errno) => {
                why = Some(errno);
                break;
            }
        }
        owner.skip_events();
        sender.skip_events();
        receiver.skip_events();
    }
    let why = why.map(|errno| format!(": {errno}")).unwrap_or_default();
    attacker.ready();
    attacker.holding(&format!("{held} references{why}"));
    attacker.wait_until_dismissed();
    Ok(())
}

/// Opens a channel from one engine to another one, which grants it a node.
pub fn connect(from: &BareEngine, to: &BareEngine) -> io::Result<BareChannel> {
    let object = to.grant(0, NodeId(1), from.id())?;
    Ok(from.channel_by(to.id(), object.entry)?)
}

/// Observers ask for as many reports as there is room for and end; then the next ones do.
fn ask(attacker: &Attacker) -> io::Result<()> {
    attacker.ready();
    let report = encode(&Request::Report { from: Cursor::default() });
    let mut asked = 0;
    for round in 0.. {
        let observers: Result<Vec<_>, Errno> =
            (0..OBSERVERS).map(|_| engine::observe(&attacker.socket)).collect();
        for observer in observers.iter().flatten() {
            asked += (0..REPORTS)
                .take_while(|_| engine::send_now(observer, &report, &[]).is_ok())
                .count();
        }
        if round == 0 {
            attacker.holding(&format!("{asked} reports asked for"));
        }
        if !attacker.must_continue() {
            break;
        }
    }
    Ok(())
}
