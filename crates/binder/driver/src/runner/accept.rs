//! Accepts the messages of peers, oldest first: requests on lanes, one-way transactions in rings.

use crate::channel::table::FEW;
use crate::channel::{Channel, Ends};
use crate::engine::Engine;
use crate::engine::real_time::{DedicatedLooper, OwnRing};
use crate::sys::clock::stamp_in_order;
use crate::sys::thread::tid;
use baton_abi::control::{ChannelId, End, ProcessId};
use baton_abi::lane::{AT_THE_DOOR, Kind, LANES, Message, RING_BYTES};
use baton_abi::sched_priority::SchedPriority;
use baton_shm::lane_owner::Owner;
use baton_shm::lock::Guard;
use baton_shm::ready_lanes::lanes_of;
use baton_shm::ring::Corrupt;
use baton_shm::sync::Ordering;
use baton_state::State;
use baton_state::transaction::{LaneSender, Recipient};
use rustix::io::Errno;
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::sync::Arc;

/// A look ends after so many announcements without a message: a client could go on for ever.
const MOST_GONE: u32 = 64;

/// A look ends after so many messages, so that other threads get the state: clients may post as
/// fast as it takes in.
pub(crate) const MOST_AT_ONCE: usize = 256;

/// Number of channels that a look visits even if a real-time thread waits for the state, so that
/// every look makes progress.
const CHANNELS_AT_ONCE: usize = 16;

/// How many messages a channel can hold.
const CAPACITY: usize = LANES + RING_BYTES / size_of::<Message>();

impl Engine {
    /// Takes in the messages on some channels, oldest first.
    pub(crate) fn accept(&self, state: &mut State, among: ChannelSet<'_>) -> Look {
        let (mut taken, mut gone) = (0, 0);
        let muted = !matches!(among, ChannelSet::Watched);
        let channels = match among {
            ChannelSet::Watched => self.pool.channels.watched(),
            ChannelSet::Of(peer) => Arc::new(self.pool.channels.with(peer)),
            ChannelSet::All => Arc::new(self.pool.channels.incoming()),
            ChannelSet::These(channels) => Arc::new(channels.to_vec()),
        };
        if channels.is_empty() {
            return Look::All;
        }
        let mut found = FoundMessages::default();
        loop {
            let Some(until) = self.find(state, &channels, muted, &mut found) else {
                return self.cut(taken, 0);
            };
            if found.is_empty() {
                return Look::All;
            }
            while let Some((channel, what)) = found.next(until) {
                if taken == MOST_AT_ONCE || taken > 0 && self.state.is_awaited() {
                    return self.cut(taken, what.stamp);
                }
                taken += 1;
                self.pool.activate(&channel);
                channel.show_processor();
                let outcome = match what.place {
                    Place::Lane(lane) => self.accept_lane(state, &channel, lane, Recipient::Pool),
                    Place::OneWay => self.accept_one_way(state, &channel),
                    Place::Ring(lane) => self.accept_real_time(state, &channel, lane, None),
                };
                match outcome {
                    Ok(()) => {
                        self.pool.count_request(&channel, &channels);
                        match what.place {
                            Place::Lane(_) => {}
                            Place::OneWay => self.find_one_way(state, &channel, &mut found),
                            Place::Ring(lane) => {
                                self.find_real_time(state, &channel, lane, &mut found);
                            }
                        }
                    }
                    Err(Stop::Later) => return Look::Later(what),
                    Err(Stop::Gone) if gone == MOST_GONE => return Look::All,
                    Err(Stop::Gone) => gone += 1,
                    Err(Stop::NoRoom) => {
                        self.pool.channels.wait_for_room(channel, what.place.ring());
                    }
                    Err(Stop::Violation(why)) => self.end_channel(state, &channel, why),
                    Err(Stop::Refused(_)) => unreachable!("refusals have been told"),
                }
            }
        }
    }

    fn cut(&self, taken: usize, next: u64) -> Look {
        self.leave_to_others();
        Look::Cut { taken, next }
    }

    /// Messages lie there that this thread does not take in: a looper or the watchdog goes on.
    pub(super) fn leave_to_others(&self) {
        if !self.pool.wake_one() {
            self.control.watchdog.expect();
        }
    }

