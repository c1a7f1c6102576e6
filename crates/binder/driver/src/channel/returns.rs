//! The grants that a message carries, and the two rings of a channel in which each end returns
//! grants of the other end's nodes.

use super::{Channel, Ends};
use baton_abi::control::{End, NodeId};
use baton_abi::lane::*;
use baton_shm::mapping::View;
use baton_shm::ring::Corrupt;
use baton_shm::sync::{AtomicU64, Ordering};
use baton_state::account::{Held, Resource};
use bytemuck::{bytes_of, bytes_of_mut, cast_slice_mut};
use rustc_hash::FxHashSet;

/// Size of a record.
const RECORD: usize = size_of::<ReturnedGrants>();

/// A copy of what a message says of its nodes and handles. Nothing of one with impossible sizes.
pub fn objects_in(message: &Message, map: View<'_>, at: usize) -> Vec<Carried> {
    let Some(parts) = message.parts().filter(|_| message.objects > 0) else { return Vec::new() };
    let mut objects = vec![Carried::default(); usize::from(message.objects)];
    map.read(at + parts.objects_at, cast_slice_mut(&mut objects));
    objects
}

/// Nodes of this process on whose hold by a peer messages of that peer may rely.
#[derive(Debug, Default)]
pub struct ReliedOn {
    nodes: FxHashSet<NodeId>,
    /// Every node.
    all: bool,
}

impl ReliedOn {
    /// Whether the node is one of them.
    pub fn has(&self, node: NodeId) -> bool {
        self.all || self.nodes.contains(&node)
    }
}

/// One ring: its place, and the words with its writer's position and its reader's.
struct Ring<'a> {
    at: usize,
    tail: &'a AtomicU64,
    head: &'a AtomicU64,
}

impl Channel {
    /// A share of the handles that the peer's user may give to this process. `None` if it has all.
    pub fn share_of_handles(&self) -> Option<Held> {
        self.account.take(Resource::Handles, 1)
    }

    /// The ring that an end writes.
    fn returns_of(&self, end: End) -> Ring<'_> {
        let (at, tail, head) = match end {
            End::Client => (0, header::CLIENT_RETURNS_TAIL, header::CLIENT_RETURNS_HEAD),
            End::Server => {
                (RETURNS_BYTES, header::SERVER_RETURNS_TAIL, header::SERVER_RETURNS_HEAD)
            }
        };
        let [tail, head] = [tail, head].map(|word| self.head.double_word(word));
        Ring { at: RETURNS_AT + at, tail, head }
    }

    pub(super) fn other_end(&self) -> End {
        match self.end {
            End::Client => End::Server,
            End::Server => End::Client,
        }
    }

    /// Returns grants to the owner at the other end, which has to be told. False if there is no
    /// room.
    pub fn put_returned(
        &self,
        ends: &mut Ends,
        returned: &ReturnedGrants,
    ) -> Result<bool, Corrupt> {
        let Ring { at, tail, head } = self.returns_of(self.end);
        let (free, _) = ends.returns.room(head)?;
        if free < RECORD {
            return Ok(false);
        }
        self.head.view().write(at + ends.returns.place(), bytes_of(returned));
        ends.returns.publish(tail, RECORD);
        Ok(true)
    }

    /// Whether the other end has returned grants.
    pub fn has_returned(&self) -> bool {
        let Ring { tail, head, .. } = self.returns_of(self.other_end());
        // Both are hints here: this end's own position is read again under the lock.
        tail.load(Ordering::Acquire) != head.load(Ordering::Relaxed)
    }

    /// Adds the nodes of this process on whose hold by the peer a message may rely that lies here
    /// and has not come in. The peer counts on it only if it was sent before the hold was given up.
    pub fn find_relied_on(&self, relied_on: &mut ReliedOn) {
        let is_server = self.end == End::Server;
        relied_on.all |= is_server && (self.has_unread_one_way() || self.has_any_real_time());
        let mapped = (0..LANES).filter(|&lane| self.lanes[lane].get().is_some());
        for areas in mapped.filter_map(|lane| self.lane(lane).ok()) {
            if !areas.inbox().is_empty() {
                let message = areas.header();
                // The target. Its caller may have left the call since, and its handle with it.
                relied_on.nodes.extend(is_server.then_some(NodeId(message.node)));
                let objects = objects_in(&message, areas.incoming(), 0).into_iter();
                let home = objects.filter(|it| it.origin() == Some(Origin::Receiver));
                relied_on.nodes.extend(home.map(|carried| NodeId(carried.node)));
            }
        }
    }

    /// Takes everything that the other end has returned, and whether the ring was full: then the
    /// other end may wait for room.
    pub fn take_returned(&self, ends: &mut Ends) -> Result<(Vec<ReturnedGrants>, bool), Corrupt> {
        let Ring { at, tail, head } = self.returns_of(self.other_end());
        let mut taken = Vec::new();
        let mut was_full = false;
        loop {
            let available = ends.returned.available(tail)?;
            if !available.is_multiple_of(RECORD) {
                return Err(Corrupt);
            }
            // What is read more than once makes room that its writer has used at once.
            if available == 0 || taken.len() >= RETURNS {
                return Ok((taken, was_full));
            }
            let from = at + ends.returned.place();
            for record in (from..from + available).step_by(RECORD) {
                let mut returned = ReturnedGrants::default();
                self.head.view().read(record, bytes_of_mut(&mut returned));
                taken.push(returned);
            }
            was_full |= taken.len() >= RETURNS;
            ends.returned.release(head, available);
        }
    }
}
