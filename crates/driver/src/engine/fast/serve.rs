//! A looper on the fast path: it serves clients that it knows, as long as they want nothing else.

use super::cell::Cell;
use super::{Inline, is_plain};
use crate::channel::{Channel, Lane};
use crate::engine::{Engine, tid};
use crate::state::State;
use crate::state::transaction::{Incoming, Via};
use baton_abi::control::NodeId;
use baton_abi::lane::{ChainEntry, Kind, Message, Standing};
use baton_abi::uapi::{TF_ACCEPT_FDS, TF_CLEAR_BUF, TF_ONE_WAY};
use baton_shm::mailbox::Reader;
use baton_shm::mapping::View;
use baton_shm::sync::Ordering;
use bytemuck::bytes_of_mut;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// What serves: the front end's part.
pub(crate) trait Server {
    /// Before a sleep: what it knows of clients no longer holds if the gate has been shut. It looks at these
    /// channels from now on.
    fn forget_stale(&mut self, warm: &Arc<Vec<Arc<Channel>>>);

    /// The lane that it served last: the place of its channel among these, and its number.
    fn last_lane(&self, warm: &Arc<Vec<Arc<Channel>>>) -> Option<(usize, u32)>;

    /// Serves one transaction, if there is one that it can; `posted` if there is one on
    /// [`Server::last_lane`]. False if its looper is to look at everything.
    fn serve_next(&mut self, any_work: u32, posted: bool) -> bool;

    /// Its looper goes on by the general path.
    fn look_away(&self);
}

/// What a looper knows of its clients, by the order of the channels at which it looks.
pub(crate) struct Seats<T> {
    cell: Option<Arc<Cell>>,
    epoch: u64,
    warm: Arc<Vec<Arc<Channel>>>,
    clients: Vec<Option<Client<T>>>,
    last: Option<(usize, u32)>,
}

/// What a client has called last.
#[derive(Clone)]
struct Client<T> {
    node: NodeId,
    /// What serves that node.
    object: T,
    sender: (u32, u32),
}

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
        Seats { cell: None, epoch: 0, warm: Arc::default(), clients: Vec::new(), last: None }
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
            *self = Seats { cell: engine.cell(), epoch, warm, clients, last: None };
        }
        let place = self.warm.iter().position(|c| c.id == serving.via.channel);
        if let Some(place) = place {
            self.clients[place] = Some(Client { node, object, sender: incoming.sender });
        }
    }

    /// Channels that are gone stay no longer for this.
    #[inline]
    pub fn forget_stale(&mut self, engine: &Engine) {
        if engine.fast.gate.epoch() != self.epoch {
            *self = Seats::new();
        }
    }

    /// Looks at these channels from now on.
    pub fn follow(&mut self, warm: &Arc<Vec<Arc<Channel>>>) {
        if self.cell.is_none() || Arc::ptr_eq(warm, &self.warm) {
            return;
        }
        let known = self.warm.iter().map(|channel| channel.id).zip(self.clients.drain(..));
        let mut known: FxHashMap<_, _> = known.collect();
        self.clients = warm.iter().map(|channel| known.remove(&channel.id).flatten()).collect();
        (self.warm, self.last) = (Arc::clone(warm), None);
    }

    /// See [`Server::look_away`].
    pub fn look_away(&self, engine: &Engine) {
        if let Some(cell) = &self.cell {
            engine.look_away(cell);
        }
    }

    /// See [`Server::last_lane`].
    pub fn last_lane(&self, warm: &Arc<Vec<Arc<Channel>>>) -> Option<(usize, u32)> {
        self.last.filter(|_| Arc::ptr_eq(warm, &self.warm))
    }

    /// Takes in the one thing that has been posted, if it is one transaction of the one shape.
    /// What it brought goes into `request`, a new one.
    #[inline(always)]
    pub fn take(
        &mut self,
        engine: &Engine,
        any_work: u32,
        posted: bool,
        request: &mut Inline,
    ) -> Option<Taken<'_, T>> {
        self.forget_stale(engine);
        if engine.any_work.load(Ordering::Acquire) != any_work || engine.has_events() {
            return None;
        }
        let mut found = self.last.filter(|_| posted);
        for (place, channel) in self.warm.iter().enumerate() {
            match channel.only_lane() {
                Ok(None) => {}
                Ok(Some(lane)) if found.is_none() => found = Some((place, lane as u32)),
                _ => return None,
            }
        }
        let (place, number) = found?;
        let (channel, client) = (&self.warm[place], self.clients[place].as_ref()?);
        let (cell, number) = (self.cell.as_deref()?, number as usize);
        let (lane, via) = (channel.lane(number).ok()?, channel.via(number));
        if !posted && !channel.claim_ready(number) {
            return None;
        }
        self.last = found;
        let idle = channel.start_serving(via.lane);
        if !idle || !self.take_in(engine, cell, channel, client, via, lane, request) {
            if idle {
                channel.end_serving(via.lane);
            }
            channel.leave_ready(number);
            return None;
        }
        engine.count_request(channel, &self.warm);
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
        request: &mut Inline,
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
        let accepts_fds = message.flags & TF_ACCEPT_FDS != 0;
        let by = (&engine.fast.gate, self.epoch);
        // Before anyone can seize it, who takes it off again.
        engine.set_standing(cell, Standing::Open);
        if !cell.begin_service(by, (via, channel.peer), accepts_fds, caller.token) {
            if cell.leave() {
                engine.set_standing(cell, Standing::Idle);
            } else {
                let mut state = engine.lock();
                state.disown_service(tid());
                engine.unlock(state);
            }
            return false;
        }
        // The point of no return.
        engine.count_received(cell);
        let data_at = size_of::<Message>() + size_of::<ChainEntry>();
        request.fill(&message, lane.incoming, data_at);
        request.sender = client.sender;
        lane.inbox().clear();
        true
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
        self.channel.end_serving(self.via.lane);
        let (kind, data_bytes) = (Kind::Reply as u32, data.len() as u32);
        let message = Message { kind, data_bytes, ..Message::default() };
        let at_end = |area: View<'_>| area.write(size_of::<Message>(), data);
        match self.lane.post(&message, at_end) {
            Reader::Polling => self.channel.ring_socket(),
            Reader::Closed => {
                let mut state = engine.lock();
                engine.caller_has_left(&mut state, tid(), self.via);
                engine.unlock(state);
            }
            Reader::Woken | Reader::Watching | Reader::Elsewhere => {}
        }
        Answered::Yes
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
