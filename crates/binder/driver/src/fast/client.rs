//! What a looper has validated of one client and of the nodes that it calls.

use super::receiver::{Receiver, is_plain};
use super::serve::{Posted, Taken};
use crate::engine::Engine;
use crate::sys::priority;
use baton_abi::control::{ChannelId, NodeId};
use baton_abi::lane::{ChainEntry, Kind, Message};
use baton_abi::sched_priority::SchedPriority;
use baton_abi::uapi::{TF_CLEAR_BUF, TF_ONE_WAY};
use baton_state::State;
use baton_state::node::Node;
use baton_state::transaction::Incoming;
use bytemuck::bytes_of_mut;
use std::cell::Cell;

/// Nodes of each client that are kept.
const NODES: usize = 8;

/// No nice value.
const NO_NICE: i32 = i32::MIN;

/// A node that a client calls.
#[derive(Clone)]
pub(super) struct Known<T> {
    node: NodeId,
    /// The object that serves it.
    object: T,
    /// The minimum priority that the node asks for.
    min_priority: Option<SchedPriority>,
    /// A caller at this nice value is served at the priority at which the looper runs.
    nice: i32,
}

/// The nodes that a client has called lately.
#[derive(Clone)]
pub(super) struct Client<T> {
    pub channel: ChannelId,
    /// The epoch of the channel's revocations when this was learnt.
    epoch: u64,
    sender: (u32, u32),
    /// At the node's remainder.
    nodes: [Option<Known<T>>; NODES],
}

impl<T> Client<T> {
    /// Remembers in the client's cache a transaction that the state has admitted, at this epoch of
    /// the channel's revocations.
    pub fn learn(
        cache: &mut Option<Client<T>>,
        epoch: u64,
        state: &State,
        incoming: &Incoming,
        object: T,
    ) {
        let (Some(serving), Some(node)) = (&incoming.serving, incoming.node) else { return };
        let (channel, sender) = (serving.via.channel, incoming.sender);
        let nodes = [const { None }; NODES];
        cache.take_if(|client| client.epoch != epoch);
        let client = cache.get_or_insert(Client { channel, epoch, sender, nodes });
        let min_priority = state.nodes.get(node).and_then(Node::min_priority);
        let nice = Some(incoming.queue_priority.nice())
            .filter(|nice| priority::is_served_here(*nice, min_priority));
        let nice = nice.unwrap_or(NO_NICE);
        client.nodes[node.0 as usize % NODES] = Some(Known { node, object, min_priority, nice });
    }

    /// The epoch at which this was learnt.
    #[inline(always)]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    #[inline]
    fn known(&self, node: u64) -> Option<&Known<T>> {
        self.nodes[node as usize % NODES].as_ref().filter(|known| known.is(node))
    }

    /// Like `known`, for a caller that mostly asks for the node that it asked for last.
    #[inline(always)]
    pub fn known_again<'a>(
        &'a self,
        node: u64,
        last: &Cell<Option<&'a Known<T>>>,
    ) -> Option<&'a Known<T>> {
        match last.get() {
            Some(known) if known.is(node) => Some(known),
            _ => self.known(node).inspect(|known| last.set(Some(known))),
        }
    }

    /// Takes in the request on a lane, if it is a plain one to a known node, and finds its object.
    /// The caller clears the inbox.
    #[inline(always)]
    pub fn take_in(
        &self,
        engine: &Engine,
        taken: Taken<'_>,
        receiver: &mut impl Receiver,
    ) -> Option<&T> {
        if taken.lane.inbox().is_empty() {
            return None;
        }
        let (posted, object) = self.find(taken, |node| self.known(node))?;
        (receiver.fits(&posted.message) && receiver.take_request(engine, &posted)).then_some(object)
    }

    /// The request on a lane, if it is a plain one to a node that `known` finds, and that node's
    /// object.
    #[inline(always)]
    pub fn find<'a, 'b: 'a>(
        &'b self,
        taken: Taken<'a>,
        known: impl FnOnce(u64) -> Option<&'b Known<T>>,
    ) -> Option<(Posted<'a>, &'b T)> {
        let message = taken.lane.header();
        let others = message.flags & (TF_ONE_WAY | TF_CLEAR_BUF);
        if !is_plain(&message, Kind::Request, 1) || others != 0 {
            return None;
        }
        let known = known(message.node)?;
        if message.param != known.nice && !known.is_served_here(message.param) {
            return None;
        }
        let mut caller = ChainEntry::default();
        taken.lane.incoming().read(size_of::<Message>(), bytes_of_mut(&mut caller));
        let (caller, sender, epoch) = (caller.token, &self.sender, self.epoch);
        let posted = Posted { taken, epoch, sender, caller, message, is_pinned: false };
        Some((posted, &known.object))
    }
}

impl<T> Known<T> {
    #[inline(always)]
    fn is(&self, node: u64) -> bool {
        self.node.0 == node
    }

    /// Whether a caller at this nice value is served at the priority at which the looper runs.
    #[cold]
    fn is_served_here(&self, nice: i32) -> bool {
        priority::is_served_here(nice, self.min_priority)
    }
}
