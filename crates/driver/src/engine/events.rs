//! The broker's events, and the control thread that takes them when nobody else does.

use super::accept::Candidate;
use super::{Engine, lock};
use crate::state::State;
use crate::state::work::Tid;
use baton_abi::control::{ChannelId, Event, Request};
use baton_abi::lane::front;
use baton_shm::sync::Ordering;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::sync::MutexGuard;

/// Names in the control thread's epoll; those above are channels' ids and two.
pub(super) const EVENTS: u64 = 0;
pub(super) const STOP: u64 = 1;

impl Engine {
    /// Whether the broker has sent events that nobody has taken yet. The control thread will, but
    /// what a program has been told of elsewhere its own engine should know.
    pub(super) fn has_events(&self) -> bool {
        let sent = self.front.word(front::EVENTS).load(Ordering::Acquire);
        sent != self.events_taken.load(Ordering::Relaxed)
    }

    /// Applies the events that have come, if there are any.
    pub(crate) fn hear(&self) {
        if self.has_events() {
            self.take_events();
        }
    }

    /// Applies every event that has come.
    pub fn take_events(&self) {
        let _events = lock(&self.events);
        let mut news = false;
        loop {
            match self.broker.next_event() {
                Ok(Some((event, fds))) => {
                    self.apply(event, fds);
                    self.events_taken.fetch_add(1, Ordering::Relaxed);
                    news = true;
                }
                Ok(None) => {
                    // A peer may have been faster than its event: what it posted has rung for
                    // nobody, or was left for later.
                    if news {
                        let mut state = self.lock();
                        self.accept(&mut state, None);
                        self.accept_answers(&mut state);
                        self.carry_out(&mut state);
                    }
                    return;
                }
                Err(_) => {
                    if !self.broker_lost.swap(true, Ordering::SeqCst)
                        && !self.closed.load(Ordering::Acquire)
                    {
                        tracing::warn!(target: "binder", "the broker is gone; calls go on, nothing new can be reached");
                    }
                    let _ = rustix::event::epoll::delete(&self.epoll, self.broker.events());
                    return;
                }
            }
        }
    }

    pub(super) fn apply(&self, event: Event, fds: Vec<OwnedFd>) {
        match event {
            Event::Channel { channel, end, peer } => self.add_channel(channel, end, peer, fds),
            Event::Barrier { number } => {
                self.barrier_seen.fetch_max(number, Ordering::AcqRel);
            }
            Event::References { holder: (process, None), .. } => {
                let mut state = self.lock();
                self.accept(&mut state, Some(process));
                state.event(event);
                self.carry_out(&mut state);
            }
            Event::Dead { process } => {
                let mut state = self.lock();
                self.accept(&mut state, Some(process));
                state.event(event);
                self.carry_out(&mut state);
                for channel in self.channels_with(process) {
                    self.remove_channel(&channel);
                }
            }
            event => {
                let mut state = self.lock();
                state.event(event);
                self.carry_out(&mut state);
            }
        }
    }

    /// Waits until every event that was caused before now has been applied. A message that is then
    /// still without its grant or its references never had them: its channel ends. So it is with
    /// what has come meanwhile, until nothing waits.
    pub(super) fn catch_up(
        &self,
        mut later: Option<Candidate>,
        mut caller: Option<Tid>,
    ) -> MutexGuard<'_, State> {
        loop {
            self.pass_barrier();
            let mut state = self.lock();
            let mut still = self.accept(&mut state, None);
            if let Some(liar) = still.filter(|_| still == later)
                && let Some(channel) = self.channel(liar.channel)
            {
                self.end_channel(&mut state, &channel, "a call without a grant");
                still = self.accept(&mut state, None);
            }
            if let Some(tid) = caller.take()
                && !self.accept_answer(&mut state, tid)
                && let Some(calling) = state.thread(tid).calls_on().copied()
                && let Some(channel) = self.channel(calling.via.channel)
            {
                self.end_channel(&mut state, &channel, "a reply with references it was not given");
            }
            self.carry_out(&mut state);
            if still.is_none() {
                return state;
            }
            later = still;
        }
    }

    fn pass_barrier(&self) {
        let number = self.barriers.fetch_add(1, Ordering::AcqRel) + 1;
        self.broker.tell(&Request::Barrier { number });
        while self.barrier_seen.load(Ordering::Acquire) < number
            && !self.broker_lost.load(Ordering::Acquire)
        {
            let flags = rustix::event::PollFlags::IN;
            let mut fds = [rustix::event::PollFd::from_borrowed_fd(self.broker.events(), flags)];
            // The control thread may take the event from under this poll.
            let time = rustix::event::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
            let _ = rustix::event::poll(&mut fds, Some(&time));
            self.take_events();
        }
    }

    pub(super) fn watch(&self, fd: BorrowedFd<'_>, name: u64) -> Result<(), Errno> {
        use rustix::event::epoll::{EventData, EventFlags, add};
        add(&self.epoll, fd, EventData::new_u64(name), EventFlags::IN | EventFlags::RDHUP)
    }

    pub(super) fn watch_edges(&self, fd: BorrowedFd<'_>, name: u64) -> Result<(), Errno> {
        use rustix::event::epoll::{EventData, EventFlags, add};
        let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        add(&self.epoll, fd, EventData::new_u64(name), flags)
    }

    pub(super) fn run_control(&self) {
        let mut events = Vec::with_capacity(32);
        loop {
            events.clear();
            let space = rustix::buffer::spare_capacity(&mut events);
            match rustix::event::epoll::wait(&self.epoll, space, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
            for event in &events {
                match event.data.u64() {
                    STOP => return,
                    EVENTS => self.take_events(),
                    channel => self.visit(ChannelId(channel - 2)),
                }
            }
        }
    }

    /// A peer has rung, sent descriptors ahead, or hung up.
    pub(super) fn visit(&self, id: ChannelId) {
        let Some(channel) = self.channel(id) else { return };
        let over = channel.drain_socket().is_err();
        if over {
            // What it sent last may carry references of which the broker has told by now.
            self.take_events();
        }
        let mut state = self.lock();
        let later = self.accept(&mut state, over.then_some(channel.peer));
        self.accept_answers(&mut state);
        if over {
            self.end_channel(&mut state, &channel, "the peer has hung up");
        }
        self.carry_out(&mut state);
        drop(state);
        if later.is_some() {
            drop(self.catch_up(later, None));
        }
    }
}
