//! What peers hold of this process's nodes: by grants that this process gives itself, and by those
//! of the broker, which introduces others.
//!
//! ```text
//!            grant                         returned, ungrant
//!   (none) ---------> granted, and in the list ----------> (none)
//! ```
//!
//! A grant is counted before its message is posted. The peer counts it when it takes the message
//! in, whether it accepts or refuses the message, and returns it when its own counts do not need it
//! any more. So what is outstanding covers the messages under way.
//!
//! **Invariant**: a peer is in the list (`baton_abi::holder_list`) with a node exactly as long as
//! grants of the node to the peer are outstanding. The effects that write the list are carried out
//! before the message is posted.

use crate::effect::Effect;
use crate::peer::{Granted, HoldingChange, OverReturn, Peer};
use crate::process::State;
use baton_abi::control::{NodeId, ProcessId, Strength};
use baton_abi::holder_list::Holding;
use baton_abi::lane::ReturnedGrants;
use rustix::io::Errno;
use std::collections::BTreeSet;

/// What a peer has lost: its strong hold of a node, its hold at all.
#[derive(Clone, Copy, Debug, Default)]
struct Lost {
    strong: bool,
    all: bool,
}

impl State {
    /// Grants a node to a peer. Returns the peer's entry in the list. `ENOSPC` if the list is full,
    /// or its user has as many entries as it may.
    pub(crate) fn grant(
        &mut self,
        to: ProcessId,
        id: NodeId,
        strength: Strength,
    ) -> Result<u32, Errno> {
        let known = self.peers.get(&to).and_then(|peer| peer.granted.get(&id)).copied();
        let granted = match known {
            Some(granted) => granted,
            None => {
                let entry = self.entries.take().ok_or(Errno::NOSPC)?;
                let account = self.accounts.of(self.user_of(to));
                if !self.peers.entry(to).or_default().count_entry(&account) {
                    self.entries.give(entry);
                    return Err(Errno::NOSPC);
                }
                Granted { strong: 0, all: 0, entry }
            }
        };
        let mut after = granted;
        after.add(strength);
        let peer = self.peers.entry(to).or_default();
        let before = peer.holding(id);
        peer.granted.insert(id, after);
        let holding = peer.holding(id);
        self.note_granted(to, id, granted, after);
        self.note_holding(id, before, holding);
        Ok(after.entry)
    }

    /// Takes back a grant whose message the peer will never take.
    pub(crate) fn ungrant(&mut self, to: ProcessId, id: NodeId, strength: Strength) {
        let strong = u32::from(strength == Strength::Strong);
        let back = ReturnedGrants { node: id.0, strong, all: 1 };
        // The peer may have died since, and its grants with it.
        let _ = self.change(to, HoldingChange::Returned(back));
        self.node_changed(id);
    }

    /// Whether the peer will hold the node less strongly after this change, or not at all.
    pub fn is_lowered_by(&self, of: ProcessId, change: HoldingChange) -> bool {
        let Some(peer) = self.peers.get(&of) else { return false };
        let after = peer.holding_after(change);
        after.is_ok_and(|after| is_less(after, peer.holding(change.node())))
    }

    /// Whether a peer has called a node since it holds the node.
    pub fn has_called(&self, peer: ProcessId, id: NodeId) -> bool {
        self.peers.get(&peer).is_some_and(|peer| peer.called.contains(&id))
    }

    /// Has a loss of a peer wait: see [`Postponed::add`](crate::postponed::Postponed::add).
    pub fn postpone(&mut self, of: ProcessId, change: HoldingChange) -> Result<(), OverReturn> {
        self.postponed.add(of, self.peers.get(&of), change)
    }

    /// A peer holds a node otherwise from now on. The runner has taken in what the peer had sent
    /// before.
    pub fn change_holding(
        &mut self,
        of: ProcessId,
        change: HoldingChange,
    ) -> Result<(), OverReturn> {
        let lost = self.change(of, change)?;
        self.holding_changed(change.node(), lost);
        Ok(())
    }

    fn change(&mut self, of: ProcessId, change: HoldingChange) -> Result<Lost, OverReturn> {
        let id = change.node();
        let peer = match change {
            HoldingChange::Returned(_) => self.peers.get_mut(&of).ok_or(OverReturn)?,
            HoldingChange::Introduced(..) => self.peers.entry(of).or_default(),
        };
        let (before, granted) = (peer.holding(id), peer.granted.get(&id).copied());
        peer.change(change)?;
        let (holding, left) = (peer.holding(id), peer.granted.get(&id).copied());
        if left.is_some_and(|left| left.holding().is_none()) {
            peer.granted.remove(&id);
            if let Some(entries) = &mut peer.entries {
                entries.give_one();
            }
        }
        if holding.is_none() {
            peer.called.remove(&id);
        }
        if peer.is_unused() {
            self.peers.remove(&of);
        }
        if let Some((granted, left)) = granted.zip(left) {
            self.note_granted(of, id, granted, left);
        }
        Ok(self.note_holding(id, before, holding))
    }

