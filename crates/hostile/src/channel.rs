//! One end of a channel, without an engine behind it: its owner writes any bytes there.
//!
//! Only lane 0 and the ring of returned grants are used.

use baton_abi::control::{ChannelId, End, NodeId, ProcessId};
use baton_abi::lane::*;
use baton_abi::uapi::{BINDER_TYPE_BINDER, BINDER_TYPE_FD, FlatObject, TF_ACCEPT_FDS};
use baton_shm::mailbox::Mailbox;
use baton_shm::mapping::{Access, Mapping};
use bytemuck::{bytes_of, bytes_of_mut, cast_slice, cast_slice_mut};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Size of a record in a ring of returned grants.
pub const RECORD_BYTES: u64 = size_of::<ReturnedGrants>() as u64;

/// One end of a channel.
pub struct BareChannel {
    /// Id of the channel.
    pub id: ChannelId,
    /// This end.
    pub end: End,
    /// The process at the other end.
    pub peer: ProcessId,
    /// The socket for doorbells.
    pub socket: OwnedFd,
    /// The socket for descriptors.
    pub descriptors: OwnedFd,
    /// Header, one-way ring and rings of returned grants.
    pub head: Mapping<LANES_AT>,
    /// The areas of lane 0 that this end writes and reads.
    outgoing: Mapping<AREA_BYTES>,
    incoming: Mapping<AREA_BYTES>,
    /// Bytes that this end has put into its ring of returned grants.
    returned_bytes: Cell<u64>,
}

/// A call or an answer to write into a lane. A ticket belongs to those objects at the offsets that
/// are a third process's.
#[derive(Clone, Copy, Debug)]
pub struct BareCall<'a> {
    /// Node of the channel's server.
    pub node: NodeId,
    /// Code of the requested function.
    pub code: u32,
    /// Data of the call.
    pub data: &'a [u8],
    /// Offsets of objects in the data.
    pub offsets: &'a [u64],
    /// What the objects at the offsets are.
    pub objects: &'a [Carried],
    /// [`baton_abi::control::TicketId`], 0 for none.
    pub ticket: u64,
}

/// A message that has come.
#[derive(Clone, Debug)]
pub struct BareMessage {
    /// Its head.
    pub head: Message,
    /// What its nodes and handles are.
    pub objects: Vec<Carried>,
}

/// Data with as many objects, after `begin`, and their offsets. `begin` has a multiple of 8 bytes.
pub fn with_objects(begin: &[u8], n: usize) -> (Vec<u8>, Vec<u64>) {
    let object = FlatObject { kind: BINDER_TYPE_BINDER, flags: 0, binder: 1, cookie: 0 };
    let mut data = begin.to_vec();
    let at = |nth| (begin.len() + nth * size_of::<FlatObject>()) as u64;
    (0..n).for_each(|_| data.extend_from_slice(bytes_of(&object)));
    (data, (0..n).map(at).collect())
}

/// A node of the receiver's, as if it came home.
pub fn of_receiver(node: NodeId) -> Carried {
    Carried { node: node.0, origin: Origin::Receiver as u32, strong: 1, ..Carried::default() }
}

/// A node of a third process, which the message's ticket introduces.
pub fn of_third() -> Carried {
    Carried { origin: Origin::Third as u32, strong: 1, ..Carried::default() }
}

impl BareChannel {
    /// Maps one end of a channel, from its event's descriptors.
    pub fn map(
        (id, end, peer): (ChannelId, End, ProcessId),
        descriptors: Vec<OwnedFd>,
    ) -> Result<BareChannel, Errno> {
        let mut rest = descriptors.into_iter();
        let mut next = || rest.next().ok_or(Errno::PROTO);
        let (memory, socket, descriptors) = (next()?, next()?, next()?);
        let area = |inbox_of| Mapping::part(&memory, area_at(0, inbox_of), Access::ReadWrite);
        let (for_server, for_client) = (area(End::Server)?, area(End::Client)?);
        let (outgoing, incoming) = match end {
            End::Client => (for_server, for_client),
            End::Server => (for_client, for_server),
        };
        let head = Mapping::new(&memory, Access::ReadWrite)?;
        let returned_bytes = Cell::new(0);
        Ok(BareChannel {
            id,
            end,
            peer,
            socket,
            descriptors,
            head,
            outgoing,
            incoming,
            returned_bytes,
        })
    }

