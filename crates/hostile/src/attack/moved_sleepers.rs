//! A client has the kernel move the threads that sleep on its words of shared memory to a word of
//! its own, where nobody wakes them.

use crate::attacker::{Attacker, CONTEXT};
use crate::honest::ECHO;
use crate::play::{Attack, Load, Play, Whose, strangers};
use baton::{Parcel, Process};
use rustix::thread::futex::{self, Flags};
use std::io;
use std::sync::atomic::AtomicU32;

const NAME: &str = "moved_sleepers";
/// Words of a map, from its beginning on: all of a bell page, and those of a channel's lanes are
/// tried one by one.
const WORDS: usize = 1024;
/// Most sleepers of a word.
const ALL: u32 = i32::MAX as u32;

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "a client has the kernel move sleepers from its words of shared memory to its own",
    whose: Whose::Strangers,
    play: Play::Load(|_| Load::of([strangers(NAME, 2)])),
    attack,
};

fn attack(attacker: &Attacker) -> io::Result<()> {
    let process = Process::open(CONTEXT, &attacker.socket).map_err(io::Error::other)?;
    let manager = process.context_manager().map_err(io::Error::other)?;
    let parcel = Parcel::from(&[7; 16][..]);
    manager.call(ECHO, &parcel).map_err(io::Error::other)?;
    attacker.ready();
    attacker.holding("");
    let mut calls = std::thread::spawn(|| ());
    while attacker.must_continue() {
        attacker.count(move_sleepers()? as u64);
        // Its own calls may wait, as nobody wakes their loopers.
        if calls.is_finished() {
            let (manager, parcel) = (manager.clone(), parcel.clone());
            calls = std::thread::spawn(move || _ = manager.call(ECHO, &parcel));
        }
    }
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
