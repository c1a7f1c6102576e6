//! The standby looper: a thread that waits to be the next real-time caller's looper, so that nobody
//! has to start one then.
//!
//! It is an ordinary thread, of which the broker knows. A lane that is granted gives it the
//! caller's priority, and the broker wakes it by a word of the tally page: it takes the event
//! itself, before any ordinary thread of the process runs.
//!
//! **Invariant**: one thread at a time waits here, and has a lane that the broker meant for it.

use super::dedicated::DedicatedLooper;
use super::{Engine, tid};
use crate::thread;
use baton_abi::control::Request;
use baton_abi::lane::tally;
use baton_shm::futex;
use baton_shm::lock::Lock;
use baton_shm::sync::Ordering;
use baton_state::work::Tid;
use std::sync::Arc;

/// Whoever waits here.
#[derive(Debug, Default)]
pub(super) struct Standby {
    place: Lock<Place>,
}

#[derive(Debug, Default)]
struct Place {
    waits: Option<Tid>,
    dedicated: Option<Arc<DedicatedLooper>>,
}

impl Engine {
    /// Waits until the broker has a lane for the calling thread, at its caller's priority if the
    /// system allows that. `None` once the process has closed, or if another thread waits already.
    pub fn await_lane(&self) -> Option<Arc<DedicatedLooper>> {
        let tid = tid();
        {
            let mut place = self.standby.place.lock();
            if place.waits.is_some() {
                return None;
            }
            place.waits = Some(tid);
        }
        let word = self.tally.word(tally::LANES);
        let mut era = None;
        loop {
            // Acquire pairs with the release of who changes it: then the event is there, or the
            // dedicated.
            let lanes = word.load(Ordering::Acquire);
            if self.is_closed() {
                return None;
            }
            self.hear();
            let mut place = self.standby.place.lock();
            if let Some(dedicated) = place.dedicated.take() {
                place.waits = None;
                // Without a priority it has to hear from the broker why.
                thread::real_time_priority_again().inspect(|_| dedicated.is_registered());
                return Some(dedicated);
            }
            drop(place);
            let link = self.broker.link();
            if era.replace(link.era) != Some(link.era) {
                // A broker that is gone will not mean it, and the next one is told.
                let _ = link.ask(&Request::StandbyLooper { tid });
            }
            // Its descriptors are needed if the broker dies meanwhile.
            drop(link);
            futex::wait(word, lanes, None);
        }
    }

    /// Gives a lane to the thread that the broker means, if it waits.
    pub(super) fn give_to_standby(&self, dedicated: &Arc<DedicatedLooper>, looper: Tid) -> bool {
        let mut place = self.standby.place.lock();
        if looper == 0 || place.waits != Some(looper) || place.dedicated.is_some() {
            return false;
        }
        place.dedicated = Some(Arc::clone(dedicated));
        drop(place);
        self.wake_standby();
        true
    }

    /// The thread that waits, if one does, looks at everything.
    pub(super) fn wake_standby(&self) {
        let word = self.tally.word(tally::LANES);
        word.fetch_add(1, Ordering::Release);
        futex::wake(word, 1);
    }
}
