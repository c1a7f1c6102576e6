//! A stranger becomes the first manager of contexts of root's broker, so that root would be
//! refused.

use crate::attacker::Attacker;
use crate::play::{Attack, Play, Whose, strangers};
use crate::scale::Run;
use crate::stage::{Setting, Stage};
use crate::verdict::Findings;
use baton_abi::control::{NodeId, Reply, Request};
use baton_hostile::engine::BareEngine;
use std::io;

const NAME: &str = "squatting";
/// Contexts of every broker that have no manager yet.
const CONTEXTS: [&str; 2] = ["hwbinder", "vndbinder"];
const MANAGE: Request = Request::BecomeContextManager { node: NodeId(1), flags: 0 };

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "a stranger becomes a context's manager before root does",
    whose: Whose::Strangers,
    play: Play::Own(play),
    attack,
};

fn play(run: &Run) -> io::Result<Findings> {
    let mut stage = Stage::start_processes(run, Setting::default())?;
    stage.prepare(&[strangers(NAME, 1)])?;
    stage.go();
    let held = stage.await_attackers();
    let harm = "a stranger manages a context of root's broker";
    stage.findings.expect(held.iter().all(|held| held.starts_with("refused")), harm);
    stage.dismiss();
    for context in CONTEXTS {
        let became = BareEngine::open(&stage.socket(), context)
            .and_then(|engine| engine.must(&MANAGE).map(drop));
        if let Err(errno) = became {
            stage.findings.harm(format!("root may not manage {context} after a stranger: {errno}"));
        }
    }
    Ok(stage.finish())
}

fn attack(attacker: &Attacker) -> io::Result<()> {
    let engines = CONTEXTS.map(|context| BareEngine::open(&attacker.socket, context));
    attacker.ready();
    let is_refused = |engine: &Result<BareEngine, _>| match engine {
        Ok(engine) => !matches!(engine.ask(&MANAGE), Ok(Reply::Done)),
        Err(_) => true,
    };
    let refused = engines.iter().map(is_refused).filter(|refused| *refused).count();
    let all = refused == CONTEXTS.len();
    attacker.holding(if all { "refused" } else { "manages" });
    attacker.wait_until_dismissed();
    Ok(())
}
