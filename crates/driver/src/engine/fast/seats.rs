//! What a looper knows of its clients, and which of them it serves next.

use super::cell::Cell;
use super::serve::{Posted, Served, Taken, Warm};
use super::{Receiver, is_plain};
use crate::channel::{Channel, OneWay};
use crate::engine::Engine;
use crate::state::State;
use crate::state::transaction::Incoming;
use baton_abi::control::{ChannelId, NodeId};
use baton_abi::lane::{ChainEntry, Kind, Message};
use baton_abi::uapi::{TF_CLEAR_BUF, TF_ONE_WAY};
use baton_shm::sync::Ordering;
use bytemuck::bytes_of_mut;
use rustc_hash::FxHashMap;
use std::sync::{Arc, Weak};

/// How many nodes a client can call in turn.
const NODES: usize = 8;

/// What a looper knows of its clients, by the order of the channels at which it looks. It keeps no channel:
/// a looper may be with its program for who knows how long.
pub(crate) struct Seats<T> {
    cell: Option<Arc<Cell>>,
    epoch: u64,
    warm: Weak<Vec<Arc<Channel>>>,
    clients: Vec<Option<Client<T>>>,
    /// The lane that was served last: the place of its channel, and its number.
    last: Option<(usize, u32)>,
}

/// What a client has called lately.
#[derive(Clone)]
pub(super) struct Client<T> {
    channel: ChannelId,
    sender: (u32, u32),
    /// By the node's remainder, with what serves it.
    nodes: [Option<(NodeId, T)>; NODES],
}

impl<T> Client<T> {
    /// Remembers what the state has admitted, in the client's seat.
    pub fn learn(seat: &mut Option<Client<T>>, incoming: &Incoming, object: T) {
        let (Some(serving), Some(node)) = (&incoming.serving, incoming.node) else { return };
        let (channel, sender) = (serving.via.channel, incoming.sender);
        let nodes = [const { None }; NODES];
        let client = seat.get_or_insert(Client { channel, sender, nodes });
        client.nodes[node.0 as usize % NODES] = Some((node, object));
    }

    #[inline]
    fn object(&self, node: u64) -> Option<&T> {
        let (known, object) = self.nodes[node as usize % NODES].as_ref()?;
        (known.0 == node).then_some(object)
    }
}

impl<T: Clone> Seats<T> {
    /// Of a looper that has just begun.
    pub fn new() -> Seats<T> {
        Seats { cell: None, epoch: 0, warm: Weak::new(), clients: Vec::new(), last: None }
    }

    /// Remembers what the state has admitted: a transaction of the shape that this looper could have
    /// taken in by itself.
    pub fn learn(&mut self, engine: &Engine, _unchanged: &State, incoming: &Incoming, object: T) {
        let Some(serving) = &incoming.serving else { return };
        if incoming.label.is_some() || engine.is_polling() {
            return;
        }
        let epoch = engine.fast.gate.epoch();
        let warm = engine.warm();
        if self.epoch != epoch || self.cell.is_none() {
            *self = Seats { cell: engine.cell(), epoch, ..Seats::new() };
        }
        self.follow(&warm);
        let place = warm.iter().position(|warm| warm.id == serving.via.channel);
        if let Some(seat) = place.and_then(|place| self.clients.get_mut(place)) {
            Client::learn(seat, incoming, object);
        }
    }

    /// Whether what it knows of clients no longer holds.
    #[inline(always)]
    pub fn is_stale(&self, engine: &Engine) -> bool {
        engine.fast.gate.epoch() != self.epoch
    }

    /// See [`super::Server::forget_stale`].
    #[inline]
    pub fn forget_stale(&mut self, engine: &Engine) {
        if self.is_stale(engine) {
            *self = Seats::new();
        }
    }

    /// Looks at these channels from now on.
    pub fn follow(&mut self, warm: &Warm) {
        if self.cell.is_none() || self.knows(warm) {
            return;
        }
        let known = self.clients.drain(..).flatten().map(|client| (client.channel, client));
        let mut known: FxHashMap<_, _> = known.collect();
        self.clients = warm.iter().map(|channel| known.remove(&channel.id)).collect();
        (self.warm, self.last) = (Arc::downgrade(warm), None);
    }

    /// See [`super::Server::last_lane`].
    pub fn last_lane(&self, warm: &Warm) -> Option<(usize, u32)> {
        self.last.filter(|_| self.knows(warm))
    }

    /// Whether it knows of these channels, and of no others.
    #[inline(always)]
    fn knows(&self, warm: &Warm) -> bool {
        std::ptr::eq(self.warm.as_ptr(), Arc::as_ptr(warm))
    }

    /// The channels, if they are still the same.
    pub fn warm(&self) -> Option<Warm> {
        self.warm.upgrade()
    }

