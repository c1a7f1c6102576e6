//! The memory that two engines share: a channel with its lanes, and a server's status page.
//!
//! ```text
//!  channel (one sealed memfd a channel, written by both)
//!  0        4096           RETURNS_AT        KNOWN_AT        LANES_AT
//!  | header | one-way ring | returned grants | known nodes   | lane 0: request | reply | lane 1
//!  |        | (client's)   | (of each end)   | (of each end) |    AREA_BYTES   | AREA_BYTES
//!
//!  LANE_RINGS_AT
//!  | ring of lane 0: tail, head (a page) | one-way records | ring of lane 1 ...
//!  |                                     | RING_BYTES      |
//!
//!  area:   [ Message 64 B: word first ][ chain: 16 B each ][ Carried: 24 B each ]
//!          [ data ][ offsets ][ buffers ]     each of these padded to 8 bytes
//! ```
//!
//! A message says of each node and handle in its data what it is, in the order of the offsets
//! ([`Carried`]). A sender grants its own nodes by the message itself; the receiver gives such
//! grants back in the channel's ring of returned grants, or that of any other channel between the
//! two processes.
//!
//! The table of *known nodes* of an end says which nodes of third processes this end holds that the
//! other end has introduced to it. The other end may name such a node in a message without the
//! broker (`shm::use_count`).
//!
//! The one-way transactions of a real-time thread travel in the ring of the lane that the thread
//! keeps ([`header::LANE_RINGS`]); those of all other threads in the channel's one-way ring.
//!
//! The file is sparse: an area takes memory only where it has been written. A lane carries one
//! conversation at a time. Its two areas alternate: request and reply or, while the client waits, a
//! nested request and its reply in the opposite direction. The word of an area is a mailbox: the
//! writer posts, the reader takes (`shm::mailbox`).
//!
//! The owning engine writes its status page, and the broker writes `frozen` on it; peers map it
//! read-only. The server's engine owns a channel's bell page and sends it to its client as the
//! first packet on the channel's socket for doorbells. The client maps the page for writing,
//! although it writes nothing there: a futex wake through such a mapping is cheaper.
//!
//! A channel has two sockets. A packet of either is two u32:
//!
//! | socket | packet | what it says |
//! |---|---|---|
//! | doorbells | 0, 0 | a doorbell; with a descriptor, the server's bell page |
//! | | 1, number | the message for the descriptors with this number will not come |
//! | descriptors | number, count | so many descriptors come, for the message with this number |
//!
//! The server's first packet on the socket for doorbells says that the server has the channel. Each
//! end numbers its packets on the socket for descriptors from 0 on.

use crate::control::{MAX_OBJECTS, NodeId, ProcessId, Strength};
use bytemuck::{Pod, Zeroable};

