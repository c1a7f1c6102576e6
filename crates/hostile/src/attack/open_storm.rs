//! Many processes open devices at once: all are served, and none is refused because of the others.

use crate::attacker::Attacker;
use crate::budget;
use crate::crowd::Crowd;
use crate::play::{Attack, Play, Whose};
use crate::scale::Run;
use crate::stage::{Group, Setting, Stage};
use crate::verdict::Findings;
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

const NAME: &str = "open_storm";
/// Processes that open at once.
const PROCESSES: usize = 2_000;
/// Time in which all of them have to be served.
const PATIENCE: Duration = Duration::from_secs(60);

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "two thousand honest processes open at once",
    whose: Whose::Anybodys,
    play: Play::Own(play),
    attack: |attacker| start_crowd(attacker, PROCESSES),
};

fn play(run: &Run) -> io::Result<Findings> {
    check_all_served(run, NAME)
}

/// Checks that every member of a crowd is served.
pub fn check_all_served(run: &Run, attack: &'static str) -> io::Result<Findings> {
    let run = Run { patience: run.patience.max(PATIENCE), ..*run };
    let setting = Setting {
        broker_descriptors: 19_000,
        server_descriptors: 19_000,
        server_growth_bytes: budget::SERVER_OF_CROWD_BYTES,
        ..Setting::default()
    };
    let mut stage = Stage::start_processes(&run, setting)?;
    stage.prepare(&[Group { attack, user: None, processes: 1 }])?;
    stage.go();
    let heard = stage.await_attackers();
    let all = heard.iter().all(|heard| heard.starts_with("all"));
    stage.findings.expect(all, "not all processes that opened at once were served");
    stage.probe("with all of them there");
    Ok(stage.finish())
}

/// Starts a crowd that calls once and stays until the run dismisses it. The run may send another
/// number of members.
pub fn start_crowd(attacker: &Attacker, members: usize) -> io::Result<()> {
    let members = attacker.ready().unwrap_or(members);
    let begin = Instant::now();
    let crowd = Crowd::start(&attacker.socket, members)?;
    let called = crowd.collect(PATIENCE);
    let mut times: Vec<_> = called.iter().filter_map(|called| called.as_ref().ok()).collect();
    times.sort();
    let at = |share: usize| times.get((times.len() * share / 100).min(times.len().max(1) - 1));
    let milliseconds = |share| at(share).map_or(0, |time| time.as_millis());
    let mut refused = BTreeMap::<String, usize>::new();
    for errno in called.iter().filter_map(|called| called.as_ref().err()) {
        *refused.entry(errno.to_string()).or_default() += 1;
    }
    let (whole, said) = (begin.elapsed().as_millis(), members - called.len());
    let who = if times.len() == members { "all" } else { "some" };
    attacker.holding(&format!(
        "{who} in {whole} ms: {} of {members} served, first calls p50 {} ms, p99 {} ms; \
         {said} hang; refused: {refused:?}",
        times.len(),
        milliseconds(50),
        milliseconds(99),
    ));
    attacker.wait_until_dismissed();
    Ok(())
}
