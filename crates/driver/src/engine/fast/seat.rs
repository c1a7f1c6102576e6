//! A thread on duty on the fast path: it knows one client, and takes what comes on one lane.
//!
//! Unlike a looper of the pool it does not apply events first, of which strangers may cause any number: what
//! is of the one shape needs none, and what does asks for them.

use super::Receiver;
use super::cell::Cell;
use super::seats::Client;
use super::serve::Taken;
use crate::channel::Channel;
use crate::engine::Engine;
use crate::state::State;
use crate::state::transaction::Incoming;
use std::sync::Arc;

/// What such a thread knows of its client.
pub(crate) struct Seat<T> {
    cell: Option<Arc<Cell>>,
    epoch: u64,
    client: Option<Client<T>>,
}

impl<T: Clone> Seat<T> {
    /// Of a thread that has just begun.
    pub fn new() -> Seat<T> {
        Seat { cell: None, epoch: 0, client: None }
    }

    /// Remembers what the state has admitted: a transaction of the shape that this thread could have taken
    /// in by itself.
    pub fn learn(&mut self, engine: &Engine, state: &State, incoming: &Incoming, object: T) {
        if incoming.label.is_some() || engine.is_polling() {
            return;
        }
        let epoch = engine.fast.gate.epoch();
        if self.epoch != epoch || self.cell.is_none() {
            *self = Seat { cell: engine.cell(), epoch, client: None };
        }
        Client::learn(&mut self.client, state, incoming, object);
    }

    /// Whether what it knows no longer holds.
    #[inline(always)]
    pub fn is_stale(&self, engine: &Engine) -> bool {
        self.epoch != engine.fast.gate.epoch()
    }

    /// The thread's cell.
    pub(super) fn cell(&self) -> Option<&Cell> {
        self.cell.as_deref()
    }

    /// Takes in what has been posted on this lane, if it is one transaction of the one shape, and says what
    /// serves it. What it brought goes to `receiver`.
    #[inline(always)]
    pub fn take<'a>(
        &'a mut self,
        engine: &Engine,
        channel: &'a Channel,
        number: usize,
        receiver: &mut impl Receiver,
    ) -> Option<(Taken<'a>, &'a T)> {
        if self.is_stale(engine) {
            return None;
        }
        let (cell, client) = (self.cell.as_deref()?, self.client.as_ref()?);
        let (lane, via) = (channel.lane(number).ok()?, channel.via(number));
        if !channel.start_serving(via.lane) {
            return None;
        }
        let taken = Taken { cell, channel, lane, via };
        let object = client.take_in(engine, taken, self.epoch, receiver);
        match object {
            Some(_) => lane.inbox().clear(),
            None => channel.end_serving(via.lane),
        }
        Some((taken, object?))
    }
}
