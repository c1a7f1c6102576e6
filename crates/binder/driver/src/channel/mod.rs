//! Channels: the memory and the sockets that this process shares with one other.
//!
//! Code here copies the peer's bytes, checks the copy, and uses nothing but the copy.

mod client;
mod descriptors;
mod known;
mod lane_rings;
mod lend;
#[cfg(test)]
pub(crate) mod lingering;
pub(crate) mod loan;
mod one_way_ring;
pub(crate) mod payload;
pub(crate) mod peer_files;
pub(crate) mod returns;
pub(crate) mod server;
mod socket;
pub(crate) mod table;
pub(crate) mod yield_first;
pub use server::{ACTIVE_REQUESTS, OneWay, RECENT_REQUESTS};
pub use socket::Drained;

use crate::sys::spin::SpinBudget;
use crate::sys::thread::processor;
use baton_abi::control::{ChannelId, End, ProcessId};
use baton_abi::lane::*;
use baton_shm::bell::{Bell, OwnBell};
use baton_shm::client_lanes::ClientLanes;
use baton_shm::futex::Wait;
use baton_shm::lane_owner::LaneOwner;
use baton_shm::lock::{Guard, Lock};
use baton_shm::mailbox::{Mailbox, Reader, Seen};
use baton_shm::mapping::{self, Access, Mapping, Part, View};
use baton_shm::ready_lanes::{MAX_LANES, ReadyLanes};
use baton_shm::revocation::Revocation;
use baton_shm::ring::{Consumer, Producer};
use baton_shm::sync::{AtomicU32, AtomicU64, Ordering};
use baton_state::account::{Account, Held, Resource};
use baton_state::transaction::{LaneId, Sender};
use bytemuck::bytes_of;
use descriptors::DescriptorSocket;
pub use descriptors::TakenFds;
use one_way_ring::{Pending, RingEnd};
use peer_files::{PeerFiles, PeerSocket, UserCloser};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use socket::Socket;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use yield_first::YieldFirst;

/// Most bytes of data that the fast path carries.
pub const INLINE_BYTES: usize = 64 << 10;

/// Size of a lane's two areas.
const LANE_BYTES: usize = 2 * AREA_BYTES;

/// How long a thread sleeps at most at a word that a stranger maps.
const LONGEST_SLEEP: Duration = Duration::from_millis(500);

/// One channel, at one of its ends.
#[derive(Debug)]
pub struct Channel {
    /// The channel's number, which the broker gives.
    pub id: ChannelId,
    /// This process's end.
    pub end: End,
    /// The process at the other end.
    pub peer: ProcessId,
    /// The revocation of plain calls on this channel alone: see [`crate::fast`].
    pub revocation: Arc<Revocation>,
    /// Doorbells.
    pub socket: Socket,
    /// Descriptors.
    pub descriptors: DescriptorSocket,
    file: OwnedFd,
    /// Server: the channel's share of what its user may have.
    _place: Option<Held>,
    /// Header and rings.
    head: Mapping<LANES_AT>,
    lanes: [OnceLock<Mapping<LANE_BYTES>>; LANES],
    lane_rings: [OnceLock<Mapping<LANE_RING_BYTES>>; LANES],
    ring_ends: [Lock<RingEnd>; LANES],
    /// Client: held by the ordinary thread that looks whether the server has made room.
    pub looks_for_room: Lock<()>,
    /// The server's status page, at the client's end.
    front: Option<Mapping<STATUS_BYTES>>,
    /// Server: loopers that sleep on the bell, or are about to.
    asleep: AtomicU32,
    /// Server: the channel is not in the active set.
    inactive: AtomicBool,
    /// Server: no looper looks here, and the doorbell wakes nobody.
    muted: AtomicBool,
    /// Server: how often the channel has been unmuted.
    times_muted: AtomicU32,
    /// Server: looks here that found nothing, less those that requests have made up for.
    fruitless: AtomicU32,
    /// Server: the lane of the last request that the pool has taken, and how many came there in a
    /// row: see [`Channel::in_a_row`].
    in_a_row: AtomicU32,
    /// The processor that this end has shown last, plus one.
    shown_processor: AtomicU32,
    /// Server: the number of this client's last request among the process's requests.
    wanted_at: AtomicU64,
    /// Client: how long answers take.
    pub answers: SpinBudget,
    /// Whether a wait on each lane yields first.
    yields_first: [YieldFirst; LANES],
    /// Client: who has which lane.
    pub client_lanes: ClientLanes,
    /// Server: which threads take what arrives on each lane.
    owners: [LaneOwner; LANES],
    /// Server: the lane at which a pinned looper sleeps, or is about to, plus one; 0 if none does.
    pinned_sleeper: AtomicU32,
    /// Server: each lock is held by the thread to which the lane is dedicated; the next such thread
    /// waits for it.
    dedicated_locks: [Lock<()>; LANES],
    /// Lanes whose callers lend a priority to their looper.
    lending: AtomicU64,
    /// Client: the looper of each such lane.
    loopers: [AtomicU32; LANES],
    /// Server: the oldest one-way record waits for room in the receive buffer.
    pub full: AtomicBool,
    /// Server: the lanes whose oldest one-way record waits for room in the receive buffer.
    pub full_rings: AtomicU64,
    /// Server: the position up to which the one-way ring has been read.
    one_way_read: AtomicU64,
    /// Server: the shares of the lanes and rings that are mapped. Locked while one is being mapped.
    mapped: Lock<Vec<Held>>,
    /// The account of the peer's user.
    account: Account,
    /// The peer's user is a stranger: see [`Account::is_of_stranger`].
    pub is_of_stranger: bool,
    work: Lock<Ends>,
}