    /// A peer is dead: it holds nothing any more.
    pub(crate) fn end_holdings(&mut self, process: ProcessId, peer: &Peer) {
        for (&id, granted) in &peer.granted {
            let none = Granted { strong: 0, all: 0, ..*granted };
            self.note_granted(process, id, *granted, none);
        }
        let held: BTreeSet<NodeId> =
            peer.granted.keys().chain(peer.introduced.keys()).copied().collect();
        for id in held {
            let lost = self.note_holding(id, peer.holding(id), None);
            self.holding_changed(id, lost);
        }
    }

    fn holding_changed(&mut self, id: NodeId, lost: Lost) {
        self.node_changed(id);
        if lost.strong {
            self.node_dropped(id, Strength::Strong);
        }
        if lost.all {
            self.node_dropped(id, Strength::Weak);
        }
    }

    /// Writes a change of this process's grants to a peer into the list.
    fn note_granted(&mut self, peer: ProcessId, id: NodeId, before: Granted, after: Granted) {
        if before.holding() == after.holding() {
            return;
        }
        let flags = self.nodes.get(id).map_or(0, |node| node.flags);
        let holding = |strength| Holding { holder: peer, node: id, flags, strength };
        self.effect(Effect::List(after.entry, after.holding().map(holding)));
        if after.holding().is_none() {
            self.entries.give(after.entry);
        }
    }

    /// Notes in the node's counts how a peer holds the node.
    fn note_holding(
        &mut self,
        id: NodeId,
        before: Option<Strength>,
        after: Option<Strength>,
    ) -> Lost {
        let Some(node) = self.nodes.get_mut(id) else { return Lost::default() };
        let is_strong = |holding| u32::from(holding == Some(Strength::Strong));
        let is_held = |holding: Option<Strength>| u32::from(holding.is_some());
        let holders = &mut node.holders;
        let was = *holders;
        holders.strong = holders.strong + is_strong(after) - is_strong(before);
        holders.weak = holders.weak + is_held(after) - is_held(before);
        Lost {
            strong: was.strong > 0 && holders.strong == 0,
            all: was.weak > 0 && holders.weak == 0,
        }
    }
}

