//! All attacks that are loads, at once.

use super::{ALL, Attack, Play, Run, Whose};
use crate::stage::{Group, Setting, Stage};
use crate::verdict::Findings;
use std::io;
use std::time::Duration;

pub const ATTACK: Attack = Attack {
    name: "all_at_once",
    what: "every attack that can be measured, by one process each and all at the same time",
    whose: Whose::Strangers,
    play: Play::Own(play),
    attack: |_| Ok(()),
};

/// Attacks whose server is stopped while they begin: here it is not.
fn play(run: &Run) -> io::Result<Findings> {
    let at_most = run.scale.of(Duration::from_secs(8), Duration::from_secs(120));
    let setting = Setting { broker_descriptors: 8_192, ..Setting::default() };
    let mut stage = Stage::set(run, setting)?;
    let loads: Vec<_> = ALL.iter().filter_map(|attack| attack.load(run)).collect();
    for load in &loads {
        load.prepare(&mut stage)?;
    }
    let one = |group: &Group| Group { processes: 1, ..*group };
    let groups: Vec<Group> = loads.iter().flat_map(|load| &load.groups).map(one).collect();
    stage.prepare(&groups)?;
    stage.go();
    // Some take from others what these want.
    stage.probe_for(run.at_least(), at_most);
    Ok(stage.finish())
}
