//! Claims of engines that rejoin, until both parties to each have made theirs.

use super::grant::Grant;
use super::node::NodeKey;
use super::process::Process;
use baton_abi::claim::{Claim, era_of};
use baton_abi::control::{ChannelId, End, NodeId, ProcessId, Strength};
use std::collections::{BTreeMap, BTreeSet};

/// Claims and processes about which the broker does not know the truth yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Rebuild {
    pub joining: BTreeMap<ProcessId, Joining>,
    /// Absent holders that owners have named, with the nodes that they hold.
    pub awaited: BTreeMap<ProcessId, BTreeSet<NodeKey>>,
    /// Channels that only one end has claimed, with that end.
    pub channels: BTreeSet<(ProcessId, ChannelClaim)>,
    /// Lanes of channels that only their client has claimed and that it says are ordinary again, a
    /// bit for each lane.
    pub ended_lanes: BTreeMap<(ProcessId, ChannelId), u64>,
    /// For each absent process: those that have claimed it as a peer.
    pub watchers: BTreeMap<ProcessId, BTreeSet<ProcessId>>,
    /// For each process that has rejoined: absent processes that it had to do with.
    pub absent_peers: BTreeMap<ProcessId, BTreeSet<ProcessId>>,
    /// Processes that rejoined and died again. Others know of their deaths.
    pub died_again: BTreeSet<ProcessId>,
    /// Nodes that managed contexts and whose owners are absent.
    pub managers: BTreeMap<String, NodeKey>,
}

impl Rebuild {
    /// Whether no process is joining and no claim is open.
    pub fn is_empty(&self) -> bool {
        let has_no_claims = self.channels.is_empty() && self.ended_lanes.is_empty();
        self.joining.is_empty() && has_no_claims && self.absent_peers.is_empty()
    }

    /// Records that `who` had to do with `whom`, which is absent.
    pub fn add_absent_peer(&mut self, who: ProcessId, whom: ProcessId) {
        self.absent_peers.entry(who).or_default().insert(whom);
    }
}

/// An engine that has been readmitted and makes its claims.
#[derive(Clone, Debug)]
pub(super) struct Joining {
    pub process: Process,
    pub claims: Vec<Claim>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChannelClaim {
    pub channel: ChannelId,
    pub peer: ProcessId,
    pub is_server: bool,
}

/// An owner's claims about one node.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnerClaim {
    pub flags: u32,
    pub strong: bool,
    pub holders: BTreeSet<ProcessId>,
}

impl OwnerClaim {
    /// Whether the owner says that `holder` holds the node this strongly.
    pub fn confirms(&self, holder: ProcessId, strength: Option<Strength>) -> bool {
        self.holders.contains(&holder) && (self.strong || strength != Some(Strength::Strong))
    }
}

/// A process's claims, checked to be possible.
#[derive(Debug, Default)]
pub(super) struct Claims {
    pub nodes: BTreeMap<NodeId, OwnerClaim>,
    pub grants: BTreeMap<NodeKey, Grant>,
    pub channels: BTreeSet<ChannelClaim>,
    pub peers: BTreeSet<ProcessId>,
}

impl Claims {
    /// Checks claims. `None` if they contradict each other, or name an id that no previous broker
    /// can have given. The giver of a grant is no longer known, so the grant counts against
    /// `giver`, the holder's own user.
    pub fn check(of: ProcessId, giver: u32, era: u32, claims: Vec<Claim>) -> Option<Claims> {
        let mut checked = Claims::default();
        let is_old = |process: ProcessId| process != ProcessId::BROKER && process.era() < era;
        for claim in claims {
            let fits = match claim {
                Claim::Node { node, flags, strong, holder } => {
                    let claim = checked.nodes.entry(node).or_default();
                    (claim.flags, claim.strong) = (flags, strong);
                    holder != of && is_old(holder) && claim.holders.insert(holder)
                }
                Claim::Granted { owner, node, strong, grants } => {
                    let (grants, strong_grants) = (u64::from(grants), u64::from(strong));
                    let grant = Grant { grants, strong_grants, giver };
                    let before = checked.grants.insert(NodeKey { owner, node }, grant);
                    let possible = owner != of && is_old(owner) && strong_grants <= grants;
                    before.is_none() && possible && grants > 0
                }
                Claim::Peer { peer } => peer != of && is_old(peer) && checked.peers.insert(peer),
                Claim::Channel { channel, end, peer } => {
                    let is_server = end == End::Server;
                    let old = era_of(channel.0) < era && is_old(peer);
                    let claim = ChannelClaim { channel, peer, is_server };
                    old && peer != of && checked.channels.insert(claim)
                }
            };
            if !fits {
                return None;
            }
        }
        Some(checked)
    }
}
