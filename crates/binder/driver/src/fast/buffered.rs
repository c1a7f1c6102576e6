//! Messages in the receive buffer, for the uapi front end.
//!
//! A thread takes room, copies, and learns whether the program needs one more looper under one hold
//! of the state's lock. No epoch ends meanwhile, so an operation that begins or ends then does so
//! for good. A dedicated thread copies into its reserved slot without the lock: see
//! [`super::dedicated_uapi`].

use super::call::Outcome;
use super::receiver::{PostedAnswer, Receiver};
use super::references::{Carries, CopiedReferences};
use super::serve::{DATA_AT, Posted, Taken};
use crate::channel::payload::Payload;
use crate::channel::{Channel, Lane, TakenFds};
use crate::engine::Engine;
use baton_abi::control::{NodeId, Strength};
use baton_abi::lane::Message;
use baton_abi::uapi::PtrCookie;
use baton_shm::event_flag::EventFlag;
use baton_shm::lock::Guard;
use baton_shm::mapping::View;
use baton_state::State;
use baton_state::buffer::Offset;
use baton_state::node::News;
use baton_state::thread::Waiting;
use baton_state::transaction::{BufferedMessage, Freer, LaneId, ReservedSlot, SLOT_BYTES, Sender};
use baton_state::work::Tid;
use bytemuck::cast_slice;
use rustix::fd::IntoRawFd;
use smallvec::SmallVec;
use std::sync::Arc;

/// A message that has come in. True: the thread also asks its program for one more looper.
pub(crate) type PendingMessage = (BufferedMessage, bool);

/// What the program is told besides a message: the news of nodes that it has sent, and whether it
/// is asked for one more looper.
pub(crate) type Told = (Vec<News>, bool);

/// The program's object behind a node: its address and cookie.
pub(crate) type LocalObject = (u64, u64);

/// How a looper's read on the fast path has ended.
pub(crate) enum FastRead<'a> {
    /// With a transaction.
    PendingReturn(PendingMessage, LocalObject),
    /// With work for a looper that looks at everything. The state is locked.
    Look(Guard<'a, State>),
    /// With a signal, and nothing to return.
    Interrupted,
    /// With the thread's relief: it reads on as a looper of the pool.
    Relieved,
    /// At once: the read goes through the state.
    No,
}

/// The part of the state that a dedicated thread holds while it bypasses the state.
pub(super) struct StateBypass {
    pub via: LaneId,
    /// The reserved room for its next message, if there is any.
    pub slot: Option<Arc<ReservedSlot>>,
    /// The flag that other threads raise for this one. `None` while the thread does not bypass the
    /// state.
    pub flag: Option<Arc<EventFlag>>,
    /// The thread has answered, and the state does not know that yet.
    pub has_sent: bool,
}

impl StateBypass {
    /// Begins the bypass, if the thread has a reserved slot and no news.
    pub fn begin(&mut self, engine: &Engine, state: &mut State, tid: Tid) {
        self.slot.take_if(|slot| slot.is_taken_over());
        // One-way transactions that wait for room get it first.
        if self.slot.is_none() && !engine.pool.channels.has_full() {
            let peer = engine.channel(self.via.channel).map(|channel| channel.peer);
            self.slot = peer.and_then(|peer| state.reserve_slot(tid, peer));
        }
        self.flag = match &self.slot {
            Some(_) => state.begin_bypass(tid, self.via),
            None => None,
        };
    }

    /// Ends the bypass, with the state's lock held.
    pub fn end(&mut self, state: &mut State, tid: Tid) {
        if self.flag.take().is_some() {
            state.set_waiting(tid, Waiting::No);
        }
        if std::mem::take(&mut self.has_sent) {
            state.has_sent(tid);
        }
    }

    /// Whether the thread bypasses the state, and has no news.
    #[inline(always)]
    pub fn holds(&self) -> bool {
        self.flag.as_ref().is_some_and(|flag| !flag.is_raised())
    }
}

/// A thread's receiver that copies into the receive buffer.
pub(crate) struct Buffered<'a> {
    tid: Tid,
    /// The reserved slot and the flag of a dedicated thread.
    bypass: Option<&'a mut StateBypass>,
    /// The message that has come.
    pub brought: Option<PendingMessage>,
    /// News of nodes that the program hears before an answer.
    pub news: Vec<News>,
}

/// The message has to come in under the state's lock.
struct NeedsState;

