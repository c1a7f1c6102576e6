//! The tables of known nodes in a channel's memory: this end offers handles in its own, and names
//! nodes by the other end's.

use super::Channel;
use baton_abi::control::{End, NodeId, ProcessId};
use baton_abi::lane::{Carried, Origin, known, known_at, known_places};
use baton_shm::sync::Ordering;
use baton_shm::use_count::UseCount;
use baton_state::node::NodeKey;

impl Channel {
    fn uses(&self, end: End, entry: u8) -> UseCount<'_> {
        UseCount::new(self.head.word(known_at(end, entry) + known::USES))
    }

    /// Offers a node to the other end.
    pub fn offer(&self, entry: u8, (ProcessId(owner), NodeId(node)): NodeKey, uses: u32) {
        let at = known_at(self.end, entry);
        self.head.double_word(at + known::OWNER).store(owner, Ordering::Relaxed);
        self.head.double_word(at + known::NODE).store(node, Ordering::Relaxed);
        self.uses(self.end, entry).offer(uses);
    }

    /// Withdraws an offer after so many uses. False if there are others on their way.
    pub fn withdraw(&self, entry: u8, uses: u32) -> bool {
        self.uses(self.end, entry).withdraw(uses)
    }

    /// Whether no message that names the entry is on its way after so many uses.
    pub fn has_come(&self, entry: u8, uses: u32) -> bool {
        self.uses(self.end, entry).has_come(uses)
    }

    /// Counts a use of a node that the other end offers. Returns the node's entry. Call it under
    /// the state's lock, as [`Channel::undo_uses`].
    pub fn try_use(&self, (owner, node): NodeKey) -> Option<u8> {
        let end = self.other_end();
        let is_at = |entry: &u8| {
            let at = known_at(end, *entry);
            let [there, of] =
                [known::NODE, known::OWNER].map(|word| self.head.double_word(at + word));
            (there.load(Ordering::Relaxed), of.load(Ordering::Relaxed)) == (node.0, owner.0)
        };
        known_places(owner, node).find(|entry| self.uses(end, *entry).try_use(|| is_at(entry)))
    }

    /// Takes back the uses of a message that will not come. The other end may wait for them.
    pub fn undo_uses(&self, carried: &[Carried]) {
        let known = carried.iter().filter(|object| object.origin() == Some(Origin::Known));
        let entries = known.map(|object| object.entry as u8);
        let n_undone = entries.map(|entry| self.uses(self.other_end(), entry).undo_use()).count();
        if n_undone > 0 {
            self.socket.ring();
        }
    }
}
