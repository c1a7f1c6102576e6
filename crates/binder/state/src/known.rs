//! Known nodes: nodes that a peer has introduced, and that it may pass again without the broker.
//!
//! An entry of a channel's table (`baton_abi::lane`) offers a node to the peer at the other end.
//! The word in the entry is the peer's, too: what is here is this process's alone.

use crate::node::NodeKey;
use baton_abi::control::ChannelId;
use baton_abi::lane::known_places;
use baton_shm::use_count;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// An entry of this end's table of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownEntry {
    /// The channel.
    pub channel: ChannelId,
    /// Its number in the table.
    pub number: u8,
}

/// What this process knows of an entry.
#[derive(Clone, Copy, Debug, Default)]
struct Offer {
    /// The node that is offered.
    node: Option<NodeKey>,
    /// The uses that have come, and one for each offer.
    uses: u32,
}

/// The tables of this process, and the nodes whose offers wait for messages on their way.
#[derive(Debug, Default)]
pub(crate) struct KnownNodes {
    tables: FxHashMap<ChannelId, FxHashMap<u8, Offer>>,
    pub withdrawing: BTreeSet<NodeKey>,
}

impl KnownNodes {
    /// Takes a free entry for a node. Returns its uses so far, too. `None` if there is none.
    pub fn take(&mut self, channel: ChannelId, node: NodeKey) -> Option<(KnownEntry, u32)> {
        let table = self.tables.entry(channel).or_default();
        let is_free = |number: &u8| table.get(number).is_none_or(|offer| offer.node.is_none());
        let number = known_places(node.0, node.1).find(is_free)?;
        let offer = table.entry(number).or_default();
        *offer = Offer { node: Some(node), uses: use_count::after(offer.uses) };
        Some((KnownEntry { channel, number }, offer.uses))
    }

    fn offer(&mut self, entry: KnownEntry) -> Option<&mut Offer> {
        self.tables.get_mut(&entry.channel)?.get_mut(&entry.number)
    }

    /// The node that an entry offers.
    pub fn node(&self, entry: KnownEntry) -> Option<NodeKey> {
        self.tables.get(&entry.channel)?.get(&entry.number)?.node
    }

    /// The uses of an entry that have come.
    pub fn uses(&self, entry: KnownEntry) -> u32 {
        let offer = self.tables.get(&entry.channel).and_then(|table| table.get(&entry.number));
        offer.map_or(0, |offer| offer.uses)
    }

    /// A use has come.
    pub fn count_use(&mut self, entry: KnownEntry) {
        if let Some(offer) = self.offer(entry) {
            offer.uses = use_count::after(offer.uses);
        }
    }

    /// Frees an entry. Returns the node that it offered.
    pub fn free(&mut self, entry: KnownEntry) -> Option<NodeKey> {
        self.offer(entry)?.node.take()
    }

    /// Frees the whole table of a channel. Returns the nodes that it offered.
    pub fn forget(&mut self, channel: ChannelId) -> impl Iterator<Item = NodeKey> + use<> {
        let table = self.tables.remove(&channel).unwrap_or_default();
        table.into_values().filter_map(|offer| offer.node)
    }
}
