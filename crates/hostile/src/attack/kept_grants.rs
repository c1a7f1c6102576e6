//! Holders keep all that a server grants them, and return nothing, or everything at once.

use crate::attacker::Attacker;
use crate::client::BareClient;
use crate::honest::LENT;
use crate::play::{Attack, Load, Play, Whose, strangers};
use baton_abi::holder_list::ENTRIES;
use baton_abi::lane::{Carried, ReturnedGrants};
use rustix::io::Errno;
use std::io;

const NAME: &str = "kept_grants";
/// Processes of the attack. Half of them return their grants late.
const PROCESSES: usize = 2;
/// Engines of each process: together they want one and a half times the server's list.
const ENGINES: usize = ENTRIES as usize * 3 / 2 / LENT / PROCESSES;

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "clients keep more nodes of a server than its list of holders has room for",
    whose: Whose::Strangers,
    play: Play::Load(|_| Load::of([strangers(NAME, PROCESSES)])),
    attack,
};

fn attack(attacker: &Attacker) -> io::Result<()> {
    let clients: Result<Vec<_>, _> = (0..ENGINES).map(|_| BareClient::open(attacker)).collect();
    let clients = clients?;
    attacker.ready();
    let returns = attacker.number % 2 == 1;
    let mut rounds = 0u32;
    while attacker.must_continue() {
        let (mut kept, mut why) = (Vec::new(), None);
        for client in &clients {
            match client.borrow(LENT) {
                Ok(lent) => kept.push((client, lent)),
                Err(errno) => why = Some(errno),
            }
        }
        if rounds == 0 {
            let n: usize = kept.iter().map(|(_, lent)| lent.len()).sum();
            let why = why.map(|errno| format!(", then {errno}")).unwrap_or_default();
            attacker.holding(&format!("{n} nodes of the server's{why}"));
        }
        rounds += 1;
        if returns {
            // The server needs some time for all of them.
            kept.iter().try_for_each(|(client, lent)| return_all(client, lent))?;
        } else if rounds > 1 {
            // A second grant of each node takes no room.
            break;
        }
    }
    attacker.wait_until_dismissed();
    Ok(())
}

/// Returns grants one by one, and rings once.
fn return_all(client: &BareClient, lent: &[Carried]) -> Result<(), Errno> {
    for object in lent {
        let returned = ReturnedGrants { node: object.node, strong: 1, all: 1 };
        while client.channel.put_returned(&returned) == Err(Errno::AGAIN) {
            if client.channel.is_over() {
                return Err(Errno::CONNRESET);
            }
            client.channel.ring()?;
            std::thread::yield_now();
        }
    }
    client.channel.ring()
}
