//! Observers ask for reports with as many holders as lists can name, and end without reading them.

use crate::attacker::Attacker;
use crate::play::{Attack, Load, Play, Whose, strangers};
use baton_abi::control::{Cursor, NodeId, Request, Strength, encode};
use baton_abi::holder_list::{ENTRIES, Entry, Holding};
use baton_hostile::engine;
use std::io;
use std::path::Path;

const NAME: &str = "report_flood";
/// Connections of observers that the asking process has.
const OBSERVERS: usize = 8;
/// Reports that each observer asks for.
const REPORTS: usize = 300;

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "observers of full lists of holders ask for reports and leave without reading them",
    whose: Whose::Strangers,
    play: Play::Load(|run| Load::of([strangers(NAME, run.scale.of(2, 8))])),
    attack,
};

/// Fills the lists of two engines, which name each other, and then asks.
fn attack(attacker: &Attacker) -> io::Result<()> {
    let (one, other) = (attacker.engine()?, attacker.engine()?);
    for (owner, holder) in [(&one, other.id()), (&other, one.id())] {
        let entry = |node| {
            let (node, strength) = (NodeId(node), Strength::Strong);
            Entry::of(Holding { holder, node, flags: 0, strength })
        };
        owner.list_all(0, &(1..=u64::from(ENTRIES)).map(entry).collect::<Vec<_>>())?;
    }
    ask(attacker);
    Ok(())
}

/// Observers ask for as many reports as there is room for and end; then the next ones do. The
/// broker makes them wait, so the run may tell this process to leave meanwhile.
fn ask(attacker: &Attacker) {
    attacker.ready();
    let socket = attacker.socket.clone();
    std::thread::spawn(move || while ask_once(&socket) > 0 {});
    attacker.holding("two full lists");
    attacker.wait_until_dismissed();
}

/// Returns the number of reports that were asked for.
fn ask_once(socket: &Path) -> usize {
    let report = encode(&Request::Report { from: Cursor::default() });
    let observers: Vec<_> = (0..OBSERVERS).flat_map(|_| engine::observe(socket)).collect();
    let ask = |observer| engine::send_now(observer, &report, &[]).is_ok();
    observers.iter().map(|observer| (0..REPORTS).take_while(|_| ask(observer)).count()).sum()
}
