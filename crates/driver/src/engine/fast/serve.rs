//! A looper on the fast path: it serves clients that it knows, as long as they want nothing else.

use super::cell::Cell;
use super::{Receiver, is_plain};
use crate::channel::{Channel, Lane};
use crate::engine::{Engine, tid};
use crate::state::State;
use crate::state::transaction::{Incoming, Via};
use baton_abi::control::{ChannelId, NodeId};
use baton_abi::lane::{ChainEntry, Kind, Message, Standing};
use baton_abi::uapi::{TF_ACCEPT_FDS, TF_CLEAR_BUF, TF_ONE_WAY};
use baton_shm::mailbox::Reader;
use baton_shm::mapping::View;
use baton_shm::sync::Ordering;
use bytemuck::bytes_of_mut;
use rustc_hash::FxHashMap;
use std::sync::{Arc, Weak};

/// The channels at which loopers look.
pub(crate) type Warm = Arc<Vec<Arc<Channel>>>;

/// What serves: the front end's part.
pub(crate) trait Server {
    /// Before a sleep: what it knows of clients no longer holds if the gate has been shut. It looks at these
    /// channels from now on.
    fn forget_stale(&mut self, warm: &Warm);

    /// The lane that it served last: the place of its channel among these, and its number.
    fn last_lane(&self, warm: &Warm) -> Option<(usize, u32)>;

    /// Serves one transaction of these channels, if there is one that it can; `posted` if there is one
    /// on [`Server::last_lane`].
    fn serve_next(&mut self, warm: &Warm, any_work: u32, posted: bool) -> Served;

    /// Its looper goes on by the general path.
    fn look_away(&self);
}

/// What a looper does after a look at what has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Served {
    /// It has served, and waits for more.
    Wait,
    /// It goes away with what it has taken in.
    Leave,
    /// It has taken in nothing, and is to look at everything.
    Look,
}

/// What a looper knows of its clients, by the order of the channels at which it looks. It keeps no channel:
/// a looper may be with its program for who knows how long.
pub(crate) struct Seats<T> {
    cell: Option<Arc<Cell>>,
    epoch: u64,
    warm: Weak<Vec<Arc<Channel>>>,
    clients: Vec<Option<Client<T>>>,
    last: Option<(usize, u32)>,
}

/// What a client has called last.
#[derive(Clone)]
struct Client<T> {
    channel: ChannelId,
    node: NodeId,
    /// What serves that node.
    object: T,
    sender: (u32, u32),
}

/// A request of the one shape that lies in its lane.
pub(crate) struct Posted<'a> {
    cell: &'a Cell,
    channel: &'a Channel,
    pub(super) lane: Lane<'a>,
    via: Via,
    epoch: u64,
    pub(super) sender: (u32, u32),
    caller: u64,
    pub(super) message: &'a Message,
}

/// Where a plain request's data lies in its area.
pub(super) const DATA_AT: usize = size_of::<Message>() + size_of::<ChainEntry>();

/// A transaction that has been taken in past the state.
pub(crate) struct Taken<'a, T> {
    cell: &'a Cell,
    channel: &'a Channel,
    lane: Lane<'a>,
    via: Via,
    /// What serves its node.
    pub object: &'a T,
}

/// What became of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    /// It is with the caller.
    Yes,
    /// The transaction is the state's now: answer it there.
    No,
}

impl<T: Clone> Seats<T> {
    /// Of a looper that has just begun.
    pub fn new() -> Seats<T> {
        Seats { cell: None, epoch: 0, warm: Weak::new(), clients: Vec::new(), last: None }
    }

    /// Remembers what the state has admitted: a transaction of the shape that this looper could have
    /// taken in by itself.
    pub fn learn(&mut self, engine: &Engine, _unchanged: &State, incoming: &Incoming, object: T) {
        let (Some(serving), Some(node)) = (&incoming.serving, incoming.node) else { return };
        if incoming.label.is_some() || engine.is_polling() {
            return;
        }
        let epoch = engine.fast.gate.epoch();
        if self.epoch != epoch || self.cell.is_none() {
            let warm = engine.warm();
            let clients = vec![None; warm.len()];
            let warm = Arc::downgrade(&warm);
            *self = Seats { cell: engine.cell(), epoch, warm, clients, last: None };
        } else {
            self.follow(&engine.warm());
        }
        let Some(warm) = self.warm() else { return };
        let place = warm.iter().position(|c| c.id == serving.via.channel);
        if let Some(place) = place {
            let (channel, sender) = (serving.via.channel, incoming.sender);
            self.clients[place] = Some(Client { channel, node, object, sender });
        }
    }

    /// Whether what it knows of clients no longer holds.
    #[inline(always)]
    pub fn is_stale(&self, engine: &Engine) -> bool {
        engine.fast.gate.epoch() != self.epoch
    }

    /// See [`Server::forget_stale`].
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

    /// See [`Server::look_away`].
    pub fn look_away(&self, engine: &Engine) {
        if let Some(cell) = &self.cell {
            engine.look_away(cell);
        }
    }

    /// See [`Server::last_lane`].
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
    pub fn taken<'a>(&'a self, warm: &'a Warm) -> Option<Taken<'a, T>> {
        let (place, number) = self.last_lane(warm)?;
        let (cell, channel) = (self.cell()?, &*warm[place]);
        let (lane, via) = (channel.lane(number as usize).ok()?, channel.via(number as usize));
        let object = &self.clients[place].as_ref()?.object;
        Some(Taken { cell, channel, lane, via, object })
    }

