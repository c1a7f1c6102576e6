//! Sending: from a checked departure to a posted message.

use crate::channel::loan::LoanedLane;
use crate::channel::payload::Payload;
use crate::channel::{Channel, Ends, INLINE_BYTES};
use crate::engine::Engine;
use crate::engine::real_time::Purpose;
use crate::sys::clock::{now, stamp, stamp_in_order};
use crate::sys::packet::borrowed;
use crate::sys::{priority, thread, token};
use baton_abi::control::{ChannelId, HeldNode, ProcessId, Reply, Request, Strength, TicketId};
use baton_abi::lane::*;
use baton_shm::blocking::pause;
use baton_shm::client_lanes::Progress;
use baton_shm::mailbox::Reader;
use baton_shm::mapping::View;
use baton_shm::sync::{Ordering, fence};
use baton_state::State;
use baton_state::buffer::allocation_bytes;
use baton_state::parcel::Sent;
use baton_state::transaction::{Departure, LaneId, Refusal, Target};
use baton_state::work::{Completion, Tid};
use rustix::io::Errno;
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Duration;

/// A transaction that is to be sent.
pub struct Outgoing<'a> {
    /// `binder_transaction_data.code`.
    pub code: u32,
    /// `binder_transaction_data.flags`.
    pub flags: u32,
    /// The data.
    pub data: Payload<'a>,
    /// Offsets of objects in the data.
    pub offsets: &'a [u64],
    /// The objects.
    pub sent: Sent,
}

/// The lane of what travels in a ring.
const NO_LANE: LaneId = LaneId { channel: ChannelId(0), lane: 0 };

/// How long a sender waits for a full target to make room after all, and the first pause between
/// two looks; each is twice as long as the one before.
const ROOM_PATIENCE: Duration = Duration::from_millis(2);
const FIRST_PAUSE: Duration = Duration::from_micros(50);

/// A prepared transaction: from here on only its target can fail.
struct Ready {
    channel: Arc<Channel>,
    via: LaneId,
    message: Message,
    ticket: Option<TicketId>,
    /// The token of a call, and the callers in its message; 0 and none otherwise.
    token: u64,
    chain: Vec<ChainEntry>,
    objects: Vec<Carried>,
    completion: Completion,
}

impl Ready {
    /// Takes back the grants, and the uses of offers: the peer will not take the message in.
    fn take_back(&self, state: &mut State) {
        self.channel.undo_uses(&self.objects);
        state.take_back_grants(self.channel.peer, &self.objects);
    }
}

impl Outgoing<'_> {
    fn message(&self, departure: &Departure, chain: usize) -> Message {
        let is_call = departure.kind == Kind::Request;
        Message {
            kind: departure.kind as u32,
            node: departure.node.0,
            code: self.code,
            flags: self.flags,
            data_bytes: self.data.bytes() as u32,
            offsets_bytes: size_of_val(self.offsets) as u32,
            buffers_bytes: self.sent.buffers.len() as u32,
            fds: self.sent.fds.len() as u8,
            chain: chain as u8,
            objects: departure.objects.len() as u16,
            param: if is_call { priority::nice() } else { 0 },
            ..Message::default()
        }
    }

    /// Writes everything but the header.
    fn write(&self, ready: &Ready, map: View<'_>, at: usize) {
        let Ready { message, chain, objects, .. } = ready;
        let parts = message.parts().expect("sizes were checked");
        // The data goes first: a loan's data may lie where the chain has to be.
        self.data.copy_to(map, at + parts.data_at);
        map.write(at + parts.chain_at, bytemuck::cast_slice(chain));
        map.write(at + parts.objects_at, bytemuck::cast_slice(objects));
        map.write(at + parts.offsets_at, bytemuck::cast_slice(self.offsets));
        map.write(at + parts.buffers_at, &self.sent.buffers);
    }

    fn has_objects(&self) -> bool {
        !self.offsets.is_empty() || !self.sent.buffers.is_empty() || self.sent.failed.is_some()
    }
}

