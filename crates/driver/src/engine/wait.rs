//! Waiting until a thread's read has something to return.

use super::Engine;
use crate::state::State;
use crate::state::thread::Waiting;
use crate::state::work::Tid;
use baton_shm::futex::{FAR_AHEAD, Wait};
use baton_shm::mailbox::{Mailbox, Seen};
use rustix::io::Errno;
use std::sync::MutexGuard;

/// How long a call may lie in its lane before the server's control thread is asked to look: all
/// of the server's threads are busy, and there may be no room.
const UNTAKEN: std::time::Duration = std::time::Duration::from_millis(1);

impl Engine {
    /// Waits until a read by this thread has something to return. `EAGAIN` if it would not wait,
    /// `EINTR` after a signal.
    pub fn await_work<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        tid: Tid,
        process_work: bool,
        nonblocking: bool,
    ) -> Result<MutexGuard<'a, State>, Errno> {
        loop {
            let answered = self.accept_answer(&mut state, tid);
            let later = if process_work { self.accept(&mut state, None) } else { Vec::new() };
            self.carry_out(&mut state);
            if state.has_work(tid, process_work) {
                return Ok(state);
            }
            if self.is_closed() {
                return Err(Errno::BADF);
            }
            if !answered || !later.is_empty() {
                drop(state);
                state = self.catch_up(&later, (!answered).then_some(tid));
                continue;
            }
            if nonblocking {
                self.hurry(&mut state, tid);
                return Err(Errno::AGAIN);
            }
            state = self.sleep(state, tid, process_work)?;
        }
    }

    /// A call that nobody has taken in yet: its server's control thread can tell whether it will
    /// be taken at all.
    pub(super) fn hurry(&self, state: &mut State, tid: Tid) {
        if let Some(calling) = state.thread(tid).calls_on()
            && let Some(channel) = self.channel(calling.via.channel)
            && let Ok(lane) = channel.lane(calling.via.lane as usize)
            && !lane.outbox().is_empty()
        {
            channel.ring_socket();
        }
    }

    pub(super) fn sleep<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        tid: Tid,
        process_work: bool,
    ) -> Result<MutexGuard<'a, State>, Errno> {
        let innermost = state.thread(tid).calls_on().map(|calling| calling.via);
        let outcome = if let Some(via) = innermost {
            let Some(channel) = self.channel(via.channel) else { return Ok(state) };
            let lane = channel.lane(via.lane as usize)?;
            state.set_waiting(tid, Waiting::Lane(via));
            drop(state);
            // A looper that has been woken for it takes it.
            let untaken = !channel.is_expected(via.lane) && !lane.outbox().is_empty();
            match lane.inbox().wait(Some(if untaken { UNTAKEN } else { FAR_AHEAD })) {
                Err(Wait::TimedOut) => {
                    if !lane.outbox().is_empty() {
                        channel.ring_socket();
                    }
                    lane.inbox().wait(Some(FAR_AHEAD))
                }
                outcome => outcome,
            }
        } else if process_work {
            state.set_waiting(tid, Waiting::Bell);
            let announced = self.bell().announce();
            let news = self.has_news();
            drop(state);
            let outcome = if news { Wait::Woken } else { self.bell().sleep(announced) };
            self.bell().rise();
            match outcome {
                Wait::Woken => Ok(Seen::Nudge),
                other => Err(other),
            }
        } else {
            let word = Mailbox::new(self.own_word(tid));
            state.set_waiting(tid, Waiting::Own);
            drop(state);
            word.wait(Some(FAR_AHEAD))
        };
        state = self.lock();
        state.set_waiting(tid, Waiting::No);
        match outcome {
            Err(Wait::Interrupted) if !state.has_work(tid, process_work) => {
                // An answer that came with the signal is left for the next read.
                Err(Errno::INTR)
            }
            _ => Ok(state),
        }
    }

    pub(super) fn has_news(&self) -> bool {
        let channels = self.channels.read().unwrap_or_else(|p| p.into_inner());
        channels.incoming.iter().any(|channel| channel.has_news(&channel.ends()))
    }
}
