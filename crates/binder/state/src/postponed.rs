//! Losses of peers' holdings that wait, because messages on their way may rely on the holdings.
//!
//! There is at most one loss of each kind for a peer's node: what a peer returns again is added,
//! and must not be more than it has.

use crate::peer::{HoldingChange, OverReturn, Peer};
use baton_abi::control::{NodeId, ProcessId, Strength};
use baton_abi::lane::ReturnedGrants;
use std::collections::{BTreeMap, BTreeSet};

type Key = (ProcessId, NodeId);

/// The losses, by peer and node.
#[derive(Debug, Default)]
pub struct Postponed {
    /// Grants of this process that the peer has returned.
    returned: BTreeMap<Key, ReturnedGrants>,
    /// How the peer will hold the node by the broker's grants.
    introduced: BTreeMap<Key, Option<Strength>>,
}

impl Postponed {
    /// Whether no loss waits.
    pub fn is_empty(&self) -> bool {
        self.returned.is_empty() && self.introduced.is_empty()
    }

    /// The peers whose losses wait.
    pub fn peers(&self) -> BTreeSet<ProcessId> {
        self.returned.keys().chain(self.introduced.keys()).map(|(peer, _)| *peer).collect()
    }

    /// Takes out the losses of a peer that no longer have to wait.
    pub fn take(
        &mut self,
        of: ProcessId,
        mut has_to_wait: impl FnMut(NodeId) -> bool,
    ) -> Vec<HoldingChange> {
        let nodes = (of, NodeId(0))..=(of, NodeId(u64::MAX));
        let mut is_due = |(_, node): &Key| !has_to_wait(*node);
        let introduced = self.introduced.extract_if(nodes.clone(), |key, _| is_due(key));
        let mut due: Vec<_> = introduced
            .map(|((_, node), holding)| HoldingChange::Introduced(node, holding))
            .collect();
        let returned = self.returned.extract_if(nodes, |key, _| is_due(key));
        due.extend(returned.map(|(_, returned)| HoldingChange::Returned(returned)));
        due
    }

    /// Has a loss of a peer wait. `Err` if the peer returns more than it has, with what it has
    /// returned before.
    pub(crate) fn add(
        &mut self,
        of: ProcessId,
        peer: Option<&Peer>,
        change: HoldingChange,
    ) -> Result<(), OverReturn> {
        let key = (of, change.node());
        match change {
            HoldingChange::Introduced(_, holding) => {
                self.introduced.insert(key, holding);
            }
            HoldingChange::Returned(returned) => {
                let waiting = self.returned.get(&key).copied().unwrap_or_default();
                let sum = waiting.with(returned).ok_or(OverReturn)?;
                peer.ok_or(OverReturn)?.holding_after(HoldingChange::Returned(sum))?;
                self.returned.insert(key, sum);
            }
        }
        Ok(())
    }

    /// Forgets how a peer was to hold a node by the broker's grants: the broker has a later word.
    pub fn forget_introduced(&mut self, of: ProcessId, node: NodeId) {
        self.introduced.remove(&(of, node));
    }

    /// Forgets a peer that has died.
    pub(crate) fn forget(&mut self, of: ProcessId) {
        self.take(of, |_| false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::State;

    const PEER: ProcessId = ProcessId(2);
    const NODE: NodeId = NodeId(1);

    fn returned(strong: u32, all: u32) -> HoldingChange {
        HoldingChange::Returned(ReturnedGrants { node: NODE.0, strong, all })
    }

    /// A state that has granted `NODE` to `PEER` so often, strongly.
    fn granted(times: u32) -> State {
        let mut state = State::new(ProcessId(1));
        let node = state.nodes.find_or_add(8, 8, 0);
        assert_eq!(node, NODE);
        (0..times).for_each(|_| _ = state.grant(PEER, NODE, Strength::Strong).unwrap());
        state
    }

    #[test]
    fn what_a_peer_returns_again_is_added_up_to_what_it_has() {
        let mut state = granted(3);
        for (change, expected) in [
            (returned(1, 1), Ok(())),
            (returned(2, 1), Ok(())),
            (returned(1, 0), Err(OverReturn)),
            (returned(0, 2), Err(OverReturn)),
            (returned(0, u32::MAX), Err(OverReturn)),
            (returned(0, 1), Ok(())),
        ] {
            assert_eq!(state.postpone(PEER, change), expected, "{change:?}");
        }
        assert_eq!(state.postpone(ProcessId(9), returned(1, 1)), Err(OverReturn), "no peer");
        assert_eq!(state.postponed.take(PEER, |_| false), [returned(3, 3)]);
        assert!(state.postponed.is_empty());
    }

    #[test]
    fn losses_wait_by_node_until_they_are_due_or_their_peer_is_dead() {
        let mut state = granted(1);
        let introduced = |holding| HoldingChange::Introduced(NODE, holding);
        for holding in [Some(Strength::Weak), None] {
            state.postpone(PEER, introduced(holding)).unwrap();
        }
        state.postpone(PEER, returned(1, 1)).unwrap();
        assert_eq!(state.postponed.take(PEER, |node| node == NODE), []);
        assert_eq!(state.postponed.take(ProcessId(9), |_| false), []);
        assert_eq!(state.postponed.peers(), BTreeSet::from([PEER]));
        state.postponed.forget_introduced(PEER, NodeId(7));
        assert_eq!(state.postponed.take(PEER, |_| false), [introduced(None), returned(1, 1)]);
        state.postpone(PEER, introduced(None)).unwrap();
        state.postponed.forget_introduced(PEER, NODE);
        assert!(state.postponed.is_empty());
        state.postpone(PEER, returned(1, 1)).unwrap();
        state.postponed.forget(PEER);
        assert!(state.postponed.is_empty());
    }
}