/// Whether a process that holds a node so holds it less than before.
fn is_less(after: Option<Strength>, before: Option<Strength>) -> bool {
    let rank = |holding| match holding {
        None => 0,
        Some(Strength::Weak) => 1,
        Some(Strength::Strong) => 2,
    };
    rank(after) < rank(before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Strength::{Strong, Weak};
    use baton_abi::control::Event;
    use baton_abi::holder_list::ENTRIES;

    const PEER: ProcessId = ProcessId(2);

    fn process() -> (State, NodeId) {
        let mut state = State::new(ProcessId(1));
        let id = state.nodes.find_or_add(0x10, 0x20, 0x13);
        (state, id)
    }

    fn lists(state: &mut State) -> Vec<(u32, Option<Strength>)> {
        let list = |effect| match effect {
            Effect::List(entry, holding) => Some((entry, holding.map(|it: Holding| it.strength))),
            _ => None,
        };
        state.take_effects().into_iter().filter_map(list).collect()
    }

    fn record(id: NodeId, strong: u32, all: u32) -> HoldingChange {
        HoldingChange::Returned(ReturnedGrants { node: id.0, strong, all })
    }

    #[test]
    fn the_list_says_what_is_outstanding() {
        let (mut state, id) = process();
        assert_eq!(state.grant(PEER, id, Weak), Ok(0));
        assert_eq!(lists(&mut state), [(0, Some(Weak))]);
        assert_eq!(state.grant(PEER, id, Strong), Ok(0));
        assert_eq!(state.grant(PEER, id, Strong), Ok(0));
        assert_eq!(lists(&mut state), [(0, Some(Strong))]);
        assert_eq!(state.grant(ProcessId(3), id, Weak), Ok(1));
        assert_eq!(lists(&mut state), [(1, Some(Weak))]);
        assert!(state.nodes.get(id).is_some_and(|node| node.is_strong()));
        assert!(!state.is_lowered_by(PEER, record(id, 1, 1)));
        assert_eq!(state.change_holding(PEER, record(id, 1, 1)), Ok(()));
        assert_eq!(lists(&mut state), []);
        assert!(state.is_lowered_by(PEER, record(id, 1, 0)));
        assert_eq!(state.change_holding(PEER, record(id, 1, 0)), Ok(()));
        assert_eq!(lists(&mut state), [(0, Some(Weak))], "the strong grant has become a weak one");
        assert_eq!(state.change_holding(PEER, record(id, 0, 2)), Ok(()));
        assert_eq!(lists(&mut state), [(0, None)]);
        assert!(!state.peers.contains_key(&PEER));
        state.ungrant(ProcessId(3), id, Weak);
        assert_eq!(lists(&mut state), [(1, None)]);
        assert!(state.nodes.get(id).is_none(), "nobody ever knew of it");
    }

    #[test]
    fn a_peer_returns_only_what_it_has() {
        let (mut state, id) = process();
        state.grant(PEER, id, Strong).unwrap();
        state.grant(PEER, id, Weak).unwrap();
        for (strong, all) in [(2, 2), (0, 3), (u32::MAX, u32::MAX)] {
            assert_eq!(state.change_holding(PEER, record(id, strong, all)), Err(OverReturn));
        }
        assert_eq!(state.change_holding(PEER, record(NodeId(99), 0, 1)), Err(OverReturn));
        assert_eq!(state.change_holding(ProcessId(3), record(id, 0, 1)), Err(OverReturn));
        // Rings of two channels are read in any order.
        assert_eq!(state.change_holding(PEER, record(id, 0, 2)), Ok(()));
        assert!(state.peers[&PEER].holds(id, Strong));
        assert_eq!(state.change_holding(PEER, record(id, 1, 0)), Ok(()));
        assert_eq!(state.change_holding(PEER, record(id, 0, 1)), Err(OverReturn), "twice");
    }

    #[test]
    fn a_node_is_held_while_either_giver_says_so() {
        let (mut state, id) = process();
        let introduced = |holding| HoldingChange::Introduced(id, holding);
        let held = |state: &State| {
            let node = state.nodes.get(id).expect("the program knows it");
            (node.holders.strong, node.holders.weak)
        };
        state.nodes.get_mut(id).unwrap().local.weak = 1;
        state.change_holding(PEER, introduced(Some(Strong))).unwrap();
        state.grant(PEER, id, Weak).unwrap();
        assert_eq!(held(&state), (1, 1), "one process");
        assert!(!state.is_lowered_by(PEER, record(id, 0, 1)));
        assert!(state.is_lowered_by(PEER, introduced(None)), "it is strong by the broker's only");
        state.change_holding(PEER, introduced(None)).unwrap();
        assert_eq!(held(&state), (0, 1));
        state.change_holding(PEER, introduced(Some(Weak))).unwrap();
        state.change_holding(PEER, record(id, 0, 1)).unwrap();
        assert_eq!(held(&state), (0, 1));
        state.grant(PEER, id, Strong).unwrap();
        state.event(Event::Dead { process: PEER });
        assert_eq!(held(&state), (0, 0));
        state.change_holding(PEER, introduced(None)).unwrap();
        assert!(!state.peers.contains_key(&PEER), "what the broker says later is no news");
    }

    #[test]
    fn a_user_has_a_share_of_the_list() {
        let (mut state, id) = process();
        let [stranger, other] = [1000, 1001].map(|uid| {
            let peer = ProcessId(u64::from(uid));
            state.peers.entry(peer).or_default().uid = uid;
            state.peers.entry(peer).or_default().label = "label".to_owned();
            peer
        });
        let nodes: Vec<NodeId> =
            (1..=u64::from(ENTRIES)).map(|at| state.nodes.find_or_add(at << 8, 0, 0)).collect();
        let granted = nodes.iter().take_while(|node| state.grant(stranger, **node, Weak).is_ok());
        let granted = granted.count();
        assert!((1..ENTRIES as usize).contains(&granted), "{granted}");
        assert!(state.grant(other, id, Strong).is_ok(), "another user's");
        state.event(Event::Dead { process: stranger });
        assert!(state.grant(other, nodes[0], Strong).is_ok());
    }

    #[test]
    fn a_full_list_refuses_new_holders_only() {
        let (mut state, id) = process();
        state.entries.end = ENTRIES - 1;
        assert_eq!(state.grant(PEER, id, Strong), Ok(ENTRIES - 1));
        assert_eq!(state.grant(ProcessId(3), id, Strong), Err(Errno::NOSPC));
        assert_eq!(state.grant(PEER, id, Strong), Ok(ENTRIES - 1));
        assert_eq!(state.change_holding(PEER, record(id, 2, 2)), Ok(()));
        let other = state.nodes.find_or_add(0x30, 0, 0);
        assert_eq!(state.grant(ProcessId(3), other, Strong), Ok(ENTRIES - 1));
    }
}
