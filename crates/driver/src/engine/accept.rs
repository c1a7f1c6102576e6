//! What peers have posted comes in, oldest first: requests on lanes, one-way transactions in rings.

use super::{Engine, tid};
use crate::channel::{Channel, lanes_of};
use crate::clock::stamp_in_order;
use crate::level::Level;
use crate::state::State;
use baton_abi::control::{ChannelId, ProcessId};
use baton_abi::lane::{AT_THE_DOOR, Kind, LANES, Message, RING_BYTES};
use baton_shm::lock::Guard;
use baton_shm::sync::Ordering;
use rustix::io::Errno;
use std::sync::Arc;

/// Announcements of nothing at which a look gives up: a client could go on for ever.
const MOST_GONE: u32 = 64;

/// Messages at which a look lets others have the state: clients may post as fast as it takes in.
pub(super) const MOST_AT_ONCE: usize = 256;

/// Channels that are looked at whoever waits: with no more of them a look always comes to something.
const CHANNELS_AT_ONCE: usize = 16;

/// What a channel can hold.
const CAPACITY: usize = LANES + RING_BYTES / size_of::<Message>();

impl Engine {
    /// Takes in what peers have posted (or one of them), oldest first.
    pub(super) fn accept(&self, state: &mut State, only: Option<ProcessId>) -> Look {
        let incoming = self.incoming();
        let (mut taken, mut gone) = (0, 0);
        loop {
            let Ok(oldest) = self.oldest(state, &incoming, only) else {
                return self.cut(taken, 0);
            };
            let Some((channel, what)) = oldest else { return Look::All };
            if taken == MOST_AT_ONCE || taken > 0 && self.state.is_awaited() {
                return self.cut(taken, what.stamp);
            }
            taken += 1;
            self.count_request(&channel, &incoming);
            self.warm_up(&channel);
            channel.show_processor();
            let outcome = match what.place {
                Place::Lane(lane) => self.accept_lane(state, &channel, lane),
                Place::OneWay => self.accept_one_way(state, &channel),
            };
            match outcome {
                Ok(()) => {}
                Err(Stop::Later) => return Look::Later(what),
                Err(Stop::Gone) if gone == MOST_GONE => return Look::All,
                Err(Stop::Gone) => gone += 1,
                Err(Stop::NoRoom) => {
                    channel.full.store(true, Ordering::Relaxed);
                    self.any_full.store(true, Ordering::Relaxed);
                }
                Err(Stop::Violation(why)) => self.end_channel(state, &channel, why),
                Err(Stop::Refused(_)) => unreachable!("refusals have been told"),
            }
        }
    }

    fn cut(&self, taken: usize, next: u64) -> Look {
        if !self.wake_one() {
            self.patrol.expect();
        }
        Look::Cut { taken, next }
    }

    /// The state, once everything is in that had been posted before this call, up to what
    /// waits for an event: that is returned. Others have the state in between.
    pub(super) fn accept_posted(
        &self,
        only: Option<ProcessId>,
    ) -> (Guard<'_, State>, Option<Candidate>) {
        let began = stamp_in_order(self.broker.stamps);
        // Stamps are their senders' claims.
        let mut left = self.incoming().len() * CAPACITY;
        loop {
            let mut state = self.lock();
            match self.accept(&mut state, only) {
                Look::Cut { taken, next } if next <= began && taken < left => left -= taken,
                look => return (state, look.later()),
            }
            self.unlock(state);
        }
    }

    /// Takes in what is older than the work that a command is about to queue.
    pub fn accept_first(&self, state: &mut State) {
        // What waits for an event still does; the next look finds it.
        self.accept(state, None);
    }

    /// The message that comes next: of the calls that of the best nice value, of those the oldest; and before it the
    /// one-way transactions that are older. A message that was posted because of another one is younger, and
    /// whoever sees it sees the other; hence the second look when the first finds something. No call was made because of
    /// another one that waits.
    pub(super) fn oldest(
        &self,
        state: &mut State,
        incoming: &[Arc<Channel>],
        only: Option<ProcessId>,
    ) -> Result<Option<(Arc<Channel>, Candidate)>, Awaited> {
        let found = self.look(state, incoming, only)?;
        if found.is_none() || incoming.len() == 1 {
            return Ok(found);
        }
        self.look(state, incoming, only)
    }

    pub(super) fn look(
        &self,
        state: &mut State,
        incoming: &[Arc<Channel>],
        only: Option<ProcessId>,
    ) -> Result<Option<(Arc<Channel>, Candidate)>, Awaited> {
        let mut call: Option<(Arc<Channel>, Candidate)> = None;
        let mut one_way: Option<(Arc<Channel>, Candidate)> = None;
        let offer = |first: &mut Option<_>, channel: &Arc<Channel>, what: Candidate| {
            let is_first = first.as_ref().is_none_or(|(_, best)| what.comes_before(best));
            if is_first {
                *first = Some((Arc::clone(channel), what));
            }
        };
        let of_interest = incoming.iter().filter(|c| only.is_none_or(|peer| c.peer == peer));
        for (nth, channel) in of_interest.enumerate() {
            if nth >= CHANNELS_AT_ONCE && self.state.is_awaited() {
                return Err(Awaited);
            }
            let mut ends = channel.ends();
            if ends.dead {
                continue;
            }
            let (ready, attended) = channel.ready_lanes(&mut ends);
            self.look_for_absent(state, channel, attended);
            for lane in lanes_of(ready) {
                if let Ok(areas) = channel.lane(lane) {
                    offer(&mut call, channel, Candidate::call(channel, lane, &areas.header()));
                }
            }
            if channel.full.load(Ordering::Relaxed) {
                continue;
            }
            match channel.first_one_way(&mut ends) {
                Ok(Some((message, _))) => {
                    offer(&mut one_way, channel, Candidate::one_way(channel, &message));
                }
                Ok(None) => {}
                Err(_) => {
                    drop(ends);
                    self.end_channel(state, channel, "impossible one-way ring");
                }
            }
        }
        Ok(match (call, one_way) {
            (Some((_, call)), Some(one_way)) if one_way.1.stamp < call.stamp => Some(one_way),
            (call, one_way) => call.or(one_way),
        })
    }

