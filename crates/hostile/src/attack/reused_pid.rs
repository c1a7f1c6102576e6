//! A connection outlives the process that made it, and another process gets its pid before the
//! broker looks: the broker must not take the one for the other.

use super::{Attack, Play, Run, Whose, strangers};
use crate::attacker::{Attacker, CONTEXT};
use crate::fork::{Forked, end, fork};
use crate::role::say;
use crate::stage::{Setting, Stage};
use crate::verdict::Findings;
use baton_hostile::engine::{self, BareEngine};
use rustix::process::Signal;
use std::io;

const NAME: &str = "reused_pid";
/// The last pid that the system has given out; the next one is the next free one.
const LAST_PID: &str = "/proc/sys/kernel/ns_last_pid";
/// Others start processes, too.
const ATTEMPTS: usize = 200;

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "a connection is used after its process's pid has become another process's",
    whose: Whose::Strangers,
    play: Play::Own(play),
    attack,
};

fn play(run: &Run) -> io::Result<Findings> {
    let mut stage = Stage::set(run, Setting::default())?;
    stage.prepare(&[strangers(NAME, 1)])?;
    let pid = stage.attackers()[0].pid();
    // It stands for one that has much to do.
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

/// A process of root's with this pid.
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
        // Without a word, and at once: who waits for it is to see that it is gone.
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
