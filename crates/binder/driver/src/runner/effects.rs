//! Effects of the state, and the parts of the state that peers see.

use crate::engine::Engine;
use crate::sys::thread::tid;
use baton_shm::lock::Guard;
use baton_shm::mailbox::Mailbox;
use baton_shm::sync::Ordering;
use baton_state::known::KnownEntry;
use baton_state::thread::{ExtendedError, Waiting};
use baton_state::transaction::LaneId;
use baton_state::work::Tid;
use baton_state::{Effect, State};
use rustix::fd::{FromRawFd, OwnedFd};

impl Engine {
    /// Carries out the effects, admits messages that waited for room, and publishes the status
    /// page.
    pub fn carry_out(&self, state: &mut State) {
        self.carry_out_and_take(state, 0);
    }

    /// Like [`Engine::carry_out`], for a thread that takes `n_taken` items of the process's work
    /// before it unlocks the state.
    pub(crate) fn carry_out_and_take(&self, state: &mut State, n_taken: usize) {
        if !state.postponed.is_empty() {
            self.apply_postponed(state);
        }
        self.carry_out_effects(state);
        while state.take_made_room() {
            self.made_room(state);
            self.carry_out_effects(state);
        }
        self.wake_for_work(state, n_taken);
        self.publish(state);
        if self.is_polling() {
            self.pollables.show(|tid| state.would_read(tid) || self.has_answer(state, tid));
        }
    }

    /// Carries out the effects alone. A look for messages that is under way admits the others
    /// itself.
    pub(crate) fn carry_out_effects(&self, state: &mut State) {
        while state.has_effects() {
            let mut effects = state.take_effects();
            effects.drain(..).for_each(|effect| self.carry_out_one(state, effect));
            state.keep_room_for_effects(effects);
        }
    }

    /// Whether others have to hear of changes by the thread that unlocks the state.
    pub(super) fn has_changed(&self, state: &State) -> bool {
        state.has_effects() || state.needs_looper(0, || self.pool.attention.is_on())
    }

    /// Wakes a looper for the process's work, if one sleeps.
    fn wake_for_work(&self, state: &mut State, n_taken: usize) {
        if state.needs_looper(n_taken, || self.pool.attention.is_on()) {
            state.wakes_looper();
            self.pool.wake_looper();
            // It may serve a call past the state first.
            self.control.repeats.expect();
        }
    }

    pub(crate) fn carry_out_one(&self, state: &mut State, effect: Effect) {
        match effect {
            Effect::Wake(_, Waiting::No) => {}
            // This thread among them.
            Effect::Wake(_, Waiting::Bell) => self.pool.wake_loopers(),
            Effect::WakeLooper => self.pool.wake_looper(),
            Effect::Wake(_, Waiting::Lane(via)) => {
                if let Some(channel) = self.channel(via.channel)
                    && let Ok(lane) = channel.lane(via.lane as usize)
                {
                    lane.inbox().nudge();
                }
            }
            Effect::Wake(tid, Waiting::Own) => Mailbox::new(&self.own_word(tid)).nudge(),
            Effect::Tell(request) => self.broker.tell(&request),
            Effect::List(entry, holding) => self.broker.write_list(entry, holding),
            Effect::Return(owner, returned) => {
                if self.pool.channels.return_grants(owner, &returned).is_err() {
                    // The owner takes none. The control thread ends its channels, after the
                    // effects.
                    let channels = self.pool.channels.with(owner);
                    channels.iter().for_each(|channel| channel.socket.shut_down());
                }
            }
            Effect::Round => self.control.repeats.expect(),
            Effect::FreeHandle(handle) => {
                let has_come = |(entry, uses): (KnownEntry, u32)| {
                    let channel = self.channel(entry.channel);
                    channel.is_none_or(|channel| channel.has_come(entry.number, uses))
                };
                if state.offers_of(handle).all(has_come) {
                    state.free_handle(handle);
                }
            }
            Effect::Offer(entry, node, uses) => {
                if let Some(channel) = self.channel(entry.channel) {
                    channel.offer(entry.number, node, uses);
                }
            }
            Effect::Withdraw(entry, uses) => {
                let channel = self.channel(entry.channel);
                if channel.is_none_or(|channel| channel.withdraw(entry.number, uses)) {
                    state.withdrawn(entry);
                }
            }
            Effect::HandleDropped(owner) => self.pool.channels.revoke_entries_with(owner),
            Effect::Raise(server, priority) => self.raise(state, server, priority),
            Effect::AnnounceRequest(via) => self.announce_to_pool(via),
            Effect::Watchdog => self.control.watchdog.expect(),
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
            Effect::Close(fds) => state.closing.extend(fds),
            Effect::Discard(user, fds) => {
                let closer = self.closers.of(user, &self.accounts.of(user));
                closer.close(fds.into_iter().map(own_installed).collect());
            }
            Effect::Complain(line) => {
                tracing::warn!(target: "binder", "{}:{} {line}", self.identity.pid, tid());
            }
        }
    }

    /// Logs a failed transaction in the kernel's words, which the tests of Binder programs look
    /// for.
    pub(crate) fn log_failure(&self, error: ExtendedError, (data, offsets): (u64, u64)) {
        let ExtendedError { command, param, .. } = error;
        let pid = self.identity.pid;
        tracing::debug!(
            target: "binder",
            "{pid}:{} transaction failed {command}/{param}, size {data}-{offsets}",
            tid()
        );
    }

    /// Publishes the status page, unless the device is closed: nobody looks at it any more, and a
    /// page that was never touched need not be made.
    pub(crate) fn publish(&self, state: &State) {
        if self.closed.load(Ordering::Relaxed) {
            return;
        }
        self.page.publish_lane_loopers(self.provides_loopers() || state.pool.may_dedicate());
        self.page.publish(state, self.is_polling());
    }

    /// Like [`Engine::unlock`], after changes of the receive buffer alone: publishes its room, and
    /// does the rest only if there are effects.
    pub(crate) fn unlock_room(&self, mut state: Guard<'_, State>) {
        if self.pool.channels.has_full() || self.is_polling() || self.has_changed(&state) {
            return self.unlock(state);
        }
        state.take_made_room();
        self.page.publish_room(&state);
    }

    /// Whether an answer lies on the lane on which the thread calls.
    pub(crate) fn has_answer(&self, state: &State, tid: Tid) -> bool {
        let calling = state.threads.get(tid).and_then(|thread| thread.calls_on());
        calling.is_some_and(|calling| {
            self.channel(calling.via.channel).is_some_and(|channel| {
                channel.lane(calling.via.lane as usize).is_ok_and(|lane| !lane.inbox().is_empty())
            })
        })
    }
}

/// A descriptor that was installed for a buffer which the program never gets.
fn own_installed(fd: i32) -> OwnedFd {
    // SAFETY: installed by this engine, and the program has not been told of it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Closes descriptors of arrays in buffers that the program has freed.
#[cold]
pub(super) fn close_installed(fds: Vec<i32>) {
    for fd in fds {
        // The program may have closed an array's itself. The protocol has whatever has the number
        // then closed all the same.
        // SAFETY: installed by this engine for a buffer that has been dropped; the protocol says
        // that nobody else owns the number.
        unsafe { libc::close(fd) };
    }
}
