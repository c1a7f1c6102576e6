//! How an attack is played: its processes, and the honest ones beside them.

use crate::attacker::Attacker;
use crate::scale::Run;
use crate::stage::{Group, Setting, Stage};
use crate::verdict::{Findings, Outcome, Verdict};
use rustix::process::Signal;
use std::io;
use std::time::Instant;

/// A user without a relation to the honest processes, which are root's.
pub const STRANGER: u32 = 1000;

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
    /// The attack is all other attacks that are loads.
    Together(fn(&Run, &[Load]) -> io::Result<Findings>),
    /// The attack has a function of its own, and is measured as a load.
    Both(fn(&Run) -> Load, fn(&Run) -> io::Result<Findings>),
}

/// Attackers, and options for the honest processes.
#[derive(Clone, Debug, Default)]
pub struct Load {
    pub setting: Setting,
    pub groups: Vec<Group>,
    /// Whether the server is stopped until the attackers have all that they want.
    pub stopped_server: bool,
}

impl Load {
    /// A load beside honest processes with default options.
    pub fn of(groups: impl IntoIterator<Item = Group>) -> Load {
        Load { groups: groups.into_iter().collect(), ..Load::default() }
    }

    fn play(&self, run: &Run) -> io::Result<Findings> {
        let mut stage = Stage::start_processes(run, self.setting)?;
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
            Play::Own(_) | Play::Together(_) => None,
        }
    }

    /// Runs the attack, which is one of `all`.
    pub fn verdict(&self, run: &Run, all: &[&Attack]) -> Verdict {
        let begin = Instant::now();
        if let Some(why) = self.obstacle() {
            let (name, findings) = (self.name, vec![why.to_owned()]);
            let outcome = Outcome::Skipped;
            return Verdict { name, outcome, findings, notes: Vec::new(), seconds: 0.0 };
        }
        let played = match self.play {
            Play::Load(load) => load(run).play(run),
            Play::Together(play) => {
                let loads: Vec<Load> = all.iter().filter_map(|attack| attack.load(run)).collect();
                play(run, &loads)
            }
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
pub fn strangers(attack: &'static str, processes: usize) -> Group {
    Group { attack, user: Some(STRANGER), processes }
}