    /// Takes in every message that was posted before this call, and returns the locked state. A
    /// message that waits for an event ends this early, and is returned. Other threads get the
    /// state in between.
    pub(crate) fn accept_posted(
        &self,
        among: ChannelSet<'_>,
    ) -> (Guard<'_, State>, Option<Candidate>) {
        let began = stamp_in_order(self.broker.stamps);
        // Stamps are their senders' word: the number of messages is bounded, too.
        let mut left = self.pool.channels.lists().n_incoming() * CAPACITY;
        loop {
            let mut state = self.lock();
            match self.accept(&mut state, among) {
                Look::Cut { taken, next } if next <= began && taken < left => left -= taken,
                look => return (state, look.later()),
            }
            self.unlock(state);
        }
    }

    /// Like [`Engine::accept_posted`] for the watched channels. Then also for the channels of this
    /// process, if some may be unwatched or a message waits for an event.
    pub(crate) fn accept_posted_by(
        &self,
        process: ProcessId,
    ) -> (Guard<'_, State>, Option<Candidate>) {
        let (state, later) = self.accept_posted(ChannelSet::Watched);
        // A dedicated looper may have been woken for a record that it has yet to find.
        let channels = self.pool.channels.with(process);
        let has_rings = channels.iter().any(|channel| channel.has_any_real_time());
        let all_are_watched =
            self.pool.channels.lists().n_incoming() <= FEW && !self.pool.has_muted() && !has_rings;
        if later.is_none() && all_are_watched {
            return (state, later);
        }
        self.unlock(state);
        let (state, of_its_own) = self.accept_posted(ChannelSet::Of(process));
        (state, of_its_own.or(later))
    }

    /// Takes in the messages that are older than the work that a command is about to queue.
    pub fn accept_first(&self, state: &mut State) {
        // A message that waits for an event still does: the next look finds it.
        self.accept(state, ChannelSet::Watched);
    }

    /// Finds the next messages, and the stamp up to which they may come in without another look.
    /// `None` if the look ended early, because a real-time thread waits for the state.
    ///
    /// A message that was posted because of a first one is younger, and a look that sees it sees
    /// the first one, too. So messages that are older than the look come in by their stamps. If all
    /// messages claim to be younger, only the first comes in, after a second look: its cause may
    /// have been posted during the first look.
    fn find(
        &self,
        state: &mut State,
        channels: &[Arc<Channel>],
        muted: bool,
        found: &mut FoundMessages,
    ) -> Option<u64> {
        let began = stamp_in_order(self.broker.stamps);
        self.look(state, channels, muted, found)?;
        if found.is_empty() || found.is_older_than(began) {
            return Some(began);
        }
        if channels.len() > 1 {
            self.look(state, channels, muted, found)?;
        }
        if found.is_older_than(began) {
            return Some(began);
        }
        found.keep_first();
        Some(u64::MAX)
    }

    /// `None` if the look ended early.
    fn look(
        &self,
        state: &mut State,
        channels: &[Arc<Channel>],
        muted: bool,
        found: &mut FoundMessages,
    ) -> Option<()> {
        found.clear();
        for (nth, channel) in channels.iter().enumerate() {
            if nth >= CHANNELS_AT_ONCE && self.state.is_awaited() {
                return None;
            }
            if channel.end != End::Server || !muted && channel.is_muted() {
                continue;
            }
            let mut ends = channel.ends();
            if ends.dead {
                continue;
            }
            // Before the lanes: a thread that has lost its lane sends by the channel's ring what
            // is younger than its records in the lane's.
            let one_way = self.first_one_way(channel, &mut ends);
            let (ready, owned) = channel.ready_lanes(&mut ends);
            drop(ends);
            self.look_for_absent(state, channel, owned);
            self.add_one_way(state, channel, one_way, found);
            let rings = if muted { u64::MAX } else { ready | owned };
            for lane in lanes_of(rings & channel.used_rings()) {
                self.find_real_time(state, channel, lane, found);
            }
            let mut empty = 0u64;
            for lane in lanes_of(ready) {
                match channel.lane(lane) {
                    Ok(areas) if areas.inbox().is_empty() => empty |= 1 << lane,
                    Ok(areas) => {
                        let call = Candidate::new(channel, Place::Lane(lane), &areas.header());
                        found.calls.push((Arc::clone(channel), call));
                    }
                    Err(_) => self.end_channel(state, channel, "no memory for its lanes"),
                }
            }
            if empty != 0 {
                // A looper that watched these lanes has taken the requests, or there were none.
                self.pool.count_fruitless(channel, channel.forget_ready(empty));
            }
        }
        found.sort();
        Some(())
    }

