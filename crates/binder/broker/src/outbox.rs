//! The broker's end of one engine's event socket.
//!
//! The broker never waits for an engine. Packets that the socket has no room for wait here, in
//! order. Each packet counts against the user that caused it. The broker refuses requests that
//! would add packets once their user has used up its share: see [`crate::ledger`].
//!
//! Other packets cannot be refused, but their number is bounded. Ends of holdings: by the handles
//! of the user that causes them. Deaths: by channels. Freezes: by the frozen processes. For the
//! rest, the broker closes the connection that causes too many.
//!
//! The kernel counts descriptors that an engine has not read against the broker's own user. An
//! engine has at most [`MAX_UNREAD`] of them; further descriptors wait here until it has read all.

use crate::closing::close_later;
use crate::ledger::{Ledger, Reader};
use crate::packet::{self, Sent};
use baton_abi::control::{self, Event, ProcessId};
use baton_shm::socket::unread_bytes;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::collections::{BTreeMap, VecDeque};

/// Most descriptors that one engine may leave unread.
pub(crate) const MAX_UNREAD: u64 = 64;
/// Fewer bytes than the kernel counts for any packet. A packet that is being read still counts a
/// few bytes until its reader is done, which is after the broker learned that there is room.
const LEAST_PACKET_BYTES: u32 = 128;
/// Memory that a waiting packet takes besides its bytes.
const PACKET_BYTES: u64 = 128;

/// The event socket failed, so the engine gets no more events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its event socket failed: {0}")]
pub(crate) struct SocketFailed(pub Errno);

/// The event that has to happen before the outbox can send more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backlog {
    /// None: the socket has taken every packet.
    Empty,
    /// The engine has to read its events.
    Unread,
    /// The engine has to read its events: the socket has just reported that it is full.
    Full,
    /// Other engines have to read theirs: the user's or the broker's own share of unread
    /// descriptors is used up.
    OthersUnread,
}

struct Packet {
    bytes: Vec<u8>,
    descriptors: Vec<OwnedFd>,
    cause: u32,
    kind: Kind,
}

/// Packets that the outbox has to find again while they wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    Barrier,
    CancelledBy(ProcessId),
    Frozen(ProcessId),
}

impl Packet {
    fn cost(&self) -> u64 {
        cost(self.bytes.len())
    }
}

/// The amount that a packet of `bytes` bytes counts for while it waits.
pub(crate) fn cost(bytes: usize) -> u64 {
    bytes as u64 + PACKET_BYTES
}

/// The broker's end of an engine's event socket and the packets that wait for room in it.
pub(crate) struct Outbox {
    socket: OwnedFd,
    packets: VecDeque<Packet>,
    /// Number of packets that have left the queue, and so the number of the first one in it.
    sent: u64,
    /// Numbers of the waiting packets about frozen processes.
    frozen: BTreeMap<ProcessId, u64>,
    cancels: BTreeMap<ProcessId, usize>,
    barriers: usize,
    /// Bytes of waiting packets, by the user that caused them.
    waiting: BTreeMap<u32, u64>,
    unread: u64,
}

