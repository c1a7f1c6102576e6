//! A child of fork uses its parent's typed API: its calls fail, and no signal ends the child.

use crate::attacker::{Attacker, CONTEXT};
use crate::fork::{Forked, end, fork};
use crate::play::{Attack, Play, Whose};
use crate::scale::Run;
use crate::stage::{Group, Setting, Stage};
use crate::verdict::Findings;
use baton::{Parcel, Process};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::io;
use std::time::{Duration, Instant};

const NAME: &str = "fork_in_call";
/// Children of each kind.
const CHILDREN: usize = 20;
/// Time in which a child has to end.
const AT_MOST: Duration = Duration::from_secs(5);

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "children of fork call and close by what they have of their parent's typed API",
    whose: Whose::Anybodys,
    play: Play::Own(play),
    attack,
};

fn play(run: &Run) -> io::Result<Findings> {
    let mut stage = Stage::start_processes(run, Setting::default())?;
    stage.prepare(&[Group { attack: NAME, user: None, processes: 1 }])?;
    stage.go();
    let ends = stage.await_attackers();
    let well = ends.iter().all(|ends| ends.starts_with("well"));
    stage.findings.expect(well, "a child of fork is killed by a signal, or hangs, or calls");
    Ok(stage.finish())
}

fn attack(attacker: &Attacker) -> io::Result<()> {
    let process = Process::open(CONTEXT, &attacker.socket).map_err(io::Error::other)?;
    let manager = process.context_manager().map_err(io::Error::other)?;
    let call = || manager.call(1, &Parcel::from(&b"12345678"[..])).is_ok();
    if !call() {
        return Err(io::Error::other("the parent's first call"));
    }
    attacker.ready();
    let mut bad = Vec::new();
    for number in 0..CHILDREN {
        // With and without a cached route of the parent, by a call and by a close.
        let is_call = number.is_multiple_of(2);
        match fork()? {
            Forked::Child => {
                let called = is_call && call();
                process.close();
                end(i32::from(called));
            }
            Forked::Parent(child) => bad.extend(end_of(child)),
        }
        if !call() {
            bad.push("the parent cannot call after it".to_owned());
        }
    }
    attacker.holding(&match bad.first() {
        None => "well".to_owned(),
        Some(how) => format!("{} of {CHILDREN} children not: {how}", bad.len()),
    });
    Ok(())
}

/// Describes how a child ended, unless successfully.
fn end_of(child: Pid) -> Option<String> {
    let late = Instant::now() + AT_MOST;
    loop {
        match waitpid(Some(child), WaitOptions::NOHANG) {
            Ok(Some((_, status))) => {
                let signal = status.terminating_signal().map(|signal| format!("signal {signal}"));
                let called = (status.exit_status() == Some(1)).then(|| "it calls".to_owned());
                return signal.or(called);
            }
            Ok(None) if Instant::now() < late => std::thread::yield_now(),
            Ok(None) => {
                let _ = kill_process(child, Signal::KILL);
                let _ = waitpid(Some(child), WaitOptions::empty());
                return Some("it hangs".to_owned());
            }
            Err(errno) => return Some(errno.to_string()),
        }
    }
}
