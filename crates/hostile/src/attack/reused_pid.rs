//! A connection outlives its process, and another process gets the pid before the broker checks.
//! The broker must not confuse the two.

use crate::attacker::{Attacker, CONTEXT};
use crate::fork::{Forked, end, fork};
use crate::play::{Attack, Play, Whose, strangers};
use crate::scale::Run;
use crate::stage::{Setting, Stage};
use crate::starter::say;
use crate::verdict::Findings;
use baton_hostile::engine::{self, BareEngine};
use rustix::process::Signal;
use std::io;

const NAME: &str = "reused_pid";
/// The file with the last pid that the kernel gave out. The next process gets the next free pid.
const LAST_PID: &str = "/proc/sys/kernel/ns_last_pid";
/// Other programs start processes too, so several attempts are needed.
const ATTEMPTS: usize = 200;

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "a connection is used after its process's pid has become another process's",
    whose: Whose::Strangers,
    play: Play::Own(play),
    attack,
};

fn play(run: &Run) -> io::Result<Findings> {
    let mut stage = Stage::start_processes(run, Setting::default())?;
    stage.prepare(&[strangers(NAME, 1)])?;
    let pid = stage.attackers()[0].pid();
    // The stopped broker stands for a busy one.
    stage.broker.signal(Signal::STOP);
    stage.go();
    stage.attackers()[0].reap();
    let victim = process_with(pid);
    stage.broker.signal(Signal::CONT);
    match victim {
        None => stage.findings.note("no process got the pid: not tried"),
        Some(mut victim) => {
            let heard = stage.await_attackers();
            let forged = format!("welcome as {pid}");
            let harm = "a connection is taken for one of a process that did not make it";
            stage.findings.expect(heard != [forged], harm);
            let _ = victim.kill();
            let _ = victim.wait();
        }
    }
    Ok(stage.finish())
}

/// Starts a process of root's with this pid.
fn process_with(pid: u32) -> Option<std::process::Child> {
    for _ in 0..ATTEMPTS {
        std::fs::write(LAST_PID, (pid - 1).to_string()).ok()?;
        let mut child = std::process::Command::new("/bin/sleep").arg("60").spawn().ok()?;
        if child.id() == pid {
            return Some(child);
        }
        let _ = child.kill();
        let _ = child.wait();
    }
    None
}

fn attack(attacker: &Attacker) -> io::Result<()> {
    attacker.ready();
    let socket = engine::connect(&attacker.socket)?;
    match fork()? {
        // The process ends at once and without a message, so that its parent sees that it is gone.
        Forked::Parent(_) => end(0),
        Forked::Child => {
            say(&match BareEngine::open_on(socket, CONTEXT) {
                Ok(engine) => format!("holding welcome as {}", engine.identity.pid),
                Err(errno) => format!("holding refused: {errno}"),
            });
            end(0)
        }
    }
}
