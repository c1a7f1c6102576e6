//! The broker's events, and the control thread that takes them when nobody else does.

use super::Engine;
use super::accept::{Among, Candidate};
use super::mute;
use super::rejoin::Comeback;
use crate::channel::{Channel, Drained};
use crate::clock::now;
use crate::control::{Gone, Link};
use baton_abi::control::{ChannelId, End, Event, Request};
use baton_abi::lane::tally;
use baton_shm::blocking;
use baton_shm::lock::Guard;
use baton_shm::sync::Ordering;
use baton_state::State;
use baton_state::transaction::LaneId;
use baton_state::work::Tid;
use rustix::event::Timespec;
use rustix::event::epoll::EventFlags;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::time::Duration;

/// Names in the control thread's epoll; those above are channels' ids, which begin at one, and
/// four.
pub(super) const EVENTS: u64 = 0;
pub(super) const STOP: u64 = 1;
pub(super) const GREETING: u64 = 2;
pub(super) const REPEAT: u64 = 3;
pub(super) const WATCHDOG: u64 = 4;
pub(super) const CHANNELS: u64 = 4;

/// After which the control thread looks at a socket again in which there was no room for what came.
const SECOND_LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
const SECOND_LOOK_AFTER: Duration = Duration::from_nanos(SECOND_LOOK.tv_nsec as u64);
const MUTED_AFTER: Duration = Duration::from_nanos(mute::ROUND.tv_nsec as u64);

/// What a visit of the control thread to a channel has shown.
#[derive(Clone, Copy, Debug)]
struct Visit {
    /// Something may be there to be taken in.
    wanted: bool,
    /// Of its socket.
    drained: Drained,
}