impl Outbox {
    /// An outbox without packets.
    pub fn new(socket: OwnedFd) -> Outbox {
        Outbox {
            socket,
            packets: VecDeque::new(),
            sent: 0,
            frozen: BTreeMap::new(),
            cancels: BTreeMap::new(),
            barriers: 0,
            waiting: BTreeMap::new(),
            unread: 0,
        }
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Bytes of waiting packets, by the user that caused them.
    pub fn waiting(&self) -> &BTreeMap<u32, u64> {
        &self.waiting
    }

    /// Number of waiting barriers. The engine itself asked for them, so they cannot be refused.
    pub fn barriers(&self) -> usize {
        self.barriers
    }

    /// Number of waiting cancellations of a sender's tickets. Cancelling cannot be refused.
    pub fn cancels_of(&self, sender: ProcessId) -> usize {
        self.cancels.get(&sender).copied().unwrap_or_default()
    }

    /// Whether an event takes the place of one that waits.
    pub fn has_earlier(&self, event: &Event) -> bool {
        matches!(event, Event::Frozen { process, .. } if self.frozen.contains_key(process))
    }

    /// Appends an event and sends as much as possible.
    pub fn push(
        &mut self,
        event: &Event,
        descriptors: Vec<OwnedFd>,
        cause: u32,
        reader: Reader,
        ledger: &mut Ledger,
    ) -> Result<Backlog, SocketFailed> {
        let bytes = control::encode(event);
        let kind = match event {
            Event::Barrier { .. } => Kind::Barrier,
            Event::TicketCancelled { from, .. } => Kind::CancelledBy(*from),
            Event::Frozen { process, .. } => Kind::Frozen(*process),
            _ => Kind::Plain,
        };
        if let Kind::Frozen(process) = kind
            && let Some(number) = self.frozen.get(&process)
        {
            // Only the last state matters to an engine that has not read the previous one.
            self.packets[(number - self.sent) as usize].bytes = bytes;
            return Ok(Backlog::Unread);
        }
        self.enqueue(Packet { bytes, descriptors, cause, kind }, reader, ledger);
        if self.packets.len() > 1 {
            return Ok(Backlog::Unread);
        }
        self.flush(reader, ledger)
    }

    /// Sends waiting packets as far as the socket takes them.
    pub fn flush(&mut self, reader: Reader, ledger: &mut Ledger) -> Result<Backlog, SocketFailed> {
        while !self.packets.is_empty() {
            let descriptors = self.packets[0].descriptors.len() as u64;
            if descriptors > 0 && self.unread + descriptors > MAX_UNREAD {
                self.recount_unread(reader, ledger);
                if self.unread + descriptors > MAX_UNREAD {
                    return Ok(Backlog::Unread);
                }
            }
            if ledger.unread.check(reader.user, reader.quota_class, descriptors).is_err() {
                self.recount_unread(reader, ledger);
                if ledger.unread.check(reader.user, reader.quota_class, descriptors).is_err() {
                    return Ok(Backlog::OthersUnread);
                }
            }
            let is_sent = match self.try_send(&self.packets[0])? {
                Attempt::Done => true,
                Attempt::Closed => false,
                Attempt::Full => return Ok(Backlog::Full),
                Attempt::TooMany => return Ok(Backlog::OthersUnread),
            };
            self.unread += descriptors;
            ledger.unread.take(reader.user, descriptors);
            self.dequeue(is_sent, reader, ledger);
        }
        Ok(Backlog::Empty)
    }

    /// Stops counting the engine's unread descriptors if it has read all of them.
    pub fn recount_unread(&mut self, reader: Reader, ledger: &mut Ledger) {
        let is_read = |bytes| bytes < LEAST_PACKET_BYTES;
        if self.unread > 0 && unread_bytes(&self.socket).is_ok_and(is_read) {
            ledger.unread.give_back(reader.user, self.unread);
            self.unread = 0;
        }
    }

    /// Drops all packets because the engine is gone. Returns how many waited.
    pub fn close(&mut self, reader: Reader, ledger: &mut Ledger) -> usize {
        let waited = self.packets.len();
        while !self.packets.is_empty() {
            self.dequeue(false, reader, ledger);
        }
        ledger.unread.give_back(reader.user, self.unread);
        self.unread = 0;
        waited
    }

    fn enqueue(&mut self, packet: Packet, reader: Reader, ledger: &mut Ledger) {
        let number = self.sent + self.packets.len() as u64;
        match packet.kind {
            Kind::Plain => {}
            Kind::Barrier => self.barriers += 1,
            Kind::CancelledBy(sender) => *self.cancels.entry(sender).or_default() += 1,
            Kind::Frozen(process) => _ = self.frozen.insert(process, number),
        }
        ledger.enqueue(reader.user, packet.cause, packet.cost(), packet.descriptors.len());
        *self.waiting.entry(packet.cause).or_default() += packet.cost();
        self.packets.push_back(packet);
    }

    /// Removes the first packet. Nobody has got the ends of channels in a packet that was not
    /// `sent`, but another process may have sent into them.
    fn dequeue(&mut self, is_sent: bool, reader: Reader, ledger: &mut Ledger) {
        let Some(packet) = self.packets.pop_front() else { return };
        self.sent += 1;
        match packet.kind {
            Kind::Plain => {}
            Kind::Barrier => self.barriers -= 1,
            Kind::CancelledBy(sender) => subtract_count(&mut self.cancels, sender, 1),
            Kind::Frozen(process) => _ = self.frozen.remove(&process),
        }
        ledger.dequeue(reader.user, packet.cause, packet.cost(), packet.descriptors.len());
        subtract_count(&mut self.waiting, packet.cause, packet.cost());
        if !is_sent {
            packet.descriptors.into_iter().for_each(close_later);
        }
    }

    fn try_send(&self, packet: &Packet) -> Result<Attempt, SocketFailed> {
        let descriptors: Vec<_> = packet.descriptors.iter().map(AsFd::as_fd).collect();
        match packet::send(&self.socket, &packet.bytes, &descriptors) {
            Ok(Sent::Now) => Ok(Attempt::Done),
            Ok(Sent::Closed) => Ok(Attempt::Closed),
            Ok(Sent::Full) => Ok(Attempt::Full),
            // Other processes of the broker's own user leave descriptors unread, or memory is
            // lacking now.
            Err(Errno::TOOMANYREFS | Errno::NOBUFS | Errno::NOMEM) => Ok(Attempt::TooMany),
            Err(errno) => Err(SocketFailed(errno)),
        }
    }
}

/// Subtracts from a count, and removes a count that reaches zero.
fn subtract_count<K: Ord, N: Copy + PartialEq + std::ops::SubAssign + Default>(
    counts: &mut BTreeMap<K, N>,
    key: K,
    amount: N,
) {
    let count = counts.get_mut(&key).expect("the amount was counted");
    *count -= amount;
    if *count == N::default() {
        counts.remove(&key);
    }
}

/// The result of an attempt to send a packet.
enum Attempt {
    Done,
    Closed,
    Full,
    TooMany,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deliver::socket_pair;
    use crate::limits::Limits;
    use baton_abi::quota::QuotaClass;

