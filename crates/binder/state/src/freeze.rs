//! Freeze notifications: the shape of death notifications, for a state that comes and goes.

use crate::notice::{FreezeNotice, FreezeStage};
use crate::process::State;
use crate::work::{QueuedNotice, Work};
use baton_abi::control::ProcessId;
use rustix::io::Errno;

impl State {
    /// BC_REQUEST_FREEZE_NOTIFICATION: listens from now on, before the broker is asked for the
    /// owner's state, so that no change falls between. `EINVAL` for a bad handle or a second
    /// request.
    pub fn listen_for_freeze(&mut self, handle: u32, cookie: u64) -> Result<(), Errno> {
        const NAME: &str = "BC_REQUEST_FREEZE_NOTIFICATION";
        let id = self.next_number();
        let Some(reference) = self.held(handle) else {
            return Err(self.complain_of(format!("{NAME} invalid ref {handle}"), Errno::INVAL));
        };
        if reference.freeze.is_some() {
            return Err(self.complain_of(format!("{NAME} already set"), Errno::INVAL));
        }
        reference.freeze =
            Some(FreezeNotice { id, cookie, frozen: None, stage: FreezeStage::Idle });
        Ok(())
    }

    /// Notes the broker's answer for a listener, unless a later event has come.
    pub fn freeze_known(&mut self, handle: u32, cookie: u64, frozen: bool) {
        let Some(reference) = self.references.get_mut(handle) else { return };
        let dead = reference.dead;
        let asked = |notice: &&mut FreezeNotice| notice.cookie == cookie && notice.frozen.is_none();
        let Some(notice) = reference.freeze.as_mut().filter(asked) else { return };
        notice.frozen = Some(frozen);
        if !dead {
            notice.stage = FreezeStage::Queued;
            let queued = QueuedNotice { notice: notice.id, cookie };
            self.push_process(Work::Frozen(queued));
        }
    }

    /// Queues the notices of handles whose owner was frozen or thawed.
    pub(crate) fn freeze_changed(&mut self, owner: ProcessId, frozen: bool) {
        let mut news = Vec::new();
        for (_, reference) in self.references.iter_mut() {
            if reference.owner != owner {
                continue;
            }
            let Some(notice) = &mut reference.freeze else { continue };
            if notice.frozen.replace(frozen) == Some(frozen) {
                // A new broker reports the current state, which may be unchanged.
                continue;
            }
            match &mut notice.stage {
                FreezeStage::Idle => {
                    notice.stage = FreezeStage::Queued;
                    news.push(QueuedNotice { notice: notice.id, cookie: notice.cookie });
                }
                FreezeStage::Queued => {}
                FreezeStage::Delivered { again } => *again = true,
            }
        }
        for queued in news {
            self.push_process(Work::Frozen(queued));
        }
    }

    /// The state to report with a notice that is being read; `None` if its handle is gone.
    pub(crate) fn freeze_delivered(&mut self, queued: QueuedNotice) -> Option<bool> {
        let notice = self.find_freeze(|notice| notice.id == queued.notice)?;
        notice.stage = FreezeStage::Delivered { again: false };
        notice.frozen
    }

    /// BC_FREEZE_NOTIFICATION_DONE.
    pub fn freeze_done(&mut self, cookie: u64) -> Result<(), Errno> {
        if let Some(at) = self.cleared_freezes.iter().position(|&cleared| cleared == cookie) {
            self.cleared_freezes.remove(at);
            self.push_process(Work::FreezeCleared(cookie));
            return Ok(());
        }
        let delivered = |n: &FreezeNotice| {
            n.cookie == cookie && matches!(n.stage, FreezeStage::Delivered { .. })
        };
        let Some(notice) = self.find_freeze(delivered) else {
            let line = format!("BC_FREEZE_NOTIFICATION_DONE {cookie:016x} not found");
            return Err(self.complain_of(line, Errno::INVAL));
        };
        let again = notice.stage == FreezeStage::Delivered { again: true };
        notice.stage = if again { FreezeStage::Queued } else { FreezeStage::Idle };
        let queued = QueuedNotice { notice: notice.id, cookie };
        if again {
            self.push_process(Work::Frozen(queued));
        }
        Ok(())
    }

    /// BC_CLEAR_FREEZE_NOTIFICATION.
    pub fn clear_freeze(&mut self, handle: u32, cookie: u64) -> Result<(), Errno> {
        const NAME: &str = "BC_CLEAR_FREEZE_NOTIFICATION";
        let notice = self.references.get_mut(handle).and_then(|reference| reference.freeze);
        let Some(notice) = notice.filter(|notice| notice.cookie == cookie) else {
            let line = format!("{NAME} not active for ref {handle} cookie {cookie:016x}");
            return Err(self.complain_of(line, Errno::INVAL));
        };
        if let Some(reference) = self.references.get_mut(handle) {
            reference.freeze = None;
        }
        match notice.stage {
            FreezeStage::Delivered { .. } => self.cleared_freezes.push(cookie),
            stage => {
                if stage == FreezeStage::Queued {
                    self.drop_freeze(notice);
                }
                self.push_process(Work::FreezeCleared(cookie));
            }
        }
        Ok(())
    }

    /// Removes the notice, and its work if that is queued.
    pub(crate) fn drop_freeze(&mut self, notice: FreezeNotice) {
        self.todo.take_if(|work| matches!(work, Work::Frozen(o) if o.notice == notice.id));
    }

    fn find_freeze(
        &mut self,
        matches: impl Fn(&FreezeNotice) -> bool,
    ) -> Option<&mut FreezeNotice> {
        self.references.iter_mut().filter_map(|(_, r)| r.freeze.as_mut()).find(|n| matches(n))
    }
}
