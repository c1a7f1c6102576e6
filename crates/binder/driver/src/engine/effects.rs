//! What the state wants done, and what peers see of the state.

use super::{Engine, tid};
use baton_abi::lane::{Attendance, status};
use baton_shm::lock::Guard;
use baton_shm::mailbox::Mailbox;
use baton_shm::sync::{AtomicU32, Ordering};
use baton_state::thread::{ExtendedError, Waiting};
use baton_state::transaction::LaneId;
use baton_state::work::Tid;
use baton_state::{Effect, State};
use rustix::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;

impl Engine {
    /// Carries out the effects, lets in what waited for room, and publishes what peers see of the
    /// state.
    pub fn carry_out(&self, state: &mut State) {
        self.carry_out_effects(state);
        while state.take_made_room() {
            self.made_room(state);
            self.carry_out_effects(state);
        }
        self.publish(state);
        if self.is_polling() {
            for (&tid, pollable) in self.pollables.lock().iter() {
                let readable = state.would_read(tid) || self.has_answer(state, tid);
                set_readable(pollable, readable);
            }
        }
    }

    /// The effects alone: what comes in while messages are being looked at comes in by that look.
    pub(super) fn carry_out_effects(&self, state: &mut State) {
        while state.has_effects() {
            for effect in state.take_effects() {
                self.carry_out_one(state, effect);
            }
        }
    }

    pub(super) fn carry_out_one(&self, state: &mut State, effect: Effect) {
        match effect {
            Effect::Wake(_, Waiting::No) => {}
            Effect::Wake(_, Waiting::Bell) | Effect::WakeLooper => self.wake_looper(),
            Effect::Wake(_, Waiting::Lane(via)) => {
                if let Some(channel) = self.channel(via.channel)
                    && let Ok(lane) = channel.lane(via.lane as usize)
                {
                    lane.inbox().nudge();
                }
            }
            Effect::Wake(tid, Waiting::Own) => Mailbox::new(&self.own_word(tid)).nudge(),
            Effect::Tell(request) => self.broker.tell(&request),
            Effect::Forgotten(owner) => self.revoke_entries_with(owner),
            Effect::LookAfter(via) => self.look_after(via),
            Effect::Watchdog => self.watchdog.expect(),
            Effect::Relieved(via, tid) => self.leave_relieved(via, tid),
            Effect::Leave(via, open) => self.leave_lane(state, via, &open),
            Effect::EndSending(handle) => {
                let was_taken =
                    |via: LaneId| self.channel(via.channel).is_some_and(|c| c.was_taken(via.lane));
                for (tid, level, via) in state.callers_by(handle) {
                    if via.is_none_or(was_taken) {
                        state.taken(tid, level);
                    }
                }
            }
            Effect::Account(channel) => {
                if let Some(channel) = self.channel(channel) {
                    channel.publish_account(state.one_way_account(channel.id));
                }
            }
            Effect::Close(fds) => {
                for fd in fds {
                    // SAFETY: installed by this engine for a buffer that has just been dropped;
                    // nobody else owns the number (or, for an array's, the protocol says so).
                    drop(unsafe { OwnedFd::from_raw_fd(fd) });
                }
            }
            Effect::Complain(line) => {
                tracing::warn!(target: "binder", "{}:{} {line}", self.identity.pid, tid());
            }
        }
    }

    /// In the kernel's words, which the tests of Binder programs look for.
    pub(crate) fn tell_failure(&self, error: ExtendedError, (data, offsets): (u64, u64)) {
        let ExtendedError { command, param, .. } = error;
        let pid = self.identity.pid;
        tracing::debug!(
            target: "binder",
            "{pid}:{} transaction failed {command}/{param}, size {data}-{offsets}",
            tid()
        );
    }

