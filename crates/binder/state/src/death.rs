//! Death notifications.
//!
//! ```text
//!              request              owner dies           read              BC_DEAD_BINDER_DONE
//!   (none) ------------> Armed --------------> Queued ------> Delivered -----------------> over
//!                          | clear                 | clear         | clear
//!                          v                       v               v
//!                    DeathCleared            (both told: dead, and after its done, cleared)
//! ```
//!
//! A notice has a number of its own: the handle may be dropped, and named anew, while the notice
//! is still being told.

use super::State;
use super::work::{Obituary, Queue, Tid, Work};

/// A listener for the death of a handle's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Its number.
    pub id: u64,
    /// The program's word.
    pub cookie: u64,
    /// The death has been queued or told.
    pub told: bool,
}

/// A notice that has been queued or told, until the program is done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToldDeath {
    /// The notice.
    pub id: u64,
    /// Its cookie.
    pub cookie: u64,
    /// The program has read it.
    pub delivered: bool,
    /// The program cleared it meanwhile: it is to hear of that when it is done.
    pub cleared: bool,
}

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
        reference.death = Some(Notice { id, cookie, told: false });
        if reference.dead {
            self.tell_death(handle);
        }
    }

    /// The owner of the handle's node is gone: queue the notice, if there is one.
    pub(super) fn tell_death(&mut self, handle: u32) {
        let Some(notice) = self.references.get_mut(handle).and_then(|r| r.death.as_mut()) else {
            return;
        };
        if std::mem::replace(&mut notice.told, true) {
            return;
        }
        let Notice { id, cookie, .. } = *notice;
        self.told_deaths.push(ToldDeath { id, cookie, delivered: false, cleared: false });
        self.push_process(Work::Dead(Obituary { notice: id, cookie }));
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
        reference.death = None;
        match self.told_deaths.iter_mut().find(|told| told.id == notice.id) {
            Some(told) => told.cleared = true,
            None => self.push_own_or_process(tid, Work::DeathCleared(cookie)),
        }
    }

    /// BC_DEAD_BINDER_DONE.
    pub fn death_done(&mut self, tid: Tid, cookie: u64) {
        let told = self.told_deaths.iter().position(|t| t.delivered && t.cookie == cookie);
        let Some(at) = told else {
            return self.complain(format!("BC_DEAD_BINDER_DONE {cookie:016x} not found"));
        };
        if self.told_deaths.remove(at).cleared {
            self.push_own_or_process(tid, Work::DeathCleared(cookie));
        }
    }

    /// The notice has been read.
    pub(super) fn death_delivered(&mut self, obituary: Obituary) {
        if let Some(told) = self.told_deaths.iter_mut().find(|told| told.id == obituary.notice) {
            told.delivered = true;
        }
    }

    /// The handle goes: what has not been read of its notice goes too.
    pub(super) fn drop_notice(&mut self, notice: Notice) {
        let undelivered = |told: &ToldDeath| told.id == notice.id && !told.delivered;
        if let Some(at) = self.told_deaths.iter().position(undelivered) {
            self.told_deaths.remove(at);
            self.take_process_work(|work| matches!(work, Work::Dead(o) if o.notice == notice.id));
        }
    }

    /// A thread that serves hears of its own clear; any other's goes to the pool.
    pub(super) fn push_own_or_process(&mut self, tid: Tid, work: Work) {
        if self.thread(tid).looper.serves() {
            self.push(Queue::Thread(tid), work);
        } else {
            self.push_process(work);
        }
    }
}
