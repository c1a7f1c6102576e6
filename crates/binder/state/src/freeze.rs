//! Freeze notifications: the shape of death notifications, for a state that comes and goes.

use super::State;
use super::work::{Obituary, Tid, Work};
use rustix::io::Errno;

/// A listener for the freezing of a handle's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Its number.
    pub id: u64,
    /// The program's word.
    pub cookie: u64,
    /// What the program is told at the next delivery; unknown until the broker has answered.
    pub frozen: Option<bool>,
    /// Where the notice is.
    pub stage: Stage,
}

/// Where a notice is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Nothing to tell.
    Idle,
    /// Queued.
    Queued,
    /// Read, not acknowledged; changed again meanwhile or not.
    Delivered {
        /// Tell the new state after BC_FREEZE_NOTIFICATION_DONE.
        again: bool,
    },
}

impl State {
    /// BC_REQUEST_FREEZE_NOTIFICATION: listens from now on, before the broker is asked for the
    /// owner's state, so that no change falls between. `EINVAL` for a bad handle or a second
    /// request.
    pub fn listen_for_freeze(&mut self, handle: u32, cookie: u64) -> Result<(), Errno> {
        let id = self.next_number();
        let Some(reference) = self.held(handle) else {
            self.complain(format!("BC_REQUEST_FREEZE_NOTIFICATION invalid ref {handle}"));
            return Err(Errno::INVAL);
        };
        if reference.freeze.is_some() {
            self.complain("BC_REQUEST_FREEZE_NOTIFICATION already set".to_owned());
            return Err(Errno::INVAL);
        }
        reference.freeze = Some(Notice { id, cookie, frozen: None, stage: Stage::Idle });
        Ok(())
    }

    /// The broker's answer for a listener, unless an event has told more since.
    pub fn freeze_known(&mut self, handle: u32, cookie: u64, frozen: bool) {
        let Some(reference) = self.references.get_mut(handle) else { return };
        let dead = reference.dead;
        let asked = |notice: &&mut Notice| notice.cookie == cookie && notice.frozen.is_none();
        let Some(notice) = reference.freeze.as_mut().filter(asked) else { return };
        notice.frozen = Some(frozen);
        if !dead {
            notice.stage = Stage::Queued;
            let obituary = Obituary { notice: notice.id, cookie };
            self.push_process(Work::Frozen(obituary));
        }
    }

    /// The owner of some handles was frozen or thawed.
    pub(super) fn freeze_changed(&mut self, owner: baton_abi::control::ProcessId, frozen: bool) {
        let mut news = Vec::new();
        for (_, reference) in self.references.iter_mut() {
            if reference.owner != owner {
                continue;
            }
            let Some(notice) = &mut reference.freeze else { continue };
            if notice.frozen.replace(frozen) == Some(frozen) {
                continue; // Another broker says how it is, not that it has changed.
            }
            match &mut notice.stage {
                Stage::Idle => {
                    notice.stage = Stage::Queued;
                    news.push(Obituary { notice: notice.id, cookie: notice.cookie });
                }
                Stage::Queued => {}
                Stage::Delivered { again } => *again = true,
            }
        }
        for obituary in news {
            self.push_process(Work::Frozen(obituary));
        }
    }

    /// The notice is being read: the state to tell, `None` if its handle is gone.
    pub(super) fn freeze_delivered(&mut self, obituary: Obituary) -> Option<bool> {
        let notice = self.find_freeze(|notice| notice.id == obituary.notice)?;
        notice.stage = Stage::Delivered { again: false };
        notice.frozen
    }

    /// BC_FREEZE_NOTIFICATION_DONE.
    pub fn freeze_done(&mut self, tid: Tid, cookie: u64) -> Result<(), Errno> {
        if let Some(at) = self.cleared_freezes.iter().position(|&cleared| cleared == cookie) {
            self.cleared_freezes.remove(at);
            self.push_own_or_process(tid, Work::FreezeCleared(cookie));
            return Ok(());
        }
        let delivered =
            |n: &Notice| n.cookie == cookie && matches!(n.stage, Stage::Delivered { .. });
        let Some(notice) = self.find_freeze(delivered) else {
            self.complain(format!("BC_FREEZE_NOTIFICATION_DONE {cookie:016x} not found"));
            return Err(Errno::INVAL);
        };
        let again = notice.stage == Stage::Delivered { again: true };
        notice.stage = if again { Stage::Queued } else { Stage::Idle };
        let obituary = Obituary { notice: notice.id, cookie };
        if again {
            self.push_process(Work::Frozen(obituary));
        }
        Ok(())
    }

    /// BC_CLEAR_FREEZE_NOTIFICATION.
    pub fn clear_freeze(&mut self, tid: Tid, handle: u32, cookie: u64) -> Result<(), Errno> {
        const NAME: &str = "BC_CLEAR_FREEZE_NOTIFICATION";
        let notice = self.references.get_mut(handle).and_then(|reference| reference.freeze);
        let Some(notice) = notice.filter(|notice| notice.cookie == cookie) else {
            self.complain(format!("{NAME} not active for ref {handle} cookie {cookie:016x}"));
            return Err(Errno::INVAL);
        };
        if let Some(reference) = self.references.get_mut(handle) {
            reference.freeze = None;
        }
        match notice.stage {
            Stage::Delivered { .. } => self.cleared_freezes.push(cookie),
            stage => {
                if stage == Stage::Queued {
                    self.drop_freeze(notice);
                }
                self.push_own_or_process(tid, Work::FreezeCleared(cookie));
            }
        }
        Ok(())
    }

    /// What is queued of a notice goes with it.
    pub(super) fn drop_freeze(&mut self, notice: Notice) {
        self.take_process_work(|work| matches!(work, Work::Frozen(o) if o.notice == notice.id));
    }

    fn find_freeze(&mut self, wanted: impl Fn(&Notice) -> bool) -> Option<&mut Notice> {
        self.references.iter_mut().filter_map(|(_, r)| r.freeze.as_mut()).find(|n| wanted(n))
    }
}