    const OURS: Reader = Reader { user: 0, quota_class: QuotaClass::Owner };

    fn barrier(number: u64) -> Event {
        Event::Barrier { number }
    }

    struct Test {
        outbox: Outbox,
        ledger: Ledger,
        theirs: OwnedFd,
    }

    impl Test {
        fn new() -> Test {
            let (ours, theirs) = socket_pair().unwrap();
            let ledger = Ledger::new(&Limits::default(), 1024);
            Test { outbox: Outbox::new(ours), ledger, theirs }
        }

        fn push(&mut self, event: &Event, descriptors: Vec<OwnedFd>) -> Backlog {
            self.outbox.push(event, descriptors, 7, OURS, &mut self.ledger).unwrap()
        }

        fn flush(&mut self) -> Backlog {
            self.outbox.flush(OURS, &mut self.ledger).unwrap()
        }

        /// Fills the socket with barriers and returns the number of those that fit.
        fn fill(&mut self) -> u64 {
            (0..).find(|number| self.push(&barrier(*number), Vec::new()) != Backlog::Empty).unwrap()
        }

        fn next(&self) -> Option<Event> {
            let mut buffer = packet::buffer();
            let flags = rustix::net::RecvFlags::DONTWAIT;
            let (bytes, _) = rustix::net::recv(&self.theirs, &mut buffer[..], flags).ok()?;
            control::decode::<Event>(&buffer[..bytes])
        }

        fn rest(&mut self) -> Vec<Event> {
            let mut all = Vec::new();
            while let Some(event) = self.next() {
                all.push(event);
                self.flush();
            }
            assert_eq!((self.flush(), self.outbox.packets.len()), (Backlog::Empty, 0));
            assert!(self.outbox.waiting.is_empty() && self.outbox.frozen.is_empty());
            assert_eq!(self.ledger.queued_for(0), 0);
            all
        }
    }

