//! The broker's events, in the order in which the broker decided.

use super::accept::{Candidate, ChannelSet};
use crate::channel::Channel;
use crate::channel::returns::ReliedOn;
use crate::engine::Engine;
use crate::engine::broker::{Gone, Link};
use crate::sys::clock::stamp_in_order;
use baton_abi::control::{Event, ProcessId, Request};
use baton_shm::blocking::await_readable;
use baton_shm::lock::Guard;
use baton_state::State;
use baton_state::peer::{HoldingChange, OverReturn};
use baton_state::transaction::LaneId;
use baton_state::work::Tid;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::time::Duration;

/// So often one thread waits for events of messages that wait: a sender may post ever new ones, or
/// write a new header as often as the thread looks.
pub(super) const MOST_LAPS: u32 = 8;

impl Engine {
    /// Applies the events that have come, if there are any.
    pub(crate) fn take_new_events(&self) {
        if self.broker.has_events() {
            self.take_events();
        }
    }

    /// Applies every event that has come.
    pub fn take_events(&self) {
        let _events = self.broker.applying.lock();
        let link = self.broker.link();
        let (mut news, mut has_caller) = (false, false);
        let ended = loop {
            news |= self.take_tickets(&link);
            match link.next_event() {
                Ok(Some((event, fds))) => {
                    // Earlier tickets may have come meanwhile.
                    self.take_tickets(&link);
                    has_caller |= self.apply(event, fds);
                    link.count_event();
                    self.broker.count_event();
                    news = true;
                }
                Ok(None) => break false,
                Err(Gone) => break true,
            }
        };
        if news && !ended {
            // A peer may have been faster than its event: its message woke no looper, or was left
            // for later.
            self.with_state(|state| {
                self.accept(state, ChannelSet::Watched);
                self.accept_answers(state);
            });
        }
        if has_caller {
            // Loopers that sleep, or are about to, do not know the new channel. They are woken
            // last, because each takes the state's lock.
            self.pool.wake_loopers();
        }
        if ended && link.set_lost() {
            self.broker_is_gone();
        }
    }

    /// Applies the tickets that are the next events. True if there were any.
    fn take_tickets(&self, link: &Link) -> bool {
        let mut any = false;
        while let Some(ticket) = self.broker.next_ticket(link) {
            self.apply(ticket, Ok(Vec::new()));
            self.broker.count_event();
            any = true;
        }
        any
    }

    /// Applies one event. True if there is a new channel at which loopers have to look.
    fn apply(&self, event: Event, fds: Result<Vec<OwnedFd>, Errno>) -> bool {
        match event {
            Event::Channel { channel, end, peer } => {
                return self.add_channel(channel, end, peer, fds);
            }
            Event::RealTimeLane { channel, lane, priority, looper } => {
                self.begin_dedicated(channel, lane, priority, looper);
            }
            Event::OrdinaryLane { channel, lane } => {
                self.end_dedicated(channel, Some(lane));
                self.with_state(|state| self.withdraw(state, LaneId { channel, lane }));
            }
            Event::Barrier { number } => {
                self.broker.pass_barrier(number);
            }
            Event::DescribeCalls => self.describe_calls(),
            Event::References { node, holder: (process, holding), .. } => {
                // Messages that came before the event are queued before its consequences.
                let mut state = match holding {
                    Some(_) => self.accept_posted(ChannelSet::Watched).0,
                    None => self.accept_posted_by(process).0,
                };
                state.postponed.forget_introduced(process, node);
                let change = HoldingChange::Introduced(node, holding);
                self.change_holdings(&mut state, process, [change]);
                self.carry_out(&mut state);
            }
            Event::Dead { process } => {
                // The dead process opens no further channels.
                let its_channels = self.pool.channels.with(process);
                let (mut state, _) = self.accept_posted_by(process);
                self.revoke_with(&mut state, process);
                self.accept_last_words(&mut state, process);
                state.event(event);
                self.carry_out(&mut state);
                for channel in its_channels {
                    self.remove_channel(&mut state, &channel, None);
                }
                self.pool.channels.forget_waiting_grants(process);
            }
            event => {
                self.see_freeze(&event);
                let of_own = |process| process == self.identity.process;
                let mut state = self.lock();
                if matches!(event, Event::Frozen { process, .. } if of_own(process)) {
                    // The process may be stopped before the next round.
                    state.return_kept();
                    self.carry_out_effects(&mut state);
                    self.pool.channels.return_waiting_grants();
                }
                match event {
                    // No program has a ticket's references before their message.
                    Event::Ticket { .. } | Event::TicketCancelled { .. } => {}
                    // The status page of a target says whether the target is frozen.
                    Event::Frozen { process, .. } if process != self.identity.process => {}
                    _ => self.revoke(&mut state),
                }
                let sender = match event {
                    Event::Ticket { from, .. } => Some(from),
                    _ => None,
                };
                state.event(event);
                if let Some(sender) = sender {
                    self.forget_tickets_without_channel(&mut state, sender);
                }
                self.carry_out(&mut state);
            }
        }
        false
    }

