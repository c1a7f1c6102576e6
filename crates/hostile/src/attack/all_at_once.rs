//! All attacks that are loads, at the same time.

use crate::play::{Attack, Load, Play, Whose};
use crate::scale::Run;
use crate::stage::{Group, Setting, Stage};
use crate::verdict::Findings;
use std::io;
use std::time::Duration;

pub const ATTACK: Attack = Attack {
    name: "all_at_once",
    what: "every attack that can be measured, by one process each and all at the same time",
    whose: Whose::Strangers,
    play: Play::Together(play),
    attack: |_| Ok(()),
};

/// Runs every load, including those that otherwise stop the server; here the server runs.
fn play(run: &Run, loads: &[Load]) -> io::Result<Findings> {
    let at_most = run.scale.of(Duration::from_secs(8), Duration::from_secs(120));
    let setting = Setting { broker_descriptors: 8_192, ..Setting::default() };
    let mut stage = Stage::start_processes(run, setting)?;
    let one = |group: &Group| Group { processes: 1, ..*group };
    let groups: Vec<Group> = loads.iter().flat_map(|load| &load.groups).map(one).collect();
    stage.prepare(&groups)?;
    stage.go();
    // Some attackers take resources that others want.
    stage.probe_for(run.at_least(), at_most);
    Ok(stage.finish())
}
