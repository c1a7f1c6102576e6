//! A process's channels: whom it may send tickets to.

use baton_abi::control::{ChannelId, ProcessId};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, Default)]
pub(super) struct Channels {
    to_servers: BTreeMap<ProcessId, BTreeSet<ChannelId>>,
    from_clients: BTreeMap<ProcessId, BTreeSet<ChannelId>>,
}

impl Channels {
    pub fn connects(&self, peer: ProcessId) -> bool {
        self.to_servers.contains_key(&peer) || self.from_clients.contains_key(&peer)
    }

    pub fn count_to(&self, server: ProcessId) -> usize {
        self.to_servers.get(&server).map_or(0, BTreeSet::len)
    }

    /// Whose end the other one is, of a channel as client.
    pub fn server_of(&self, channel: ChannelId) -> Option<ProcessId> {
        let mut all = self.to_servers.iter();
        all.find(|(_, channels)| channels.contains(&channel)).map(|(server, _)| *server)
    }

    pub fn add_to(&mut self, server: ProcessId, channel: ChannelId) {
        self.to_servers.entry(server).or_default().insert(channel);
    }

    pub fn add_from(&mut self, client: ProcessId, channel: ChannelId) {
        self.from_clients.entry(client).or_default().insert(channel);
    }

    /// Forgets one channel with a peer. Whether it was to a server.
    pub fn remove(&mut self, peer: ProcessId, channel: ChannelId) {
        for side in [&mut self.to_servers, &mut self.from_clients] {
            if let Some(channels) = side.get_mut(&peer) {
                channels.remove(&channel);
                if channels.is_empty() {
                    side.remove(&peer);
                }
            }
        }
    }

    /// Forgets every channel with a peer. How many had it as server.
    pub fn forget(&mut self, peer: ProcessId) -> u32 {
        self.from_clients.remove(&peer);
        self.to_servers.remove(&peer).map_or(0, |channels| channels.len() as u32)
    }

    /// Everybody at the other ends.
    pub fn peers(&self) -> BTreeSet<ProcessId> {
        self.to_servers.keys().chain(self.from_clients.keys()).copied().collect()
    }

    /// Name, peer, whether this process is the server.
    pub fn iter(&self) -> impl Iterator<Item = (ChannelId, ProcessId, bool)> {
        let side = |channels: &BTreeMap<ProcessId, BTreeSet<ChannelId>>, is_server| {
            channels
                .iter()
                .flat_map(|(peer, ids)| ids.iter().map(|id| (*id, *peer)))
                .map(|(id, peer)| (id, peer, is_server))
                .collect::<Vec<_>>()
        };
        let mut all = side(&self.to_servers, false);
        all.extend(side(&self.from_clients, true));
        all.sort_unstable();
        all.into_iter()
    }
}
