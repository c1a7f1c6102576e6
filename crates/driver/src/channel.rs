//! Channels: the memory and the socket that this process shares with one other.
//!
//! Of the peer's bytes nothing is used but copies that have been checked.

use crate::control::receive_into;
use crate::state::transaction::Via;
use baton_abi::control::{ChannelId, End, ProcessId};
use baton_abi::lane::*;
use baton_shm::bell::{Bell, Ring};
use baton_shm::mailbox::{Mailbox, Reader};
use baton_shm::mapping::{Access, Mapping};
use baton_shm::ring::{Consumer, Corrupt, Producer};
use baton_shm::sync::{AtomicU64, Ordering};
use bytemuck::{bytes_of, bytes_of_mut};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, OnceLock};

/// Most descriptor messages that wait for their transaction: a peer that sends more misbehaves.
const MAX_STASHED: usize = 128;

/// One channel, at one of its ends.
#[derive(Debug)]
pub struct Channel {
    /// Its name.
    pub id: ChannelId,
    /// This process's end.
    pub end: End,
    /// Who has the other.
    pub peer: ProcessId,
    file: OwnedFd,
    socket: OwnedFd,
    /// Header and ring.
    head: Mapping,
    lanes: [OnceLock<Mapping>; LANES],
    /// The server's front page, at the client's end.
    front: Option<Mapping>,
    /// Lanes for whose call a looper was woken, at the client's end.
    expected: AtomicU64,
    stash: Mutex<Stash>,
    work: Mutex<Ends>,
}

/// Descriptors that have come, by the number of their message.
#[derive(Debug, Default)]
struct Stash {
    by_number: HashMap<u32, Vec<OwnedFd>>,
    /// Messages whose descriptors could not all be installed.
    failed: Vec<u32>,
    ended: bool,
}

/// What either end keeps for itself. Taken under the state's lock, never the other way round.
#[derive(Debug)]
pub struct Ends {
    /// Client: lanes not in use.
    pub free: u64,
    /// Client: lanes whose caller has left before the answer.
    pub abandoned: u64,
    /// Client: the one-way ring.
    pub producer: Producer,
    /// Client: one-way records not yet taken: position after each, and its size when allocated.
    pub pending: std::collections::VecDeque<(u64, usize)>,
    /// Client: the target's flood warning has been passed on since there was room.
    pub spam_told: bool,
    /// Client: number of the last descriptor message.
    pub fds_number: u32,
    /// Server: lanes with a request that was seen and could not be taken yet.
    pub ready: u64,
    /// Server: lanes being served.
    pub serving: u64,
    /// Server: the one-way ring.
    pub consumer: Consumer,
    /// Server: the oldest one-way record waits for room in the receive buffer.
    pub full: bool,
    /// It has ended: the peer is gone or has broken the protocol.
    pub dead: bool,
}

impl Channel {
    /// Takes over what the broker sent: memory, socket and, at the client's end, the front page.
    pub fn new(
        id: ChannelId,
        end: End,
        peer: ProcessId,
        fds: Vec<OwnedFd>,
    ) -> Result<Channel, Errno> {
        let mut fds = fds.into_iter();
        let (file, socket) = fds.next().zip(fds.next()).ok_or(Errno::PROTO)?;
        let front = match end {
            End::Client => {
                let page = fds.next().ok_or(Errno::PROTO)?;
                Some(Mapping::new(page, FRONT_BYTES, Access::Read)?)
            }
            End::Server => None,
        };
        let head = Mapping::new(&file, LANES_AT, Access::ReadWrite)?;
        let work = Mutex::new(Ends {
            free: u64::MAX,
            abandoned: 0,
            producer: Producer::new(RING_BYTES),
            pending: Default::default(),
            spam_told: false,
            fds_number: 0,
            ready: 0,
            serving: 0,
            consumer: Consumer::new(RING_BYTES),
            full: false,
            dead: false,
        });
        let lanes = [const { OnceLock::new() }; LANES];
        Ok(Channel {
            id,
            end,
            peer,
            file,
            socket,
            head,
            lanes,
            front,
            expected: AtomicU64::new(0),
            stash: Mutex::default(),
            work,
        })
    }

    /// What this end keeps.
    pub fn ends(&self) -> MutexGuard<'_, Ends> {
        self.work.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// A lane by its name.
    pub fn via(&self, lane: usize) -> Via {
        Via { channel: self.id, lane: lane as u32 }
    }