    /// A buffer has been freed: one-way transactions that waited for room come in.
    pub(super) fn made_room(&self, state: &mut State) {
        // Written and read under the state's lock.
        if !self.any_full.swap(false, Ordering::Relaxed) {
            return;
        }
        let mut waited = false;
        for channel in self.incoming().iter() {
            waited |= channel.full.swap(false, Ordering::Relaxed);
        }
        if waited {
            // What waits for an event still does; the next look finds it.
            self.accept(state, None);
        }
    }

    /// Takes in what lies on a lane, if the calling thread attends it. What has to wait for an event is
    /// returned.
    pub(super) fn accept_attended(
        &self,
        state: &mut State,
        channel: &Channel,
        lane: usize,
    ) -> Option<Stop> {
        if !state.is_attended_by(channel.via(lane), tid()) {
            // What comes in is for whoever attends it now, and that thread may be away.
            return None;
        }
        match self.accept_lane(state, channel, lane) {
            Ok(()) | Err(Stop::Gone) => None,
            Err(Stop::Later) => Some(Stop::Later),
            Err(Stop::Violation(why)) => {
                self.end_channel(state, channel, why);
                None
            }
            Err(Stop::NoRoom | Stop::Refused(_)) => unreachable!("not of a request"),
        }
    }

    pub(super) fn accept_lane(
        &self,
        state: &mut State,
        channel: &Channel,
        lane: usize,
    ) -> Result<(), Stop> {
        let areas = channel.lane(lane).map_err(|_| Stop::Later)?;
        let (bit, number) = (1 << lane, lane as u32);
        // Whoever watched the lane may have taken it, before or after its caller told everybody.
        let idle = channel.start_serving(number);
        if !idle || areas.inbox().is_empty() {
            channel.ends().ready &= !bit;
            if idle {
                channel.end_serving(number);
            }
            return Err(Stop::Gone);
        }
        let message = areas.header();
        if message.kind != Kind::Request as u32 {
            return Err(Stop::Violation("no request where one must be"));
        }
        let via = channel.via(lane);
        match self.take_in(state, channel, &message, areas.incoming(), 0, via, None) {
            Err(Stop::NoRoom) => unreachable!("only one-way transactions wait for room"),
            Err(stop) => {
                channel.end_serving(number);
                return Err(stop);
            }
            Ok(refused) => {
                channel.ends().ready &= !bit;
                areas.inbox().clear();
                if let Some((kind, errno)) = refused {
                    // Descriptors are installed when it is read: by then it was complete.
                    let code = if errno == Errno::MFILE { 0 } else { AT_THE_DOOR };
                    if !self.answer(via, kind, Some(errno), code) {
                        areas.outbox().give_back();
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn accept_one_way(&self, state: &mut State, channel: &Channel) -> Result<(), Stop> {
        let first = channel.first_one_way(&mut channel.ends());
        let Ok(Some((message, at))) = first else {
            return Err(Stop::Violation("impossible one-way ring"));
        };
        let via = channel.via(0);
        self.take_in(state, channel, &message, channel.head(), at, via, None)?;
        // What it takes is published before its record is given back: the client never counts
        // it as neither.
        channel.publish_account(state.one_way_account(channel.id));
        self.publish(state);
        channel.release_one_way(&mut channel.ends(), &message);
        Ok(())
    }
}

/// What a look at what has been posted came to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Look {
    /// Everything is in.
    All,
    /// Up to this message, which waits for an event of the broker. What is younger waits with it, as a
    /// node's transactions come in the order in which they were sent.
    Later(Candidate),
    /// Others are to have the state, after so many messages. The next one was sent at `next`, or is not known; somebody has
    /// been told to go on.
    Cut { taken: usize, next: u64 },
}

/// A real-time thread waits for the state, and the look would take long.
pub(super) struct Awaited;

impl Look {
    /// What waits for an event.
    pub fn later(self) -> Option<Candidate> {
        match self {
            Look::Later(what) => Some(what),
            Look::All | Look::Cut { .. } => None,
        }
    }
}

/// Where a message lies on its channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Lane(usize),
    OneWay,
}

/// A message that could come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) channel: ChannelId,
    place: Place,
    nice: Level,
    stamp: u64,
}

impl Candidate {
    fn call(channel: &Channel, lane: usize, message: &Message) -> Candidate {
        let (place, nice) = (Place::Lane(lane), Level::nice(message.param));
        Candidate { channel: channel.id, place, nice, stamp: message.stamp }
    }

    fn one_way(channel: &Channel, message: &Message) -> Candidate {
        let (place, nice) = (Place::OneWay, Level::nice(0));
        Candidate { channel: channel.id, place, nice, stamp: message.stamp }
    }

    /// Of two of one kind.
    fn comes_before(&self, other: &Candidate) -> bool {
        (self.nice, self.stamp) < (other.nice, other.stamp)
    }
}

/// Why a message stays, or its channel goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// It waits for an event.
    Later,
    /// Somebody has taken it.
    Gone,
    /// It waits for room.
    NoRoom,
    /// Its sender is told.
    Refused(Errno),
    /// Its sender has broken the protocol.
    Violation(&'static str),
}