    /// Finds the oldest one-way transaction in a channel's ring, if it can come in.
    fn find_one_way(&self, state: &mut State, channel: &Arc<Channel>, found: &mut FoundMessages) {
        let first = self.first_one_way(channel, &mut channel.ends());
        self.add_one_way(state, channel, first, found);
    }

    fn first_one_way(
        &self,
        channel: &Channel,
        ends: &mut Ends,
    ) -> Result<Option<Message>, Corrupt> {
        if channel.full.load(Ordering::Relaxed) {
            return Ok(None);
        }
        Ok(channel.first_one_way(ends)?.map(|(message, _)| message))
    }

    fn add_one_way(
        &self,
        state: &mut State,
        channel: &Arc<Channel>,
        first: Result<Option<Message>, Corrupt>,
        found: &mut FoundMessages,
    ) {
        match first {
            Ok(Some(message)) => found.add_one_way(channel, Place::OneWay, &message),
            Ok(None) => {}
            Err(_) => self.end_channel(state, channel, "impossible one-way ring"),
        }
    }

    /// Finds the oldest one-way transaction in a lane's ring, if it can come in.
    fn find_real_time(
        &self,
        state: &mut State,
        channel: &Arc<Channel>,
        lane: usize,
        found: &mut FoundMessages,
    ) {
        if channel.full_rings.load(Ordering::Relaxed) >> lane & 1 == 1 {
            return;
        }
        match channel.first_real_time(lane) {
            Ok(Some((message, _))) => found.add_one_way(channel, Place::Ring(lane), &message),
            Ok(None) => {}
            Err(_) => self.end_channel(state, channel, "impossible ring of a lane"),
        }
    }

    /// Takes in one-way transactions that waited for room, after a buffer has been freed. A
    /// real-time thread leaves them to others.
    pub(crate) fn made_room(&self, state: &mut State) {
        if self.pool.channels.end_waits_for_room() {
            if self.is_urgent(state) {
                let _ = self.cut(0, 0);
                return;
            }
            // A message that waits for an event still does: the next look finds it.
            self.accept(state, ChannelSet::Watched);
        }
    }

    /// Takes in the one-way transactions in the ring of the lane that is dedicated to the calling
    /// thread.
    pub(crate) fn accept_own_ring(&self, state: &mut State, own: &DedicatedLooper) -> OwnRing {
        let (channel, lane) = (&own.channel, own.lane as usize);
        for _ in 0..MOST_AT_ONCE {
            match self.accept_real_time(state, channel, lane, Some(own)) {
                Ok(()) => channel.count_fruitful(),
                Err(Stop::Gone) => return OwnRing::Taken,
                Err(Stop::Later) => return OwnRing::Waits(channel.real_time_read(lane)),
                Err(Stop::NoRoom) => {
                    self.pool.channels.wait_for_room(Arc::clone(channel), Some(lane));
                    return OwnRing::Taken;
                }
                Err(Stop::Violation(why)) => {
                    self.end_channel(state, channel, why);
                    return OwnRing::Taken;
                }
                Err(Stop::Refused(_)) => unreachable!("refusals have been told"),
            }
        }
        OwnRing::Cut
    }

    /// Takes in the request on a lane that is dedicated to the calling thread. A request that has
    /// to wait for an event is returned.
    pub(crate) fn accept_dedicated(
        &self,
        state: &mut State,
        channel: &Channel,
        lane: usize,
    ) -> Option<Stop> {
        let tid = tid();
        if channel.lane_owner(lane as u32) != Owner::Dedicated(tid) {
            return None;
        }
        match self.accept_lane(state, channel, lane, Recipient::Dedicated(tid)) {
            Ok(()) => {
                channel.count_fruitful();
                None
            }
            Err(Stop::Gone) => None,
            Err(Stop::Later) => Some(Stop::Later),
            Err(Stop::Violation(why)) => {
                self.end_channel(state, channel, why);
                None
            }
            Err(Stop::NoRoom | Stop::Refused(_)) => unreachable!("not of a request"),
        }
    }