/// The processors of a channel's two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// One of them has not shown its processor.
    Unknown,
    /// Both run on one processor.
    SameProcessor,
    /// They run on two processors.
    OtherProcessor,
}

const _: () = assert!(LANES == MAX_LANES, "sets of lanes are words");

/// The part of a channel under its own lock, which is taken under the state's lock, never the other
/// way round.
#[derive(Debug)]
pub struct Ends {
    /// Client: the one-way ring.
    pub producer: Producer,
    /// Client: the records in the one-way ring that the server has not taken yet.
    pub pending: Pending,
    /// Client: the spam warning has been reported since there was room.
    pub spam_reported: bool,
    /// Server: lanes at which the next look looks.
    pub ready: ReadyLanes,
    /// Server: the one-way ring.
    pub consumer: Consumer,
    /// The ring in which this end returns grants.
    pub returns: Producer,
    /// The ring in which the other end returns grants.
    pub returned: Consumer,
    /// The channel has ended: the peer is gone or has broken the protocol.
    pub dead: bool,
}

impl Channel {
    /// Takes over what the broker sent: memory, sockets and, at the client's end, the front
    /// page.
    /// `closer` is that of the peer's user; `EDQUOT` if the user has as many channels as it may, or
    /// too many descriptors of it wait to be closed.
    pub fn new(
        id: ChannelId,
        end: End,
        peer: ProcessId,
        closer: &UserCloser,
        fds: Vec<OwnedFd>,
    ) -> Result<Channel, Errno> {
        // The peer may have sent something by now.
        let fds = PeerFiles::new(fds, closer);
        let account = closer.account().clone();
        if !closer.has_room() {
            return Err(Errno::DQUOT);
        }
        let place = match end {
            End::Client => None,
            End::Server => Some(account.take(Resource::Channels, 1).ok_or(Errno::DQUOT)?),
        };
        let mut fds = fds.keep().into_iter();
        let (Some(file), Some(socket), Some(descriptors)) = (fds.next(), fds.next(), fds.next())
        else {
            return Err(Errno::PROTO);
        };
        let [socket, descriptors] =
            [socket, descriptors].map(|socket| PeerSocket::new(socket, closer));
        let front = match end {
            End::Client => {
                let page = fds.next().ok_or(Errno::PROTO)?;
                Some(Mapping::<STATUS_BYTES>::new(page, Access::Read)?)
            }
            End::Server => None,
        };
        let socket = Socket::new(socket, end)?;
        let descriptors = DescriptorSocket::new(descriptors);
        let head = Mapping::<LANES_AT>::new(&file, Access::ReadWrite)?;
        let work = Lock::new(Ends {
            producer: Producer::new(RING_BYTES),
            pending: Pending::default(),
            spam_reported: false,
            ready: ReadyLanes::default(),
            consumer: Consumer::new(RING_BYTES),
            returns: Producer::new(RETURNS_BYTES),
            returned: Consumer::new(RETURNS_BYTES),
            dead: false,
        });
        let lanes = [const { OnceLock::new() }; LANES];
        Ok(Channel {
            id,
            end,
            peer,
            revocation: Arc::default(),
            socket,
            descriptors,
            file,
            _place: place,
            head,
            lanes,
            lane_rings: [const { OnceLock::new() }; LANES],
            ring_ends: std::array::from_fn(|_| Lock::default()),
            looks_for_room: Lock::default(),
            front,
            asleep: AtomicU32::new(0),
            inactive: AtomicBool::new(false),
            muted: AtomicBool::new(false),
            times_muted: AtomicU32::new(0),
            fruitless: AtomicU32::new(0),
            in_a_row: AtomicU32::new(0),
            shown_processor: AtomicU32::new(0),
            wanted_at: AtomicU64::new(0),
            answers: SpinBudget::default(),
            yields_first: std::array::from_fn(|_| YieldFirst::default()),
            client_lanes: ClientLanes::default(),
            owners: std::array::from_fn(|_| LaneOwner::default()),
            pinned_sleeper: AtomicU32::new(0),
            dedicated_locks: std::array::from_fn(|_| Lock::default()),
            lending: AtomicU64::new(0),
            is_of_stranger: account.is_of_stranger(),
            loopers: std::array::from_fn(|_| AtomicU32::new(0)),
            full: AtomicBool::new(false),
            full_rings: AtomicU64::new(0),
            one_way_read: AtomicU64::new(0),
            mapped: Lock::default(),
            account,
            work,
        })
    }