impl<'a> Buffered<'a> {
    /// A receiver to which nothing has come yet.
    pub fn new(tid: Tid) -> Buffered<'a> {
        Buffered { tid, bypass: None, brought: None, news: Vec::new() }
    }

    /// The receiver of a dedicated thread.
    pub(super) fn of_dedicated(tid: Tid, bypass: &'a mut StateBypass) -> Buffered<'a> {
        Buffered { tid, bypass: Some(bypass), brought: None, news: Vec::new() }
    }

    /// Takes a request into the thread's reserved slot, without the state's lock.
    fn take_into_slot(
        &mut self,
        engine: &Engine,
        request: &Posted<'_>,
    ) -> Result<bool, NeedsState> {
        let (message, bytes) = (&request.message, request.message.data_bytes as usize);
        let bypass = self.bypass.as_ref().ok_or(NeedsState)?;
        let (Some(flag), Some(slot)) = (&bypass.flag, &bypass.slot) else {
            return Err(NeedsState);
        };
        if bytes > SLOT_BYTES || !slot.begin_fill(NodeId(message.node)) {
            return Err(NeedsState);
        }
        let buffer = slot.buffer;
        if !request.begin(engine) {
            engine.cancel_fill(slot);
            request.turn_back(engine);
            return Ok(false);
        }
        // The point of no return.
        flag.end_wait();
        View::copy(request.taken.lane.incoming(), DATA_AT, engine.buffer.view(), buffer, bytes);
        if !slot.finish_fill() {
            engine.lock().finish_taken_over_slot(buffer);
        }
        self.brought = Some((buffered_request(request, buffer), false));
        Ok(true)
    }
}

impl Buffered<'_> {
    /// Takes an answer into its room, if `fill` can fill that.
    fn finish_answer(
        &mut self,
        engine: &Engine,
        answer: &PostedAnswer<'_>,
        mut state: Guard<'_, State>,
        room: Offset,
        fill: impl FnOnce(&mut State),
    ) -> bool {
        let message = answer.message;
        if state.has_other_work(self.tid) || !answer.leave() {
            state.give_plain_room_back(room);
            engine.unlock(state);
            return false;
        }
        fill(&mut state);
        self.news = state.take_own_news(self.tid);
        state.fill_plain_room(room, message.flags);
        state.has_sent(self.tid);
        let wants_looper = state.wants_looper(self.tid);
        // A reply has a user and no process.
        let sender = (0, state.user_of(answer.channel.peer));
        engine.unlock_room(state);
        self.brought = Some((buffered(message, room, sender), wants_looper));
        true
    }

    /// Takes a request into its room. Its looper counts as busy from then on.
    fn finish_request(
        &mut self,
        engine: &Engine,
        request: &Posted<'_>,
        mut state: Guard<'_, State>,
        room: Offset,
        fill: impl FnOnce(&mut State),
    ) -> bool {
        if !request.begin(engine) {
            state.give_plain_room_back(room);
            engine.unlock(state);
            request.turn_back(engine);
            return false;
        }
        // The point of no return.
        fill(&mut state);
        state.set_waiting(self.tid, Waiting::No);
        let wants_looper = state.wants_looper(self.tid);
        if let Some(bypass) = &mut self.bypass {
            bypass.begin(engine, &mut state, self.tid);
        }
        engine.unlock_room(state);
        self.brought = Some((buffered_request(request, room), wants_looper));
        true
    }
}

impl Receiver for Buffered<'_> {
    fn take_answer(&mut self, engine: &Engine, answer: &PostedAnswer<'_>) -> bool {
        let bytes = answer.message.data_bytes as usize;
        let mut state = engine.lock();
        let Some(room) = state.take_plain_room((bytes, 0), None) else { return false };
        let (area, at) = (answer.lane.incoming(), size_of::<Message>());
        self.finish_answer(engine, answer, state, room, |_| {
            View::copy(area, at, engine.buffer.view(), room, bytes);
        })
    }

    fn take_request(&mut self, engine: &Engine, request: &Posted<'_>) -> bool {
        if let Ok(taken) = self.take_into_slot(engine, request) {
            return taken;
        }
        let (message, bytes) = (&request.message, request.message.data_bytes as usize);
        let mut state = engine.lock();
        let node = NodeId(message.node);
        let Some(room) = state.take_plain_room((bytes, 0), Some(node)) else { return false };
        let area = request.taken.lane.incoming();
        self.finish_request(engine, request, state, room, |_| {
            View::copy(area, DATA_AT, engine.buffer.view(), room, bytes);
        })
    }

    fn take_answer_with_references(&mut self, engine: &Engine, answer: &PostedAnswer<'_>) -> bool {
        let (message, lane, channel) = (answer.message, answer.lane, answer.channel);
        let Some(mut arrived) = Arrived::copy(message, lane) else { return false };
        let mut state = engine.lock();
        let Some((room, fds)) = arrived.take_room(&mut state, channel, None) else { return false };
        self.finish_answer(engine, answer, state, room, |state| {
            arrived.fill(engine, state, (channel.sender(), lane), room, fds);
        })
    }

    fn take_request_with_references(&mut self, engine: &Engine, request: &Posted<'_>) -> bool {
        let Taken { lane, channel, .. } = request.taken;
        // A dedicated thread that bypasses the state comes back for references.
        if self.bypass.is_some() {
            return false;
        }
        let node = NodeId(request.message.node);
        let Some(mut arrived) = Arrived::copy(&request.message, lane) else { return false };
        let mut state = engine.lock();
        let room = arrived.take_room(&mut state, channel, Some(node));
        let Some((room, fds)) = room else { return false };
        self.finish_request(engine, request, state, room, |state| {
            arrived.fill(engine, state, (channel.sender(), lane), room, fds);
        })
    }
}

/// Bytes of data that are copied without an allocation.
pub(crate) const SHORT_BYTES: usize = 256;