    pub(crate) fn accept_lane(
        &self,
        state: &mut State,
        channel: &Channel,
        lane: usize,
        recipient: Recipient,
    ) -> Result<(), Stop> {
        let areas = channel.lane(lane).map_err(|_| Stop::Later)?;
        let (bit, number) = (1 << lane, lane as u32);
        // A pinned looper may have taken the request, before or after its caller announced it.
        let owner = match recipient {
            Recipient::Dedicated(tid) => Owner::Dedicated(tid),
            _ => Owner::Pool,
        };
        let idle = channel.start_serving(number, owner);
        if !idle || areas.inbox().is_empty() {
            if idle {
                // Before the announcement is forgotten: a request may have been left meanwhile.
                channel.end_serving(number);
            }
            self.pool.count_fruitless(channel, channel.forget_ready(bit));
            return Err(Stop::Gone);
        }
        let message = areas.header();
        if message.kind != Kind::Request as u32 {
            return Err(Stop::Violation("no request where one must be"));
        }
        let via = channel.via(lane);
        match self.take_in(state, channel, &message, areas.incoming(), 0, via, recipient, None) {
            Err(Stop::NoRoom) => unreachable!("only one-way transactions wait for room"),
            Err(stop) => {
                channel.end_serving(number);
                return Err(stop);
            }
            Ok(refused) => {
                channel.clear_ready(bit);
                areas.inbox().clear();
                if let Some((kind, errno)) = refused {
                    // The kernel installs descriptors at the read, when the call has been sent.
                    let code = if errno == Errno::MFILE { 0 } else { AT_THE_DOOR };
                    if !self.answer(via, false, kind, Some(errno), code) {
                        areas.outbox().give_back();
                    }
                }
            }
        }
        Ok(())
    }

    pub(crate) fn accept_one_way(&self, state: &mut State, channel: &Channel) -> Result<(), Stop> {
        let first = channel.first_one_way(&mut channel.ends());
        let Ok(first) = first else { return Err(Stop::Violation("impossible one-way ring")) };
        let Some((message, at)) = first else {
            self.pool.count_fruitless(channel, 1);
            return Err(Stop::Gone);
        };
        let via = channel.via(0);
        self.take_in(state, channel, &message, channel.head(), at, via, Recipient::Pool, None)?;
        // The buffer's use is published before the ring's record is given back: the client never
        // misses the transaction in both.
        channel.publish_account(state.one_way_account(channel.id));
        self.publish(state);
        channel.release_one_way(&mut channel.ends(), &message);
        Ok(())
    }

    /// Takes in the oldest one-way transaction in a lane's ring. It has a real-time sender if the
    /// broker has told of that. `own` is the lane's dedicated looper if that takes it in.
    pub(crate) fn accept_real_time(
        &self,
        state: &mut State,
        channel: &Channel,
        lane: usize,
        own: Option<&DedicatedLooper>,
    ) -> Result<(), Stop> {
        let first = channel.first_real_time(lane);
        let Ok(first) = first else { return Err(Stop::Violation("impossible ring of a lane")) };
        let Some(((message, at), records)) = first.zip(channel.real_time_records(lane)) else {
            return Err(Stop::Gone);
        };
        let via = channel.via(lane);
        let recipient = own.map_or(Recipient::Pool, |_| Recipient::Dedicated(tid()));
        let dedicated = own.is_none().then(|| self.dedicated(via)).flatten();
        let dedicated = own.or(dedicated.as_deref());
        let sender = Some(LaneSender {
            via,
            priority: dedicated.map(DedicatedLooper::priority),
            reservation: dedicated.map_or(0, |dedicated| dedicated.number),
        });
        self.take_in(state, channel, &message, records, at, via, recipient, sender)?;
        // As of the channel's ring.
        channel.publish_account(state.one_way_account(channel.id));
        self.publish(state);
        channel.release_real_time(lane, &message);
        Ok(())
    }
}

/// The result of a look for messages.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Look {
    /// Every message is in.
    All,
    /// This message waits for an event of the broker. Older messages are in, younger ones wait with
    /// it: a node's transactions come in the order in which they were sent.
    Later(Candidate),
    /// The look ended after so many messages, so that other threads have the state. The next
    /// message was sent at `next`; 0 if that is not known. A looper or the watchdog goes on.
    Cut { taken: usize, next: u64 },
}

impl Look {
    /// The message that waits for an event.
    pub fn later(self) -> Option<Candidate> {
        match self {
            Look::Later(what) => Some(what),
            Look::All | Look::Cut { .. } => None,
        }
    }
}

/// The channels of a look.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ChannelSet<'a> {
    /// The watched ones: see [`crate::wait::active_set`].
    Watched,
    /// The channels with one process.
    Of(ProcessId),
    /// All channels.
    All,
    /// These channels, muted or not.
    These(&'a [Arc<Channel>]),
}