    /// Posts a call in lane 0 and rings the doorbell. The lane has to be free.
    pub fn post(&self, call: &BareCall<'_>) -> Result<(), Errno> {
        self.write(Kind::Request, call, None)?;
        self.announce()
    }

    /// Posts a call in lane 0 that has one descriptor, the packet of this number, and rings the
    /// doorbell. The lane has to be free.
    pub fn post_for_descriptor(&self, node: NodeId, code: u32, number: u32) -> Result<(), Errno> {
        let object = FlatObject { kind: BINDER_TYPE_FD, flags: 0, binder: 0, cookie: 0 };
        let (data, offsets, objects) = (bytes_of(&object), &[0], &[]);
        let call = BareCall { node, code, data, offsets, objects, ticket: 0 };
        self.write(Kind::Request, &call, Some(number))?;
        self.announce()
    }

    fn announce(&self) -> Result<(), Errno> {
        // SeqCst orders this before the check for the server's sleepers.
        self.head.double_word(header::READY).fetch_or(1, Ordering::SeqCst);
        self.ring()
    }

    /// Answers the call in lane 0 and rings the doorbell. The answer's node does not matter.
    pub fn reply(&self, answer: &BareCall<'_>) -> Result<(), Errno> {
        self.write(Kind::Reply, answer, None)?;
        self.ring()
    }

    fn write(&self, kind: Kind, call: &BareCall<'_>, fds: Option<u32>) -> Result<(), Errno> {
        let message = Message {
            kind: kind as u32,
            node: call.node.0,
            code: call.code,
            flags: TF_ACCEPT_FDS,
            data_bytes: call.data.len() as u32,
            offsets_bytes: size_of_val(call.offsets) as u32,
            // A caller, as an engine's calls have it: servers take such calls on their fast path.
            chain: u8::from(kind == Kind::Request),
            objects: call.objects.len() as u16,
            fds: u8::from(fds.is_some()),
            fds_number: fds.unwrap_or_default(),
            ticket: call.ticket,
            ..Message::default()
        };
        let parts = message.parts().ok_or(Errno::INVAL)?;
        let (area, word) = (self.outgoing.view(), self.outgoing.word(0));
        // The first word is the mailbox, so the header is written after it.
        area.write(4, &bytes_of(&message)[4..]);
        area.write(parts.chain_at, bytes_of(&ChainEntry::default()));
        area.write(parts.objects_at, cast_slice(call.objects));
        area.write(parts.data_at, call.data);
        area.write(parts.offsets_at, cast_slice(call.offsets));
        Mailbox::new(word).post();
        Ok(())
    }

    /// Takes the message in lane 0, so that the lane is free again. `None` if there is none.
    pub fn take(&self) -> Option<BareMessage> {
        let inbox = Mailbox::new(self.incoming.word(0));
        if inbox.is_empty() {
            return None;
        }
        let (area, mut head) = (self.incoming.view(), Message::default());
        area.read(0, bytes_of_mut(&mut head));
        let mut objects = Vec::new();
        if let Some(parts) = head.parts() {
            objects = vec![Carried::default(); usize::from(head.objects)];
            area.read(parts.objects_at, cast_slice_mut(&mut objects));
        }
        inbox.clear();
        Some(BareMessage { head, objects })
    }

    /// Waits for a message in lane 0. `ECONNRESET` if the peer ends the channel, `ETIMEDOUT` if
    /// neither happens.
    pub fn await_message(&self, at_most: Duration) -> Result<BareMessage, Errno> {
        let late = Instant::now() + at_most;
        loop {
            // The peer may have posted before it ended the channel.
            let is_over = self.is_over();
            match self.take() {
                Some(message) => return Ok(message),
                None if is_over => return Err(Errno::CONNRESET),
                None if Instant::now() > late => return Err(Errno::TIMEDOUT),
                None => std::thread::yield_now(),
            }
        }
    }