    pub(super) fn publish(&self, state: &State) {
        let threads = (state.threads.len() as u64) << 32 | (state.pool.there as u64) << 1;
        let shown = [state.buffers.changes(), threads | u64::from(self.is_polling())];
        // Relaxed: changed under the state's lock alone.
        let before = self.shown.each_ref().map(|shown| shown.load(Ordering::Relaxed));
        if before != shown {
            self.shown.iter().zip(shown).for_each(|(to, new)| to.store(new, Ordering::Relaxed));
            self.publish_all(state);
        }
        self.publish_lane_loopers(state);
        self.publish_counts(state);
    }

    /// Whether real-time callers can wait for loopers of their own.
    pub(super) fn publish_lane_loopers(&self, state: &State) {
        let come = u32::from(self.provides_loopers() || state.pool.may_dedicate());
        let word = self.front.word(status::LANE_LOOPERS);
        // Relaxed: the word is written under the state's lock alone. Who may write it may lie to
        // his callers.
        if word.load(Ordering::Relaxed) != come {
            word.store(come, Ordering::Release);
        }
    }

    /// [`Engine::unlock`], where nothing has changed but what lies in the receive buffer, and what
    /// nobody else sees. If more has come of it, that is carried out as ever.
    pub(super) fn unlock_room(&self, mut state: Guard<'_, State>) {
        // Relaxed: written under the state's lock.
        let wanted = self.any_full.load(Ordering::Relaxed) || self.is_polling();
        if wanted || state.has_effects() {
            return self.unlock(state);
        }
        state.take_made_room();
        let changes = state.buffers.changes();
        if self.shown[0].swap(changes, Ordering::Relaxed) != changes {
            self.publish_room(&state);
        }
    }

    fn publish_room(&self, state: &State) {
        let put = |offset, value: usize| {
            self.front.word(offset).store(value as u32, Ordering::Release);
        };
        let (used, buffers, largest) = state.room();
        put(status::LARGEST_FREE, largest);
        put(status::BUFFER_USED, used);
        put(status::BUFFERS, buffers);
    }

    fn publish_all(&self, state: &State) {
        let put = |offset, value: usize| {
            self.front.word(offset).store(value as u32, Ordering::Release);
        };
        let attended = state.pool.there > 0 && !self.is_polling();
        let attendance = if attended { Attendance::Loopers } else { Attendance::Nobody };
        self.publish_room(state);
        put(status::ATTENDANCE, attendance as usize);
        put(status::BUFFER_BYTES, state.buffers.bytes());
        put(status::ONE_WAY_FREE, state.buffers.one_way_free());
        put(status::THREADS, state.threads.len());
        put(status::LOOPERS, state.pool.there);
    }

    /// What the fast path counts too.
    fn publish_counts(&self, state: &State) {
        let (outstanding, received) = (state.pending_calls() as u32, state.received);
        // Relaxed: both are changed under the state's lock alone.
        let before = self.published_outstanding.swap(outstanding, Ordering::Relaxed);
        if before != outstanding {
            // SeqCst: see the broker's status page.
            let word = self.front.word(status::OUTSTANDING);
            word.fetch_add(outstanding.wrapping_sub(before), Ordering::SeqCst);
        }
        let before = self.published_received.swap(received, Ordering::Relaxed);
        if before != received {
            let word = self.front.double_word(status::TRANSACTIONS);
            word.fetch_add(received.wrapping_sub(before), Ordering::Relaxed);
        }
    }

    /// A caller that polls may have been answered.
    pub(super) fn has_answer(&self, state: &State, tid: Tid) -> bool {
        let calling = state.threads.get(tid).and_then(|thread| thread.calls_on());
        calling.is_some_and(|calling| {
            self.channel(calling.via.channel).is_some_and(|channel| {
                channel.lane(calling.via.lane as usize).is_ok_and(|lane| !lane.inbox().is_empty())
            })
        })
    }

    pub(super) fn own_word(&self, tid: Tid) -> Arc<AtomicU32> {
        Arc::clone(self.own_words.lock().entry(tid).or_default())
    }
}

fn set_readable(pollable: &OwnedFd, readable: bool) {
    let mut count = [0; 8];
    if readable {
        let _ = rustix::io::write(pollable, &1u64.to_ne_bytes());
    } else {
        let _ = rustix::io::read(pollable, &mut count);
    }
}