/// Lanes in a channel. A process whose threads need more opens another channel.
pub const LANES: usize = 64;
/// Most bytes of a transaction's data, offsets and buffers together, and the largest receive
/// buffer: 4 MiB, as in the kernel.
pub const MAX_PAYLOAD_BYTES: usize = 4 << 20;
/// Size of an area: the largest payload, and room for header and chain.
pub const AREA_BYTES: usize = MAX_PAYLOAD_BYTES + (64 << 10);
/// Offset of the one-way ring.
pub const RING_AT: usize = 4096;
/// Size of the ring. Any legal one-way transaction (half of a receive buffer) fits twice.
pub const RING_BYTES: usize = 4 << 20;
/// Offset of the two rings of returned grants: the client's, which the server reads, and the
/// server's.
pub const RETURNS_AT: usize = RING_AT + RING_BYTES;
/// Records in each of these rings.
pub const RETURNS: usize = 2048;
/// Size of each of these rings.
pub const RETURNS_BYTES: usize = RETURNS * size_of::<ReturnedGrants>();
/// Offset of the two tables of known nodes: the client's, which the server uses, and the server's.
pub const KNOWN_AT: usize = RETURNS_AT + 2 * RETURNS_BYTES;
/// Entries in each of these tables.
pub const KNOWN: usize = 256;
/// Size of an entry.
pub const KNOWN_ENTRY_BYTES: usize = 32;
/// Places of the table at which a node may stand, one after the other.
pub const KNOWN_PLACES: usize = 4;
/// Offset of the lanes.
pub const LANES_AT: usize = KNOWN_AT + 2 * KNOWN * KNOWN_ENTRY_BYTES;
/// Offset of the lanes' rings of one-way transactions.
pub const LANE_RINGS_AT: usize = LANES_AT + LANES * 2 * AREA_BYTES;
/// Offset of the records in a lane's ring.
pub const LANE_RECORDS_AT: usize = 4096;
/// Size of a lane's ring, with its two positions.
pub const LANE_RING_BYTES: usize = LANE_RECORDS_AT + RING_BYTES;
/// Size of a channel's file.
pub const CHANNEL_BYTES: usize = LANE_RINGS_AT + LANES * LANE_RING_BYTES;
/// Most entries of a chain.
pub const MAX_CHAIN: usize = 64;
/// [`Message::code`] of an error for a request that was never accepted. Its sender gets no
/// BR_TRANSACTION_COMPLETE.
pub const AT_THE_DOOR: u32 = 1;
/// [`Message::param`] of a one-way transaction whose target was frozen when it was sent.
pub const TO_FROZEN: i32 = 1;
/// [`ChainEntry::process`] of an entry that is no caller. Its token is the sender's effective user,
/// which has changed since the broker told of it. Only a sender whose device root serves is
/// believed: see [`crate::control::Identity::is_served_by_root`].
pub const SENDER_USER: u64 = u64::MAX;
/// Most descriptors in one transaction: the limit of one SCM_RIGHTS message.
pub const MAX_FDS: usize = 253;
/// Size of a status page's file.
pub const STATUS_BYTES: usize = 8192;
/// Size of a tally page, the first of its file.
pub const TALLY_BYTES: usize = 4096;
/// Size of a bell page's file.
pub const BELL_BYTES: usize = 4096;

/// Offsets of the words in a channel's header, each on a cache line of its own.
pub mod header {
    /// u64, set by the client, cleared by the server: lanes with a new request, or with a one-way
    /// record in their ring.
    pub const READY: usize = 64;
    /// u32, written by the client: one plus the processor on which it last posted.
    pub const CLIENT_PROCESSOR: usize = 72;
    /// u32, written by the server: one plus the processor on which it last took a message.
    pub const SERVER_PROCESSOR: usize = 76;
    /// u64, written by the client: lanes whose request has a nice value other than 0.
    pub const NICED: usize = 80;
    /// u64, written by the client: lanes whose ring has been used.
    pub const LANE_RINGS: usize = 88;
    /// u64, written by the client: bytes put into the ring so far.
    pub const RING_TAIL: usize = 128;
    /// u64, written by the server: bytes taken from the ring so far.
    pub const RING_HEAD: usize = 192;
    /// u32, written by the server: bytes of this client's one-way transactions in its receive
    /// buffer.
    pub const ONE_WAY_BYTES: usize = 256;
    /// u32, written by the server: number of these transactions.
    pub const ONE_WAY_BUFFERS: usize = 260;
    /// u64, written by the client: bytes put into its ring of returned grants so far.
    pub const CLIENT_RETURNS_TAIL: usize = 576;
    /// u64, written by the server: bytes taken from that ring so far.
    pub const CLIENT_RETURNS_HEAD: usize = 640;
    /// u64, written by the server: bytes put into its ring of returned grants so far.
    pub const SERVER_RETURNS_TAIL: usize = 704;
    /// u64, written by the client: bytes taken from that ring so far.
    pub const SERVER_RETURNS_HEAD: usize = 768;
    /// u32 for each lane, written by the client: one plus the processor to which its real-time
    /// caller is bound. 0 for any other caller.
    pub const BOUND: usize = 320;
    /// Four u32 for each lane whose real-time caller has a looper without its priority. The first
    /// two are priority-inheriting futexes that the looper owns. The third is written by the
    /// client: the futex on which its caller waits, 1 or 2, or 0 for none.
    pub const LENDING: usize = 1024;
    /// Number of futexes of a lane.
    pub const OWNERS: usize = 2;
    /// Offset of one of a lane's futexes.
    pub const fn owner_at(lane: usize, word: usize) -> usize {
        LENDING + lane % super::LANES * 16 + word % OWNERS * 4
    }
    /// Offset of the word that says on which futex the caller waits.
    pub const fn waits_at(lane: usize) -> usize {
        LENDING + lane % super::LANES * 16 + OWNERS * 4
    }
}

