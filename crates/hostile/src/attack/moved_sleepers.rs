//! A client has the kernel move the threads that sleep on its words of shared memory to a word of
//! its own, where nobody wakes them.

use crate::attacker::{Attacker, CONTEXT};
use crate::honest::ECHO;
use crate::play::{Attack, Play, Whose, strangers};
use crate::scale::Run;
use crate::stage::{Setting, Stage};
use crate::verdict::Findings;
use baton::{Parcel, Process};
use rustix::thread::futex::{self, Flags};
use std::io;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

const NAME: &str = "moved_sleepers";
/// Words of a map that are tried, from its beginning on: all of a bell page. Of a channel's lanes
/// the mailboxes are tried.
const WORDS: usize = 1024;
/// Calls of the client before it moves sleepers.
const CALLS: usize = 5_000;
/// Time for that.
const AT_MOST: Duration = Duration::from_secs(5);
/// Most sleepers of a word.
const ALL: u32 = i32::MAX as u32;

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "a client has the kernel move sleepers from its words of shared memory to its own",
    whose: Whose::Strangers,
    play: Play::Own(play),
    attack,
};

/// The attack is over when others call: what it has moved stays moved.
fn play(run: &Run) -> io::Result<Findings> {
    let mut stage = Stage::start_processes(run, Setting::default())?;
    stage.prepare(&[strangers(NAME, 1)])?;
    stage.go();
    let moved = stage.await_attackers();
    let any = moved.iter().all(|moved| moved.starts_with("moved"));
    stage.findings.expect(any, "the attack moves nobody");
    stage.dismiss();
    stage.probe("after sleepers were moved");
    Ok(stage.finish())
}

fn attack(attacker: &Attacker) -> io::Result<()> {
    let process = Process::open(CONTEXT, &attacker.socket).map_err(io::Error::other)?;
    let manager = process.context_manager().map_err(io::Error::other)?;
    let parcel = Parcel::from(&[7; 16][..]);
    attacker.ready();
    // The loopers sleep on the words of who calls, and not of who has been silent for long.
    for _ in 0..CALLS {
        manager.call(ECHO, &parcel).map_err(io::Error::other)?;
    }
    let late = Instant::now() + AT_MOST;
    let mut moved = 0;
    while moved == 0 && Instant::now() < late {
        moved = move_sleepers()?;
    }
    attacker.holding(&if moved > 0 { format!("moved {moved}") } else { "none".to_owned() });
    attacker.wait_until_dismissed();
    Ok(())
}

/// Moves whoever sleeps on this process's shared words, and says how many that were.
fn move_sleepers() -> io::Result<usize> {
    static ELSEWHERE: AtomicU32 = AtomicU32::new(0);
    let mut moved = 0;
    for line in std::fs::read_to_string("/proc/self/maps")?.lines() {
        let is_shared = ["/memfd:baton-bell", "/memfd:baton-channel"];
        let Some((from, rest)) = line.split_once('-') else { continue };
        let Some((to, _)) = rest.split_once(' ') else { continue };
        if !is_shared.iter().any(|name| line.contains(name)) {
            continue;
        }
        let [from, to] = [from, to].map(|address| usize::from_str_radix(address, 16));
        let (from, to) = (from.map_err(io::Error::other)?, to.map_err(io::Error::other)?);
        let beginning = (from..to).step_by(4).take(WORDS);
        let areas = (from..to).step_by(baton_abi::lane::AREA_BYTES);
        for at in beginning.chain(areas) {
            // SAFETY: a word of a map that stays as long as the engine lives.
            let word = unsafe { &*(at as *const AtomicU32) };
            moved += futex::requeue(word, Flags::empty(), 0, ALL, &ELSEWHERE).unwrap_or(0);
        }
    }
    Ok(moved)
}
