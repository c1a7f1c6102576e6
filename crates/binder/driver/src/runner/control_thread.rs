//! The control thread: it takes events and messages that no thread of the program takes.

use super::accept::{Candidate, ChannelSet};
use super::rejoin::RejoinState;
use crate::channel::{Channel, Drained};
use crate::engine::Engine;
use crate::engine::broker::Link;
use crate::sys::clock::now;
use crate::sys::control_poll::{CHANNELS, EVENTS, GREETING, REPEAT, REPEAT_AFTER, STOP, WATCHDOG};
use crate::wait::mute::ROUND as MUTED_ROUND;
use baton_abi::control::{ChannelId, End};
use baton_shm::blocking;
use rustix::event::Timespec;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Time after which the control thread looks again at a socket that it has not read to the end.
const SECOND_LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
const SECOND_LOOK_AFTER: Duration = Duration::from_nanos(SECOND_LOOK.tv_nsec as u64);
const MUTED_AFTER: Duration = Duration::from_nanos(MUTED_ROUND.tv_nsec as u64);

/// The result of the control thread's look at one channel.
#[derive(Clone, Copy, Debug)]
struct Visit {
    /// Something may be there to be taken in.
    wanted: bool,
    /// How the look at its socket ended.
    drained: Drained,
}

impl Engine {
    /// Wakes the control thread for the broker's events. `Err` also if the link has ended.
    pub(crate) fn watch_events(&self, link: &Link) -> Result<(), Errno> {
        self.control.watch(link.events().ok_or(Errno::NOTCONN)?, EVENTS)
    }