/// Refuses a call of so many bytes if its target shows no room for it. The target checks again when
/// the call comes in, but a refusal there reaches the caller later.
fn refuse_if_full(channel: &Channel, bytes: usize) -> Result<(), Refusal> {
    if channel.status_word(status::BUFFER_BYTES) == 0 {
        return Err(Refusal { errno: Errno::SRCH, ..Refusal::dead() });
    }
    if bytes > channel.status_word(status::LARGEST_FREE) as usize {
        return Err(Refusal::failed(Errno::NOSPC));
    }
    Ok(())
}

/// The room of a target, as a sender of a one-way transaction sees it.
enum OneWayRoom {
    /// There is room. `spam`: the target may count the transaction as spam.
    Found { spam: bool },
    /// There is none, and so many of this process's records wait in the ring.
    Full { n_pending: usize },
}

/// Checks the room of the target: the room that it publishes, less the transactions still in the
/// channel's ring, or in that of this lane.
fn look_for_room(
    channel: &Channel,
    ends: &mut Ends,
    lane: Option<usize>,
    bytes: usize,
) -> Result<OneWayRoom, Refusal> {
    let account = match lane {
        Some(lane) => channel.real_time_account(lane).map_err(Refusal::failed)?,
        None => channel.one_way_account(ends),
    };
    let published = lane.map_or(status::ONE_WAY_FREE, |_| status::REAL_TIME_FREE);
    let largest = channel.status_word(status::LARGEST_FREE) as usize;
    let free = channel.status_word(published) as usize;
    let size = channel.status_word(status::BUFFER_BYTES) as usize;
    if size == 0 {
        return Err(Refusal { errno: Errno::SRCH, ..Refusal::dead() });
    }
    if bytes > size / 2 {
        return Err(Refusal::failed(Errno::NOSPC));
    }
    if account.pending_bytes + bytes > free.min(largest) {
        return Ok(OneWayRoom::Full { n_pending: account.pending });
    }
    let left = free - account.pending_bytes - bytes;
    let ours = account.pending_bytes + account.taken_bytes + bytes;
    let many = account.pending + account.taken + 1 > 50;
    let spam = left < size / 10 && !ends.spam_reported && (many || ours > size / 4);
    ends.spam_reported = left < size / 10 && (ends.spam_reported || spam);
    Ok(OneWayRoom::Found { spam })
}

