//! One user's engines send requests all the time. Another user's request must not wait for one of
//! each engine.

use crate::attacker::{Attacker, CONTEXT};
use crate::play::{Attack, Load, Play, Whose, strangers};
use crate::scale::Run;
use crate::stage::{Setting, Stage};
use crate::verdict::Findings;
use baton_abi::control::{Request, encode};
use baton_hostile::engine::{BareEngine, receive, send};
use rustix::io::Errno;
use std::io;

const NAME: &str = "many_engines";
/// Processes of the attack, and engines of each.
const PROCESSES: usize = 2;
const ENGINES: usize = 128;
/// Requests that each engine, and the victim, has outstanding at any moment.
const UNDER_WAY: usize = 8;
const OF_VICTIM: usize = 64;
/// Number of the victim's requests.
const REQUESTS: usize = 2_000;
/// Attackers' requests that may be served for each of the victim's: far fewer than their engines,
/// and more than are served while the victim has no processor.
const MOST_PER_REQUEST: u64 = (PROCESSES * ENGINES / 3) as u64;
/// A cheap request with a reply.
const QUESTION: Request = Request::FrozenInfo { pid: 0 };

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "one user's many engines ask the broker all the time",
    whose: Whose::Strangers,
    play: Play::Both(|_| Load::of([strangers(NAME, PROCESSES)]), play),
    attack,
};

fn play(run: &Run) -> io::Result<Findings> {
    let mut stage = Stage::start_processes(run, Setting::default())?;
    let victim = BareEngine::open(&stage.socket(), CONTEXT)?;
    stage.prepare(&[strangers(NAME, PROCESSES)])?;
    stage.go();
    stage.probe_during(run.at_least());
    let before = stage.served();
    ask(&victim)?;
    let served = stage.served() - before;
    let per_request = served / REQUESTS as u64;
    stage.findings.note(format!("{per_request} requests of theirs for each of another user"));
    let harm = format!(
        "{per_request} requests of one user are served for each of another, and may be {}",
        MOST_PER_REQUEST
    );
    stage.findings.expect(per_request <= MOST_PER_REQUEST, harm);
    drop(victim);
    Ok(stage.finish())
}

/// Runs the victim, which always has outstanding requests and so does not measure waits for a
/// processor.
fn ask(victim: &BareEngine) -> Result<(), Errno> {
    let question = encode(&QUESTION);
    for _ in 0..OF_VICTIM {
        send(&victim.requests, &question, &[])?;
    }
    for _ in 0..REQUESTS {
        receive(&victim.requests)?;
        send(&victim.requests, &question, &[])?;
    }
    for _ in 0..OF_VICTIM {
        receive(&victim.requests)?;
    }
    Ok(())
}

fn attack(attacker: &Attacker) -> io::Result<()> {
    let (engines, _) = attacker.engines(ENGINES);
    attacker.ready();
    let question = encode(&QUESTION);
    for engine in &engines {
        for _ in 0..UNDER_WAY {
            send(&engine.requests, &question, &[])?;
        }
    }
    attacker.holding(&format!("{} engines", engines.len()));
    while attacker.must_continue() {
        for engine in &engines {
            receive(&engine.requests)?;
            attacker.count(1);
            send(&engine.requests, &question, &[])?;
        }
    }
    Ok(())
}
