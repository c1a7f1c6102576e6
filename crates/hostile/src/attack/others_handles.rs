//! A stranger asks for a report, which must not show other users' handles.

use crate::attacker::Attacker;
use crate::play::{Attack, Play, Whose, strangers};
use crate::scale::Run;
use crate::stage::{Setting, Stage};
use crate::verdict::Findings;
use baton_driver::observer::Observer;
use std::io;

const NAME: &str = "others_handles";

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "a stranger looks at other users' handles and nodes by a report",
    whose: Whose::Strangers,
    play: Play::Own(play),
    attack,
};

fn play(run: &Run) -> io::Result<Findings> {
    let mut stage = Stage::start_processes(run, Setting::default())?;
    stage.prepare(&[strangers(NAME, 1)])?;
    stage.go();
    let seen = stage.await_attackers();
    let harm = "a stranger sees what root's processes hold";
    stage.findings.expect(seen.iter().all(|seen| seen.starts_with("nothing")), harm);
    Ok(stage.finish())
}

fn attack(attacker: &Attacker) -> io::Result<()> {
    let observer = Observer::connect(&attacker.socket).map_err(io::Error::other)?;
    attacker.ready();
    // A refusal also reveals nothing.
    let report = observer.report().unwrap_or_default();
    let own = rustix::process::getuid().as_raw();
    let all = report.contexts.iter().flat_map(|context| &context.processes);
    let others = all.filter(|process| process.uid != own);
    let seen = others.map(|other| other.holdings.len()).sum::<usize>();
    attacker.holding(&match seen {
        0 => "nothing of others".to_owned(),
        seen => format!("{seen} holders of others' nodes"),
    });
    Ok(())
}
