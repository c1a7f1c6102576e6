//! The nodes and handles of messages on the fast path: few, and known at both ends.

use crate::message::HeldObject;
use crate::parcel::{Few, Named};
use crate::process::State;
use crate::reference::Reference;
use baton_abi::control::{NodeId, ProcessId, Strength};
use baton_abi::lane::{Carried, Origin};

impl State {
    /// Grants the nodes among these objects to a peer, and says what a message to it carries.
    /// `None` if the message has to take the general path: the peer does not hold a node so
    /// strongly yet, the program has yet to hear of a reference, or a handle is not one of the
    /// peer's nodes. Then nothing has been granted.
    ///
    /// A handle may be given up once the state is unlocked: the message is posted before.
    pub fn carry_few(&mut self, to: ProcessId, objects: &[Named]) -> Option<Few<Carried>> {
        let carried = objects.iter().map(|object| self.known_to(to, object));
        let carried: Few<Carried> = carried.collect::<Option<_>>()?;
        if let Some(peer) = self.peers.get_mut(&to) {
            for object in carried.iter().filter(|it| it.origin() == Some(Origin::Sender)) {
                if let Some(granted) = peer.granted.get_mut(&NodeId(object.node)) {
                    granted.add(object.strength());
                }
            }
        }
        Some(carried)
    }

    /// What a message to a peer says of an object that this peer holds or owns already.
    fn known_to(&mut self, to: ProcessId, object: &Named) -> Option<Carried> {
        match *object {
            Named::Binder { ptr, cookie, strength, .. } => {
                let id = self.nodes.at(ptr)?;
                let node = self.nodes.get(id).filter(|node| node.cookie == cookie)?;
                let (told_strong, told_weak) = node.told();
                let told = if strength == Strength::Strong { told_strong } else { told_weak };
                let granted = self.peers.get(&to)?.granted.get(&id)?;
                let is_known = node.queued.is_none() && told && granted.holds(strength);
                is_known.then(|| Carried::of_sender(id, granted.entry, node.flags, strength))
            }
            Named::Handle { handle, strength } => {
                let holds = self.holds(handle, strength);
                let is_home = |held: &&Reference| holds && !held.dead && held.owner == to;
                let reference = self.references.get(handle).filter(is_home)?;
                Some(Carried::of_receiver(reference.node, strength))
            }
        }
    }

    /// Whether the objects of a peer's message can be taken in at once: their sender has what it
    /// sends, and there is room for new handles.
    pub fn may_hold_few(&self, from: ProcessId, objects: &[Carried]) -> bool {
        let is_either_ends = |object: &Carried| match object.origin() {
            Some(Origin::Sender) => true,
            Some(Origin::Receiver) => self.nodes.get(NodeId(object.node)).is_some(),
            Some(Origin::Third) | None => false,
        };
        objects.iter().all(is_either_ends)
            && self.has_sent_home(from, objects)
            && self.has_room_for(from, objects)
    }

    /// Takes the references of a message for which [`State::may_hold_few`] holds.
    pub fn hold_few(&mut self, from: ProcessId, objects: &[Carried]) -> Few<HeldObject> {
        objects.iter().filter_map(|object| self.hold_carried(from, object)).collect()
    }

    /// Gives up the references of a message.
    pub fn let_go_all(&mut self, held: &[HeldObject]) {
        held.iter().for_each(|object| self.let_go(object));
    }

    /// Whether these references can go without any consequence: others stay.
    pub(super) fn goes_unnoticed(&self, held: &[HeldObject]) -> bool {
        let n_held = held.len() as u32;
        held.iter().all(|object| match *object {
            HeldObject::Handle { handle, strength } => {
                let reference = self.references.get(handle);
                let pinned = self.pinned(handle, strength);
                reference.is_some_and(|held| held.counts.get(strength) > n_held + pinned)
            }
            HeldObject::Own { node, strength } => {
                self.nodes.get(node).is_some_and(|node| node.holders.get(strength) > 0)
            }
        })
    }
}
