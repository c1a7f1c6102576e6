//! Death notifications.
//!
//! ```text
//!              request              owner dies           read              BC_DEAD_BINDER_DONE
//!   (none) ------------> Armed --------------> Queued ------> Delivered -----------------> over
//!                          | clear                 | clear         | clear
//!                          v                       v               v
//!                    DeathCleared            (both told: dead, and after its done, cleared)
//! ```

use crate::notice::{DeathNotice, UnfinishedDeath};
use crate::process::State;
use crate::work::{QueuedNotice, Tid, Work};

impl State {
    /// BC_REQUEST_DEATH_NOTIFICATION.
    pub fn request_death(&mut self, handle: u32, cookie: u64) {
        let id = self.next_number();
        let Some(reference) = self.held(handle) else {
            return self.complain(format!("BC_REQUEST_DEATH_NOTIFICATION invalid ref {handle}"));
        };
        if reference.death.is_some() {
            return self.complain(format!(
                "BC_REQUEST_DEATH_NOTIFICATION death notification already set for ref {handle}"
            ));
        }
        reference.death = Some(DeathNotice { id, cookie, was_queued: false });
        if reference.dead {
            self.tell_death(handle);
        }
    }

    /// Queues the handle's notice, if there is one: the owner of its node is gone.
    pub(crate) fn tell_death(&mut self, handle: u32) {
        let Some(notice) = self.references.get_mut(handle).and_then(|r| r.death.as_mut()) else {
            return;
        };
        if std::mem::replace(&mut notice.was_queued, true) {
            return;
        }
        let DeathNotice { id, cookie, .. } = *notice;
        self.unfinished_deaths.push(UnfinishedDeath {
            id,
            cookie,
            delivered: false,
            cleared: false,
        });
        self.push_process(Work::Dead(QueuedNotice { notice: id, cookie }));
    }

    /// BC_CLEAR_DEATH_NOTIFICATION.
    pub fn clear_death(&mut self, tid: Tid, handle: u32, cookie: u64) {
        const NAME: &str = "BC_CLEAR_DEATH_NOTIFICATION";
        let Some(reference) = self.held(handle) else {
            return self.complain(format!("{NAME} invalid ref {handle}"));
        };
        let Some(notice) = reference.death else {
            return self.complain(format!("{NAME} death notification not active"));
        };
        if notice.cookie != cookie {
            return self.complain(format!(
                "{NAME} death notification cookie mismatch {:016x} != {cookie:016x}",
                notice.cookie
            ));
        }
        if self.forget_death(handle) {
            self.push_own_or_process(tid, Work::DeathCleared(cookie));
        }
    }

    /// Ends a handle's notice, if it has one, and queues nothing. False if the notice is queued
    /// itself: then BC_DEAD_BINDER_DONE tells that it is over.
    pub fn forget_death(&mut self, handle: u32) -> bool {
        let notice = self.references.get_mut(handle).and_then(|it| it.death.take());
        let Some(notice) = notice else { return false };
        match self.unfinished_deaths.iter_mut().find(|death| death.id == notice.id) {
            Some(death) => {
                death.cleared = true;
                false
            }
            None => true,
        }
    }

    /// Whether a handle has this notice, or has had it and the program is still to be told.
    pub fn has_death(&self, handle: u32, cookie: u64) -> bool {
        let notice = self.references.get(handle).and_then(|reference| reference.death);
        notice.is_some_and(|notice| notice.cookie == cookie)
            || self.unfinished_deaths.iter().any(|death| death.cookie == cookie)
    }

    /// BC_DEAD_BINDER_DONE.
    pub fn death_done(&mut self, tid: Tid, cookie: u64) {
        let delivered =
            self.unfinished_deaths.iter().position(|it| it.delivered && it.cookie == cookie);
        let Some(at) = delivered else {
            return self.complain(format!("BC_DEAD_BINDER_DONE {cookie:016x} not found"));
        };
        if self.unfinished_deaths.remove(at).cleared {
            self.push_own_or_process(tid, Work::DeathCleared(cookie));
        }
    }

    /// Notes that the program has read the notice.
    pub(crate) fn death_delivered(&mut self, queued: QueuedNotice) {
        if let Some(death) =
            self.unfinished_deaths.iter_mut().find(|death| death.id == queued.notice)
        {
            death.delivered = true;
        }
    }

    /// Removes the notice of a handle that goes, unless the program has read it.
    pub(crate) fn drop_death(&mut self, notice: DeathNotice) {
        let undelivered = |death: &UnfinishedDeath| death.id == notice.id && !death.delivered;
        if let Some(at) = self.unfinished_deaths.iter().position(undelivered) {
            self.unfinished_deaths.remove(at);
            self.todo.take_if(|work| matches!(work, Work::Dead(o) if o.notice == notice.id));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Return;
    use crate::rejoin::tests::{HANDLE, holder};

    #[test]
    fn a_notice_that_is_forgotten_leaves_no_work() {
        let mut state = holder();
        for cookie in 1..10 {
            state.request_death(HANDLE, cookie);
            assert!(state.forget_death(HANDLE));
        }
        assert!(!state.forget_death(HANDLE), "there is none");
        assert!(state.next_return(1, true).is_none());
        state.request_death(HANDLE, 10);
        state.clear_death(1, HANDLE, 10);
        assert!(matches!(state.next_return(1, true), Some(Return::Cookie(_, 10))));
    }
}
