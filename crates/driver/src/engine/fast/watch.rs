//! A looper of the uapi front end that attends a real-time caller's lane, on the fast path.

use super::cell::Cell;
use super::desk::{Attended, Subject};
use super::{Buffered, Seat, Taken};
use crate::engine::Engine;
use crate::engine::duty::Duty;
use crate::state::State;
use crate::state::thread::Waiting;
use crate::state::transaction::{Incoming, Via};
use crate::state::work::Tid;
use baton_shm::futex::Wait;
use baton_shm::mailbox::Seen;
use std::sync::Arc;

/// The lane, and what the thread knows of its client.
pub(super) struct Watch {
    duty: Arc<Duty>,
    seat: Seat<Subject>,
}

impl Watch {
    /// At a lane that the thread attends already.
    pub fn new(engine: &Engine, via: Via) -> Option<Watch> {
        Some(Watch { duty: engine.duty(via)?, seat: Seat::new() })
    }

    /// Which lane.
    pub fn via(&self) -> Via {
        self.duty.via()
    }

    /// See [`Seat::learn`].
    pub fn learn(&mut self, engine: &Engine, state: &State, incoming: &Incoming, subject: Subject) {
        self.seat.learn(engine, state, incoming, subject);
    }

    /// The thread's cell.
    pub fn cell(&self) -> Option<&Cell> {
        self.seat.cell()
    }

    /// What it has taken in last.
    pub fn taken(&self) -> Option<Taken<'_>> {
        let lane = self.duty.areas().ok()?;
        Some(Taken { cell: self.cell()?, channel: &self.duty.channel, lane, via: self.via() })
    }
}

impl Engine {
    /// Waits for a transaction of the one shape on the lane.
    pub(super) fn attend_watch(&self, tid: Tid, watch: &mut Watch) -> Attended {
        let (duty, seat) = (&*watch.duty, &mut watch.seat);
        let Ok(areas) = duty.areas() else { return Attended::No };
        let mut state = self.lock();
        if state.attends(tid) != Some(duty.via()) {
            return Attended::Over;
        }
        let wanted = self.is_closed() || duty.is_over() || duty.is_news();
        if wanted || seat.is_stale(self, &duty.channel) || !state.is_free(tid) {
            return Attended::No;
        }
        state.set_waiting(tid, Waiting::Lane(duty.via()));
        drop(state);
        let seen = match areas.inbox().look() {
            Seen::Nothing => {
                let seen = areas.inbox().wait(None);
                self.stay_with_caller(duty);
                seen
            }
            seen => Ok(seen),
        };
        if seen == Ok(Seen::Message) {
            let mut receiver = Buffered::new(tid);
            let lane = duty.lane as usize;
            let taken = seat.take(self, &duty.channel, lane, &mut receiver);
            if let Some((brought, (_, subject))) = receiver.brought.zip(taken) {
                return Attended::Told(brought, *subject);
            }
        }
        let mut state = self.lock();
        state.set_waiting(tid, Waiting::No);
        match seen {
            Err(Wait::Interrupted) if !state.has_work(tid, false) => Attended::Interrupted,
            _ => Attended::No,
        }
    }
}
