//! A holder returns grants that it does not have. Its channel ends, and no other.

use crate::attacker::Attacker;
use crate::client::{AT_MOST, BareClient};
use crate::play::{Attack, Load, Play, Whose, strangers};
use baton_abi::lane::{RETURNS_BYTES, ReturnedGrants};
use baton_hostile::channel::RECORD_BYTES;
use rustix::io::Errno;
use std::io;

const NAME: &str = "over_return";

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "a holder returns grants that it never had, more than it had, and twice",
    whose: Whose::Strangers,
    play: Play::Load(|_| Load::of([strangers(NAME, 2)])),
    attack,
};

/// The node that a record names.
#[derive(Clone, Copy)]
enum Node {
    /// A node that the server has granted to this engine once, strongly.
    Lent,
    /// A node that the server has granted to another engine of this process.
    LentToAnother,
    /// The server's node, which the broker has granted.
    Manager,
    /// No node of the server's.
    Unknown,
}

/// Node, strong grants, all grants.
type Record = (Node, u32, u32);

/// Returns, the last of which is impossible.
const RETURNS: [(&str, &[Record]); 9] = [
    ("an unknown node", &[(Node::Unknown, 0, 1)]),
    ("nothing of an unknown node", &[(Node::Unknown, 0, 0)]),
    ("a node of the broker's grants", &[(Node::Manager, 1, 1)]),
    ("another engine's node", &[(Node::LentToAnother, 1, 1)]),
    ("two grants of one", &[(Node::Lent, 1, 2)]),
    ("two strong grants of one", &[(Node::Lent, 2, 1)]),
    ("one grant twice", &[(Node::Lent, 1, 1), (Node::Lent, 1, 1)]),
    ("a grant's strength twice", &[(Node::Lent, 1, 0), (Node::Lent, 1, 0)]),
    ("as many grants as there are numbers", &[(Node::Lent, u32::MAX, u32::MAX)]),
];

/// Impossible numbers of bytes in a ring that nobody has written.
const POSITIONS: [u64; 5] = [
    1,
    RECORD_BYTES - 1,
    RETURNS_BYTES as u64 + RECORD_BYTES,
    1 << 63,
    u64::MAX - RECORD_BYTES + 1,
];

fn attack(attacker: &Attacker) -> io::Result<()> {
    let bystander = BareClient::open(attacker)?;
    let lent_to_another = lend_one(&bystander)?;
    attacker.ready();
    let mut rounds = 0u32;
    while attacker.must_continue() {
        for (what, records) in RETURNS {
            let client = BareClient::open(attacker)?;
            let lent = lend_one(&client)?;
            let record = |&(node, strong, all): &Record| {
                let node = match node {
                    Node::Lent => lent,
                    Node::LentToAnother => lent_to_another,
                    Node::Manager => client.node.0,
                    Node::Unknown => u64::MAX,
                };
                ReturnedGrants { node, strong, all }
            };
            // The other engine's node may be the one that was lent here.
            client.channel.give_back(&ReturnedGrants { node: lent, strong: 1, all: 1 })?;
            if !client.is_served() {
                attacker.harms("the server ends the channel of a holder that returns its grant");
            }
            let has_lent = records.iter().any(|(node, ..)| matches!(node, Node::Lent));
            if has_lent && lend_one(&client)? != lent {
                return Err(io::Error::other("the server lends another node"));
            }
            for record in records.iter().map(record) {
                match client.channel.give_back(&record) {
                    Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
            expect_end(attacker, &client, what);
        }
        for bytes in POSITIONS {
            let client = BareClient::open(attacker)?;
            client.channel.claim_returned(bytes)?;
            expect_end(attacker, &client, &format!("{bytes} bytes"));
        }
        if !bystander.is_served() {
            attacker.harms("the server ends the channel of another engine");
            break;
        }
        rounds += 1;
        attacker.count((RETURNS.len() + POSITIONS.len()) as u64);
        if rounds == 1 {
            attacker.holding("every wrong return");
        }
    }
    Ok(())
}

/// The server's name of a node that it grants.
fn lend_one(client: &BareClient) -> io::Result<u64> {
    let lent = client.borrow(1)?;
    let first = lent.first().ok_or_else(|| io::Error::other("the server lends nothing"))?;
    Ok(first.node)
}

fn expect_end(attacker: &Attacker, client: &BareClient, what: &str) {
    if client.channel.await_end(AT_MOST).is_err() {
        attacker.harms(&format!("a holder may return {what}"));
    }
}