/// A message with references, copied out of its lane.
struct Arrived {
    data: SmallVec<[u8; SHORT_BYTES]>,
    references: CopiedReferences,
}

impl Arrived {
    fn copy(message: &Message, lane: Lane<'_>) -> Option<Arrived> {
        let mut data = SmallVec::from_elem(0, message.data_bytes as usize);
        let references = CopiedReferences::copy(message, lane.incoming(), &mut data)?;
        Some(Arrived { data, references })
    }

    /// Takes room, if the references may come in, and the descriptors.
    fn take_room<'a>(
        &self,
        state: &mut State,
        channel: &'a Channel,
        node: Option<NodeId>,
    ) -> Option<(Offset, TakenFds<'a>)> {
        let fds = self.references.may_come_in(state, channel)?;
        let offsets_bytes = size_of_val(&self.references.offsets[..]);
        Some((state.take_plain_room((self.data.len(), offsets_bytes), node)?, fds))
    }

    /// Takes the references, and writes the message into its room. The descriptors are the
    /// program's from then on.
    fn fill(
        &mut self,
        engine: &Engine,
        state: &mut State,
        (from, lane): (Sender, Lane<'_>),
        room: Offset,
        fds: TakenFds<'_>,
    ) {
        let Arrived { data, references } = self;
        let fds = fds.keep();
        let held = references.take(state, from, lane, data, &fds);
        fds.into_iter().for_each(|fd| _ = fd.into_raw_fd());
        state.fill_references(room, &held);
        engine.buffer.view().write(room, data);
        let offsets_at = room + data.len().next_multiple_of(8);
        engine.buffer.view().write(offsets_at, cast_slice(&references.offsets));
    }
}

impl Engine {
    /// Leaves the slot empty that the thread has begun to fill. If the state has taken it over, its
    /// room goes back.
    #[cold]
    pub(super) fn cancel_fill(&self, slot: &ReservedSlot) {
        if !slot.cancel_fill() {
            self.with_state(|state| state.give_plain_room_back(slot.buffer));
        }
    }

    /// Calls by the fast path. The answer goes to `receiver`.
    pub(crate) fn call_buffered(
        &self,
        handle: u32,
        named: (u32, u32),
        payload: Payload<'_>,
        carries: impl Carries,
        receiver: &mut Buffered<'_>,
    ) -> Outcome {
        if !self.is_settled() {
            return Outcome::No;
        }
        if self.is_polling() || !self.lock().is_free(receiver.tid) {
            return Outcome::No;
        }
        self.call_fast(handle, named, payload, carries, None, receiver)
    }

    /// Frees a buffer, if the only effect is more room. False otherwise.
    pub(crate) fn free_room(&self, tid: Tid, buffer: Offset, address: u64) -> bool {
        if self.free_slot_at(buffer) {
            return true;
        }
        let mut state = self.lock();
        let reads_on = reads_on(&state, tid);
        if reads_on && state.free_slot_at(buffer) {
            return true;
        }
        if !reads_on || !state.frees_room_only(buffer) {
            return false;
        }
        state.free(Freer { tid, reads_next: false }, Some(buffer), address);
        self.unlock_room(state);
        true
    }

    /// Ends a count that the program was lent for a node of its own, if that has no effect on other
    /// threads. False otherwise.
    pub(crate) fn acknowledge_quietly(
        &self,
        tid: Tid,
        node: PtrCookie,
        strength: Strength,
    ) -> bool {
        let mut state = self.lock();
        reads_on(&state, tid) && state.acknowledge_quietly(node.ptr, node.cookie, strength)
    }

    /// Counts a handle of the program's up or down, if that has no effect on other threads. False
    /// otherwise.
    pub(crate) fn count_handle(
        &self,
        tid: Tid,
        handle: u32,
        strength: Strength,
        increases: bool,
    ) -> bool {
        let mut state = self.lock();
        if handle == 0 || !reads_on(&state, tid) {
            return false;
        }
        if increases {
            return state.increase(handle, strength);
        }
        if !state.decreases_quietly(handle, strength) {
            return false;
        }
        state.decrease(handle, strength);
        self.unlock_if_changed(state);
        true
    }
}

/// Whether the thread's next command may run: no refusal is unread, and no answer is awaited.
fn reads_on(state: &State, tid: Tid) -> bool {
    let thread = state.threads.get(tid);
    thread.is_some_and(|thread| !thread.failed && thread.calls_on().is_none())
}

fn buffered_request(request: &Posted<'_>, buffer: Offset) -> BufferedMessage {
    let &(pid, uid) = request.sender;
    // A caller that has left has no pid any more.
    let sender = (if request.taken.lane.outbox().is_closed() { 0 } else { pid }, uid);
    buffered(&request.message, buffer, sender)
}

fn buffered(message: &Message, buffer: Offset, sender: (u32, u32)) -> BufferedMessage {
    let (code, flags) = (message.code, message.flags);
    let sizes = (message.data_bytes as usize, message.offsets_bytes as usize);
    BufferedMessage { buffer, sizes, code, flags, sender }
}