    /// Posts a call and waits for its answer, with the errors of [`BareChannel::await_message`].
    pub fn call(&self, call: &BareCall<'_>, at_most: Duration) -> Result<BareMessage, Errno> {
        self.post(call)?;
        self.await_message(at_most)
    }

    /// Whether the peer has ended the channel.
    pub fn is_over(&self) -> bool {
        let mut polled = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut polled, Some(&now)).is_ok_and(|n| n > 0)
    }

    /// Waits until the peer ends the channel. `ETIMEDOUT` if it does not.
    pub fn await_end(&self, at_most: Duration) -> Result<(), Errno> {
        let mut polled = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        let timeout = at_most.try_into().map_err(|_| Errno::INVAL)?;
        match poll(&mut polled, Some(&timeout))? {
            0 => Err(Errno::TIMEDOUT),
            _ => Ok(()),
        }
    }

    /// Offsets in the header: this end's ring of returned grants, and the positions of its writer
    /// and its reader.
    fn ring_of_returns(&self) -> (usize, usize, usize) {
        match self.end {
            End::Client => (RETURNS_AT, header::CLIENT_RETURNS_TAIL, header::CLIENT_RETURNS_HEAD),
            End::Server => {
                let at = RETURNS_AT + RETURNS_BYTES;
                (at, header::SERVER_RETURNS_TAIL, header::SERVER_RETURNS_HEAD)
            }
        }
    }

    /// Puts a record into this end's ring of returned grants. `EAGAIN` if the peer has not read
    /// enough of the ring. The peer hears of it by [`BareChannel::ring`].
    pub fn put_returned(&self, returned: &ReturnedGrants) -> Result<(), Errno> {
        let (at, tail, head) = self.ring_of_returns();
        let position = self.returned_bytes.get();
        let unread = position.wrapping_sub(self.head.double_word(head).load(Ordering::Acquire));
        if unread >= RETURNS_BYTES as u64 {
            return Err(Errno::AGAIN);
        }
        let place = at + position as usize % RETURNS_BYTES;
        self.head.view().write(place, bytes_of(returned));
        self.returned_bytes.set(position + RECORD_BYTES);
        // Release: the peer reads the record after this word.
        self.head.double_word(tail).store(position + RECORD_BYTES, Ordering::Release);
        Ok(())
    }

    /// Discards what the peer has returned, so that its ring has room again.
    pub fn skip_returned(&self) {
        let (tail, head) = match self.end {
            End::Client => (header::SERVER_RETURNS_TAIL, header::SERVER_RETURNS_HEAD),
            End::Server => (header::CLIENT_RETURNS_TAIL, header::CLIENT_RETURNS_HEAD),
        };
        let tail = self.head.double_word(tail).load(Ordering::Acquire);
        self.head.double_word(head).store(tail, Ordering::Release);
    }

    /// Returns grants to their owner at the other end, and rings the doorbell. `EAGAIN` if there is
    /// no room.
    pub fn give_back(&self, returned: &ReturnedGrants) -> Result<(), Errno> {
        self.put_returned(returned)?;
        self.ring()
    }

    /// Says that so many bytes are in this end's ring of returned grants, and rings the doorbell.
    pub fn claim_returned(&self, bytes: u64) -> Result<(), Errno> {
        let (_, tail, _) = self.ring_of_returns();
        self.head.double_word(tail).store(bytes, Ordering::Release);
        self.ring()
    }

    /// Rings the doorbell for the peer's control thread. A full queue also wakes it.
    pub fn ring(&self) -> Result<(), Errno> {
        match self.send_with_doorbell([0, 0], &[]) {
            Ok(()) | Err(Errno::AGAIN) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Sends a packet by the socket for doorbells, with descriptors. `EAGAIN` if there is no room.
    pub fn send_with_doorbell(
        &self,
        packet: [u32; 2],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), Errno> {
        crate::packet::send_now(&self.socket, bytes_of(&packet), descriptors)
    }

    /// Sends descriptors as the packet of this number, and announces `count` of them. `EAGAIN` if
    /// there is no room.
    pub fn send_descriptors(
        &self,
        number: u32,
        count: u32,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), Errno> {
        crate::packet::send_now(&self.descriptors, bytes_of(&[number, count]), descriptors)
    }
}