    /// The control thread, until the engine is closed.
    pub(crate) fn run_control(&self) {
        let mut events = Vec::with_capacity(32);
        let mut rejoining = RejoinState::default();
        // Channels to look at now, each with whether its peer has hung up.
        let mut to_visit = Vec::new();
        // Channels whose socket is to be looked at again.
        let mut unread = BTreeSet::new();
        let (mut looked, mut heard) = (now(), now());
        loop {
            events.clear();
            let due = [
                rejoining.pause(),
                (!unread.is_empty()).then_some(SECOND_LOOK),
                self.pool.has_muted().then_some(MUTED_ROUND),
            ];
            let pause = due.into_iter().flatten().min();
            match blocking::epoll_wait(&self.control.epoll, &mut events, pause.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
            let mut wanted = false;
            for event in &events {
                match event.data.u64() {
                    STOP => {
                        // Whoever has stopped this thread has closed the engine, or leaves that to
                        // this thread.
                        self.close_by_control_thread();
                        return self.ring_until_all_have_left();
                    }
                    REPEAT => self.repeat_rings(),
                    WATCHDOG => self.watchdog(),
                    EVENTS => {
                        self.take_events();
                        self.look_for_broker(&mut rejoining);
                    }
                    GREETING => self.hear_broker(&mut rejoining),
                    channel => {
                        let channel = ChannelId(channel - CHANNELS);
                        let hung_up = EventFlags::HUP | EventFlags::RDHUP | EventFlags::ERR;
                        let flags = event.flags;
                        to_visit.push((channel, flags.intersects(hung_up)));
                    }
                }
            }
            for (channel, has_hung_up) in to_visit.drain(..) {
                let visit = self.visit(channel, has_hung_up);
                wanted |= visit.wanted;
                if visit.drained == Drained::More {
                    unread.insert(channel);
                }
            }
            // A peer that causes events all the time cannot delay this.
            if now() - looked >= SECOND_LOOK_AFTER {
                looked = now();
                unread.retain(|&channel| {
                    let visit = self.visit(channel, false);
                    wanted |= visit.wanted;
                    visit.drained == Drained::More
                });
            }
            if wanted {
                self.accept_and_catch_up(ChannelSet::Watched);
            }
            if now() - heard >= MUTED_AFTER && self.pool.has_muted() {
                heard = now();
                self.look_at_muted();
            }
            if rejoining.is_due() {
                self.greet_broker(&mut rejoining);
            }
            self.reclaim();
        }
    }

    /// Handles a peer that has rung or hung up. After a hang-up its
    /// messages come in here, else by the next [`Engine::accept_and_catch_up`].
    fn visit(&self, id: ChannelId, has_hung_up: bool) -> Visit {
        let nothing = Visit { wanted: false, drained: Drained::Empty };
        let Some(channel) = self.channel(id) else { return nothing };
        if channel.is_muted() && !has_hung_up {
            return nothing;
        }
        let drained = channel.drain();
        let has_returned = channel.has_returned();
        // Polling threads learn this way of answers and of nested calls.
        let wanted = channel.end == End::Server && channel.is_wanted()
            || self.is_polling() && channel.has_mail();
        if channel.end == End::Server {
            match &drained {
                Ok((_, n_read)) if *n_read > 0 && !channel.has_message() && !has_returned => {
                    self.pool.count_fruitless(&channel, *n_read);
                }
                _ => self.pool.activate(&channel),
            }
        }
        if has_returned {
            self.take_returned(&channel);
        }
        self.pool.channels.return_waiting_grants_to(channel.peer);
        self.withdraw_again();
        let over = drained.is_err() || has_hung_up;
        if over {
            // The peer's last messages may carry references whose events have come by now.
            self.take_events();
            if !channel.socket.was_taken_up() {
                // The peer may have died: its death is applied before its channel fails.
                drop(self.pass_barrier());
            }
            let later = self.end_after_hang_up(&channel);
            if later.is_some() {
                drop(self.catch_up(later, None));
            }
            return nothing;
        }
        Visit { wanted, drained: drained.map_or(Drained::Empty, |(drained, _)| drained) }
    }

    /// Takes in the messages that have come.
    fn accept_and_catch_up(&self, among: ChannelSet<'_>) {
        self.take_new_events();
        let mut state = self.lock();
        let later = self.accept(&mut state, among).later();
        self.accept_answers(&mut state);
        self.unlock(state);
        if later.is_some() {
            drop(self.catch_up(later, None));
        }
    }

    /// Takes in the last messages of a peer that has hung up, and ends the channel.
    pub(crate) fn end_after_hang_up(&self, channel: &Channel) -> Option<Candidate> {
        let (pid, peer) = (self.identity.pid, channel.peer.0);
        tracing::debug!(target: "binder", "{pid}: process {peer} has hung up");
        let was_refused = self.was_refused(channel);
        let (mut state, later) = self.accept_posted_by(channel.peer);
        self.accept_answers(&mut state);
        self.revoke_with(&mut state, channel.peer);
        self.accept_last_words(&mut state, channel.peer);
        if was_refused && state.peers.contains_key(&channel.peer) {
            self.fail_refused(&mut state, channel);
        }
        self.lose_channel(&mut state, channel, None);
        self.unlock(state);
        later
    }

    /// A round of the look at muted channels.
    fn look_at_muted(&self) {
        let round = self.pool.begin_muted_round();
        let channels: Vec<_> = round.iter().map(|muted| Arc::clone(&muted.channel)).collect();
        let returned = channels.iter().filter(|channel| channel.has_returned());
        returned.for_each(|channel| self.take_returned(channel));
        self.withdraw_again();
        self.accept_and_catch_up(ChannelSet::These(&channels));
        self.pool.end_muted_round(round);
    }

    /// [`REPEAT_AFTER`] after a ring: rings again if the work is still there. Grants that have been
    /// given up go back.
    fn repeat_rings(&self) {
        self.control.repeats.begin();
        self.pool.channels.return_waiting_grants();
        if self.pool.ring_removed_again() {
            self.control.repeats.expect();
        }
        let mut state = self.lock();
        state.round();
        state.forget_wake_up();
        let unseen = state.has_work_for_sleepers();
        self.unlock_if_changed(state);
        if unseen {
            self.pool.ring_again();
        }
        if self.pool.attention.ends_neglect() {
            self.accept_and_catch_up(ChannelSet::Watched);
        }
    }

    /// The control thread's last act: rings until no looper sleeps. [`Engine::close`] may have
    /// missed loopers that were about to sleep.
    fn ring_until_all_have_left(&self) {
        let bells_are_left = || {
            // Under the lock, as in `close`: `close` has removed all channels, or none.
            let _state = self.lock();
            self.pool.channels.lists().n_incoming() > 0 || self.pool.ring_removed_again()
        };
        while bells_are_left() {
            blocking::pause(REPEAT_AFTER);
        }
        self.reclaim();
    }
}