impl Engine {
    /// Sends a transaction or a reply for a thread. The thread reads the outcome from its to-do
    /// list. `sizes` are of data and offsets, as the program has said them; `outgoing` is an error
    /// if its bytes could not be used.
    pub fn send(
        &self,
        tid: Tid,
        target: Target,
        flags: u32,
        sizes: (u64, u64),
        outgoing: Result<Outgoing<'_>, Errno>,
    ) {
        // Strangers may cause any number of events: a real-time thread leaves them to other
        // threads.
        if self.broker.has_events() && !thread::is_real_time() {
            self.take_events();
        }
        let mut state = self.lock();
        self.take_over_own(&mut state);
        // An answer that has come is queued before any outcome of this transaction.
        self.accept_answer(&mut state, tid);
        if matches!(target, Target::Handle(0)) && state.manager.is_none() {
            drop(state);
            let found = self.find_manager();
            state = self.lock();
            if let Err(errno) = found {
                let refusal = match errno {
                    // No manager; no broker to ask for one.
                    Errno::SRCH | Errno::CONNREFUSED => Refusal::dead(),
                    _ => Refusal::failed(errno),
                };
                self.refuse(&mut state, tid, refusal, sizes, None);
                return self.unlock(state);
            }
        }
        let nothing = Sent::default();
        let via = state.thread(tid).serves().map(|serving| serving.via);
        let outgoing = match (target, via) {
            // The caller has left: the reply is not even checked.
            (Target::Reply, Some(via)) if self.has_left(via) => Err(Refusal::dead()),
            _ => outgoing.map_err(Refusal::failed),
        };
        let sent = outgoing.as_ref().map_or(&nothing, |outgoing| &outgoing.sent);
        let is_calling = state.thread(tid).calls();
        let departed = state.depart(tid, target, flags, sent);
        let departure = match departed {
            Ok(mut departure) => {
                if departure.kind == Kind::Request {
                    // The caller at the other end has left, so the lane cannot turn round: the pool
                    // serves.
                    departure.via = departure.via.filter(|via| !self.has_left(*via));
                }
                departure
            }
            Err((refusal, reply_to)) => {
                self.refuse(&mut state, tid, refusal, sizes, reply_to);
                return self.unlock(state);
            }
        };
        if departure.kind == Kind::OneWay
            && let Ok(outgoing) = &outgoing
            && let Some((channel, completion)) = self.put_at_once(&departure, outgoing)
        {
            let pinned = state.departed(tid, departure, NO_LANE, 0, completion);
            debug_assert!(pinned.is_empty(), "it has no objects");
            self.unlock(state);
            return channel.announce_one_way(false);
        }
        if !departure.objects.is_empty() {
            // The list of holders says what this process has granted before the message is posted.
            self.carry_out_effects(&mut state);
        }
        drop(state);
        let (kind, nested) = (departure.kind, departure.via);
        let ready = match outgoing {
            Err(refusal) => Err(refusal),
            Ok(Outgoing { sent: Sent { failed: Some(errno), .. }, .. }) => {
                Err(Refusal::failed(errno))
            }
            Ok(outgoing) => match kind {
                Kind::Reply => self.ready_reply(&departure, &outgoing),
                Kind::OneWay => self.put_one_way(&departure, &outgoing, is_calling),
                _ => self.ready_call(&departure, &outgoing),
            }
            .map(|ready| (ready, outgoing)),
        };
        let mut state = self.lock();
        let ready = ready.and_then(|(ready, outgoing)| match kind {
            Kind::Request => self.keep_if_alive(&state, &departure, ready).map(|it| (it, outgoing)),
            _ => Ok((ready, outgoing)),
        });
        match ready {
            Ok((ready, outgoing)) => {
                // The completion of a reply is queued before any work that the reply causes.
                let Ready { via, token, completion, .. } = ready;
                let is_nested = state.thread(tid).calls_further_out_on(via);
                let pinned = state.departed(tid, departure, via, token, completion);
                if kind == Kind::Request {
                    self.expect_answer(&ready);
                }
                self.unlock(state);
                match kind {
                    Kind::Reply => self.post_reply(tid, &ready, is_nested, &outgoing),
                    Kind::OneWay => {}
                    _ => self.post_call(tid, &ready, nested.is_some(), &outgoing),
                }
                if !pinned.is_empty() {
                    self.with_state(|state| state.unpin(pinned));
                }
            }
            Err(refusal) => {
                state.turn_back(departure);
                let reply_to = nested.filter(|_| kind == Kind::Reply);
                self.refuse(&mut state, tid, refusal, sizes, reply_to);
                self.unlock(state);
            }
        }
    }

    fn refuse(
        &self,
        state: &mut State,
        tid: Tid,
        refusal: Refusal,
        sizes: (u64, u64),
        reply_to: Option<LaneId>,
    ) {
        match reply_to {
            Some(via) => {
                let is_nested = state.thread(tid).calls_further_out_on(via);
                let posted = self.answer(via, is_nested, refusal.kind(), Some(refusal.errno), 0);
                state.reply_refused(tid);
                if !posted {
                    self.caller_has_left(state, tid, via);
                }
            }
            None => state.refused(tid, refusal),
        }
        self.log_failure(state.thread(tid).error, sizes);
    }

    /// Does every step that can still fail: checks sizes, has references translated, sends
    /// descriptors.
    fn prepare(
        &self,
        channel: Arc<Channel>,
        via: LaneId,
        departure: &Departure,
        outgoing: &Outgoing<'_>,
        (token, chain): (u64, Vec<ChainEntry>),
    ) -> Result<Ready, Refusal> {
        let mut message = outgoing.message(departure, chain.len());
        if outgoing.data.bytes() > MAX_PAYLOAD_BYTES || message.parts().is_none() {
            return Err(Refusal::failed(Errno::NOSPC));
        }
        let mut objects = departure.objects.clone();
        let introduced = self.use_offers(&channel, departure, &mut objects);
        let ahead = self.introduce(departure.peer, introduced).and_then(|ticket| {
            let fds_number = self.send_fds(&channel, &outgoing.sent.fds);
            let fds_number =
                fds_number.inspect_err(|_| self.cancel_ticket(departure.peer, ticket))?;
            Ok((ticket, fds_number))
        });
        let (ticket, fds_number) =
            ahead.inspect_err(|_| self.with_state(|_| channel.undo_uses(&objects)))?;
        message.ticket = ticket.map_or(0, |ticket| ticket.0);
        message.fds_number = fds_number;
        let completion = Completion::Taken;
        Ok(Ready { channel, via, message, ticket, token, chain, objects, completion })
    }