    fn other_end(&self) -> End {
        match self.end {
            End::Client => End::Server,
            End::Server => End::Client,
        }
    }

    /// The two areas of a lane, mapped at its first use.
    pub fn lane(&self, lane: usize) -> Result<Lane<'_>, Errno> {
        let map = match self.lanes[lane].get() {
            Some(map) => map,
            None => {
                let at = area_at(lane, End::Server);
                let map = Mapping::part(&self.file, at, 2 * AREA_BYTES, Access::ReadWrite)?;
                self.lanes[lane].get_or_init(|| map)
            }
        };
        let area = |end| match end {
            End::Server => 0,
            End::Client => AREA_BYTES,
        };
        Ok(Lane { map, inbox: area(self.end), outbox: area(self.other_end()) })
    }

    /// The socket, for doorbells and descriptors.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    // ---- the client's end -------------------------------------------------------------------

    /// Takes a lane that nobody uses. `None` if all are in use.
    pub fn take_lane(&self) -> Result<Option<usize>, Errno> {
        let mut ends = self.ends();
        if ends.free == 0 {
            self.reclaim(&mut ends)?;
        }
        let lane = ends.free.trailing_zeros() as usize;
        if lane == LANES {
            return Ok(None);
        }
        ends.free &= !(1 << lane);
        Ok(Some(lane))
    }

    /// A lane whose caller left is free again once the server has tried to answer.
    fn reclaim(&self, ends: &mut Ends) -> Result<(), Errno> {
        let abandoned = ends.abandoned;
        for lane in (0..LANES).filter(|lane| abandoned >> lane & 1 == 1) {
            let areas = self.lane(lane)?;
            if !areas.inbox().is_empty() {
                areas.inbox().reset();
                ends.abandoned &= !(1 << lane);
                ends.free |= 1 << lane;
            }
        }
        Ok(())
    }

    /// A call on this lane is over.
    pub fn give_lane(&self, lane: u32) {
        self.ends().free |= 1 << lane;
    }

    /// Nobody waits on this lane any more, and the answer is outstanding.
    pub fn abandon_lane(&self, lane: u32) {
        if let Ok(areas) = self.lane(lane as usize) {
            areas.inbox().close();
            self.ends().abandoned |= 1 << lane;
        }
    }

    /// A word of the server's front page.
    pub fn front_word(&self, offset: usize) -> u32 {
        self.front.as_ref().map_or(0, |front| front.word(offset).load(Ordering::Acquire))
    }

    /// Tells the server of a lane's new request or of a new one-way record. `must_look`: nobody
    /// of the pool may come by for it.
    /// True if one has been woken for it.
    pub fn announce(&self, must_look: bool) -> bool {
        let Some(front) = &self.front else { return false };
        let attended = front.word(front::ATTENDANCE).load(Ordering::Acquire);
        let bell = Bell::new(front.word(front::BELL), front.word(front::SLEEPERS));
        let seen = match bell.ring() {
            _ if attended != Attendance::Loopers as u32 => false,
            Ring::Woken => return true,
            Ring::NoSleeper => !must_look,
            Ring::Nobody => false,
        };
        if !seen {
            self.ring_socket();
        }
        false
    }

    /// Remembers whether a looper was woken for the call on this lane.
    pub fn set_expected(&self, lane: usize, expected: bool) {
        // Only the lane's caller reads its bit.
        match expected {
            true => self.expected.fetch_or(1 << lane, Ordering::Relaxed),
            false => self.expected.fetch_and(!(1 << lane), Ordering::Relaxed),
        };
    }

    /// What [`Channel::set_expected`] was told.
    pub fn is_expected(&self, lane: u32) -> bool {
        self.expected.load(Ordering::Relaxed) >> lane & 1 == 1
    }

    /// The lane's request area holds a new request.
    pub fn set_ready(&self, lane: usize) {
        // SeqCst: before the look at the sleepers in `announce`; see `bell`.
        self.head.double_word(header::READY).fetch_or(1 << lane, Ordering::SeqCst);
    }

    /// The doorbell that always works: the peer's control thread looks.
    pub fn ring_socket(&self) {
        let doorbell = 0u32.to_ne_bytes();
        // A full queue means that the peer has been told often enough.
        let flags = rustix::net::SendFlags::NOSIGNAL | rustix::net::SendFlags::DONTWAIT;
        let _ = rustix::net::send(&self.socket, &doorbell, flags);
    }

    /// Sends descriptors ahead of their message. `EBADF` if one is closed.
    pub fn send_fds(&self, fds: &[i32]) -> Result<u32, Errno> {
        let mut owned = Vec::with_capacity(fds.len());
        for &fd in fds {
            if fd < 0 {
                return Err(Errno::BADF);
            }
            // SAFETY: only duplicated, at once; a closed number is EBADF.
            let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
            owned.push(rustix::io::fcntl_dupfd_cloexec(borrowed, 0)?);
        }
        let number = {
            let mut ends = self.ends();
            ends.fds_number = ends.fds_number.wrapping_add(1).max(1);
            ends.fds_number
        };
        let borrowed: Vec<_> = owned.iter().map(AsFd::as_fd).collect();
        crate::control::send(&self.socket, &number.to_ne_bytes(), &borrowed)?;
        Ok(number)
    }

    /// Bytes of the receive buffer that one-way records of this client will take, the ones it has
    /// taken, and how many those are.
    pub fn one_way_account(&self, ends: &mut Ends) -> OneWayAccount {
        let head = self.head.double_word(header::RING_HEAD).load(Ordering::Acquire);
        while ends.pending.front().is_some_and(|&(end, _)| end <= head) {
            ends.pending.pop_front();
        }
        OneWayAccount {
            pending_bytes: ends.pending.iter().map(|&(_, bytes)| bytes).sum(),
            pending: ends.pending.len(),
            taken_bytes: self.head.word(header::ONE_WAY_BYTES).load(Ordering::Acquire) as usize,
            taken: self.head.word(header::ONE_WAY_BUFFERS).load(Ordering::Acquire) as usize,
        }
    }

    /// Puts a one-way record into the ring. `Ok(false)` if there is no room.
    pub fn put_one_way(
        &self,
        ends: &mut Ends,
        message: &Message,
        allocation: usize,
        write: impl FnOnce(&Mapping, usize),
    ) -> Result<bool, Corrupt> {
        let bytes = message.parts().ok_or(Corrupt)?.end.next_multiple_of(64);
        let (head, tail) =
            (self.head.double_word(header::RING_HEAD), self.head.double_word(header::RING_TAIL));
        let (free, before_end) = ends.producer.room(head)?;
        let beyond_end = free - before_end;
        // An empty ring starts over in its second half, so that a trickle touches half of its
        // pages. Until the server has taken the skip there is room up to here: any target's half.
        let restart = free == RING_BYTES && ends.producer.place() >= RING_BYTES / 2;
        if before_end < bytes || restart {
            if beyond_end < bytes {
                return Ok(false);
            }
            let skip = Message { word: before_end as u32, kind: Kind::Skip as u32, ..*message };
            self.head.write(RING_AT + ends.producer.place(), bytes_of(&skip));
            ends.producer.publish(tail, before_end);
        }
        let at = RING_AT + ends.producer.place();
        let message = Message { word: bytes as u32, ..*message };
        self.head.write(at, bytes_of(&message));
        write(&self.head, at);
        ends.producer.publish(tail, bytes);
        let end = ends.producer.position();
        ends.pending.push_back((end, allocation));
        Ok(true)
    }

    // ---- the server's end -------------------------------------------------------------------

    /// Lanes with a request, new ones and those that could not be taken before.
    pub fn ready_lanes(&self, ends: &mut Ends) -> u64 {
        let word = self.head.double_word(header::READY);
        // SeqCst: after the announcement of a sleeper; see `bell`.
        if word.load(Ordering::SeqCst) != 0 {
            ends.ready |= word.swap(0, Ordering::SeqCst);
        }
        ends.ready
    }

    /// The oldest one-way record, if there is one, and where it lies.
    pub fn first_one_way(&self, ends: &mut Ends) -> Result<Option<(Message, usize)>, Corrupt> {
        loop {
            let available = ends.consumer.available(self.ring_tail())?;
            if available == 0 {
                return Ok(None);
            }
            if available < size_of::<Message>() {
                return Err(Corrupt);
            }
            let at = RING_AT + ends.consumer.place();
            let mut message = Message::default();
            self.head.read(at, bytes_of_mut(&mut message));
            let bytes = message.word as usize;
            if bytes == 0 || bytes > available || !bytes.is_multiple_of(64) {
                return Err(Corrupt);
            }
            match Kind::from_raw(message.kind) {
                Some(Kind::Skip) => {
                    ends.consumer.release(self.head.double_word(header::RING_HEAD), bytes);
                }
                Some(Kind::OneWay) => {
                    let fits = message.parts().is_some_and(|parts| parts.end <= bytes);
                    return if fits { Ok(Some((message, at))) } else { Err(Corrupt) };
                }
                _ => return Err(Corrupt),
            }
        }
    }

    /// The oldest one-way record has been copied.
    pub fn release_one_way(&self, ends: &mut Ends, message: &Message) {
        ends.consumer.release(self.head.double_word(header::RING_HEAD), message.word as usize);
    }

    /// Whether anything new has come since the last look.
    pub fn has_news(&self, ends: &Ends) -> bool {
        self.head.double_word(header::READY).load(Ordering::SeqCst) != 0
            || !ends.full && ends.consumer.available(self.ring_tail()) != Ok(0)
    }

    fn ring_tail(&self) -> &AtomicU64 {
        self.head.double_word(header::RING_TAIL)
    }

    /// Publishes what the client has in the receive buffer.
    pub fn publish_account(&self, (bytes, buffers): (usize, usize)) {
        self.head.word(header::ONE_WAY_BYTES).store(bytes as u32, Ordering::Release);
        self.head.word(header::ONE_WAY_BUFFERS).store(buffers as u32, Ordering::Release);
    }

    /// The header and the ring.
    pub fn head(&self) -> &Mapping {
        &self.head
    }

    // ---- both ends --------------------------------------------------------------------------

    /// Reads the socket until it is empty. `Err` once the peer has closed it or misbehaved.
    pub fn drain_socket(&self) -> Result<(), Errno> {
        let mut stash = self.stash.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        self.drain_into(&mut stash)
    }

    fn drain_into(&self, stash: &mut Stash) -> Result<(), Errno> {
        if stash.ended {
            return Err(Errno::CONNRESET);
        }
        loop {
            let mut number = [0; 4];
            match receive_into(&self.socket, &mut number, MAX_FDS, RecvFlags::DONTWAIT) {
                Ok((4, fds)) => {
                    let number = u32::from_ne_bytes(number);
                    if number != 0 {
                        stash.by_number.insert(number, fds);
                    }
                }
                Err(Errno::MFILE) => stash.failed.push(u32::from_ne_bytes(number)),
                Err(Errno::AGAIN) => return Ok(()),
                Ok(_) | Err(_) => {
                    stash.ended = true;
                    return Err(Errno::CONNRESET);
                }
            }
            if stash.by_number.len() + stash.failed.len() > MAX_STASHED {
                stash.ended = true;
                return Err(Errno::PROTO);
            }
        }
    }

    /// The descriptors of a message. `EMFILE` if this process has no room for them, `EPROTO` if
    /// the peer did not send as many as it says.
    pub fn take_fds(&self, message: &Message) -> Result<Vec<OwnedFd>, Errno> {
        if message.fds == 0 {
            return Ok(Vec::new());
        }
        let mut stash = self.stash.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let ended = self.drain_into(&mut stash);
        if let Some(at) = stash.failed.iter().position(|&number| number == message.fds_number) {
            stash.failed.remove(at);
            return Err(Errno::MFILE);
        }
        match stash.by_number.remove(&message.fds_number) {
            Some(fds) if fds.len() == usize::from(message.fds) => Ok(fds),
            Some(_) => Err(Errno::PROTO),
            None => Err(ended.err().unwrap_or(Errno::PROTO)),
        }
    }

    /// Ends the conversation: the peer's control thread sees it.
    pub fn shut_down(&self) {
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
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
    /// Both areas.
    pub map: &'a Mapping,
    /// Where messages come in.
    pub inbox: usize,
    outbox: usize,
}

impl<'a> Lane<'a> {
    /// The mailbox of what comes in.
    pub fn inbox(self) -> Mailbox<'a> {
        Mailbox::new(self.map.word(self.inbox))
    }

    /// The mailbox of what goes out.
    pub fn outbox(self) -> Mailbox<'a> {
        Mailbox::new(self.map.word(self.outbox))
    }

    /// Copies the header of what has come in.
    pub fn header(self) -> Message {
        let mut message = Message::default();
        self.map.read(self.inbox, bytes_of_mut(&mut message));
        message
    }

    /// Writes a message and posts it; `body` writes chain and payload behind the header.
    pub fn post(self, message: &Message, body: impl FnOnce(&Mapping, usize)) -> Reader {
        // The word is the mailbox's: the header goes in behind it.
        self.map.write(self.outbox + 4, &bytes_of(message)[4..]);
        body(self.map, self.outbox);
        self.outbox().post()
    }
}
