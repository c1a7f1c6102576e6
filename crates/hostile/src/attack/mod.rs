//! The attacks: one per file, named after what they do.
//!
//! Each has two sides. `play` runs in the run's process, starts the others and judges. `attack`
//! runs in the attack's processes, which belong to other users and may break every protocol.
//!
//! **Invariant**: an attack ends after a bounded number of actions and a bounded time, whatever
//! other processes do.

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

use crate::attacker::{Attacker, CONTEXT};
use crate::scale::Scale;
use crate::stage::{Group, Refusal, Setting, Stage};
use crate::verdict::{Findings, Outcome, Verdict};
use rustix::process::Signal;
use std::io;
use std::time::{Duration, Instant};

/// A user without a relation to the honest processes, which are root's.
pub const STRANGER: u32 = 1000;

/// Options of a run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub scale: Scale,
    /// Time after which a missing reply counts as a hang.
    pub patience: Duration,
}

impl Run {
    /// Duration of an attack that would otherwise go on for ever.
    pub fn at_least(&self) -> Duration {
        self.scale.of(Duration::from_millis(1500), Duration::from_secs(20))
    }
}

/// The user that an attack's processes need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Another user than the honest processes', so the run has to be root's.
    Strangers,
    /// Any user.
    Anybodys,
}

/// The way in which an attack runs.
#[derive(Clone, Copy)]
pub enum Play {
    /// Attackers act beside honest processes and end.
    Load(fn(&Run) -> Load),
    /// The attack has a function of its own. An error is the system's and no verdict.
    Own(fn(&Run) -> io::Result<Findings>),
    /// The attack has a function of its own, and is measured as a load.
    Both(fn(&Run) -> Load, fn(&Run) -> io::Result<Findings>),
}

/// Attackers, and options for the honest processes.
#[derive(Clone, Debug, Default)]
pub struct Load {
    pub setting: Setting,
    /// Processes that prepare the attack and end before the others begin.
    pub preparers: Vec<Group>,
    pub groups: Vec<Group>,
    /// Whether the server is stopped until the attackers have all that they want.
    pub stopped_server: bool,
}

impl Load {
    /// A load beside honest processes with default options.
    pub fn of(groups: impl IntoIterator<Item = Group>) -> Load {
        Load { groups: groups.into_iter().collect(), ..Load::default() }
    }

    /// Runs the preparing processes.
    pub fn prepare(&self, stage: &mut Stage) -> io::Result<()> {
        if !self.preparers.is_empty() {
            stage.prepare(&self.preparers)?;
            stage.go();
            stage.await_attackers();
        }
        Ok(())
    }

    fn play(&self, run: &Run) -> io::Result<Findings> {
        let mut stage = Stage::start_processes(run, self.setting)?;
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

/// One attack.
pub struct Attack {
    pub name: &'static str,
    /// Description in one sentence.
    pub what: &'static str,
    pub whose: Whose,
    /// The side of the run.
    pub play: Play,
    /// The side of each attacking process.
    pub attack: fn(&Attacker) -> io::Result<()>,
}

/// All attacks in the order in which they run.
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
    /// The reason for which this user cannot run the attack on this machine.
    pub fn obstacle(&self) -> Option<&'static str> {
        let is_root = rustix::process::geteuid().is_root();
        (self.whose == Whose::Strangers && !is_root).then_some("needs root, to be another user")
    }

    /// The load beside which victims are measured, if the attack has one.
    pub fn load(&self, run: &Run) -> Option<Load> {
        match self.play {
            Play::Load(load) | Play::Both(load, _) => Some(load(run)),
            Play::Own(_) => None,
        }
    }

    /// Runs the attack.
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

/// Processes of one stranger.
fn strangers(attack: &'static str, processes: usize) -> Group {
    Group { attack, user: Some(STRANGER), processes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_file_contains_the_attack_of_its_name() {
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
    fn every_group_of_a_load_names_an_attack() {
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