    /// Sleeps at a lane's mailbox, as [`Mailbox::wait_unless`] does. A peer that maps the mailbox
    /// can have the kernel move its sleepers to another word (FUTEX_REQUEUE), where no wake-up of
    /// this process reaches them. So a sleep at a stranger's lane ends now and then for no reason.
    ///
    /// [`Mailbox::wait_unless`]: baton_shm::mailbox::Mailbox::wait_unless
    #[inline]
    pub fn sleep_at(
        &self,
        lane: Lane<'_>,
        something_else: impl FnOnce() -> bool,
    ) -> Result<Seen, Wait> {
        let longest = self.longest_sleep();
        match lane.inbox().wait_unless(longest, something_else) {
            Err(Wait::TimedOut) => Ok(Seen::Nothing),
            outcome => outcome,
        }
    }

    /// The time after which a sleep at a word that the peer maps ends, if there is one.
    pub fn longest_sleep(&self) -> Option<Duration> {
        // A simulated machine has no call that moves sleepers.
        (self.is_of_stranger && !cfg!(simulated)).then_some(LONGEST_SLEEP)
    }

    /// Reads doorbells, and drops descriptors whose message will not come: see [`Socket::drain`].
    pub fn drain(&self) -> Result<(Drained, u32), Errno> {
        self.socket.drain(self.is_muted(), |number| self.descriptors.forget(number))
    }

    /// Both sockets.
    pub fn sockets(&self) -> [BorrowedFd<'_>; 2] {
        [self.socket.fd(), self.descriptors.fd()]
    }