    /// Takes in the one thing that has been posted, if it is one transaction of the one shape.
    /// What it brought goes to `receiver`.
    #[inline(always)]
    pub fn take<'a>(
        &'a mut self,
        engine: &Engine,
        warm: &'a Warm,
        (any_work, posted): (u32, bool),
        receiver: &mut impl Receiver,
    ) -> Option<Taken<'a, T>> {
        self.forget_stale(engine);
        if engine.any_work.load(Ordering::Acquire) != any_work
            || engine.has_events()
            || !self.knows(warm)
        {
            return None;
        }
        let mut found = self.last.filter(|_| posted);
        for (place, channel) in warm.iter().enumerate() {
            match channel.only_lane() {
                Ok(None) => {}
                Ok(Some(lane)) if found.is_none() => found = Some((place, lane as u32)),
                _ => return None,
            }
        }
        let (place, number) = found?;
        let (channel, client) = (&*warm[place], self.clients[place].as_ref()?);
        let (cell, number) = (self.cell.as_deref()?, number as usize);
        let (lane, via) = (channel.lane(number).ok()?, channel.via(number));
        if !posted && !channel.claim_ready(number) {
            return None;
        }
        self.last = found;
        let idle = channel.start_serving(via.lane);
        if !idle || !self.take_in(engine, cell, channel, client, via, lane, receiver) {
            if idle {
                channel.end_serving(via.lane);
            }
            channel.leave_ready(number);
            return None;
        }
        engine.count_request(channel, warm);
        channel.show_place(cell.slot);
        Some(Taken { cell, channel, lane, via, object: &client.object })
    }

    #[inline(always)]
    fn take_in(
        &self,
        engine: &Engine,
        cell: &Cell,
        channel: &Channel,
        client: &Client<T>,
        via: Via,
        lane: Lane<'_>,
        receiver: &mut impl Receiver,
    ) -> bool {
        let message = lane.header();
        if !is_plain(&message, Kind::Request, 1) {
            return false;
        }
        let others = message.flags & (TF_ONE_WAY | TF_CLEAR_BUF);
        if message.node != client.node.0 || others != 0 || lane.inbox().is_empty() {
            return false;
        }
        let mut caller = ChainEntry::default();
        lane.incoming.read(size_of::<Message>(), bytes_of_mut(&mut caller));
        let (epoch, caller, message) = (self.epoch, caller.token, &message);
        let sender = client.sender;
        let request = Posted { cell, channel, lane, via, epoch, sender, caller, message };
        let taken = receiver.take_request(engine, &request);
        if taken {
            lane.inbox().clear();
        }
        taken
    }
}

impl Posted<'_> {
    /// Makes it this thread's. False if the gate has been shut: then [`Posted::turn_back`].
    #[inline(always)]
    pub fn begin(&self, engine: &Engine) -> bool {
        let accepts_fds = self.message.flags & TF_ACCEPT_FDS != 0;
        let (by, to) = ((&engine.fast.gate, self.epoch), (self.via, self.channel.peer));
        // Before anyone can seize it, who takes it off again.
        engine.set_standing(self.cell, Standing::Open);
        let begun = self.cell.begin_service(by, to, accepts_fds, self.caller);
        if begun {
            engine.count_received(self.cell);
        }
        begun
    }

    /// Leaves it where it is.
    #[inline(always)]
    pub fn turn_back(&self, engine: &Engine) {
        // Of its cell alone: what a function is given by reference has to lie in memory.
        engine.turn_back_service(self.cell);
    }
}

impl Engine {
    #[cold]
    fn turn_back_service(&self, cell: &Cell) {
        if cell.leave() {
            self.set_standing(cell, Standing::Idle);
        } else {
            let mut state = self.lock();
            state.disown_service(tid());
            self.unlock(state);
        }
    }
}

impl<T> Taken<'_, T> {
    /// Answers with bytes, in the place of which the caller may find an error of its own.
    #[inline]
    pub fn answer(&self, engine: &Engine, data: &[u8]) -> Answered {
        if !self.cell.leave() {
            return Answered::No;
        }
        engine.set_standing(self.cell, Standing::Looking);
        self.post(engine, data.len(), 0, |area, at| area.write(at, data));
        Answered::Yes
    }

    /// The same for a looper that goes back to its program. Nothing is posted if this is false: then
    /// the transaction is the state's.
    pub fn leave(&self, engine: &Engine) -> bool {
        let is_ours = self.cell.leave();
        if is_ours {
            engine.set_standing(self.cell, Standing::Idle);
        }
        is_ours
    }

    /// Whether nobody waits for the answer.
    pub fn has_left(&self) -> bool {
        self.lane.outbox().is_closed()
    }

    /// Posts the answer to a transaction that the thread has left.
    #[inline(always)]
    pub fn post(
        &self,
        engine: &Engine,
        bytes: usize,
        flags: u32,
        body: impl FnOnce(View<'_>, usize),
    ) {
        self.channel.end_serving(self.via.lane);
        let (kind, data_bytes) = (Kind::Reply as u32, bytes as u32);
        let message = Message { kind, data_bytes, flags, ..Message::default() };
        match self.lane.post(&message, |area| body(area, size_of::<Message>())) {
            Reader::Polling => self.channel.ring_socket(),
            Reader::Closed => {
                let mut state = engine.lock();
                engine.caller_has_left(&mut state, tid(), self.via);
                engine.unlock(state);
            }
            Reader::Woken | Reader::Watching | Reader::Elsewhere => {}
        }
    }

    /// The answer is not for the fast path: the transaction becomes the state's.
    #[cold]
    pub fn give_up(&self, engine: &Engine) -> Answered {
        let mut state = engine.lock();
        engine.seize(&mut state, self.cell);
        self.cell.leave();
        engine.unlock(state);
        Answered::No
    }
}
