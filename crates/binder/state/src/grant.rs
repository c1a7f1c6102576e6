//! Grants of this process's own nodes, which it gives to peers itself.
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
use crate::peer::Granted;
use crate::process::State;
use baton_abi::control::{NodeId, ProcessId, Strength};
use baton_abi::holder_list::{ENTRIES, Holding};
use baton_abi::lane::ReturnedGrants;
use rustix::io::Errno;

/// The entries of the list that are free.
#[derive(Clone, Debug, Default)]
pub(crate) struct FreeEntries {
    freed: Vec<u32>,
    /// The entries from here on were never in use.
    end: u32,
}

impl FreeEntries {
    fn take(&mut self) -> Option<u32> {
        self.freed.pop().or_else(|| {
            let entry = self.end;
            self.end = (entry + 1).min(ENTRIES);
            (entry < ENTRIES).then_some(entry)
        })
    }
}

/// What a peer has lost: its strong hold of a node, its hold at all.
#[derive(Clone, Copy, Debug, Default)]
struct Lost {
    strong: bool,
    all: bool,
}

/// A peer returned grants that it did not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverReturn;

/// What is left after a return. `None` if it was less.
fn less(granted: &Granted, returned: &ReturnedGrants) -> Option<Granted> {
    let strong = granted.strong.checked_sub(returned.strong.into())?;
    let all = granted.all.checked_sub(returned.all.into())?;
    Some(Granted { strong, all, ..*granted })
}

impl State {
    /// Grants a node to a peer. Returns the peer's entry in the list. `ENOSPC` if the list is full.
    pub(crate) fn grant(
        &mut self,
        to: ProcessId,
        id: NodeId,
        strength: Strength,
    ) -> Result<u32, Errno> {
        let known = self.peers.get(&to).and_then(|peer| peer.granted.get(&id)).copied();
        let before = match known {
            Some(granted) => granted,
            None => {
                let entry = self.free_entries.take().ok_or(Errno::NOSPC)?;
                Granted { strong: 0, all: 0, entry }
            }
        };
        let strong = before.strong + u64::from(strength == Strength::Strong);
        let after = Granted { strong, all: before.all + 1, ..before };
        self.peers.entry(to).or_default().granted.insert(id, after);
        self.note_granted(to, id, before, after);
        Ok(after.entry)
    }

    /// Takes back a grant whose message the peer will never take.
    pub(crate) fn ungrant(&mut self, to: ProcessId, id: NodeId, strength: Strength) {
        let strong = u32::from(strength == Strength::Strong);
        // The peer may have died since, and its grants with it.
        let _ = self.take_back(to, &ReturnedGrants { node: id.0, strong, all: 1 });
        self.node_changed(id);
    }

    /// Whether the peer will hold the node less strongly, or not at all, once it has returned this.
    pub fn is_lowered_by(&self, from: ProcessId, returned: &ReturnedGrants) -> bool {
        let granted = self.peers.get(&from).and_then(|it| it.granted.get(&NodeId(returned.node)));
        granted.is_some_and(|granted| {
            less(granted, returned).is_some_and(|after| after.holding() != granted.holding())
        })
    }

    /// A peer returns grants. The runner has taken in what the peer had sent before.
    pub fn returned(
        &mut self,
        from: ProcessId,
        returned: &ReturnedGrants,
    ) -> Result<(), OverReturn> {
        let lost = self.take_back(from, returned)?;
        self.granted_dropped(NodeId(returned.node), lost);
        Ok(())
    }

    fn take_back(
        &mut self,
        from: ProcessId,
        returned: &ReturnedGrants,
    ) -> Result<Lost, OverReturn> {
        let id = NodeId(returned.node);
        let peer = self.peers.get_mut(&from).ok_or(OverReturn)?;
        let granted = peer.granted.get_mut(&id).ok_or(OverReturn)?;
        let before = *granted;
        let after = less(granted, returned).ok_or(OverReturn)?;
        *granted = after;
        if after.holding().is_none() {
            peer.granted.remove(&id);
            if peer.is_unused() {
                self.peers.remove(&from);
            }
        }
        Ok(self.note_granted(from, id, before, after))
    }