    /// Sends the descriptors of a message ahead of it. Returns their number. `EAGAIN` if the peer
    /// does not read, `ETOOMANYREFS` if it or its user has as many unread as it may; `EPIPE`,
    /// `ECONNRESET` or `ENOTCONN` if there is none any more.
    pub fn send_fds(&self, fds: &[BorrowedFd<'_>]) -> Result<u32, Errno> {
        self.descriptors.send(fds)
    }

    /// Tells the peer that a message will not come, if it has descriptors.
    pub fn cancel_fds(&self, message: &Message) {
        if message.fds > 0 {
            self.socket.cancel(message.fds_number);
        }
    }

    /// The descriptors of a message that has come, with the errors of [`DescriptorSocket::take`].
    pub fn take_fds(&self, message: &Message) -> Result<PeerFiles, Errno> {
        match message.fds {
            0 => Ok(PeerFiles::new(Vec::new(), self.descriptors.closer())),
            count => self.descriptors.take(message.fds_number, usize::from(count)),
        }
    }

    /// Drops the descriptors of a message that is refused.
    pub fn drop_fds(&self, message: &Message) {
        if message.fds > 0 {
            // A peer that has misbehaved loses the channel by its next message.
            let _ = self.descriptors.forget(message.fds_number);
        }
    }

    /// Shuts both sockets down: both ends see it, and nothing comes any more.
    pub fn shut_down(&self) {
        self.descriptors.shut_down();
        self.socket.shut_down();
    }

    /// Locks the [`Ends`].
    pub fn ends(&self) -> Guard<'_, Ends> {
        self.work.lock()
    }

    /// A lane's name.
    pub fn via(&self, lane: usize) -> LaneId {
        LaneId { channel: self.id, lane: lane as u32 }
    }

    /// The process at the other end, as the sender of what comes by this channel.
    pub fn sender(&self) -> Sender {
        (self.peer, self.id)
    }

    /// Shows the other end on which processor the calling thread runs.
    #[inline(always)]
    pub fn show_processor(&self) {
        let ours = match self.end {
            End::Client => header::CLIENT_PROCESSOR,
            End::Server => header::SERVER_PROCESSOR,
        };
        let here = processor() + 1;
        if self.shown_processor.load(Ordering::Relaxed) != here {
            self.shown_processor.store(here, Ordering::Relaxed);
            self.head.word(ours).store(here, Ordering::Relaxed);
        }
    }

    /// Whether the two ends' threads last ran on one processor, as both have shown.
    #[inline(always)]
    pub fn placement(&self) -> Placement {
        match self.shown_by_peer() {
            0 => Placement::Unknown,
            theirs if theirs == self.shown_processor.load(Ordering::Relaxed) => {
                Placement::SameProcessor
            }
            _ => Placement::OtherProcessor,
        }
    }

    /// The lane's record of whether yielding pays.
    #[inline(always)]
    pub fn yield_first(&self, lane: u32) -> &YieldFirst {
        &self.yields_first[lane as usize % LANES]
    }

    /// The processor on which the other end's thread last ran, as that end has shown.
    #[inline]
    pub fn peers_processor(&self) -> Option<u32> {
        self.shown_by_peer().checked_sub(1)
    }

    #[inline]
    fn shown_by_peer(&self) -> u32 {
        let theirs = match self.end {
            End::Client => header::SERVER_PROCESSOR,
            End::Server => header::CLIENT_PROCESSOR,
        };
        self.head.word(theirs).load(Ordering::Relaxed)
    }

    /// The bell, where there is one.
    pub fn bell(&self) -> Option<Bell<'_>> {
        let page = self.socket.bell.get()?;
        Some(Bell::new(page.word(bell::BELL), page.word(bell::SLEPT_ON), page.word(bell::INACTIVE)))
    }

    /// Server: the bell, where there is one, as its owner.
    pub fn own_bell(&self) -> Option<OwnBell<'_>> {
        Some(self.bell()?.own(&self.asleep))
    }

    /// The two areas of a lane, mapped at its first use.
    #[inline(always)]
    pub fn lane(&self, lane: usize) -> Result<Lane<'_>, Errno> {
        let map = match self.lanes[lane].get() {
            Some(map) => map,
            None => self.map_lane(lane)?,
        };
        let (request, reply) = (map.part_at(0), map.part_at(AREA_BYTES));
        Ok(match self.end {
            End::Server => Lane { incoming: request, outgoing: reply },
            End::Client => Lane { incoming: reply, outgoing: request },
        })
    }

    #[cold]
    fn map_lane(&self, lane: usize) -> Result<&Mapping<LANE_BYTES>, Errno> {
        let mut mapped = self.mapped.lock();
        if let Some(map) = self.lanes[lane].get() {
            return Ok(map);
        }
        let held = match self.end {
            End::Client => None,
            End::Server => Some(self.account.take(Resource::Lanes, 1).ok_or(Errno::DQUOT)?),
        };
        let at = area_at(lane, End::Server);
        let map = Mapping::part(&self.file, at, Access::ReadWrite)?;
        mapped.extend(held);
        Ok(self.lanes[lane].get_or_init(|| map))
    }

    /// Whether a message for this end lies on a lane, announced or not.
    pub fn has_mail(&self) -> bool {
        let mut used = (0..LANES).filter(|&lane| self.lanes[lane].get().is_some());
        used.any(|lane| {
            let has_mail = self.lane(lane).is_ok_and(|areas| !areas.inbox().is_empty());
            has_mail || self.end == End::Server && self.has_real_time(lane)
        })
    }

    /// The header's page, the server's status page and the bell's stay in memory.
    pub fn mlock_words(&self) -> Result<(), Errno> {
        self.head.view().lock_in_memory(0, RING_AT)?;
        self.front
            .as_ref()
            .map_or(Ok(()), |front| mapping::lock_in_memory_at(front.address(), STATUS_BYTES))?;
        self.socket.bell.get().map_or(Ok(()), |bell| bell.view().lock_in_memory(0, BELL_BYTES))
    }

    /// Announces that the lane holds a request, or its ring a one-way record.
    pub fn set_ready(&self, lane: usize) {
        // SeqCst: before the look at the sleepers in `announce`; see `bell`.
        self.head.double_word(header::READY).fetch_or(1 << lane, Ordering::SeqCst);
    }
}