    /// Names nodes of third processes by the receiver's offers. Returns the nodes that it does not
    /// offer. A one-way transaction may lie unread for long, and uses no offers.
    fn use_offers(
        &self,
        channel: &Channel,
        departure: &Departure,
        objects: &mut [Carried],
    ) -> Vec<HeldNode> {
        let Departure { kind, introduced, .. } = departure;
        if introduced.is_empty() || *kind == Kind::OneWay {
            return introduced.clone();
        }
        let _state = self.lock();
        let third = objects.iter_mut().filter(|object| object.origin() == Some(Origin::Third));
        let mut rest = Vec::new();
        for (object, held) in third.zip(introduced) {
            let is_strong = held.strength == Strength::Strong;
            match is_strong.then(|| channel.try_use((held.owner, held.node))).flatten() {
                Some(entry) => *object = Carried::of_known(held.node, entry),
                None => rest.push(*held),
            }
        }
        rest
    }

    /// Has the broker introduce the receiver to nodes of third processes.
    fn introduce(
        &self,
        target: ProcessId,
        objects: Vec<HeldNode>,
    ) -> Result<Option<TicketId>, Refusal> {
        if objects.is_empty() {
            return Ok(None);
        }
        match self.broker.ask(&Request::Introduce { target, objects }) {
            Ok(Reply::Ticket { ticket }) => Ok(Some(ticket)),
            Ok(_) => Err(Refusal::failed(Errno::PROTO)),
            Err(Errno::SRCH) => Err(Refusal::dead()),
            Err(errno) => Err(Refusal::failed(errno)),
        }
    }

    /// Sends the program's descriptors. `EBADF` if one is none, else as [`Channel::send_fds`], and
    /// as [`Engine::refusal_at_end`] of a channel that has ended.
    fn send_fds(&self, channel: &Channel, fds: &[i32]) -> Result<u32, Refusal> {
        if fds.is_empty() {
            return Ok(0);
        }
        let fds: Result<SmallVec<[_; 4]>, _> = fds.iter().map(|&fd| borrowed(fd)).collect();
        let fds = fds.map_err(Refusal::failed)?;
        let mut sent = channel.send_fds(&fds);
        if sent == Err(Errno::TOOMANYREFS) {
            // Other peers of this user may have read theirs.
            self.pool.channels.all().iter().for_each(|it| it.descriptors.forget_read());
            sent = channel.send_fds(&fds);
        }
        sent.map_err(|errno| match errno {
            Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => self.refusal_at_end(channel),
            errno => Refusal::failed(errno),
        })
    }

    /// Takes back the ticket and the descriptors that were sent ahead of a message that is not
    /// posted. The caller takes back the grants, under the state's lock.
    fn cancel(&self, Ready { channel, message, ticket, .. }: &Ready) {
        channel.cancel_fds(message);
        self.cancel_ticket(channel.peer, *ticket);
    }

    fn cancel_ticket(&self, target: ProcessId, ticket: Option<TicketId>) {
        let link = self.broker.link();
        // A ticket of a broker that is gone is void.
        if let Some(ticket) = ticket.filter(|ticket| ticket.era() == link.era) {
            link.tell(&Request::CancelTicket { target, ticket });
        }
    }

    fn ready_reply(
        &self,
        departure: &Departure,
        outgoing: &Outgoing<'_>,
    ) -> Result<Ready, Refusal> {
        let via = departure.via.expect("a reply has its lane");
        let channel = self.channel(via.channel).ok_or_else(Refusal::dead)?;
        self.prepare(channel, via, departure, outgoing, self.chain_without_callers())
    }