impl Engine {
    /// Whether the broker has sent events that nobody has taken yet. The control thread will, but
    /// what a program has been told of elsewhere its own engine should know.
    pub(super) fn has_events(&self) -> bool {
        let sent = self.tally.word(tally::EVENTS).load(Ordering::Acquire);
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
        let _events = self.events.lock();
        let link = self.broker.link();
        let mut news = false;
        loop {
            match link.next_event() {
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
                        self.accept(&mut state, Among::Watched);
                        self.accept_answers(&mut state);
                        self.carry_out(&mut state);
                    }
                    return;
                }
                Err(Gone) => {
                    if link.set_lost() {
                        self.broker_is_gone();
                    }
                    return;
                }
            }
        }
    }

    /// Applies every event that the broker has sent before this call, also those that it keeps
    /// back: the socket has no room for them, or this process has not read enough descriptors.
    pub(crate) fn take_all_events(&self) {
        self.take_events();
        if self.has_events() {
            drop(self.pass_barrier());
        }
    }

    pub(super) fn apply(&self, event: Event, fds: Result<Vec<OwnedFd>, Errno>) {
        match event {
            Event::Channel { channel, end, peer } => self.add_channel(channel, end, peer, fds),
            Event::RealTimeLane { channel, lane, looper, .. } => {
                self.begin_dedicated(channel, lane, looper);
            }
            Event::OrdinaryLane { channel, lane } => {
                self.end_dedicated(channel, Some(lane));
                self.end_offer(LaneId { channel, lane });
            }
            Event::Barrier { number } => {
                self.barrier_seen.fetch_max(number, Ordering::AcqRel);
            }
            Event::References { holder: (process, holding), .. } => {
                // What came before it stands before what it leads to.
                let mut state = match holding {
                    Some(_) => self.accept_posted(Among::Watched).0,
                    None => self.accept_posted_by(process).0,
                };
                self.revoke_with(&mut state, process);
                state.event(event);
                self.carry_out(&mut state);
            }
            Event::Dead { process } => {
                // No more of them come.
                let its_channels = self.channels_with(process);
                let (mut state, _) = self.accept_posted_by(process);
                self.revoke_with(&mut state, process);
                self.accept_last_words(&mut state, process);
                state.event(event);
                self.carry_out(&mut state);
                its_channels.iter().for_each(|channel| self.remove_channel(channel, None));
            }
            event => {
                self.see_freeze(&event);
                let mut state = self.lock();
                match event {
                    // What it adds was never checked, or is given back at once.
                    Event::Ticket { .. } => {}
                    // Whether a target is frozen its own page says.
                    Event::Frozen { process, .. } if process != self.identity.process => {}
                    Event::TicketCancelled { from, ticket } => {
                        let owners = state.ends_with(from, ticket);
                        owners.into_iter().for_each(|owner| self.revoke_with(&mut state, owner));
                    }
                    _ => self.revoke(&mut state),
                }
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
    ) -> Guard<'_, State> {
        loop {
            let mut state = self.pass_barrier();
            let mut still = self.accept(&mut state, Among::Watched).later();
            if let Some(liar) = still.filter(|_| still == later)
                && let Some(channel) = self.channel(liar.channel)
            {
                self.end_channel(&mut state, &channel, "a call without a grant");
                still = self.accept(&mut state, Among::Watched).later();
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

    /// The state, once every event that was caused before has been applied, or there is no broker.
    pub(super) fn pass_barrier(&self) -> Guard<'_, State> {
        let number = self.barriers.fetch_add(1, Ordering::AcqRel) + 1;
        loop {
            self.await_barrier(number);
            let state = self.lock();
            // Another broker may have come meanwhile, which was not asked.
            if !state.has_broker() || self.barrier_seen.load(Ordering::Acquire) >= number {
                return state;
            }
        }
    }

    /// Asks for a barrier, and applies events until it has come or the broker is gone.
    fn await_barrier(&self, number: u64) {
        let link = self.broker.link();
        link.tell(&Request::Barrier { number });
        while self.barrier_seen.load(Ordering::Acquire) < number && !link.is_lost() {
            let Some(events) = link.events() else { return };
            // The control thread may take the event from under this wait.
            blocking::await_readable(events, Duration::from_millis(1));
            self.take_events();
        }
    }

    /// Events are there to be taken. `Err` also if the link has ended.
    pub(super) fn watch_events(&self, link: &Link) -> Result<(), Errno> {
        self.watch(link.events().ok_or(Errno::NOTCONN)?, EVENTS)
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
        let mut comeback = Comeback::default();
        // Channels whose socket is to be looked at again.
        let mut unread = BTreeSet::new();
        let (mut looked, mut heard) = (now(), now());
        loop {
            events.clear();
            let due = [
                comeback.pause(),
                (!unread.is_empty()).then_some(SECOND_LOOK),
                self.has_muted().then_some(mute::ROUND),
            ];
            let pause = due.into_iter().flatten().min();
            match blocking::epoll_wait(&self.epoll, &mut events, pause.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
            let mut wanted = false;
            for event in &events {
                match event.data.u64() {
                    STOP => return self.see_loopers_off(),
                    REPEAT => self.ring_again(),
                    WATCHDOG => self.watchdog(),
                    EVENTS => {
                        self.take_events();
                        self.look_for_broker(&mut comeback);
                    }
                    GREETING => self.hear_broker(&mut comeback),
                    channel => {
                        let channel = ChannelId(channel - CHANNELS);
                        let hung_up = EventFlags::HUP | EventFlags::RDHUP | EventFlags::ERR;
                        let flags = event.flags;
                        let visit = self.visit(channel, flags.intersects(hung_up));
                        wanted |= visit.wanted;
                        if visit.drained == Drained::More {
                            unread.insert(channel);
                        }
                    }
                }
            }
            // Nobody puts it off by making events.
            if now() - looked >= SECOND_LOOK_AFTER {
                looked = now();
                unread.retain(|&channel| {
                    let visit = self.visit(channel, false);
                    wanted |= visit.wanted;
                    visit.drained == Drained::More
                });
            }
            if wanted {
                self.hear_out();
            }
            if now() - heard >= MUTED_AFTER && self.has_muted() {
                heard = now();
                self.hear_muted();
            }
            if comeback.is_due() {
                self.greet_broker(&mut comeback);
            }
            self.reclaim();
        }
    }

    /// A peer has rung, sent descriptors ahead, or hung up: then what it has left comes in, or else
    /// by the next [`Engine::hear_out`].
    fn visit(&self, id: ChannelId, has_hung_up: bool) -> Visit {
        let nothing = Visit { wanted: false, drained: Drained::Empty };
        let Some(channel) = self.channel(id) else { return nothing };
        if channel.is_muted() && !has_hung_up {
            return nothing;
        }
        let drained = channel.drain_socket();
        // Threads that poll hear so of their answers, and of what they are asked meanwhile.
        let wanted = channel.end == End::Server && channel.is_wanted()
            || self.is_polling() && channel.has_mail();
        if channel.end == End::Server {
            match &drained {
                Ok((_, doorbells)) if *doorbells > 0 && !channel.has_message() => {
                    self.count_fruitless(&channel, *doorbells);
                }
                _ => self.activate(&channel),
            }
        }
        let over = drained.is_err() || has_hung_up;
        if over {
            // What it sent last may carry references of which the broker has told by now.
            self.take_events();
            if !channel.was_taken_up() {
                // Whoever has died is dead before its channel has failed.
                drop(self.pass_barrier());
            }
            let later = self.see_off(&channel);
            if later.is_some() {
                drop(self.catch_up(later, None));
            }
            return nothing;
        }
        Visit { wanted, drained: drained.map_or(Drained::Empty, |(drained, _)| drained) }
    }

    /// Takes in what has come.
    fn hear_out(&self) {
        let mut state = self.lock();
        let later = self.accept(&mut state, Among::Watched).later();
        self.accept_answers(&mut state);
        self.unlock(state);
        if later.is_some() {
            drop(self.catch_up(later, None));
        }
    }

    /// The same of a peer that has hung up.
    fn see_off(&self, channel: &Channel) -> Option<Candidate> {
        let (pid, peer) = (self.identity.pid, channel.peer.0);
        tracing::debug!(target: "binder", "{pid}: process {peer} has hung up");
        let (mut state, later) = self.accept_posted_by(channel.peer);
        self.accept_answers(&mut state);
        self.revoke_with(&mut state, channel.peer);
        self.accept_last_words(&mut state, channel.peer);
        self.lose_channel(&mut state, channel, None);
        self.unlock(state);
        later
    }
}
