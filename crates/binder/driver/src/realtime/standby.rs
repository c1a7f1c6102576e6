//! The standby looper: a thread that waits to be the next real-time caller's looper, so that no
//! thread has to be started then.
//!
//! It is an ordinary thread that is registered with the broker. When the broker grants a lane, it
//! gives this thread the caller's priority and wakes it by a word of the tally page. The thread
//! takes the event itself, before any ordinary thread of the process runs.
//!
//! **Invariant**: at most one thread waits here, and the lane that it gets is the one for which the
//! broker has chosen it.

use crate::engine::Engine;
use crate::engine::real_time::DedicatedLooper;
use crate::sys::thread::{self, tid};
use baton_abi::control::Request;
use baton_shm::futex;
use baton_shm::sync::Ordering;
use baton_state::work::Tid;
use std::sync::Arc;

impl Engine {
    /// Waits until the broker has a lane for the calling thread, at its caller's priority if the
    /// system allows that. `None` once the process has closed, or if another thread waits already.
    pub fn await_lane(&self) -> Option<Arc<DedicatedLooper>> {
        let tid = tid();
        {
            let mut place = self.real_time.standby.lock();
            if place.waits.is_some() {
                return None;
            }
            place.waits = Some(tid);
        }
        let word = self.broker.lanes_word();
        let mut era = None;
        loop {
            // Acquire pairs with the release of the thread that changes the word: the event, or the
            // lane, is there by then.
            let lanes = word.load(Ordering::Acquire);
            if self.is_closed() {
                return None;
            }
            self.take_new_events();
            let mut place = self.real_time.standby.lock();
            if let Some(dedicated) = place.dedicated.take() {
                place.waits = None;
                // A looper without the priority registers, and learns from the broker why.
                thread::real_time_priority_again().inspect(|_| dedicated.set_registered());
                return Some(dedicated);
            }
            drop(place);
            let link = self.broker.link();
            if era.replace(link.era) != Some(link.era) {
                // Each broker is told once. A broker that is gone chooses no thread.
                let _ = link.ask(&Request::StandbyLooper { tid });
            }
            // This thread may sleep long, and a link that it held would keep descriptors open.
            drop(link);
            futex::wait(word, lanes, None);
        }
    }

    /// Gives a lane to the standby looper that the broker has chosen. False if that is not waiting.
    pub(crate) fn give_to_standby(&self, dedicated: &Arc<DedicatedLooper>, looper: Tid) -> bool {
        let mut place = self.real_time.standby.lock();
        if looper == 0 || place.waits != Some(looper) || place.dedicated.is_some() {
            return false;
        }
        place.dedicated = Some(Arc::clone(dedicated));
        drop(place);
        self.wake_standby();
        true
    }

    /// Wakes the standby looper, if there is one. A looper that begins to wait later locks its
    /// place first, and then sees the cause.
    pub(crate) fn wake_standby(&self) {
        if self.real_time.standby.lock().waits.is_none() {
            return;
        }
        let word = self.broker.lanes_word();
        word.fetch_add(1, Ordering::Release);
        futex::wake(word, 1);
    }
}
