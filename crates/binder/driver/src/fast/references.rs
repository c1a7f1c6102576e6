//! Messages with few nodes and handles: of either end, or of a third process and known to the
//! receiver.
//!
//! Each end counts them under the state's lock, and does nothing else there. Only a handle that
//! goes home must not be returned before its message lies in its lane: such a message is posted
//! under the lock. Whatever is not as simple as that takes the general path. See [ADR
//! 0055](../../../../../../docs/adr/0055-references-past-the-state.md).

use crate::channel::payload::Payload;
use crate::channel::{Channel, Lane};
use crate::engine::Engine;
use crate::sys::thread::tid;
use baton_abi::lane::{Carried, Message, Origin};
use baton_shm::lock::Guard;
use baton_shm::mailbox::Reader;
use baton_shm::mapping::View;
use baton_state::State;
use baton_state::parcel::{self, Delivery, Few, Named};
use baton_state::transaction::{HeldObject, Sender};
use bytemuck::{cast_slice, cast_slice_mut};

/// The nodes and handles of a message that is to be sent.
#[derive(Clone, Copy)]
pub struct References<'a> {
    /// Offsets of the objects in the data.
    pub offsets: &'a [u64],
    /// The objects, at most [`parcel::FEW`].
    pub objects: &'a [Named],
}

/// What a plain message carries besides its data.
#[derive(Clone, Copy)]
pub struct Nothing;

/// What a message carries besides its data. A type says it, so that the code of plain messages has
/// no part in it.
pub trait Carries: Copy {
    /// The references, if the message is not plain.
    fn references(&self) -> Option<References<'_>>;
}

impl Carries for Nothing {
    #[inline(always)]
    fn references(&self) -> Option<References<'_>> {
        None
    }
}

impl Carries for References<'_> {
    #[inline(always)]
    fn references(&self) -> Option<References<'_>> {
        Some(*self)
    }
}

/// References that have been counted, and the state's lock.
pub(super) struct Counted<'a> {
    pub state: Guard<'a, State>,
    carried: Few<Carried>,
    offsets: &'a [u64],
}

impl<'a> Counted<'a> {
    /// Counts the references of a message that goes by a channel. `None` if the message has to take
    /// the general path.
    pub fn new(
        engine: &'a Engine,
        mut state: Guard<'a, State>,
        channel: &Channel,
        references: References<'a>,
    ) -> Option<Counted<'a>> {
        let (objects, try_use) = (references.objects, |node| channel.try_use(node));
        let mut carried = Few::new();
        if !state.carry_few(tid(), channel.peer, objects, try_use, &mut carried) {
            engine.take_back(state, channel, &carried);
            return None;
        }
        // The list of holders says what this process has granted before the message is posted.
        engine.carry_out_effects(&mut state);
        Some(Counted { state, carried, offsets: references.offsets })
    }

    /// Like [`Counted::new`], of a call by this handle.
    pub fn of_call(
        engine: &'a Engine,
        handle: u32,
        channel: &Channel,
        references: References<'a>,
    ) -> Option<Counted<'a>> {
        let state = engine.lock();
        // Nobody takes a dead process's grants back.
        if !state.leads_to(handle, channel.peer) {
            return None;
        }
        Counted::new(engine, state, channel, references)
    }

    /// Takes the references back: the message will not be posted.
    #[cold]
    pub fn take_back(self, engine: &Engine, channel: &Channel) {
        engine.take_back(self.state, channel, &self.carried);
    }

    /// Posts the message, and unlocks the state, mostly before that. Returns what the message
    /// carries, too.
    pub fn post(
        self,
        lane: Lane<'_>,
        message: &Message,
        payload: Payload<'_>,
        chain: &[u8],
    ) -> (Reader, Few<Carried>) {
        let Counted { state, carried, offsets } = self;
        let goes_home = carried.iter().any(|it| it.origin() == Some(Origin::Receiver));
        let _state = goes_home.then_some(state);
        let (objects, offsets_bytes) = (carried.len() as u16, size_of_val(offsets) as u32);
        let message = Message { objects, offsets_bytes, ..*message };
        let parts = message.parts().expect("few references and short data");
        let reader = lane.post(&message, |area| {
            area.write(parts.chain_at, chain);
            area.write(parts.objects_at, cast_slice(&carried));
            payload.copy_to(area, parts.data_at);
            area.write(parts.offsets_at, cast_slice(offsets));
        });
        (reader, carried)
    }
}

/// A message with few references, copied out of its lane. Nothing of it has been believed yet.
pub(super) struct CopiedReferences {
    pub offsets: Few<u64>,
    carried: Few<Carried>,
}

impl CopiedReferences {
    /// Copies what a message says of its references, and its data into `data`, which is as long.
    /// `None` if its objects are not few nodes and handles in order.
    pub fn copy(message: &Message, area: View<'_>, data: &mut [u8]) -> Option<CopiedReferences> {
        let (parts, n) = (message.parts()?, usize::from(message.objects));
        let mut carried: Few<Carried> = (0..n).map(|_| Carried::default()).collect();
        let mut offsets: Few<u64> = (0..n).map(|_| 0).collect();
        area.read(parts.objects_at, cast_slice_mut(&mut carried));
        area.read(parts.data_at, data);
        area.read(parts.offsets_at, cast_slice_mut(&mut offsets));
        parcel::few_references(data, &offsets)?;
        Some(CopiedReferences { offsets, carried })
    }

    /// Whether the references can be taken in at once. Losses that were postponed may wait for this
    /// very message: the general path applies them.
    pub fn may_come_in(&self, state: &State, from: Sender) -> bool {
        state.postponed.is_empty() && state.may_hold_few(from, &self.carried)
    }

    /// Takes the references, which may come in, and puts them in their places in the data. Empties
    /// the lane under the same lock: who applies a loss looks for messages that rely on the node.
    pub fn take(
        &self,
        state: &mut State,
        from: Sender,
        lane: Lane<'_>,
        data: &mut [u8],
    ) -> Few<HeldObject> {
        lane.inbox().clear_watched();
        let held = state.hold_few(from, &self.carried);
        let delivery = Delivery { held: &held, fds: &[], buffers_address: 0 };
        let nodes = &state.nodes;
        let local_object = |id| nodes.get(id).map(|node| (node.ptr, node.cookie));
        parcel::receive(data, &self.offsets, &mut [], &delivery, local_object)
            .expect("the objects were checked when they were copied");
        held
    }
}

impl Engine {
    /// Unlocks the state after changes of counts.
    pub(super) fn unlock_counts(&self, state: Guard<'_, State>) {
        if state.has_effects() {
            self.unlock(state);
        }
    }

    /// Takes back the references of a message that the peer will not take.
    #[cold]
    pub(super) fn take_back(
        &self,
        mut state: Guard<'_, State>,
        channel: &Channel,
        carried: &[Carried],
    ) {
        channel.undo_uses(carried);
        state.take_back_grants(channel.peer, carried);
        self.unlock(state);
    }

    /// Lets the references of a message go.
    pub(super) fn let_go(&self, held: &[HeldObject]) {
        let mut state = self.lock();
        state.let_go_all(held);
        self.unlock_counts(state);
    }
}