/// Offsets of the words in a lane's ring, each on a cache line of its own.
pub mod lane_ring {
    /// u64, written by the client: bytes put into the ring so far.
    pub const TAIL: usize = 0;
    /// u64, written by the server: bytes taken from the ring so far.
    pub const HEAD: usize = 64;
}

/// Offsets of the words in an entry of a table of known nodes.
pub mod known {
    /// u32: the uses of the entry (`shm::use_count`).
    pub const USES: usize = 0;
    /// u64, [`ProcessId`](crate::control::ProcessId) of the node's owner.
    pub const OWNER: usize = 8;
    /// u64, [`NodeId`](crate::control::NodeId): the owner's name of the node.
    pub const NODE: usize = 16;
}

/// Offsets of the words in a bell page.
pub mod bell {
    /// u32 futex on which idle loopers sleep; the server changes it.
    pub const BELL: usize = 0;
    /// u32: 1 while loopers sleep on `BELL` or are about to.
    pub const SLEPT_ON: usize = 4;
    /// u32: 1 while no looper checks the channel before it sleeps.
    pub const INACTIVE: usize = 8;
}

/// Offsets of the words in a status page.
pub mod status {
    /// u32: number of loopers that sleep or are about to.
    pub const SLEEPERS: usize = 4;
    /// u32, [`Attendance`](super::Attendance): what a client has to do after a post.
    pub const ATTENDANCE: usize = 8;
    /// u32: 1 if a real-time caller's lane gets a looper of its own, for which the caller can wait.
    pub const LANE_LOOPERS: usize = 12;
    /// u32: 1 while loopers look so often that nobody has to ring for a one-way transaction.
    pub const ATTENTIVE: usize = 16;
    /// u32, written by the broker: 1 while the engine is frozen.
    pub const FROZEN: usize = 64;
    /// u32: size of the receive buffer.
    pub const BUFFER_BYTES: usize = 128;
    /// u32: free bytes of the half for one-way transactions.
    pub const ONE_WAY_FREE: usize = 132;
    /// u32: size of the largest free range.
    pub const LARGEST_FREE: usize = 136;
    /// u32: allocated bytes. This word and those after it are for `baton ps`.
    pub const BUFFER_USED: usize = 140;
    /// u32: number of allocated buffers.
    pub const BUFFERS: usize = 144;
    /// u32: two-way transactions received and not answered, without those in the slots.
    pub const OUTSTANDING: usize = 148;
    /// u32: threads.
    pub const THREADS: usize = 152;
    /// u32: loopers.
    pub const LOOPERS: usize = 156;
    /// u32: lanes in use as client.
    pub const LANES: usize = 160;
    /// u64: transactions received, without those in the slots.
    pub const TRANSACTIONS: usize = 168;
    /// u32: free bytes of the part for one-way transactions of real-time senders.
    pub const REAL_TIME_FREE: usize = 176;
    /// Offset of the slots. Each belongs to one thread and has a cache line of its own, so that the
    /// thread counts without an atomic addition.
    pub const SLOTS_AT: usize = 1024;
    /// Number of slots.
    pub const SLOTS: usize = 64;
    /// Size of a slot.
    pub const SLOT_BYTES: usize = 64;
    /// Offset of a slot. Every number maps to some slot, so the offset needs no bounds check.
    #[inline]
    pub const fn slot_at(slot: u8) -> usize {
        SLOTS_AT + (slot as usize % SLOTS) * SLOT_BYTES
    }
    /// In a slot, u32: 1 while its thread has a call open that [`OUTSTANDING`] does not count.
    pub const SLOT_OPEN: usize = 0;
    /// In a slot, u64: transactions received that [`TRANSACTIONS`] does not count.
    pub const SLOT_TRANSACTIONS: usize = 8;
}

/// Offsets of the words in a tally page, which an engine shares only with its broker. Unlike the
/// status page it is not sealed, so that the next broker can write it too.
pub mod tally {
    /// u32, written by the broker: events that it has sent to the engine. An engine that has taken
    /// fewer reads its events before it goes on.
    pub const EVENTS: usize = 0;
    /// u32 futex on which the standby looper sleeps. The broker changes it for each lane that this
    /// looper gets.
    pub const LANES: usize = 64;
}

