//! Messages with few references: descriptors; and nodes and handles, of either end, or of a third
//! process and known to the receiver.
//!
//! Each end counts nodes and handles under the state's lock, and does nothing else there. Only a
//! handle that goes home must not be returned before its message lies in its lane: such a message
//! is posted under the lock. Descriptors go ahead of their message, and are read before it is taken
//! in: if it then stays on its lane, they are given back. Whatever is not as simple as that takes
//! the general path. See [ADR
//! 0055](../../../../../../docs/adr/0055-references-past-the-state.md).

use crate::channel::payload::Payload;
use crate::channel::{Channel, Lane, TakenFds};
use crate::engine::Engine;
use crate::engine::in_flight::InFlight;
use crate::sys::packet::borrowed;
use crate::sys::thread::tid;
use baton_abi::control::NodeId;
use baton_abi::lane::{Carried, Kind, Message, Origin};
use baton_shm::lock::Guard;
use baton_shm::mailbox::Reader;
use baton_shm::mapping::View;
use baton_state::State;
use baton_state::node::Node;
use baton_state::parcel::{self, Delivery, Few, FewObjects};
use baton_state::transaction::{HeldObject, Sender};
use bytemuck::{cast_slice, cast_slice_mut};
use rustix::fd::{AsRawFd, OwnedFd};

/// The references of a message that is to be sent.
#[derive(Clone, Copy)]
pub struct References<'a> {
    /// Offsets of the objects in the data.
    pub offsets: &'a [u64],
    /// The objects, at most [`parcel::FEW`].
    pub objects: &'a FewObjects,
}

/// A plain message carries nothing besides its data.
#[derive(Clone, Copy)]
pub struct Nothing;

/// The part of a message besides its data. A type says what it is, so that the code of plain
/// messages has no part in it.
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

/// The part of a message that goes ahead of it.
pub(super) struct Ahead {
    /// Nodes and handles: the nodes have been granted.
    carried: Few<Carried>,
    /// How many descriptors have been sent, and their packet's number.
    fds: (u8, u32),
}

impl Ahead {
    /// Takes everything back: the receiver will not take the message in.
    #[cold]
    pub fn take_back(&self, engine: &Engine, state: Guard<'_, State>, channel: &Channel) {
        let (fds, fds_number) = self.fds;
        engine.take_back(state, channel, &self.carried);
        channel.cancel_fds(&Message { fds, fds_number, ..Message::default() });
    }
}

/// References that have been counted and sent ahead, and the state's lock.
pub(super) struct Counted<'a> {
    pub state: Guard<'a, State>,
    ahead: Ahead,
    offsets: &'a [u64],
}

impl<'a> Counted<'a> {
    /// Counts the references of a message, and sends its descriptors. `None` if the message has to
    /// take the general path.
    fn new(
        engine: &'a Engine,
        mut state: Guard<'a, State>,
        channel: &Channel,
        References { offsets, objects }: References<'a>,
    ) -> Option<Counted<'a>> {
        let (mut carried, try_use) = (Few::new(), |node| channel.try_use(node));
        if !state.carry_few(tid(), channel.peer, &objects.named, try_use, &mut carried) {
            engine.take_back(state, channel, &carried);
            return None;
        }
        // The list of holders says what this process has granted before the message is posted.
        engine.carry_out_effects(&mut state);
        let Some(fds_number) = send_fds(channel, &objects.fds) else {
            engine.take_back(state, channel, &carried);
            return None;
        };
        let ahead = Ahead { carried, fds: (objects.fds.len() as u8, fds_number) };
        Some(Counted { state, ahead, offsets })
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
        if !state.leads_to(handle, channel.peer, references.objects.fds.len()) {
            return None;
        }
        Counted::new(engine, state, channel, references)
    }

    /// Like [`Counted::new`], of the answer to a transaction.
    pub fn of_answer(
        engine: &'a Engine,
        state: Guard<'a, State>,
        (in_flight, channel): (&InFlight, &Channel),
        references: References<'a>,
    ) -> Option<Counted<'a>> {
        let may_go = references.objects.fds.is_empty() || in_flight.accepts_fds();
        may_go.then(|| Counted::new(engine, state, channel, references))?
    }

    /// Takes the references back: the message will not be posted.
    #[cold]
    pub fn take_back(self, engine: &Engine, channel: &Channel) {
        self.ahead.take_back(engine, self.state, channel);
    }

    /// Posts the message, and unlocks the state, mostly before that. Returns the part that has gone
    /// ahead, too.
    pub fn post(
        self,
        lane: Lane<'_>,
        message: &Message,
        payload: Payload<'_>,
        chain: &[u8],
    ) -> (Reader, Ahead) {
        let Counted { state, ahead, offsets } = self;
        let Ahead { carried, fds: (fds, fds_number) } = &ahead;
        let goes_home = carried.iter().any(|it| it.origin() == Some(Origin::Receiver));
        let _state = goes_home.then_some(state);
        let (objects, offsets_bytes) = (carried.len() as u16, size_of_val(offsets) as u32);
        let (fds, fds_number) = (*fds, *fds_number);
        let message = Message { objects, offsets_bytes, fds, fds_number, ..*message };
        let parts = message.parts().expect("few references and short data");
        let reader = lane.post(&message, |area| {
            area.write(parts.chain_at, chain);
            area.write(parts.objects_at, cast_slice(carried));
            payload.copy_to(area, parts.data_at);
            area.write(parts.offsets_at, cast_slice(offsets));
        });
        (reader, ahead)
    }
}