    /// A peer is dead: its grants end.
    pub(crate) fn end_grants(&mut self, peer: ProcessId, granted: Vec<(NodeId, Granted)>) {
        for (id, before) in granted {
            let lost = self.note_granted(peer, id, before, Granted { strong: 0, all: 0, ..before });
            self.granted_dropped(id, lost);
        }
    }

    fn granted_dropped(&mut self, id: NodeId, lost: Lost) {
        if lost.strong {
            self.node_dropped(id, Strength::Strong);
        }
        if lost.all {
            self.node_dropped(id, Strength::Weak);
        }
    }

    /// Notes a change of what a peer holds of a node by this process's grants: in the list, and in
    /// the node's counts.
    fn note_granted(
        &mut self,
        peer: ProcessId,
        id: NodeId,
        before: Granted,
        after: Granted,
    ) -> Lost {
        let (was, is) = (before.holding(), after.holding());
        if was == is {
            return Lost::default();
        }
        let is_strong = |holding| holding == Some(Strength::Strong);
        let (was_strong, is_strong) = (is_strong(was), is_strong(is));
        let (was_held, is_held) = (was.is_some(), is.is_some());
        let Some(node) = self.nodes.get_mut(id) else { return Lost::default() };
        let granted = &mut node.granted;
        granted.strong = granted.strong + u32::from(is_strong) - u32::from(was_strong);
        granted.weak = granted.weak + u32::from(is_held) - u32::from(was_held);
        let flags = node.flags;
        let holding = is.map(|strength| Holding { holder: peer, node: id, flags, strength });
        self.effect(Effect::List(after.entry, holding));
        if !is_held {
            self.free_entries.freed.push(after.entry);
        }
        Lost { strong: was_strong && !is_strong, all: was_held && !is_held }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Strength::{Strong, Weak};

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

    fn record(id: NodeId, strong: u32, all: u32) -> ReturnedGrants {
        ReturnedGrants { node: id.0, strong, all }
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
        assert!(!state.is_lowered_by(PEER, &record(id, 1, 1)));
        assert_eq!(state.returned(PEER, &record(id, 1, 1)), Ok(()));
        assert_eq!(lists(&mut state), []);
        assert!(state.is_lowered_by(PEER, &record(id, 1, 0)));
        assert_eq!(state.returned(PEER, &record(id, 1, 0)), Ok(()));
        assert_eq!(lists(&mut state), [(0, Some(Weak))], "the strong grant has become a weak one");
        assert_eq!(state.returned(PEER, &record(id, 0, 2)), Ok(()));
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
            assert_eq!(state.returned(PEER, &record(id, strong, all)), Err(OverReturn));
        }
        assert_eq!(state.returned(PEER, &record(NodeId(99), 0, 1)), Err(OverReturn));
        assert_eq!(state.returned(ProcessId(3), &record(id, 0, 1)), Err(OverReturn));
        // Rings of two channels are read in any order.
        assert_eq!(state.returned(PEER, &record(id, 0, 2)), Ok(()));
        assert!(state.peers[&PEER].holds(id, Strong));
        assert_eq!(state.returned(PEER, &record(id, 1, 0)), Ok(()));
        assert_eq!(state.returned(PEER, &record(id, 0, 1)), Err(OverReturn), "twice");
    }

    #[test]
    fn a_full_list_refuses_new_holders_only() {
        let (mut state, id) = process();
        state.free_entries.end = ENTRIES - 1;
        assert_eq!(state.grant(PEER, id, Strong), Ok(ENTRIES - 1));
        assert_eq!(state.grant(ProcessId(3), id, Strong), Err(Errno::NOSPC));
        assert_eq!(state.grant(PEER, id, Strong), Ok(ENTRIES - 1));
        assert_eq!(state.returned(PEER, &record(id, 2, 2)), Ok(()));
        let other = state.nodes.find_or_add(0x30, 0, 0);
        assert_eq!(state.grant(ProcessId(3), other, Strong), Ok(ENTRIES - 1));
    }
}