/// Values of [`status::ATTENDANCE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Attendance {
    /// The engine has no looper: a message is noticed only through the channel's doorbell.
    Nobody = 0,
    /// Loopers check the channel: ring the bell if one sleeps, otherwise do nothing.
    Loopers = 1,
}

/// The content of an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// A two-way transaction.
    Request = 1,
    /// The reply to a two-way transaction.
    Reply = 2,
    /// BR_FAILED_REPLY in place of a reply; `param` is the reason.
    Failed = 3,
    /// BR_DEAD_REPLY in place of a reply.
    Dead = 4,
    /// BR_FROZEN_REPLY in place of a reply.
    Frozen = 5,
    /// A one-way transaction, in a ring only.
    OneWay = 6,
    /// Padding up to the ring's end, in a ring only.
    Skip = 7,
}

impl Kind {
    /// The kind with this number. `None` for an unknown number, which is the writer's fault.
    pub fn from_raw(raw: u32) -> Option<Kind> {
        Some(match raw {
            1 => Kind::Request,
            2 => Kind::Reply,
            3 => Kind::Failed,
            4 => Kind::Dead,
            5 => Kind::Frozen,
            6 => Kind::OneWay,
            7 => Kind::Skip,
            _ => return None,
        })
    }
}

/// The head of an area, or of a record in a ring. Any bit pattern is valid; its reader checks the
/// values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Message {
    /// The mailbox's word in an area; in the ring, the record's whole size in bytes.
    pub word: u32,
    /// [`Kind`].
    pub kind: u32,
    /// Target node, of a request.
    pub node: u64,
    /// `binder_transaction_data.code`. For an error, [`AT_THE_DOOR`] or 0.
    pub code: u32,
    /// `binder_transaction_data.flags`.
    pub flags: u32,
    /// Bytes of data.
    pub data_bytes: u32,
    /// Bytes of offsets.
    pub offsets_bytes: u32,
    /// Bytes of scatter-gather buffers, each padded to 8.
    pub buffers_bytes: u32,
    /// Number of descriptors that come for this message by the socket for descriptors.
    pub fds: u8,
    /// Number of entries of the chain.
    pub chain: u8,
    /// Number of nodes and handles: entries of [`Carried`].
    pub objects: u16,
    /// Number of the packet with the descriptors, where there are some.
    pub fds_number: u32,
    /// For [`Kind::Failed`], a negative errno. For [`Kind::OneWay`], [`TO_FROZEN`] or 0. For
    /// [`Kind::Request`], the caller's nice value.
    pub param: i32,
    /// [`crate::control::TicketId`], 0 if no object is one of a third process.
    pub ticket: u64,
    /// Time of the post, by the clock in [`crate::control::Stamps`]. Orders messages of different
    /// clients.
    pub stamp: u64,
}

/// A waiting caller further up: its process, and the token that the process gave out for the
/// waiting thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct ChainEntry {
    /// [`crate::control::ProcessId`], or [`SENDER_USER`].
    pub process: u64,
    /// Unguessable number, known only to processes that the call has passed through.
    pub token: u64,
}

/// What a node or a handle in a message's data is. Any bit pattern is valid; its reader checks the
/// values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Carried {
    /// [`crate::control::NodeId`]: the sender's name of its own node, or the receiver's of its own.
    /// The owner's name of a known node. 0 for any other node of a third process.
    pub node: u64,
    /// Of a sender's node: the receiver's entry in the sender's [`crate::holder_list`]. Of a known
    /// node: its entry in the receiver's table.
    pub entry: u32,
    /// Of a sender's node: its flags.
    pub flags: u32,
    /// [`Origin`].
    pub origin: u32,
    /// 1 for a strong reference, 0 for a weak one. Of a third process's node the ticket says so.
    pub strong: u32,
}

/// Whose a carried node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Origin {
    /// The sender's, which grants it by this message.
    Sender = 1,
    /// The receiver's, to which it returns.
    Receiver = 2,
    /// A third process's: the next one of the message's ticket.
    Third = 3,
    /// A third process's, which the receiver has in its table of known nodes. The reference is
    /// strong.
    Known = 4,
}

