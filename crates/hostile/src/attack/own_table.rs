//! A server fills its own descriptor table. New clients wait or are refused meanwhile, and are
//! served afterwards.

use crate::attacker::Attacker;
use crate::honest::Amount;
use crate::play::{Attack, Play, Whose};
use crate::scale::Run;
use crate::stage::{Refusal, Setting, Stage};
use crate::verdict::Findings;
use std::io;

pub const ATTACK: Attack = Attack {
    name: "own_table",
    what: "a server opens as many files as it may, and closes them again",
    whose: Whose::Anybodys,
    play: Play::Own(play),
    attack: |_: &Attacker| Ok(()),
};

fn play(run: &Run) -> io::Result<Findings> {
    let mut stage =
        Stage::start_processes(run, Setting { server_descriptors: 256, ..Setting::default() })?;
    let patience = stage.patience;
    stage.server.send_line("exhaust");
    let files = stage.server.await_line("exhausted", patience).map_err(io::Error::other)?;
    stage.findings.note(format!("the server has opened {files} files"));
    stage.ask_client("plain", Amount::of(100), "while the table is full");
    match stage.try_newcomer() {
        Ok(_) => stage.findings.note("meanwhile a new client is served"),
        Err(Refusal::Says(why)) => stage.findings.note(format!("meanwhile a new client: {why}")),
        Err(Refusal::Hangs) => stage.findings.harm("while the table is full, a new client hangs"),
    }
    stage.server.send_line("relax");
    stage.server.await_line("relaxed", patience).map_err(io::Error::other)?;
    Ok(stage.finish())
}
