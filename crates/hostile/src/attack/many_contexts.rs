//! Strangers add contexts until there is no room.

use crate::attacker::Attacker;
use crate::play::{Attack, Play, Whose, strangers};
use crate::scale::Run;
use crate::stage::{Setting, Stage};
use crate::verdict::Findings;
use baton_abi::control::{Reply, Request};
use baton_hostile::engine;
use std::io;

const NAME: &str = "many_contexts";
const CONTEXTS: usize = 500;

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "a stranger adds contexts until there is no room for root's",
    whose: Whose::Strangers,
    play: Play::Own(play),
    attack,
};

fn play(run: &Run) -> io::Result<Findings> {
    let mut stage = Stage::start_processes(run, Setting::default())?;
    stage.prepare(&[strangers(NAME, 1)])?;
    stage.go();
    stage.probe_during(run.at_least());
    let name = "of-root".to_owned();
    let added = engine::observe(&stage.socket())
        .and_then(|observer| engine::greet(&observer, &Request::AddContext { name }, &[]));
    let is_added = matches!(added, Ok((Reply::Done, _)));
    stage.findings.expect(is_added, "root cannot add a context");
    Ok(stage.finish())
}

fn attack(attacker: &Attacker) -> io::Result<()> {
    let observer = engine::observe(&attacker.socket)?;
    attacker.ready();
    let mut added = 0;
    for number in 0..CONTEXTS {
        let name = format!("squat-{number}");
        match engine::greet(&observer, &Request::AddContext { name }, &[]) {
            Ok((Reply::Done, _)) => added += 1,
            Ok(_) => {}
            Err(_) => break,
        }
    }
    attacker.holding(&format!("{added} contexts"));
    attacker.wait_until_dismissed();
    Ok(())
}
