//! A client of the honest server, on the bare protocol.

use crate::attacker::Attacker;
use crate::honest::{ECHO, LEND};
use baton_abi::control::{NodeId, ProcessId};
use baton_abi::lane::{Carried, Kind, Origin};
use baton_hostile::channel::{BareCall, BareChannel, BareMessage, with_objects};
use baton_hostile::engine::BareEngine;
use rustix::io::Errno;
use std::io;
use std::time::Duration;

/// Timeout of an answer, and of the end of a channel.
pub const AT_MOST: Duration = Duration::from_secs(30);

/// An engine with a channel to the honest server.
pub struct BareClient {
    pub engine: BareEngine,
    pub channel: BareChannel,
    pub server: ProcessId,
    /// The server's node.
    pub node: NodeId,
}

impl BareClient {
    /// Opens an engine in the context, and a channel to its manager.
    pub fn open(attacker: &Attacker) -> io::Result<BareClient> {
        let engine = attacker.engine()?;
        let (server, node) = engine.manager_node()?;
        let channel = engine.channel_to(server)?;
        Ok(BareClient { engine, channel, server, node })
    }

    /// Sends objects to the server, after `data`, which has a multiple of 8 bytes.
    pub fn send(&self, code: u32, data: &[u8], objects: &[Carried]) -> Result<(), Errno> {
        let (data, offsets) = with_objects(data, objects.len());
        let (data, offsets) = (&data[..], &offsets[..]);
        self.channel.post(&BareCall { node: self.node, code, data, offsets, objects, ticket: 0 })
    }

    /// Calls the server, with the errors of [`BareChannel::await_message`].
    pub fn call(&self, code: u32, data: &[u8], objects: &[Carried]) -> Result<BareMessage, Errno> {
        self.send(code, data, objects)?;
        self.channel.await_message(AT_MOST)
    }

    /// Sends the server `n` nodes from `first` on, which this engine's list of holders grants it.
    /// The error is the server's refusal.
    pub fn give(&self, code: u32, first: u32, n: u32) -> Result<(), Errno> {
        let grant = |entry: u32| self.engine.carry(entry, NodeId(entry.into()), self.server);
        let objects = (first..first + n).map(grant).collect::<Result<Vec<_>, _>>()?;
        let answer = self.call(code, &[], &objects);
        self.engine.skip_events();
        refused(&answer?)
    }

    /// Gets `n` nodes from the server, at most [`crate::honest::LENT`]. The error is the server's
    /// refusal.
    pub fn borrow(&self, n: usize) -> Result<Vec<Carried>, Errno> {
        let answer = self.call(LEND, &(n as u64).to_ne_bytes(), &[])?;
        refused(&answer)?;
        let is_own = |object: &Carried| object.origin() == Some(Origin::Sender);
        let lent = answer.objects.into_iter().filter(is_own);
        Ok(lent.collect())
    }

    /// Whether the server still answers on the channel.
    pub fn is_served(&self) -> bool {
        self.call(ECHO, &[7; 8], &[]).is_ok_and(|answer| refused(&answer).is_ok())
    }
}

/// The error in an answer, if the server's engine has refused the call.
fn refused(answer: &BareMessage) -> Result<(), Errno> {
    match Kind::from_raw(answer.head.kind) {
        Some(Kind::Reply) => Ok(()),
        Some(Kind::Failed) => Err(Errno::from_raw_os_error(-answer.head.param)),
        _ => Err(Errno::PIPE),
    }
}