    /// Tries again to withdraw offers: the peer may have undone a use.
    pub(crate) fn withdraw_again(&self) {
        let mut state = self.lock();
        if state.is_withdrawing() {
            state.withdraw_again();
            self.unlock(state);
        }
    }

    /// Takes the grants that the peer has returned on this channel. What the peer had sent before
    /// comes in first: it may rely on these grants. So may introductions, whose events the broker
    /// counted before the peer could go on.
    pub(crate) fn take_returned(&self, channel: &Channel) {
        let taken = channel.take_returned(&mut channel.ends());
        let Ok((returned, was_full)) = taken else {
            self.with_state(|state| {
                self.end_channel(state, channel, "impossible ring of returned grants");
            });
            return;
        };
        if returned.is_empty() {
            return;
        }
        if was_full {
            channel.socket.ring();
        }
        self.take_new_events();
        let (mut state, later) = self.accept_posted_by(channel.peer);
        if later.is_some() {
            self.unlock(state);
            state = self.catch_up(later, None);
        }
        let changes = returned.into_iter().map(HoldingChange::Returned);
        self.change_holdings(&mut state, channel.peer, changes);
        self.unlock(state);
    }

    /// Applies changes of what a peer holds. A loss waits while a message that has not come in yet
    /// may rely on the node: an answer waits for its caller, a dedicated looper and the fast path
    /// take their requests themselves, and a one-way transaction may wait for room.
    fn change_holdings(
        &self,
        state: &mut State,
        of: ProcessId,
        changes: impl IntoIterator<Item = HoldingChange>,
    ) {
        let relied_on = self.relied_on_by(of);
        let changed = changes.into_iter().try_for_each(|change| {
            match state.is_lowered_by(of, change) && relied_on.has(change.node()) {
                true => state.postpone(of, change),
                false => self.change_holding(state, of, change),
            }
        });
        if changed.is_err() {
            self.end_channels_with(state, of, "returned more grants than it had");
        }
    }

    /// The nodes of this process on whose hold by a peer messages rely that have not come in.
    fn relied_on_by(&self, peer: ProcessId) -> ReliedOn {
        let mut relied_on = ReliedOn::default();
        for channel in self.pool.channels.with(peer) {
            channel.find_relied_on(&mut relied_on);
        }
        relied_on
    }

    fn change_holding(
        &self,
        state: &mut State,
        of: ProcessId,
        change: HoldingChange,
    ) -> Result<(), OverReturn> {
        if state.is_lowered_by(of, change) && state.has_called(of, change.node()) {
            self.revoke_with(state, of);
        }
        state.change_holding(of, change)
    }

    /// Applies the losses that were postponed, as far as no message relies on the nodes any more.
    pub(crate) fn apply_postponed(&self, state: &mut State) {
        for of in state.postponed.peers() {
            let relied_on = self.relied_on_by(of);
            for change in state.postponed.take(of, |node| relied_on.has(node)) {
                if self.change_holding(state, of, change).is_err() {
                    self.end_channels_with(state, of, "returned more grants than it had");
                }
            }
        }
    }

    fn end_channels_with(&self, state: &mut State, peer: ProcessId, why: &'static str) {
        for channel in self.pool.channels.with(peer) {
            self.end_channel(state, &channel, why);
        }
    }

    /// Waits until every event that was caused before now has been applied. A message that still
    /// lacks its grant or its references never had them: its channel ends. Repeats this for
    /// messages that arrive meanwhile, until none waits, or for [`MOST_LAPS`]: then another look
    /// goes on.
    pub(crate) fn catch_up(
        &self,
        mut later: Option<Candidate>,
        mut caller: Option<Tid>,
    ) -> Guard<'_, State> {
        for lap in 1.. {
            let began = stamp_in_order(self.broker.stamps);
            let mut state = self.pass_barrier();
            let mut still = self.accept(&mut state, ChannelSet::Watched).later();
            let never_allowed =
                |it: &Candidate| later.is_some_and(|later| it.has_taken_no_turn(later, began));
            if let Some(candidate) = still.filter(never_allowed)
                && let Some(channel) = self.channel(candidate.channel)
            {
                self.end_channel(&mut state, &channel, "a call without a grant");
                still = self.accept(&mut state, ChannelSet::Watched).later();
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
            if lap == MOST_LAPS {
                self.leave_to_others();
                return state;
            }
            later = still;
        }
        unreachable!("the loop has no end of its own")
    }

    /// The state, once every event that was caused before has been applied, or there is no broker.
    pub(crate) fn pass_barrier(&self) -> Guard<'_, State> {
        let number = self.broker.next_barrier();
        loop {
            self.await_barrier(number);
            let state = self.lock();
            // A new broker may have come meanwhile, which has not been asked for a barrier.
            if !state.has_broker() || self.broker.has_passed(number) {
                return state;
            }
        }
    }

    /// Asks for a barrier, and applies events until it has come or the broker is gone.
    fn await_barrier(&self, number: u64) {
        let link = self.broker.link();
        link.tell(&Request::Barrier { number });
        while !self.broker.has_passed(number) && !link.is_lost() {
            let Some(events) = link.events() else { return };
            // The control thread may take the event that this thread waits for.
            await_readable(events, Duration::from_millis(1));
            self.take_events();
        }
    }
}
