//! A stranger sends a victim references to its own nodes, until the victim refuses more.

use crate::attacker::Attacker;
use crate::honest::KEEP_ALL;
use crate::play::{Attack, Load, Play, Whose, strangers};
use baton_abi::control::{NodeId, ProcessId};
use baton_abi::holder_list::ENTRIES;
use baton_abi::lane::Kind;
use baton_hostile::channel::{BareCall, BareChannel, with_objects};
use baton_hostile::engine::BareEngine;
use rustix::io::Errno;
use std::io;
use std::time::Duration;

const NAME: &str = "filled_handles";
/// References that each process tries to send.
const HANDLES: u32 = 70_000;
/// References in the first transactions.
const STEP: u32 = 512;
/// Timeout of a reply.
const AT_MOST: Duration = Duration::from_secs(5);

pub const ATTACK: Attack = Attack {
    name: NAME,
    what: "a client sends a server references to its own nodes until the server takes no more",
    whose: Whose::Strangers,
    play: Play::Load(|run| Load::of([strangers(NAME, run.scale.of(2, 8))])),
    attack,
};

/// A client that sends nodes of its own to a server, which keeps them.
pub struct Giver {
    engine: BareEngine,
    channel: BareChannel,
    server: (ProcessId, NodeId),
}

impl Giver {
    pub fn new(engine: BareEngine) -> Result<Giver, Errno> {
        let server = engine.manager_node()?;
        let channel = engine.channel_to(server.0)?;
        Ok(Giver { engine, channel, server })
    }

    /// Sends nodes in one call with this code. The error is the server's refusal.
    pub fn give(&self, code: u32, first: u32, n: u32) -> Result<(), Errno> {
        let (holder, node) = self.server;
        let grant = |number| {
            self.engine.grant(number % ENTRIES, holder, NodeId(u64::from(number) + 1))
        };
        let objects = (first..first + n).map(grant).collect::<Result<Vec<_>, _>>()?;
        let (data, offsets) = with_objects(&[], objects.len());
        let call = BareCall {
            node,
            code,
            data: &data,
            offsets: &offsets,
            objects: &objects,
            ticket: 0,
        };
        let head = self.channel.call(&call, AT_MOST)?.head;
        self.engine.skip_events();
        match head.kind {
            kind if kind == Kind::Reply as u32 => Ok(()),
            _ => Err(Errno::from_raw_os_error(-head.param)),
        }
    }
}

fn attack(attacker: &Attacker) -> io::Result<()> {
    let giver = Giver::new(attacker.engine()?)?;
    attacker.ready();
    let (mut held, mut step, mut why) = (0, STEP, None);
    // Fewer references each time, for the rest of the share.
    while held < HANDLES && step > 0 && attacker.must_continue() {
        match giver.give(KEEP_ALL, held, step) {
            Ok(()) => held += step,
            Err(errno) => (step, why) = (step / 2, Some(errno)),
        }
    }
    let why = why.map(|errno| format!(": {errno}")).unwrap_or_default();
    attacker.holding(&format!("{held} references{why}"));
    attacker.wait_until_dismissed();
    Ok(())
}
