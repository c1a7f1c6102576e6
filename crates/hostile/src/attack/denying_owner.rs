//! An owner's list denies its grants, or holds anything else. A holder that passes on the owner's
//! nodes succeeds, and its receiver gets dead ones.

use crate::attacker::Attacker;
use crate::client::BareClient;
use crate::honest::{Amount, CALL_BACK, KEEP};
use crate::play::{Attack, Load, Play, Whose, strangers};
use crate::scale::Run;
use crate::stage::{Setting, Stage};
use crate::verdict::Findings;
use baton_abi::control::{NodeId, ProcessId, Strength};
use baton_abi::holder_list::{ENTRIES, Entry, Holding};
use baton_hostile::engine::carried;
use std::io;

const NAME: &str = "denying_owner";
/// Entries that contain random bytes.
const RANDOM: u32 = 64;
/// Flags in the entries, as an honest engine writes them.
const FLAGS: u32 = 0x100;

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "an owner's list of holders denies what the owner granted, or is random",
    whose: Whose::Strangers,
    play: Play::Both(|_| Load::of([strangers(NAME, 1)]), play),
    attack,
};

fn play(run: &Run) -> io::Result<Findings> {
    let mut stage = Stage::start_processes(run, Setting::default())?;
    stage.prepare(&[strangers(NAME, 1)])?;
    stage.go();
    let lies = lies(ProcessId(0)).len() as u64;
    // The server passes on each node of the attacker's more than once.
    for when in ["with a list that denies", "with a list that still denies"] {
        stage.ask_client("dead", Amount::of(lies), when);
    }
    stage.probe_during(run.at_least());
    stage.ask_client("dead", Amount::of(lies), "with a list that changes");
    Ok(stage.finish())
}

/// A lie in an owner's list: the entry that the holder is told, and the content of that entry. The
/// entry's number is the node's.
type Lie = (u32, [u64; 4]);

/// Words of an entry, which an owner may write as it likes.
fn words(holder: ProcessId, node: u64, strength: Strength) -> [u64; 4] {
    bytemuck::cast(Entry::of(Holding { holder, node: NodeId(node), flags: FLAGS, strength }))
}

/// All lies to a holder. Each has the number of its place.
fn lies(holder: ProcessId) -> Vec<Lie> {
    let (nobody, other) = (ProcessId(0), ProcessId(holder.0 ^ 1));
    let mut lies: Vec<[u64; 4]> = Vec::new();
    let nth = |lies: &[[u64; 4]]| lies.len() as u64;
    // A free entry, other holders, another node, and a weaker hold.
    lies.push([0; 4]);
    for holder in [nobody, other, ProcessId(u64::MAX)] {
        lies.push(words(holder, nth(&lies), Strength::Strong));
    }
    lies.push(words(holder, nth(&lies) + 1, Strength::Strong));
    lies.push(words(holder, nth(&lies), Strength::Weak));
    // One word of another entry: the owner was interrupted.
    for torn in 0..4 {
        let mut entry = words(holder, nth(&lies), Strength::Strong);
        entry[torn] = words(other, u64::MAX, Strength::Weak)[torn];
        lies.push(entry);
    }
    lies.push([u64::MAX; 4]);
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        // Xorshift: a repeatable sequence.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    lies.extend((0..RANDOM).map(|_| [0; 4].map(|_: u64| next())));
    let mut lies: Vec<Lie> = (0..).zip(lies).collect();
    // Entries that do not exist.
    lies.extend([ENTRIES, ENTRIES + 1, u32::MAX].map(|entry| (entry, [0; 4])));
    lies
}

fn attack(attacker: &Attacker) -> io::Result<()> {
    let client = BareClient::open(attacker)?;
    let lies = lies(client.server);
    for (number, &(entry, words)) in lies.iter().enumerate() {
        if entry < ENTRIES {
            client.engine.list_all(entry, &[bytemuck::cast(words)])?;
        }
        let object = carried(entry, NodeId(number as u64));
        client.call(KEEP, &(number as u64).to_ne_bytes(), &[object])?;
    }
    // The server may not call the owner, which denies that the server holds the node.
    let payload = [7; 16];
    let call_back = client.call(CALL_BACK, &payload, &[carried(0, NodeId(0))]);
    attacker.ready();
    attacker.holding(&format!("{} lies; a call back: {:?}", lies.len(), call_back.map(|_| ())));
    // Each entry is torn at any moment, and never right.
    while attacker.must_continue() {
        for &(entry, mut words) in lies.iter().filter(|(entry, _)| *entry < ENTRIES) {
            words[3] ^= 1;
            client.engine.list_all(entry, &[bytemuck::cast(words)])?;
            words[0] = words[0].wrapping_add(1);
            client.engine.list_all(entry, &[bytemuck::cast(words)])?;
            attacker.count(1);
        }
        client.engine.skip_events();
        client.channel.skip_returned();
    }
    Ok(())
}
