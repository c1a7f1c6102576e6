//! The attacks, one a file, named after what they do.
//!
//! Each has two sides: `play` is the run's, which sets the stage and judges; `attack` is that of
//! the attack's processes. These are other users' and speak whatever protocol they like.
//!
//! **Invariant**: an attack is bounded in what it does and for how long, whatever the others do.

mod all_at_once;
mod doorbells;
mod filled_handles;
mod fork_in_call;
mod freeze_toggles;
mod full_table;
mod many_channels;
mod many_clients;
mod many_contexts;
mod many_devices;
mod many_engines;
mod one_way_flood;
mod open_storm;
mod others_handles;
mod own_table;
mod real_time_lanes;
mod rejoin_with_nothing;
mod report_flood;
mod reused_pid;
mod silent_guests;
mod squatting;
mod stopped_server;
mod unannounced_descriptors;
mod unclaimed_tickets;
mod unread_descriptors;
mod unread_events;

use crate::attacker::Attacker;
use crate::scale::Scale;
use crate::stage::{Group, Setting, Stage};
use crate::verdict::{Findings, Outcome, Verdict};
use rustix::process::Signal;
use std::io;
use std::time::{Duration, Instant};

/// Users that have nothing to do with the honest parties, which are root's.
pub const STRANGER: u32 = 1000;

/// How a row is played.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub scale: Scale,
    /// How long an answer may take before it counts as a hang.
    pub patience: Duration,
}

impl Run {
    /// How long an attack lasts that would go on for ever.
    pub fn at_least(&self) -> Duration {
        self.scale.of(Duration::from_millis(1500), Duration::from_secs(20))
    }
}

/// Who an attack's processes have to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Another user's than the honest parties: the run has to be root's.
    Strangers,
    /// Anybody's.
    Anybodys,
}

/// How an attack is played.
#[derive(Clone, Copy)]
pub enum Play {
    /// Attackers do what they do among honest parties, and leave.
    Load(fn(&Run) -> Load),
    /// In a way of its own. An error is the system's, and no verdict.
    Own(fn(&Run) -> io::Result<Findings>),
    /// In a way of its own, and measured as a load.
    Both(fn(&Run) -> Load, fn(&Run) -> io::Result<Findings>),
}

/// Attackers, and how the honest parties are started.
#[derive(Clone, Debug, Default)]
pub struct Load {
    pub setting: Setting,
    /// Those that prepare what the others use, and are done before these begin.
    pub preparers: Vec<Group>,
    pub groups: Vec<Group>,
    /// The server is stopped until the attackers hold all that they want.
    pub stopped_server: bool,
}

impl Load {
    /// Among honest parties that are started as usual.
    pub fn of(groups: impl IntoIterator<Item = Group>) -> Load {
        Load { groups: groups.into_iter().collect(), ..Load::default() }
    }

    /// Has the preparers do their work.
    pub fn prepare(&self, stage: &mut Stage) -> io::Result<()> {
        if !self.preparers.is_empty() {
            stage.prepare(&self.preparers)?;
            stage.go();
            stage.await_attackers();
        }
        Ok(())
    }

    fn play(&self, run: &Run) -> io::Result<Findings> {
        let mut stage = Stage::set(run, self.setting)?;
        self.prepare(&mut stage)?;
        stage.prepare(&self.groups)?;
        if self.stopped_server {
            stage.server.signal(Signal::STOP);
            stage.go();
            stage.await_attackers();
            stage.server.signal(Signal::CONT);
        } else {
            stage.go();
        }
        stage.probe_during(run.at_least());
        Ok(stage.finish())
    }
}

/// One row.
pub struct Attack {
    pub name: &'static str,
    /// What it does, in a sentence.
    pub what: &'static str,
    pub whose: Whose,
    /// The run's side.
    pub play: Play,
    /// The side of one of its processes.
    pub attack: fn(&Attacker) -> io::Result<()>,
}

/// All, in the order in which they are played.
pub const ALL: &[&Attack] = &[
    &full_table::ATTACK,
    &unannounced_descriptors::ATTACK,
    &own_table::ATTACK,
    &many_channels::ATTACK,
    &rejoin_with_nothing::ATTACK,
    &unread_descriptors::ATTACK,
    &unclaimed_tickets::ATTACK,
    &report_flood::ATTACK,
    &others_handles::ATTACK,
    &freeze_toggles::ATTACK,
    &stopped_server::ATTACK,
    &unread_events::ATTACK,
    &many_devices::ATTACK,
    &silent_guests::ATTACK,
    &many_engines::ATTACK,
    &doorbells::ATTACK,
    &one_way_flood::ATTACK,
    &filled_handles::ATTACK,
    &reused_pid::ATTACK,
    &squatting::ATTACK,
    &many_contexts::ATTACK,
    &real_time_lanes::ATTACK,
    &fork_in_call::ATTACK,
    &open_storm::ATTACK,
    &many_clients::ATTACK,
    &all_at_once::ATTACK,
];

pub fn find(name: &str) -> Option<&'static Attack> {
    ALL.iter().find(|attack| attack.name == name).copied()
}

impl Attack {
    /// Why it cannot be played by this user on this machine.
    pub fn obstacle(&self) -> Option<&'static str> {
        let is_root = rustix::process::geteuid().is_root();
        (self.whose == Whose::Strangers && !is_root).then_some("needs root, to be another user")
    }

    /// What victims are measured in, if they are.
    pub fn load(&self, run: &Run) -> Option<Load> {
        match self.play {
            Play::Load(load) | Play::Both(load, _) => Some(load(run)),
            Play::Own(_) => None,
        }
    }

    /// Plays it.
    pub fn verdict(&self, run: &Run) -> Verdict {
        let begin = Instant::now();
        if let Some(why) = self.obstacle() {
            let (name, findings) = (self.name, vec![why.to_owned()]);
            let outcome = Outcome::Skipped;
            return Verdict { name, outcome, findings, notes: Vec::new(), seconds: 0.0 };
        }
        let played = match self.play {
            Play::Load(load) => load(run).play(run),
            Play::Own(play) | Play::Both(_, play) => play(run),
        };
        let findings = played.unwrap_or_else(|error| {
            let mut findings = Findings::default();
            findings.harm(format!("the attack could not be played: {error}"));
            findings
        });
        findings.verdict(self.name, begin.elapsed().as_secs_f64())
    }
}

/// So many processes of one stranger's.
fn strangers(attack: &'static str, processes: usize) -> Group {
    Group { attack, user: Some(STRANGER), processes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_file_is_the_attack_that_it_is_named_after() {
        let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/attack");
        let files = std::fs::read_dir(directory).expect("the sources").map(|entry| {
            let path = entry.expect("the sources").path();
            path.file_stem().expect("a name").to_string_lossy().into_owned()
        });
        let files: BTreeSet<String> = files.filter(|name| name != "mod").collect();
        let names: BTreeSet<String> = ALL.iter().map(|attack| attack.name.to_owned()).collect();
        assert_eq!(names, files);
        assert_eq!(names.len(), ALL.len(), "two attacks have one name");
    }

    #[test]
    fn the_attackers_of_a_load_are_found_by_their_name() {
        for scale in [Scale::Short, Scale::Long] {
            let run = Run { scale, patience: Duration::ZERO };
            for load in ALL.iter().filter_map(|attack| attack.load(&run)) {
                for group in load.preparers.iter().chain(&load.groups) {
                    assert!(find(group.attack).is_some(), "{}", group.attack);
                    assert!(group.processes > 0);
                }
            }
        }
    }
}