    #[test]
    fn events_keep_their_order() {
        let mut test = Test::new();
        let sent = test.fill();
        // The socket has room again, and one packet is queued.
        assert_eq!((test.next(), test.next()), (Some(barrier(0)), Some(barrier(1))));
        assert_eq!(test.push(&barrier(sent + 1), Vec::new()), Backlog::Unread);
        assert!(test.rest().into_iter().eq((2..=sent + 1).map(barrier)));
    }

    #[test]
    fn waiting_bytes_count_against_the_causing_user() {
        let mut test = Test::new();
        test.fill();
        let one = cost(control::encode(&barrier(9)).len());
        let before = test.outbox.waiting()[&7];
        test.outbox.push(&barrier(9), Vec::new(), 8, OURS, &mut test.ledger).unwrap();
        assert_eq!(test.outbox.waiting(), &BTreeMap::from([(7, before), (8, one)]));
        assert_eq!(test.ledger.queued_for(0), before + one);
        test.rest();
    }

    #[test]
    fn cancels_are_counted_while_they_wait() {
        let mut test = Test::new();
        test.fill();
        let from = ProcessId(3);
        let cancelled = Event::TicketCancelled { from, ticket: control::TicketId(1) };
        test.push(&cancelled, Vec::new());
        assert_eq!(test.outbox.cancels_of(from), 1);
        test.rest();
        assert_eq!(test.outbox.cancels_of(from), 0);
    }

    #[test]
    fn only_the_last_frozen_state_is_sent() {
        let mut test = Test::new();
        test.fill();
        let frozen = |process, frozen| Event::Frozen { process: ProcessId(process), frozen };
        for round in 0..1_000 {
            let event = frozen(1, round % 2 == 0);
            assert_eq!(test.outbox.has_earlier(&event), round > 0, "it is not one event more");
            test.push(&event, Vec::new());
        }
        test.push(&frozen(2, true), Vec::new());
        let told: Vec<Event> =
            test.rest().into_iter().filter(|it| matches!(it, Event::Frozen { .. })).collect();
        assert_eq!(told, [frozen(1, false), frozen(2, true)]);
    }

    #[test]
    fn descriptors_wait_until_those_before_them_are_read() {
        let mut test = Test::new();
        let file = || vec![socket_pair().unwrap().0];
        for number in 0..MAX_UNREAD {
            assert_eq!(test.push(&barrier(number), file()), Backlog::Empty);
        }
        assert_eq!(test.push(&barrier(MAX_UNREAD), file()), Backlog::Unread);
        assert_eq!(test.push(&barrier(MAX_UNREAD + 1), Vec::new()), Backlog::Unread);
        test.next();
        assert_eq!(test.flush(), Backlog::Unread, "some are unread");
        assert_eq!(test.rest().len() as u64, MAX_UNREAD + 1);
        test.outbox.recount_unread(OURS, &mut test.ledger);
        assert_eq!((test.outbox.unread, test.ledger.unread.taken()), (0, 0));
    }

    #[test]
    fn a_users_share_of_unread_descriptors_is_shared_by_its_engines() {
        let mut test = Test::new();
        let stranger = Reader { user: 1000, quota_class: baton_abi::quota::STRANGER };
        let share = test.ledger.unread.left_for(1000, stranger.quota_class);
        test.ledger.unread.take(1000, share);
        let (file, _) = socket_pair().unwrap();
        let Test { outbox, ledger, .. } = &mut test;
        let pushed = outbox.push(&barrier(1), vec![file], 0, stranger, ledger);
        assert_eq!(pushed, Ok(Backlog::OthersUnread));
        ledger.unread.give_back(1000, share);
        assert_eq!(outbox.flush(stranger, ledger), Ok(Backlog::Empty));
        outbox.close(stranger, ledger);
        assert_eq!(ledger.unread.taken(), 0);
    }

    #[test]
    fn events_for_a_closed_socket_are_dropped() {
        let mut test = Test::new();
        test.fill();
        let (gone, _) = socket_pair().unwrap();
        test.theirs = gone;
        assert_eq!(test.flush(), Backlog::Empty);
        assert_eq!(test.push(&barrier(1), Vec::new()), Backlog::Empty);
    }
}
