//! An engine of the previous broker rejoins, names a holder of its node that never comes, and
//! disconnects. Then it rejoins without claims: first before it has ended its claims, then after.

use crate::attacker::Attacker;
use crate::honest::Amount;
use crate::play::{Attack, Play, STRANGER, Whose};
use crate::scale::Run;
use crate::stage::{Group, Setting, Stage};
use crate::verdict::Findings;
use baton_abi::claim::Claim;
use baton_abi::control::{NodeId, ProcessId, Request};
use baton_hostile::engine::BareEngine;
use rustix::io::Errno;
use std::io;
use std::time::{Duration, Instant};

const NAME: &str = "rejoin_with_nothing";
/// Id of a process of the first broker that never existed.
const NOBODY: ProcessId = ProcessId(999_999);
/// Time in which the broker has to notice that its client is gone.
const AT_MOST: Duration = Duration::from_secs(3);

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "an engine of the broker before names a holder that never comes, and then nothing",
    whose: Whose::Anybodys,
    play: Play::Own(play),
    attack,
};

fn play(run: &Run) -> io::Result<Findings> {
    let mut stage = Stage::start_processes(run, Setting::default())?;
    let user = rustix::process::geteuid().is_root().then_some(STRANGER);
    stage.prepare(&[Group { attack: NAME, user, processes: 1 }])?;
    stage.restart_broker()?;
    stage.ask_client("plain", Amount::of(100), "after the broker's restart");
    stage.go();
    stage.await_attackers();
    stage.dismiss();
    stage.wait_for_end_of_rejoining();
    stage.ask_client("object", Amount::of(10), "after the time for coming back");
    Ok(stage.finish())
}

fn attack(attacker: &Attacker) -> io::Result<()> {
    let engine = attacker.engine()?;
    attacker.ready();
    let engine = engine.resume(&attacker.socket)?;
    let node = |holder| Claim::Node { node: NodeId(1), flags: 0, strong: true, holder };
    let claim = Request::Claim { claims: vec![node(NOBODY)] };
    engine.tell(&claim)?;
    let engine = rejoin_again(attacker, &engine)?;
    engine.tell(&claim)?;
    engine.tell(&Request::Rejoin { manages: Vec::new() })?;
    let heard = match rejoin_again(attacker, &engine) {
        Ok(engine) => {
            engine.tell(&Request::Rejoin { manages: Vec::new() })?;
            engine.ask(&Request::ContextManager).map(drop)
        }
        // Other engines may have been told of its death.
        Err(Errno::TIME) => Err(Errno::TIME),
        Err(errno) => return Err(errno.into()),
    };
    attacker.holding(&format!("{heard:?}"));
    Ok(())
}

/// Rejoins with the engine after its connection has ended.
fn rejoin_again(attacker: &Attacker, engine: &BareEngine) -> Result<BareEngine, Errno> {
    let late = Instant::now() + AT_MOST;
    engine.hang_up();
    loop {
        match engine.resume(&attacker.socket) {
            Err(Errno::BUSY) if Instant::now() < late => std::thread::yield_now(),
            other => return other,
        }
    }
}