/// Sends the program's descriptors ahead of their message, and returns their packet's number.
/// `None` if that fails: the general path says why.
fn send_fds(channel: &Channel, fds: &[i32]) -> Option<u32> {
    if fds.is_empty() {
        return Some(0);
    }
    let fds: Option<Few<_>> = fds.iter().map(|&fd| borrowed(fd).ok()).collect();
    channel.send_fds(&fds?).ok()
}

/// A message with few references, copied out of its lane. Nothing of it has been believed yet.
pub(super) struct CopiedReferences {
    pub offsets: Few<u64>,
    carried: Few<Carried>,
    /// How many descriptors it says to have, and their packet's number.
    fds: (u8, u32),
    /// The node that has to accept descriptors.
    accepting: Option<NodeId>,
}

impl CopiedReferences {
    /// Copies what a message says of its references, and its data into `data`, which is as long.
    /// `None` if its objects are not few and in order, and as many as it says.
    pub fn copy(message: &Message, area: View<'_>, data: &mut [u8]) -> Option<CopiedReferences> {
        let Message { fds, fds_number, objects, .. } = *message;
        let (parts, objects) = (message.parts()?, usize::from(objects));
        let n = objects + usize::from(fds);
        let mut carried = Few::from_elem(Carried::default(), objects);
        let mut offsets = Few::from_elem(0, n);
        area.read(parts.objects_at, cast_slice_mut(&mut carried));
        area.read(parts.data_at, data);
        area.read(parts.offsets_at, cast_slice_mut(&mut offsets));
        let n_named = parcel::count_few_named(data, &offsets)?;
        let has_fds = fds > 0 && message.kind == Kind::Request as u32;
        let accepting = has_fds.then_some(NodeId(message.node));
        let fds = (fds, fds_number);
        (n_named == objects).then_some(CopiedReferences { offsets, carried, fds, accepting })
    }

    /// The descriptors, if the references can be taken in at once. Losses that were postponed may
    /// wait for this very message: the general path applies them.
    pub fn may_come_in<'a>(&self, state: &State, channel: &'a Channel) -> Option<TakenFds<'a>> {
        let accepts = |node| state.nodes.get(node).is_some_and(Node::accepts_fds);
        let may_come = state.postponed.is_empty()
            && self.accepting.is_none_or(accepts)
            && state.may_hold_few(channel.sender(), &self.carried);
        let (n_fds, fds_number) = self.fds;
        may_come.then(|| channel.descriptors.take_for_now(fds_number, n_fds.into()))?
    }

    /// Takes the references, which may come in, and puts them in their places in the data. Empties
    /// the lane under the same lock: who applies a loss looks for messages that rely on the node.
    pub fn take(
        &self,
        state: &mut State,
        from: Sender,
        lane: Lane<'_>,
        data: &mut [u8],
        fds: &[OwnedFd],
    ) -> Few<HeldObject> {
        lane.inbox().clear_watched();
        let held = state.hold_few(from, &self.carried);
        let fds: Few<i32> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        let delivery = Delivery { held: &held, fds: &fds, buffers_address: 0 };
        let nodes = &state.nodes;
        let local_object = |id| nodes.get(id).map(|node| (node.ptr, node.cookie));
        parcel::receive(data, &self.offsets, &mut [], &delivery, local_object)
            .expect("the objects were checked when they were copied");
        held
    }
}

impl Engine {
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
        self.unlock_if_changed(state);
    }
}