    /// Token and chain of a message that is no call.
    fn chain_without_callers(&self) -> (u64, Vec<ChainEntry>) {
        (0, self.user_entry().into_iter().collect())
    }

    /// `is_nested` as of [`Engine::post_answer`].
    fn post_reply(&self, tid: Tid, ready: &Ready, is_nested: bool, outgoing: &Outgoing<'_>) {
        let Ready { via, message, .. } = ready;
        if !self.post_answer(*via, is_nested, message, |area| outgoing.write(ready, area, 0)) {
            self.cancel(ready);
            self.with_state(|state| {
                ready.take_back(state);
                self.caller_has_left(state, tid, *via);
            });
        }
    }

    /// A call's chain: this process, its user where a message has to name it, then the processes
    /// that wait further up.
    pub(crate) fn callers<'a>(
        &self,
        departure: &'a Departure,
        token: u64,
    ) -> impl Iterator<Item = ChainEntry> + use<'a> {
        let us = self.identity.process.0;
        let others = departure.chain.iter().filter(move |entry| entry.process != us);
        let own = [Some(ChainEntry { process: us, token }), self.user_entry()];
        own.into_iter().flatten().chain(others.copied()).take(MAX_CHAIN)
    }

    /// Bytes that a transaction takes in its target's receive buffer.
    fn allocation(&self, departure: &Departure, outgoing: &Outgoing<'_>) -> usize {
        let label = match departure.wants_label {
            true => self.identity.security_context.len() + 1,
            false => 0,
        };
        let offsets = size_of_val(outgoing.offsets);
        allocation_bytes(outgoing.data.bytes(), offsets, outgoing.sent.buffers.len(), label)
    }

    fn ready_call(&self, departure: &Departure, outgoing: &Outgoing<'_>) -> Result<Ready, Refusal> {
        let token = token::next().map_err(Refusal::failed)?;
        let chain = (token, self.callers(departure, token).collect());
        if let Some(via) = departure.via {
            let channel = self.channel(via.channel).ok_or_else(Refusal::dead)?;
            return self.prepare(channel, via, departure, outgoing, chain);
        }
        let loaned = match outgoing.data {
            Payload::Loan(loan) => loan.take(departure.peer),
            _ => None,
        };
        let (channel, lane) = loaned.map_or_else(
            || self.lane_to(departure.peer, Purpose::Call).map_err(Refusal::lost),
            Ok,
        )?;
        let (via, client) = (channel.via(lane), Arc::clone(&channel));
        self.refuse_if_frozen(&channel, false)
            .and_then(|_| refuse_if_full(&channel, self.allocation(departure, outgoing)))
            .and_then(|()| self.prepare(channel, via, departure, outgoing, chain))
            .inspect_err(|_| client.client_lanes.give(via.lane))
    }

    /// Fails a call on a channel that has ended before the peer took the channel up.
    fn keep_if_alive(
        &self,
        state: &State,
        departure: &Departure,
        ready: Ready,
    ) -> Result<Ready, Refusal> {
        let channel = &ready.channel;
        if channel.socket.was_taken_up() || !channel.ends().dead {
            return Ok(ready);
        }
        let reference = departure.handle.and_then(|handle| state.references.get(handle));
        let is_dead = reference.is_some_and(|reference| reference.dead);
        self.cancel(&ready);
        Err(if is_dead { Refusal::dead() } else { self.refusal_at_end(channel) })
    }

    /// With the state's lock held: the call is about to be posted.
    fn expect_answer(&self, Ready { channel, via, .. }: &Ready) {
        channel.client_lanes.set_progress(via.lane as usize, Progress::Departed);
        if self.is_polling()
            && let Ok(lane) = channel.lane(via.lane as usize)
        {
            lane.inbox().set_polling(true);
        }
    }

    /// Posts a call: to the pool, or `nested` to the thread that waits on this lane.
    fn post_call(&self, tid: Tid, ready: &Ready, nested: bool, outgoing: &Outgoing<'_>) {
        let Ready { channel, via, chain, .. } = ready;
        let message = Message { stamp: stamp(self.broker.stamps), ..ready.message };
        let lane = via.lane as usize;
        let Ok(areas) = channel.lane(lane) else { return self.lose_caller(tid, ready) };
        channel.show_nice(lane, message.param);
        if !nested {
            channel.begin_lending(via.lane);
        }
        let owed = channel.owed(via.lane);
        let reader = areas.post(&message, |area| outgoing.write(ready, area, 0));
        if !nested {
            channel.show_processor();
            let named = chain[1..].iter().any(|entry| entry.process == channel.peer.0);
            return channel.notify_of_request(lane, reader, named);
        }
        channel.repay(owed);
        channel.client_lanes.set_progress(lane, Progress::Posted);
        match reader {
            // A thread that waits at the lane reads its mailbox itself.
            Reader::Polling => channel.socket.ring(),
            Reader::Closed => self.lose_caller(tid, ready),
            Reader::Woken | Reader::Watching | Reader::Dedicated | Reader::Elsewhere => {}
        }
    }

    /// The thread that called this one has left: no thread takes the nested call.
    fn lose_caller(&self, tid: Tid, ready: &Ready) {
        self.with_state(|state| {
            ready.take_back(state);
            // The channel may have ended meanwhile, and the call with it.
            let calls_on = state.thread(tid).calls_on();
            if calls_on.is_some_and(|calling| calling.token == ready.token) {
                state.answered_with(tid, Kind::Dead, 0);
            }
        });
        self.cancel(ready);
    }

    /// Puts a short one-way transaction without objects into a channel's ring, under the state's
    /// lock. `None` if there is more to do: the thread has or had a lane of its own, or the target
    /// has no channel, is frozen or full.
    fn put_at_once(
        &self,
        departure: &Departure,
        outgoing: &Outgoing<'_>,
    ) -> Option<(Arc<Channel>, Completion)> {
        let bytes = outgoing.data.bytes();
        if bytes > INLINE_BYTES
            || outgoing.has_objects()
            || thread::is_real_time()
            || self.keeps_lanes()
            || self.user_entry().is_some()
        {
            return None;
        }
        let channel = self.pool.channels.newest_to(departure.peer)?;
        if channel.status_word(status::FROZEN) != 0 {
            return None;
        }
        let allocation = self.allocation(departure, outgoing);
        let mut ends = channel.ends();
        let spam = match look_for_room(&channel, &mut ends, None, allocation).ok()? {
            OneWayRoom::Found { spam } => spam,
            OneWayRoom::Full { .. } => return None,
        };
        let stamp = stamp_in_order(self.broker.stamps);
        let message = Message { stamp, ..outgoing.message(departure, 0) };
        let data_at = message.parts()?.data_at;
        let write = |map: View<'_>, at| outgoing.data.copy_to(map, at + data_at);
        let put = channel.put_one_way(&mut ends, &message, allocation, write);
        drop(ends);
        // As in `put_one_way`.
        fence(Ordering::SeqCst);
        let completion = if spam { Completion::SpamSuspect } else { Completion::Taken };
        (put == Ok(true)).then_some((channel, completion))
    }

    /// Puts a one-way transaction into the ring of the thread's lane, if it is a real-time thread,
    /// else into that of a channel. `is_calling`: it is called back, so its lane's looper is busy.
    fn put_one_way(
        &self,
        departure: &Departure,
        outgoing: &Outgoing<'_>,
        is_calling: bool,
    ) -> Result<Ready, Refusal> {
        let ring = self.ring_to(departure.peer).map_err(Refusal::lost)?;
        let (channel, lane) = match ring {
            Some((channel, lane)) => (channel, Some(lane)),
            None => (self.channel_to(departure.peer).map_err(Refusal::lost)?, None),
        };
        let frozen = self.refuse_if_frozen(&channel, true)?;
        let bytes = self.allocation(departure, outgoing);
        let spam = self.one_way_room(&channel, lane, bytes)?;
        let chain = self.chain_without_callers();
        let mut ready = self.prepare(channel, NO_LANE, departure, outgoing, chain)?;
        ready.message.param = if frozen { TO_FROZEN } else { 0 };
        let channel = Arc::clone(&ready.channel);
        // The one-way transactions of this process keep the order of a ring.
        let put = {
            let mut ends = channel.ends();
            ready.message.stamp = stamp_in_order(self.broker.stamps);
            let message = ready.message;
            let write = |map: View<'_>, at| outgoing.write(&ready, map, at);
            match lane {
                Some(lane) => {
                    drop(ends);
                    channel.put_real_time(lane, &message, bytes, write)
                }
                None => channel.put_one_way(&mut ends, &message, bytes, write),
            }
        };
        if put != Ok(true) {
            self.cancel(&ready);
            return Err(Refusal::failed(Errno::NOSPC));
        }
        // No thread of a frozen process looks here, except its control thread. Before the look at
        // the sleepers; see `bell`.
        fence(Ordering::SeqCst);
        match lane {
            Some(lane) => channel.notify_of_real_time(lane, is_calling, frozen),
            None => channel.announce_one_way(frozen),
        }
        ready.completion = match (frozen, spam) {
            (true, _) => Completion::PendingFrozen,
            (_, true) => Completion::SpamSuspect,
            _ => Completion::Taken,
        };
        Ok(ready)
    }

    /// Waits for a while until the target has room: see [`look_for_room`]. True if the target may
    /// count the transaction as spam.
    ///
    /// One ordinary thread of the process looks, and the others wait for it: the timers of many
    /// would interrupt the target, and whoever else runs, all the time.
    fn one_way_room(
        &self,
        channel: &Channel,
        lane: Option<usize>,
        bytes: usize,
    ) -> Result<bool, Refusal> {
        let look = || look_for_room(channel, &mut channel.ends(), lane, bytes);
        if let OneWayRoom::Found { spam } = look()? {
            return Ok(spam);
        }
        let deadline = now() + ROOM_PATIENCE;
        let may_wait = lane.is_none() && !thread::is_real_time();
        let _turn = may_wait.then(|| channel.looks_for_room.lock());
        let mut next_pause = FIRST_PAUSE;
        loop {
            let n_pending = match look()? {
                OneWayRoom::Found { spam } => return Ok(spam),
                OneWayRoom::Full { n_pending } => n_pending,
            };
            let left = deadline.saturating_duration_since(now());
            if n_pending == 0 || left.is_zero() {
                return Err(Refusal::failed(Errno::NOSPC));
            }
            // Records in the ring may be counted twice while they are taken in: the target's
            // control thread is rung to take them in.
            if next_pause == FIRST_PAUSE {
                lane.inspect(|lane| channel.set_ready(*lane));
                channel.socket.ring();
            }
            pause(next_pause.min(left));
            next_pause *= 2;
        }
    }

    /// BC_ACQUIRE and BC_INCREFS of handle 0. `EINVAL` if this process manages the context itself.
    pub(crate) fn increase_manager(&self, strength: Strength, command: u32) -> Result<(), Errno> {
        if self.find_manager() == Err(Errno::INVAL) {
            return Err(Errno::INVAL);
        }
        self.with_state(|state| {
            if !state.increase_manager(strength) {
                state.invalid_handle(command, 0);
            }
        });
        Ok(())
    }

    /// The node, the process and the chain of a call by this handle, as they are now.
    pub(crate) fn route(&self, tid: Tid, handle: u32) -> Result<Departure, Refusal> {
        self.take_new_events();
        self.with_state(|state| {
            self.take_over_own(state);
            state.call_route(tid, handle, 0)
        })
    }

    /// Takes a lane for a call by this handle, with so many bytes of data.
    pub fn loan_lane(&self, tid: Tid, handle: u32, bytes: usize) -> Result<LoanedLane, Refusal> {
        if bytes > MAX_PAYLOAD_BYTES {
            return Err(Refusal::failed(Errno::NOSPC));
        }
        let route = self.route(tid, handle)?;
        let chain = self.callers(&route, 0).count();
        let (channel, lane) = self.lane_to(route.peer, Purpose::Loan).map_err(Refusal::lost)?;
        Ok(LoanedLane::new(channel, lane, chain, bytes))
    }
}
