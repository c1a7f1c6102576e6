//! The broker's end of one engine's event socket.
//!
//! The broker never waits for an engine. What the socket does not take is kept here, in order.
//! Each packet is charged to the user that caused it. Requests that would add to what waits are
//! refused once their user has its share of it: see [`crate::ledger`]. Nothing else can be
//! refused, and all of that is bounded: an end of a holding by the handles of its cause, a death by
//! channels, a freeze by the processes that are frozen, and what is left by the cause's connection,
//! which ends when it has gone too far.
//!
//! Descriptors that an engine has not read count against the broker's own user, in the kernel. An
//! engine has at most [`MAX_UNREAD`] of them; the next ones wait here until it has read all.

use crate::ledger::Ledger;
use crate::packet::{self, Sent};
use crate::peer;
use baton_abi::control::{self, Event, ProcessId};
use baton_abi::quota::Standing;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::collections::{BTreeMap, VecDeque};

/// Descriptors that one engine may leave unread.
pub(crate) const MAX_UNREAD: u64 = 64;
/// Less than what the kernel counts for any packet. One that is being read counts a byte or so
/// until its reader is done, which is after the broker was told that there is room.
const LEAST_PACKET_BYTES: u32 = 128;
/// What a packet takes besides its bytes.
const PACKET_BYTES: u64 = 128;

/// An engine gets no more events: its socket failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its event socket failed: {0}")]
pub(crate) struct Failed(pub Errno);

/// What is to happen before more is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backlog {
    /// Nothing: everything is in the socket.
    Empty,
    /// The engine has to read.
    Unread,
    /// The engine has to read: the socket has just said so.
    Full,
    /// Other engines have to: the user's, or the broker's own, share of unread descriptors is used
    /// up.
    Crowded,
}

/// Whose engine it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader {
    pub user: u32,
    pub standing: Standing,
}

struct Packet {
    bytes: Vec<u8>,
    descriptors: Vec<OwnedFd>,
    cause: u32,
    kind: Kind,
}

/// What can be found again while it waits.
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

/// What a packet of so many bytes counts for while it waits.
pub(crate) fn cost(bytes: usize) -> u64 {
    bytes as u64 + PACKET_BYTES
}

pub(crate) struct Outbox {
    socket: OwnedFd,
    packets: VecDeque<Packet>,
    /// Packets that have left: the number of the first one that waits.
    sent: u64,
    /// By number.
    frozen: BTreeMap<ProcessId, u64>,
    cancels: BTreeMap<ProcessId, usize>,
    barriers: usize,
    /// Bytes that wait, by the users that caused them.
    waiting: BTreeMap<u32, u64>,
    unread: u64,
}

impl Outbox {
    /// Nothing waits.
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

    /// Bytes that wait, by the users that caused them.
    pub fn waiting(&self) -> &BTreeMap<u32, u64> {
        &self.waiting
    }

    /// Barriers that wait, which the engine itself has asked for and cannot be refused.
    pub fn barriers(&self) -> usize {
        self.barriers
    }

    /// Cancelled tickets of a sender that wait. To cancel cannot be refused.
    pub fn cancels_of(&self, sender: ProcessId) -> usize {
        self.cancels.get(&sender).copied().unwrap_or_default()
    }

