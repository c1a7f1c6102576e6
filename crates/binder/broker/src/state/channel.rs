//! The channels of a process, which decide to which processes it may send tickets, and the
//! processes with which it ever had one.
//!
//! Two processes that had a channel may hold each other's nodes by grants that the broker does not
//! see. So the broker tells each of them of the other's death, and remembers the pair until then.
//! It counts against the client like a channel.
//!
//! **Invariant**: both maps contain the same channels. A peer is in the map as long as it has a
//! channel. `met` contains every such peer; a peer in `remembered` is in `met`, and this process is
//! client of no channel to it.

use baton_abi::control::{ChannelId, End, ProcessId};
use std::collections::{BTreeMap, BTreeSet};

/// One channel of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Channel {
    /// The process at the other end.
    pub peer: ProcessId,
    /// The process's own end.
    pub end: End,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Channels {
    by_id: BTreeMap<ChannelId, Channel>,
    by_peer: BTreeMap<ProcessId, BTreeSet<ChannelId>>,
    /// Processes with which there is or was a channel.
    met: BTreeSet<ProcessId>,
    /// Servers of which this process was client, each of which still counts as a channel.
    remembered: BTreeSet<ProcessId>,
}

impl Channels {
    pub fn get(&self, channel: ChannelId) -> Option<Channel> {
        self.by_id.get(&channel).copied()
    }

    pub fn is_connected_to(&self, peer: ProcessId) -> bool {
        self.by_peer.contains_key(&peer)
    }

    /// Number of channels to this server, as client.
    pub fn count_to(&self, server: ProcessId) -> usize {
        self.with(server).filter(|channel| self.by_id[channel].end == End::Client).count()
    }

    /// The server of a channel that this process has as client.
    pub fn server_of(&self, channel: ChannelId) -> Option<ProcessId> {
        self.get(channel).filter(|it| it.end == End::Client).map(|it| it.peer)
    }

    /// Adds a channel that is not in the table.
    pub fn add(&mut self, id: ChannelId, channel: Channel) {
        self.met.insert(channel.peer);
        self.by_peer.entry(channel.peer).or_default().insert(id);
        self.by_id.insert(id, channel);
    }

    /// Removes one channel.
    pub fn remove(&mut self, id: ChannelId) {
        let Some(Channel { peer, .. }) = self.by_id.remove(&id) else { return };
        let with = self.by_peer.get_mut(&peer).expect("both maps have the same channels");
        with.remove(&id);
        if with.is_empty() {
            self.by_peer.remove(&peer);
        }
    }

    /// Whether there is or was a channel with a process.
    pub fn has_met(&self, peer: ProcessId) -> bool {
        self.met.contains(&peer)
    }

    /// Records a channel that does not count.
    pub fn meet(&mut self, peer: ProcessId) {
        self.met.insert(peer);
    }

    /// Records that the last channel to a server ended, and still counts.
    pub fn remember(&mut self, server: ProcessId) {
        self.remembered.insert(server);
    }

    /// Whether an ended channel to a server still counts.
    pub fn remembers(&self, server: ProcessId) -> bool {
        self.remembered.contains(&server)
    }

    /// The ended channel to a server no longer counts. Returns whether there was one.
    pub fn take_remembered(&mut self, server: ProcessId) -> bool {
        self.remembered.remove(&server)
    }

    /// Forgets a peer that is dead. Returns this process's ends of channels that counted.
    pub fn remove_all_with(&mut self, peer: ProcessId) -> Vec<End> {
        self.met.remove(&peer);
        let remembered = self.remembered.remove(&peer).then_some(End::Client);
        let ids = self.by_peer.remove(&peer).unwrap_or_default();
        let end = |id| self.by_id.remove(&id).expect("both maps have the same channels").end;
        ids.into_iter().map(end).chain(remembered).collect()
    }

    /// The processes with which there is or was a channel.
    pub fn met(&self) -> &BTreeSet<ProcessId> {
        &self.met
    }

    /// Channels in the order of their ids, from `first` on.
    pub fn from(&self, first: ChannelId) -> impl Iterator<Item = (ChannelId, Channel)> {
        self.by_id.range(first..).map(|(id, channel)| (*id, *channel))
    }

    fn with(&self, peer: ProcessId) -> impl Iterator<Item = &ChannelId> {
        self.by_peer.get(&peer).into_iter().flatten()
    }
}