/// The messages that a look has found. Calls come in by nice value, then by age; a one-way
/// transaction comes before every younger call, and one of a lane's ring before those of channels'
/// rings. No waiting call was made because of another waiting
/// call.
#[derive(Debug, Default)]
pub(crate) struct FoundMessages {
    /// Sorted; the next call stands last.
    calls: SmallVec<[(Arc<Channel>, Candidate); 4]>,
    /// At most one of each ring, sorted; the next one stands last.
    one_ways: SmallVec<[(Arc<Channel>, Candidate); 4]>,
}

impl FoundMessages {
    fn clear(&mut self) {
        self.calls.clear();
        self.one_ways.clear();
    }

    fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.one_ways.is_empty()
    }

    fn sort(&mut self) {
        let later = |(_, what): &(_, Candidate)| Reverse(what.order());
        self.calls.sort_unstable_by_key(later);
        self.one_ways.sort_unstable_by_key(later);
    }

    fn add_one_way(&mut self, channel: &Arc<Channel>, place: Place, message: &Message) {
        let what = Candidate::new(channel, place, message);
        let later = |(_, other): &(_, Candidate)| other.order() > what.order();
        let place = self.one_ways.partition_point(later);
        self.one_ways.insert(place, (Arc::clone(channel), what));
    }

    fn is_older_than(&self, stamp: u64) -> bool {
        self.calls.iter().chain(&self.one_ways).any(|(_, what)| what.stamp < stamp)
    }

    /// Keeps only the message that comes next.
    fn keep_first(&mut self) {
        let next = self.next(u64::MAX);
        let (calls, one_ways) = match next {
            Some(first) if !matches!(first.1.place, Place::Lane(_)) => (None, Some(first)),
            first => (first, None),
        };
        (self.calls, self.one_ways) = (calls.into_iter().collect(), one_ways.into_iter().collect());
    }

    /// Takes out the message that comes next. `None` if none was sent before `until`.
    fn next(&mut self, until: u64) -> Option<(Arc<Channel>, Candidate)> {
        let in_time = |what: &Candidate| what.stamp < until || until == u64::MAX;
        let call = self.calls.iter().rposition(|(_, what)| in_time(what));
        let one_way = self.one_ways.last().filter(|(_, what)| in_time(what));
        match (call, one_way) {
            (Some(call), Some((_, one_way))) if one_way.stamp >= self.calls[call].1.stamp => {
                Some(self.calls.remove(call))
            }
            (Some(call), None) => Some(self.calls.remove(call)),
            (_, Some(_)) => self.one_ways.pop(),
            (None, None) => None,
        }
    }
}

/// Where a message lies on its channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Lane(usize),
    /// In the channel's one-way ring.
    OneWay,
    /// In this lane's ring.
    Ring(usize),
}

impl Place {
    /// The lane in whose ring the message lies.
    fn ring(self) -> Option<usize> {
        match self {
            Place::Ring(lane) => Some(lane),
            Place::Lane(_) | Place::OneWay => None,
        }
    }
}

/// A message that could come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) channel: ChannelId,
    place: Place,
    priority: SchedPriority,
    stamp: u64,
}

impl Candidate {
    fn new(channel: &Channel, place: Place, message: &Message) -> Candidate {
        let priority = match place {
            Place::Lane(_) => SchedPriority::nice(message.param),
            Place::OneWay => SchedPriority::nice(0),
            Place::Ring(_) => SchedPriority::fifo(1),
        };
        Candidate { channel: channel.id, place, priority, stamp: message.stamp }
    }

    /// Whether this is the message that waited at its place before, or claims to be older than
    /// `began`, a time after it was seen there. A later message at this place was posted after the
    /// one before it was taken in, so that only a false header says so.
    pub(super) fn has_taken_no_turn(&self, before: Candidate, began: u64) -> bool {
        let is_there = (self.channel, self.place) == (before.channel, before.place);
        is_there && (*self == before || self.stamp < began)
    }

    /// The sort key: the message with the lesser key comes first.
    fn order(&self) -> (Reverse<SchedPriority>, u64) {
        (Reverse(self.priority), self.stamp)
    }
}

/// Why a message does not come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It waits for an event.
    Later,
    /// Another thread has taken it.
    Gone,
    /// It waits for room.
    NoRoom,
    /// It is refused, and its sender is told.
    Refused(Errno),
    /// Its sender has broken the protocol: the channel ends.
    Violation(&'static str),
}