    /// Appends an event, and sends what can be sent.
    pub fn push(
        &mut self,
        event: &Event,
        descriptors: Vec<OwnedFd>,
        cause: u32,
        reader: Reader,
        ledger: &mut Ledger,
    ) -> Result<Backlog, Failed> {
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
            // Of a state that has not been read only the last one counts.
            self.packets[(number - self.sent) as usize].bytes = bytes;
            return Ok(Backlog::Unread);
        }
        self.enqueue(Packet { bytes, descriptors, cause, kind }, reader, ledger);
        if self.packets.len() > 1 {
            return Ok(Backlog::Unread);
        }
        self.flush(reader, ledger)
    }

    /// Sends what has been waiting, as far as the socket takes it.
    pub fn flush(&mut self, reader: Reader, ledger: &mut Ledger) -> Result<Backlog, Failed> {
        while !self.packets.is_empty() {
            let descriptors = self.packets[0].descriptors.len() as u64;
            if descriptors > 0 && self.unread + descriptors > MAX_UNREAD {
                self.settle(reader, ledger);
                if self.unread + descriptors > MAX_UNREAD {
                    return Ok(Backlog::Unread);
                }
            }
            if ledger.unread.check(reader.user, reader.standing, descriptors).is_err() {
                self.settle(reader, ledger);
                if ledger.unread.check(reader.user, reader.standing, descriptors).is_err() {
                    return Ok(Backlog::Crowded);
                }
            }
            match self.try_send(&self.packets[0])? {
                Attempt::Done => {}
                Attempt::Full => return Ok(Backlog::Full),
                Attempt::TooMany => return Ok(Backlog::Crowded),
            }
            self.unread += descriptors;
            ledger.unread.take(reader.user, descriptors);
            self.dequeue(reader, ledger);
        }
        Ok(Backlog::Empty)
    }

    /// Descriptors that have been read are counted no more.
    pub fn settle(&mut self, reader: Reader, ledger: &mut Ledger) {
        let is_read = |bytes| bytes < LEAST_PACKET_BYTES;
        if self.unread > 0 && peer::unread_bytes(&self.socket).is_ok_and(is_read) {
            ledger.unread.give_back(reader.user, self.unread);
            self.unread = 0;
        }
    }

    /// The engine is no more, and nothing waits for it. How many packets have waited.
    pub fn close(&mut self, reader: Reader, ledger: &mut Ledger) -> usize {
        let waited = self.packets.len();
        while !self.packets.is_empty() {
            self.dequeue(reader, ledger);
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

    fn dequeue(&mut self, reader: Reader, ledger: &mut Ledger) {
        let Some(packet) = self.packets.pop_front() else { return };
        self.sent += 1;
        match packet.kind {
            Kind::Plain => {}
            Kind::Barrier => self.barriers -= 1,
            Kind::CancelledBy(sender) => take_off(&mut self.cancels, sender, 1),
            Kind::Frozen(process) => _ = self.frozen.remove(&process),
        }
        ledger.dequeue(reader.user, packet.cause, packet.cost(), packet.descriptors.len());
        take_off(&mut self.waiting, packet.cause, packet.cost());
    }

    fn try_send(&self, packet: &Packet) -> Result<Attempt, Failed> {
        let descriptors: Vec<_> = packet.descriptors.iter().map(AsFd::as_fd).collect();
        match packet::send(&self.socket, &packet.bytes, &descriptors) {
            Ok(Sent::Now | Sent::Closed) => Ok(Attempt::Done),
            Ok(Sent::Full) => Ok(Attempt::Full),
            // Others of the broker's own user leave theirs unread; or there is no memory now.
            Err(Errno::TOOMANYREFS | Errno::NOBUFS | Errno::NOMEM) => Ok(Attempt::TooMany),
            Err(errno) => Err(Failed(errno)),
        }
    }
}

fn take_off<K: Ord, N: Copy + PartialEq + std::ops::SubAssign + Default>(
    counts: &mut BTreeMap<K, N>,
    key: K,
    amount: N,
) {
    let count = counts.get_mut(&key).expect("it was counted");
    *count -= amount;
    if *count == N::default() {
        counts.remove(&key);
    }
}

enum Attempt {
    Done,
    Full,
    TooMany,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deliver::socket_pair;
    use crate::limits::Limits;

    const OURS: Reader = Reader { user: 0, standing: Standing::Owner };

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

        /// How many barriers the socket takes.
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
    fn what_comes_later_does_not_overtake_what_waits() {
        let mut test = Test::new();
        let sent = test.fill();
        // There is room in the socket again, and one packet in the queue.
        assert_eq!((test.next(), test.next()), (Some(barrier(0)), Some(barrier(1))));
        assert_eq!(test.push(&barrier(sent + 1), Vec::new()), Backlog::Unread);
        assert!(test.rest().into_iter().eq((2..=sent + 1).map(barrier)));
    }

    #[test]
    fn what_waits_is_charged_to_its_cause() {
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
    fn of_a_freeze_that_waits_only_the_last_state_is_told() {
        let mut test = Test::new();
        test.fill();
        let frozen = |process, frozen| Event::Frozen { process: ProcessId(process), frozen };
        for round in 0..1_000 {
            test.push(&frozen(1, round % 2 == 0), Vec::new());
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
        test.outbox.settle(OURS, &mut test.ledger);
        assert_eq!((test.outbox.unread, test.ledger.unread.taken()), (0, 0));
    }

    #[test]
    fn a_users_share_of_unread_descriptors_is_shared_by_its_engines() {
        let mut test = Test::new();
        let stranger = Reader { user: 1000, standing: baton_abi::quota::STRANGER };
        let share = test.ledger.unread.left_for(1000, stranger.standing);
        test.ledger.unread.take(1000, share);
        let (file, _) = socket_pair().unwrap();
        let Test { outbox, ledger, .. } = &mut test;
        let pushed = outbox.push(&barrier(1), vec![file], 0, stranger, ledger);
        assert_eq!(pushed, Ok(Backlog::Crowded));
        ledger.unread.give_back(1000, share);
        assert_eq!(outbox.flush(stranger, ledger), Ok(Backlog::Empty));
        outbox.close(stranger, ledger);
        assert_eq!(ledger.unread.taken(), 0);
    }

    #[test]
    fn nothing_waits_for_a_reader_that_is_gone() {
        let mut test = Test::new();
        test.fill();
        let (gone, _) = socket_pair().unwrap();
        test.theirs = gone;
        assert_eq!(test.flush(), Backlog::Empty);
        assert_eq!(test.push(&barrier(1), Vec::new()), Backlog::Empty);
    }
}
