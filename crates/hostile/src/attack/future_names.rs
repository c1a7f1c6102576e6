//! A process names nodes of processes that do not exist yet. Once these exist, their nodes have to
//! live at their receivers.

use crate::attacker::Attacker;
use crate::client::BareClient;
use crate::honest::KEEP;
use crate::play::{Attack, Load, Play, Whose, strangers};
use baton_abi::control::{HeldNode, NodeId, ProcessId, Strength};
use baton_hostile::channel::{BareCall, of_third, with_objects};
use rustix::io::Errno;
use std::io;

const NAME: &str = "future_names";
/// Nodes that are named, and that the server keeps: the first two of each process.
const NAMES: u8 = 250;
const NODES: u8 = 2;

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "a process introduces a server to nodes of processes that do not exist yet",
    whose: Whose::Strangers,
    play: Play::Load(|_| Load::of([strangers(NAME, 1)])),
    attack,
};

fn attack(attacker: &Attacker) -> io::Result<()> {
    let client = BareClient::open(attacker)?;
    attacker.ready();
    let (mut named, mut why) = (0, None);
    for number in 0..NAMES {
        let owner = ProcessId(client.engine.id().0 + 1 + u64::from(number / NODES));
        let node = NodeId(u64::from(number % NODES) + 1);
        match name(&client, number, owner, node) {
            Ok(()) => named += 1,
            Err(errno) => why = Some(errno),
        }
        if client.channel.is_over() {
            break;
        }
    }
    let why = why.map(|errno| format!(", {errno}")).unwrap_or_default();
    attacker.holding(&format!("{named} nodes{why}"));
    attacker.wait_until_dismissed();
    Ok(())
}

/// Lets the server keep a node. The error is the broker's refusal, or the server's.
fn name(client: &BareClient, number: u8, owner: ProcessId, node: NodeId) -> Result<(), Errno> {
    let held = HeldNode { owner, node, strength: Strength::Strong, entry: Some(0) };
    let ticket = client.engine.introduce(client.server, vec![held])?.0;
    let (data, offsets) = with_objects(&[number; 8], 1);
    let (data, offsets, objects) = (&data[..], &offsets[..], &[of_third()][..]);
    let (node, code) = (client.node, KEEP);
    client.channel.post(&BareCall { node, code, data, offsets, objects, ticket })?;
    client.channel.await_message(crate::client::AT_MOST).map(drop)
}