impl Carried {
    /// The sender's own node. `entry` is the receiver's in the sender's list.
    pub fn of_sender(node: NodeId, entry: u32, flags: u32, strength: Strength) -> Carried {
        let (origin, strong) = (Origin::Sender as u32, u32::from(strength == Strength::Strong));
        Carried { node: node.0, entry, flags, origin, strong }
    }

    /// A node of the receiver, which returns to it.
    pub fn of_receiver(node: NodeId, strength: Strength) -> Carried {
        let (origin, strong) = (Origin::Receiver as u32, u32::from(strength == Strength::Strong));
        Carried { node: node.0, origin, strong, ..Carried::default() }
    }

    /// A third process's node.
    pub fn of_third(strength: Strength) -> Carried {
        let (origin, strong) = (Origin::Third as u32, u32::from(strength == Strength::Strong));
        Carried { origin, strong, ..Carried::default() }
    }

    /// A third process's node, by the receiver's entry for it.
    pub fn of_known(node: NodeId, entry: u8) -> Carried {
        let (origin, entry) = (Origin::Known as u32, u32::from(entry));
        Carried { node: node.0, entry, origin, strong: 1, ..Carried::default() }
    }

    /// Whose the node is. `None` for an unknown number, which is the writer's fault.
    pub fn origin(&self) -> Option<Origin> {
        Some(match self.origin {
            1 => Origin::Sender,
            2 => Origin::Receiver,
            3 => Origin::Third,
            4 => Origin::Known,
            _ => return None,
        })
    }

    /// The strength of the reference.
    pub fn strength(&self) -> Strength {
        if self.strong == 0 { Strength::Weak } else { Strength::Strong }
    }
}

/// Grants of an owner's that their holder gives back: a record in a ring. Any bit pattern is valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct ReturnedGrants {
    /// The owner's name of its node.
    pub node: u64,
    /// Number of strong grants that end.
    pub strong: u32,
    /// Number of grants that end, of either strength. A strong grant that ends beyond this number
    /// becomes a weak one.
    pub all: u32,
}

impl ReturnedGrants {
    /// The sum with a later return of the same node. `None` if it is too large a number.
    pub fn with(self, later: ReturnedGrants) -> Option<ReturnedGrants> {
        let strong = self.strong.checked_add(later.strong)?;
        let all = self.all.checked_add(later.all)?;
        Some(ReturnedGrants { strong, all, ..later })
    }
}

const _: () = assert!(size_of::<Message>() == 64);
const _: () = assert!(size_of::<Carried>() == 24);
const _: () = assert!(header::BOUND + 4 * LANES <= header::CLIENT_RETURNS_TAIL);
const _: () = assert!(header::SERVER_RETURNS_HEAD < header::LENDING);
const _: () = assert!(size_of::<ChainEntry>() == 16);
const _: () = assert!(KNOWN <= 1 << 8 && known::NODE + 8 <= KNOWN_ENTRY_BYTES);
const _: () =
    assert!(header::waits_at(LANES - 1) < RING_AT && header::BOUND + 4 * LANES <= header::LENDING);
const _: () = assert!(CHANNEL_BYTES.is_multiple_of(4096) && AREA_BYTES.is_multiple_of(4096));

/// Offsets of a message's parts from the start of its area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// First chain entry.
    pub chain_at: usize,
    /// First entry of [`Carried`].
    pub objects_at: usize,
    /// First byte of data.
    pub data_at: usize,
    /// First offset.
    pub offsets_at: usize,
    /// First buffer.
    pub buffers_at: usize,
    /// First byte after all.
    pub end: usize,
}

impl Message {
    /// Offsets of the parts. `None` if one exceeds a limit, which is the writer's fault.
    pub fn parts(&self) -> Option<Parts> {
        let (data, offsets, buffers) =
            (self.data_bytes as usize, self.offsets_bytes as usize, self.buffers_bytes as usize);
        let (chain, objects) = (usize::from(self.chain), usize::from(self.objects));
        if chain > MAX_CHAIN || usize::from(self.fds) > MAX_FDS || objects > MAX_OBJECTS {
            return None;
        }
        let payload = data.next_multiple_of(8) + offsets.next_multiple_of(8) + buffers;
        if payload > MAX_PAYLOAD_BYTES || !buffers.is_multiple_of(8) {
            return None;
        }
        let chain_at = size_of::<Message>();
        let objects_at = chain_at + chain * size_of::<ChainEntry>();
        let data_at = objects_at + objects * size_of::<Carried>();
        let offsets_at = data_at + data.next_multiple_of(8);
        let buffers_at = offsets_at + offsets.next_multiple_of(8);
        let end = buffers_at + buffers;
        Some(Parts { chain_at, objects_at, data_at, offsets_at, buffers_at, end })
    }
}

