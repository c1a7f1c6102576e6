//! Takes in one transaction: checks the right to send it, takes room, copies it, puts its objects
//! in place.

use super::accept::Stop;
use crate::channel::Channel;
use crate::channel::returns::objects_in;
use crate::engine::Engine;
use baton_abi::control::{ProcessId, Request};
use baton_abi::lane::{ChainEntry, Kind, Message, TO_FROZEN};
use baton_abi::uapi::TF_UPDATE_TXN;
use baton_shm::mapping::View;
use baton_state::State;
use baton_state::transaction::{
    Arrival, HeldObject, LaneId, LaneSender, Received, Recipient, Room, Verdict,
};
use rustix::fd::IntoRawFd;
use rustix::io::Errno;

/// A message in its room, or the error for its sender.
pub(super) type CopyResult = Result<(Room, Received), (Kind, Errno)>;

/// A message's chain, which lies there.
pub(super) fn chain_in(message: &Message, map: View<'_>, at: usize) -> Vec<ChainEntry> {
    let mut chain = vec![ChainEntry::default(); usize::from(message.chain)];
    map.read(at, bytemuck::cast_slice_mut(&mut chain));
    chain
}

impl Engine {
    /// Takes in a transaction; `lane_sender` as in [`Arrival`]. `Ok(Some)`: the transaction is
    /// refused, with the error for its sender.
    #[expect(clippy::too_many_arguments, reason = "a message's place, and whom it is for")]
    pub(crate) fn take_in(
        &self,
        state: &mut State,
        channel: &Channel,
        message: &Message,
        map: View<'_>,
        at: usize,
        via: LaneId,
        recipient: Recipient,
        lane_sender: Option<LaneSender>,
    ) -> Result<Option<(Kind, Errno)>, Stop> {
        let parts = message.parts().ok_or(Stop::Violation("impossible sizes"))?;
        if matches!(recipient, Recipient::Waiting(_)) && self.page.is_frozen() {
            // A nested call's sender cannot see this process's status page: it was called by a
            // third process.
            self.drop_message(state, channel, message, map);
            let target = self.identity.process;
            self.broker.tell(&Request::FrozenTouched { target, two_way: true });
            return Ok(Some((Kind::Frozen, Errno::AGAIN)));
        }
        let chain = chain_in(message, map, at + parts.chain_at);
        // The call may be for a waiting thread of this process.
        self.revoke_callers(state, &chain);
        let objects = objects_in(message, map, at);
        let arrival = Arrival { via, peer: channel.peer, message, chain, objects, lane_sender };
        let verdict = state.admit(&arrival);
        let is_one_way = message.kind == Kind::OneWay as u32;
        if verdict.is_ok()
            && is_one_way
            && message.flags & TF_UPDATE_TXN != 0
            && message.param == TO_FROZEN
        {
            let node = baton_abi::control::NodeId(message.node);
            state.supersede(channel.peer, node, message.code, message.flags);
        }
        let from = (map, at + parts.data_at);
        match self.copy_in(state, &arrival, channel, verdict, from)? {
            Ok((room, contents)) => {
                state.deliver(recipient, arrival, room, contents);
                Ok(None)
            }
            Err(refused) => Ok(Some(refused)),
        }
    }

    /// Copies a message into the room that the state has given it. `Ok(Err)` if the state refuses
    /// it: then its references and descriptors are dropped.
    pub(crate) fn copy_in(
        &self,
        state: &mut State,
        arrival: &Arrival<'_>,
        channel: &Channel,
        verdict: Result<Room, Verdict>,
        from: (View<'_>, usize),
    ) -> Result<CopyResult, Stop> {
        let room = match verdict {
            Ok(room) => room,
            Err(Verdict::NotYet) => return Err(Stop::Later),
            Err(Verdict::NoRoom) => return Err(Stop::NoRoom),
            Err(Verdict::Refused(kind, errno)) => {
                state.drop_claim(arrival);
                channel.drop_fds(arrival.message);
                return Ok(Err((kind, errno)));
            }
        };
        match self.copy_payload(state, arrival, channel, room, from) {
            Ok(contents) => Ok(Ok((room, contents))),
            Err(Stop::Refused(errno)) => Ok(Err((Kind::Failed, errno))),
            Err(stop) => Err(stop),
        }
    }

    /// Copies a payload into its room and puts its objects in place.
    fn copy_payload(
        &self,
        state: &mut State,
        arrival: &Arrival<'_>,
        channel: &Channel,
        room: Room,
        (map, at): (View<'_>, usize),
    ) -> Result<Received, Stop> {
        let message = arrival.message;
        let parts = message.parts().ok_or(Stop::Violation("impossible sizes"))?;
        let bytes = parts.end - parts.data_at;
        if let Some(label) = room.label {
            self.write_label(state, arrival.peer, label);
        }
        let has_objects = message.offsets_bytes != 0 || message.objects != 0 || message.ticket != 0;
        if !has_objects && message.fds == 0 {
            View::copy(map, at, self.buffer.view(), room.buffer, bytes);
            return Ok(Received::default());
        }
        let held = state.claim(arrival);
        let user = state.user_of(arrival.peer);
        let fds: Vec<i32> = match channel.take_fds(message) {
            Ok(fds) => fds.keep().into_iter().map(IntoRawFd::into_raw_fd).collect(),
            Err(errno) => {
                state.reject(room, Received { held, ..Received::default() });
                return Err(match errno {
                    Errno::MFILE => Stop::Refused(errno),
                    _ => Stop::Violation("descriptors missing"),
                });
            }
        };
        let mut payload = vec![0; bytes];
        map.read(at, &mut payload);
        let placed = self.place_objects(state, message, &mut payload, room, &held, &fds);
        match placed {
            Ok(array_fds) => {
                self.buffer.view().write(room.buffer, &payload);
                Ok(Received { held, fds, array_fds, user })
            }
            Err(baton_state::parcel::Malformed) => {
                state.reject(room, Received { held, fds, array_fds: Vec::new(), user });
                Err(Stop::Violation("malformed objects"))
            }
        }
    }

    /// Puts the objects of a message in their places. Returns its descriptors in arrays.
    fn place_objects(
        &self,
        state: &State,
        message: &Message,
        payload: &mut [u8],
        room: Room,
        held: &[HeldObject],
        fds: &[i32],
    ) -> Result<Vec<i32>, baton_state::parcel::Malformed> {
        let data_bytes = message.data_bytes as usize;
        let offsets_at = data_bytes.next_multiple_of(8);
        let buffers_at = offsets_at + (message.offsets_bytes as usize).next_multiple_of(8);
        if !message.offsets_bytes.is_multiple_of(8) {
            return Err(baton_state::parcel::Malformed);
        }
        let (front, buffers) = payload.split_at_mut(buffers_at);
        let (data, offsets) = front.split_at_mut(offsets_at);
        let offsets: Vec<u64> = offsets.chunks_exact(8).map(bytemuck::pod_read_unaligned).collect();
        let base = self.buffer.program_map() + room.buffer;
        let delivery = baton_state::parcel::Delivery {
            held,
            fds,
            buffers_address: (base + buffers_at) as u64,
        };
        let data = &mut data[..data_bytes];
        baton_state::parcel::receive(data, &offsets, buffers, &delivery, |id| {
            state.nodes.get(id).map(|node| (node.ptr, node.cookie))
        })
    }

    fn write_label(&self, state: &State, peer: ProcessId, at: usize) {
        let label = state.peers.get(&peer).map_or("", |peer| &peer.label);
        self.buffer.view().write(at, label.as_bytes());
        self.buffer.view().zero(at + label.len(), 1);
    }
}