    /// The thread's cell.
    pub(super) fn cell(&self) -> Option<&Cell> {
        self.cell.as_deref()
    }

    /// What it has taken in last, of one of these channels.
    pub fn taken<'a>(&'a self, warm: &'a Warm) -> Option<Taken<'a>> {
        let (place, number) = self.last_lane(warm)?;
        let (cell, channel) = (self.cell()?, &*warm[place]);
        let (lane, via) = (channel.lane(number as usize).ok()?, channel.via(number as usize));
        Some(Taken { cell, channel, lane, via })
    }

    /// Takes in one transaction of the one shape, and says what serves it. What it brought goes to
    /// `receiver`. If there is none: whether the looper waits on, or looks at everything.
    #[inline(always)]
    pub fn take<'a>(
        &'a mut self,
        engine: &Engine,
        warm: &'a Warm,
        (any_work, posted): (u32, bool),
        receiver: &mut impl Receiver,
    ) -> Result<(Taken<'a>, &'a T), Served> {
        self.forget_stale(engine);
        let wanted = engine.any_work.load(Ordering::Acquire) != any_work || engine.has_events();
        if wanted || !self.knows(warm) {
            return Err(Served::Look);
        }
        let Ok(chosen) = self.choose(warm, posted) else { return Err(Served::Look) };
        let Some(Chosen { place, number, ours }) = chosen else { return Err(Served::Wait) };
        let (Some(client), Some(cell)) = (&self.clients[place], self.cell.as_deref()) else {
            return Err(Served::Look);
        };
        let (channel, number) = (&*warm[place], number as usize);
        let Ok(lane) = channel.lane(number) else { return Err(Served::Look) };
        // Announced before that, or by a client that was in a hurry: the general path leaves it alone.
        if channel.is_attended(number) {
            return Err(Served::Look);
        }
        if !ours && !channel.claim_ready(number) {
            // Another looper has it.
            return Err(Served::Wait);
        }
        self.last = Some((place, number as u32));
        let taken = Taken { cell, channel, lane, via: channel.via(number) };
        let idle = channel.start_serving(taken.via.lane);
        let object = if idle { client.take_in(engine, taken, self.epoch, receiver) } else { None };
        let Some(object) = object else {
            if idle {
                channel.end_serving(taken.via.lane);
            }
            channel.leave_ready(number);
            return Err(Served::Look);
        };
        engine.count_request(channel, warm);
        channel.show_processor();
        Ok((taken, object))
    }

    /// The lane that is next: of those with a request the first after the last that was served, so
    /// that all come in turn. An error if there is anything but requests.
    #[inline(always)]
    fn choose(&self, warm: &[Arc<Channel>], posted: bool) -> Result<Option<Chosen>, OneWay> {
        let last = self.last.filter(|_| posted);
        let (last_place, last_number) = self.last.unwrap_or((usize::MAX, 0));
        let mut first: Option<(usize, u64)> = None;
        for (place, channel) in warm.iter().enumerate() {
            let ready = channel.new_lanes()?;
            let later = |(first, _): (usize, u64)| first <= last_place && place > last_place;
            if ready != 0 && first.is_none_or(later) {
                first = Some((place, ready));
            }
        }
        let Some((place, ready)) = first else {
            return Ok(last.map(|(place, number)| Chosen { place, number, ours: true }));
        };
        if let Some((place, number)) = last {
            // The others' turn: it waits with them.
            warm[place].set_ready(number as usize);
        }
        let beyond = if place == last_place { ready & (u64::MAX << last_number) << 1 } else { 0 };
        let ready = if beyond != 0 { beyond } else { ready };
        Ok(Some(Chosen { place, number: ready.trailing_zeros(), ours: false }))
    }
}

/// The lane that is to be served next.
struct Chosen {
    place: usize,
    number: u32,
    /// Nobody else knows of its request.
    ours: bool,
}

impl<T> Client<T> {
    /// What serves the request on a lane, if it is of the one shape and has been taken in.
    #[inline(always)]
    pub fn take_in(
        &self,
        engine: &Engine,
        taken: Taken<'_>,
        epoch: u64,
        receiver: &mut impl Receiver,
    ) -> Option<&T> {
        let lane = taken.lane;
        let message = &lane.header();
        let others = message.flags & (TF_ONE_WAY | TF_CLEAR_BUF);
        if !is_plain(message, Kind::Request, 1) || others != 0 || lane.inbox().is_empty() {
            return None;
        }
        let object = self.object(message.node)?;
        let mut caller = ChainEntry::default();
        lane.incoming.read(size_of::<Message>(), bytes_of_mut(&mut caller));
        let (caller, sender) = (caller.token, self.sender);
        if !receiver.take_request(engine, &Posted { taken, epoch, sender, caller, message }) {
            return None;
        }
        lane.inbox().clear();
        Some(object)
    }
}