/// The places at which a node may stand in a table of known nodes.
pub fn known_places(owner: ProcessId, node: NodeId) -> impl Iterator<Item = u8> {
    let first = owner.0.wrapping_mul(31).wrapping_add(node.0) % KNOWN as u64;
    (first..).take(KNOWN_PLACES).map(|place| (place % KNOWN as u64) as u8)
}

/// Offset of an entry of an end's table of known nodes.
pub fn known_at(end: crate::control::End, entry: u8) -> usize {
    let table = match end {
        crate::control::End::Client => 0,
        crate::control::End::Server => KNOWN,
    };
    KNOWN_AT + (table + usize::from(entry)) * KNOWN_ENTRY_BYTES
}

/// Offset of a lane's area by the end that reads it: `Server` for the request area, `Client` for
/// the reply area.
pub fn area_at(lane: usize, inbox_of: crate::control::End) -> usize {
    debug_assert!(lane < LANES);
    LANES_AT
        + lane * 2 * AREA_BYTES
        + match inbox_of {
            crate::control::End::Server => 0,
            crate::control::End::Client => AREA_BYTES,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::End;

    #[test]
    fn the_largest_message_fits_its_area() {
        let message = Message {
            data_bytes: MAX_PAYLOAD_BYTES as u32,
            chain: MAX_CHAIN as u8,
            objects: MAX_OBJECTS as u16,
            ..Message::default()
        };
        assert!(message.parts().is_some_and(|parts| parts.end <= AREA_BYTES));
    }

    #[test]
    fn sizes_past_a_limit_are_refused() {
        let check = |change: fn(&mut Message)| {
            let mut message = Message::default();
            change(&mut message);
            message.parts()
        };
        assert_eq!(check(|m| m.data_bytes = u32::MAX), None);
        assert_eq!(check(|m| m.data_bytes = MAX_PAYLOAD_BYTES as u32 + 1), None);
        assert_eq!(
            check(|m| (m.data_bytes, m.offsets_bytes) = (MAX_PAYLOAD_BYTES as u32, 8)),
            None
        );
        assert_eq!(check(|m| m.buffers_bytes = 4), None);
        assert_eq!(check(|m| m.chain = MAX_CHAIN as u8 + 1), None);
        assert_eq!(check(|m| m.fds = MAX_FDS as u8 + 1), None);
        assert_eq!(check(|m| m.objects = MAX_OBJECTS as u16 + 1), None);
        assert!(check(|m| m.data_bytes = 5).is_some_and(|p| p.offsets_at == p.data_at + 8));
    }

    /// Cache lines that move between processors and back for a call of four bytes while no thread
    /// sleeps. There is one less while a looper watches the lane. A sleep adds the bell's line,
    /// which only the server writes.
    #[test]
    fn a_short_call_moves_five_lines() {
        const LINE_BYTES: usize = 64;
        let lines = |at: usize, bytes: usize| at / LINE_BYTES..(at + bytes).div_ceil(LINE_BYTES);
        let message = |chain| Message { data_bytes: 4, chain, ..Message::default() };
        let end = |chain| message(chain).parts().map_or(usize::MAX, |parts| parts.end);
        let request = lines(area_at(0, End::Server), end(1));
        let reply = lines(area_at(0, End::Client), end(0));
        let ready = lines(header::READY, 8);
        assert_eq!((request.len(), reply.len(), ready.len()), (2, 2, 1));
        // Words that different ends write lie on different lines.
        let words = [header::READY, header::RING_TAIL, header::RING_HEAD, header::ONE_WAY_BYTES];
        let lines = words.map(|word| word / LINE_BYTES);
        assert!(lines.is_sorted() && lines.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