/// One-way transactions of one client, as both sides count them.
#[derive(Clone, Copy, Debug)]
pub struct OneWayAccount {
    /// In the ring: bytes that they will take in the receive buffer.
    pub pending_bytes: usize,
    /// In the ring: how many.
    pub pending: usize,
    /// In the receive buffer: bytes.
    pub taken_bytes: usize,
    /// In the receive buffer: how many.
    pub taken: usize,
}

/// A lane's two areas, from this end.
#[derive(Clone, Copy)]
pub struct Lane<'a> {
    incoming: Part<'a, AREA_BYTES>,
    outgoing: Part<'a, AREA_BYTES>,
}

impl<'a> Lane<'a> {
    /// The area in which messages come in.
    #[inline(always)]
    pub fn incoming(self) -> View<'a> {
        self.incoming.view()
    }

    /// The area in which messages go out.
    #[inline(always)]
    pub fn outgoing(self) -> View<'a> {
        self.outgoing.view()
    }

    /// The mailbox of incoming messages.
    #[inline]
    pub fn inbox(self) -> Mailbox<'a> {
        Mailbox::new(self.incoming().word(0))
    }

    /// The mailbox of outgoing messages.
    #[inline(always)]
    pub fn outbox(self) -> Mailbox<'a> {
        Mailbox::new(self.outgoing().word(0))
    }

    /// Copies the header of the message that has come in.
    #[inline(always)]
    pub fn header(self) -> Message {
        header_in(self.incoming())
    }

    /// The stamp of the message that has come in, which is its sender's word. `None` if none has.
    #[inline]
    pub fn arrived(self) -> Option<u64> {
        let stamp = self.incoming().double_word(std::mem::offset_of!(Message, stamp));
        // Relaxed: the mailbox's word has been acquired.
        (!self.inbox().is_empty()).then(|| stamp.load(Ordering::Relaxed))
    }

    /// The header of the message that went out last. The peer may have changed it since.
    pub fn sent(self) -> Message {
        header_in(self.outgoing())
    }

    /// Writes a message and posts it; `body` writes chain and payload behind the header.
    #[inline(always)]
    pub fn post(self, message: &Message, body: impl FnOnce(View<'_>)) -> Reader {
        // The first word is the mailbox; the header's other fields follow.
        self.outgoing().write(4, &bytes_of(message)[4..]);
        body(self.outgoing());
        self.outbox().post()
    }
}

#[inline(always)]
fn header_in(area: View<'_>) -> Message {
    // Relaxed: the mailbox's word has been acquired. The compiler repeats no atomic load.
    let words: [u64; size_of::<Message>() / 8] =
        std::array::from_fn(|word| area.double_word(8 * word).load(Ordering::Relaxed));
    bytemuck::cast(words)
}
