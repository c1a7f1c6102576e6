//! Access to granted memory: a thread may copy from or to the memory of a thread that waits for it
//! alone. `trusted` does the copying.

use super::State;
use crate::cluster::envelope::Stage;
use crate::grant::{GrantError, Part};
use crate::list::Slot;
use crate::tcb::Status;
use crate::thread_id::ThreadId;
use crate::variant::Variant;

impl<K: Variant> State<K> {
    /// The address of a part of the memory that `owner` grants. After a success the memory stays
    /// valid until `close_grant`.
    pub(crate) fn open_grant(
        &mut self,
        me: Slot,
        owner: ThreadId,
        part: Part,
    ) -> Result<u64, GrantError> {
        if self.is_foreign(owner) {
            return self.open_remote_grant(me, owner, part);
        }
        let owner = self.find(owner).ok_or(GrantError::NotGranted)?;
        let tcb = &self.tcbs[owner];
        let waits = tcb.status == Status::Receiving && tcb.partner == self.tcbs[me].id.raw();
        if !waits {
            return Err(GrantError::NotGranted);
        }
        self.utcbs[owner.index()].grant.place(part)
    }

    fn open_remote_grant(
        &mut self,
        me: Slot,
        owner: ThreadId,
        part: Part,
    ) -> Result<u64, GrantError> {
        let me = self.tcbs[me].id.raw();
        let link = self.link.as_ref().ok_or(GrantError::NotGranted)?;
        let envelope = link.cluster.envelope_of(owner).ok_or(GrantError::NotGranted)?;
        let version = envelope.version();
        let waits = version.stage() == Stage::Waiting
            && envelope.partner() == me
            && envelope.name() == Some(owner);
        if !waits || !envelope.exchange(version, Stage::Copying) {
            return Err(GrantError::NotGranted);
        }
        let place = envelope.grant().place(part);
        if place.is_err() {
            self.close_grant(owner);
        }
        place
    }

    /// Ends a copy: the owner may go on.
    pub(crate) fn close_grant(&mut self, owner: ThreadId) {
        if !self.is_foreign(owner) {
            return;
        }
        let Some(link) = &mut self.link else { return };
        let cluster = std::sync::Arc::clone(&link.cluster);
        let Some(envelope) = cluster.envelope_of(owner) else { return };
        if !envelope.end_copy() {
            link.post_to_receiver(owner);
        }
    }
}
