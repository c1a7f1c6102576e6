//! A channel's second socket: descriptors, which go ahead of their messages.
//!
//! No thread waits for this socket, so that a descriptor wakes nobody: the thread that takes a
//! message in reads its descriptors. A packet is two u32: its number, and how many descriptors come
//! with it. An end numbers its packets from 0 on, in the order in which it sends them.
//!
//! Messages are taken in by another order. Descriptors of a later message are kept until it comes,
//! as far as their user's share goes.

use crate::sys::packet::{self, passes, receive_last_words};
use baton_abi::lane::MAX_FDS;
use baton_shm::lock::Lock;
use baton_shm::socket::unread_bytes;
use baton_state::account::{Account, Held, Resource};
use bytemuck::{bytes_of, bytes_of_mut};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::collections::{BTreeSet, HashMap, VecDeque};

/// No packet is wanted so far behind the next one.
const MOST_BEHIND: u32 = 1024;

/// No packet takes less of a socket's send buffer.
const LEAST_PACKET_BYTES: usize = 512;

/// So many descriptors are sent before the kernel is asked whether the peer has read any.
const UNASKED: usize = 16;

/// One packet: its number, and the number of its descriptors.
type Announced = [u32; 2];

/// One end's socket for descriptors.
#[derive(Debug)]
pub struct DescriptorSocket {
    fd: OwnedFd,
    received: Lock<ReceivedFds>,
    sent: Lock<Sent>,
    /// The account of the peer's user.
    account: Account,
}

/// What has been read, and what is to be done with the rest.
#[derive(Debug, Default)]
struct ReceivedFds {
    /// Number of the packet that is read next.
    next: u32,
    /// Packets that were read before their message.
    early: HashMap<u32, EarlyFds>,
    /// Packets, `next` or later, whose message will not come or has failed.
    unwanted: BTreeSet<u32>,
    /// The peer has closed the socket or misbehaved.
    ended: bool,
}

#[derive(Debug)]
struct EarlyFds {
    /// `None` if they could not all be installed.
    fds: Option<Vec<OwnedFd>>,
    /// The share for `fds`.
    _held: Option<Held>,
}

/// Descriptors that have been read for a message which may stay on its lane. Dropped, they are
/// given back, for the next look at that message.
#[derive(Debug)]
pub struct TakenFds<'a> {
    socket: &'a DescriptorSocket,
    number: u32,
    fds: Vec<OwnedFd>,
}

impl TakenFds<'_> {
    /// The descriptors: the message has been taken in.
    pub fn keep(mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.fds)
    }
}

impl Drop for TakenFds<'_> {
    fn drop(&mut self) {
        if !self.fds.is_empty() {
            self.socket.give_back(self.number, Some(std::mem::take(&mut self.fds)));
        }
    }
}

/// Descriptors that this end has sent.
#[derive(Debug, Default)]
struct Sent {
    /// Each packet on its way to the peer, oldest first: its descriptors, and their share.
    unread: VecDeque<(usize, Held)>,
    /// Number of the next packet.
    next: u32,
}

impl Sent {
    fn n_fds(&self) -> usize {
        self.unread.iter().map(|(n_fds, _)| n_fds).sum()
    }
}

impl DescriptorSocket {
    /// The socket of this end; `account` is that of the peer's user.
    pub fn new(fd: OwnedFd, account: Account) -> DescriptorSocket {
        DescriptorSocket { fd, received: Lock::default(), sent: Lock::default(), account }
    }

    /// The descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Sends the descriptors of a message, and returns their number. `EAGAIN` if the peer does not
    /// read, `ETOOMANYREFS` if it or its user has as many unread as it may, `EPIPE` or `ECONNRESET`
    /// if it is gone, `EBADF` if one of them is none.
    pub fn send(&self, fds: &[BorrowedFd<'_>]) -> Result<u32, Errno> {
        let mut sent = self.sent.lock();
        if sent.n_fds() >= UNASKED {
            self.give_back_read(&mut sent);
        }
        let take = || self.account.take(Resource::Sent, fds.len());
        let held = take().or_else(|| {
            self.give_back_read(&mut sent);
            take()
        });
        let held = held.ok_or(Errno::TOOMANYREFS)?;
        let number = sent.next;
        // A peer that does not read its socket keeps nobody waiting.
        let flags = SendFlags::DONTWAIT;
        packet::send(&self.fd, bytes_of(&[number, fds.len() as u32]), fds, flags)?;
        sent.unread.push_back((fds.len(), held));
        sent.next = number.wrapping_add(1);
        Ok(number)
    }

    /// Gives back the shares of descriptors that the peer has read.
    pub fn forget_read(&self) {
        self.give_back_read(&mut self.sent.lock());
    }

    fn give_back_read(&self, sent: &mut Sent) {
        if sent.unread.is_empty() {
            return;
        }
        let bytes = unread_bytes(&self.fd).map_or(usize::MAX, |bytes| bytes as usize);
        let read = sent.unread.len().saturating_sub(bytes / LEAST_PACKET_BYTES);
        sent.unread.drain(..read);
    }

    /// The descriptors of the message that says to have `count` of this number. `EMFILE` if this
    /// process has no room for them, `EPROTO` if the peer did not send as many.
    pub fn take(&self, number: u32, count: usize) -> Result<Vec<OwnedFd>, Errno> {
        let mut received = self.received.lock();
        let fds = match received.early.remove(&number) {
            Some(early) => early.fds,
            None => self.read_until(&mut received, number, count)?,
        };
        let fds = fds.ok_or(Errno::MFILE)?;
        if fds.len() == count { Ok(fds) } else { Err(Errno::PROTO) }
    }

    /// Like [`DescriptorSocket::take`], for a message that may stay on its lane. `None` if that
    /// fails: then `take` fails, too.
    pub fn take_for_now(&self, number: u32, count: usize) -> Option<TakenFds<'_>> {
        let taken = |fds| TakenFds { socket: self, number, fds };
        if count == 0 {
            return Some(taken(Vec::new()));
        }
        match self.take(number, count) {
            Ok(fds) => Some(taken(fds)),
            Err(Errno::MFILE) => {
                self.give_back(number, None);
                None
            }
            Err(_) => None,
        }
    }

    /// Keeps the descriptors of a message that stays on its lane, if their user has a share for
    /// them; `None` is as in [`EarlyFds::fds`].
    #[cold]
    fn give_back(&self, number: u32, fds: Option<Vec<OwnedFd>>) {
        let n_fds = fds.as_ref().map_or(0, Vec::len);
        let held = self.account.take(Resource::Descriptors, n_fds);
        let fds = fds.filter(|_| held.is_some());
        let early = &mut self.received.lock().early;
        // An honest peer has fewer packets before the next one, and one message on each lane.
        if early.len() < 2 * MOST_BEHIND as usize {
            early.insert(number, EarlyFds { fds, _held: held });
        }
    }

    /// Drops the descriptors of a message that will not come: now or, if they lie behind others,
    /// once those have been read. A number that the peer cannot have sent is ignored. `Err` if the
    /// peer has closed the socket or misbehaved.
    pub fn forget(&self, number: u32) -> Result<(), Errno> {
        let mut received = self.received.lock();
        let early = received.early.remove(&number);
        let forgotten = if early.is_none() && received.is_to_come(number) {
            received.unwanted.insert(number);
            // What cannot be dropped now is dropped before the next packet is read.
            self.drop_unwanted(&mut received).or_else(|e| if passes(e) { Ok(()) } else { Err(e) })
        } else {
            Ok(())
        };
        // To close a file takes as long as its file system likes.
        drop(received);
        drop(early);
        forgotten
    }

    /// Reads a message's packet, which needs no share, and keeps those before it for their
    /// messages. `Ok(None)` as in [`EarlyFds::fds`]; `EMFILE` if those before it have no room.
    fn read_until(
        &self,
        received: &mut ReceivedFds,
        number: u32,
        count: usize,
    ) -> Result<Option<Vec<OwnedFd>>, Errno> {
        if !received.is_to_come(number) {
            return Err(Errno::PROTO);
        }
        loop {
            let is_wanted = received.next == number;
            let read = match is_wanted {
                true => self.receive(received, count, RecvFlags::empty()).map(|(_, fds)| fds),
                false => self.read_early(received).map(|()| None),
            };
            match read {
                Ok(fds) if is_wanted => {
                    // An error further on is for the message that wants that packet.
                    let _ = self.drop_unwanted(received);
                    return Ok(fds);
                }
                Ok(_) => {}
                Err(Errno::AGAIN) => return Err(Errno::PROTO),
                Err(errno) if passes(errno) => {
                    received.unwanted.insert(number);
                    return Err(Errno::MFILE);
                }
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Reads the next packet, whose message has not come, or drops it if it is not wanted. `EMFILE`
    /// if it is beyond its user's share.
    fn read_early(&self, received: &mut ReceivedFds) -> Result<(), Errno> {
        let number = received.next;
        if received.unwanted.contains(&number) {
            return self.drop_unwanted(received);
        }
        // Nothing is installed before it is known how much that is.
        let (count, _) = self.receive(received, 0, RecvFlags::PEEK)?;
        let held = self.account.take(Resource::Descriptors, count).ok_or(Errno::MFILE)?;
        let (_, fds) = self.receive(received, count, RecvFlags::empty())?;
        received.early.insert(number, EarlyFds { fds, _held: Some(held) });
        Ok(())
    }

    /// Drops the next packets as long as they are not wanted. With the errors of
    /// [`DescriptorSocket::receive`]: `EAGAIN` if one of them has not come.
    fn drop_unwanted(&self, received: &mut ReceivedFds) -> Result<(), Errno> {
        while received.unwanted.contains(&received.next) {
            let number = received.next;
            // The kernel drops what has no room.
            self.receive(received, 0, RecvFlags::empty())?;
            received.unwanted.remove(&number);
        }
        Ok(())
    }

    /// Receives the next packet with room for so many descriptors: how many it says to have, and
    /// these, as in [`EarlyFds::fds`]. Temporary errors are those that [`passes`] says.
    fn receive(
        &self,
        received: &mut ReceivedFds,
        room: usize,
        flags: RecvFlags,
    ) -> Result<(usize, Option<Vec<OwnedFd>>), Errno> {
        if received.ended {
            return Err(Errno::CONNRESET);
        }
        let mut announced: Announced = [0; 2];
        let (packet, how) = (bytes_of_mut(&mut announced), flags | RecvFlags::DONTWAIT);
        match receive_last_words(&self.fd, packet, room, how) {
            Ok(packet) => {
                let [number, count] = [announced[0], announced[1]];
                let is_one = packet.bytes == size_of::<Announced>() && number == received.next;
                let fds = packet.fds.ok();
                let as_announced = fds.as_ref().is_none_or(|fds| fds.len() == count as usize);
                if is_one && as_announced && (1..=MAX_FDS).contains(&(count as usize)) {
                    if !flags.contains(RecvFlags::PEEK) {
                        received.next = number.wrapping_add(1);
                    }
                    return Ok((count as usize, fds));
                }
            }
            Err(errno) if passes(errno) => return Err(errno),
            Err(_) => {}
        }
        received.ended = true;
        Err(Errno::CONNRESET)
    }
}

impl ReceivedFds {
    /// Whether an honest peer may have sent a packet of this number that has not been read.
    fn is_to_come(&self, number: u32) -> bool {
        number.wrapping_sub(self.next) < MOST_BEHIND
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_state::account::Accounts;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use rustix::pipe::{PipeFlags, pipe_with};

    const STRANGER: u32 = 1000;

    fn pair() -> (OwnedFd, OwnedFd) {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap()
    }

    /// An end whose process may have so many descriptors, and what its peer, a stranger, has of it.
    fn socket(descriptors: u64) -> (DescriptorSocket, OwnedFd) {
        let (ours, theirs) = pair();
        let accounts = Accounts::default();
        accounts.set_owner(0, descriptors);
        (DescriptorSocket::new(ours, accounts.of(STRANGER)), theirs)
    }

    fn file() -> OwnedFd {
        std::fs::File::open("/dev/null").unwrap().into()
    }

    fn send(theirs: &OwnedFd, number: u32, count: u32, fds: usize) {
        let file = file();
        let carried = vec![file.as_fd(); fds];
        packet::send(theirs, bytes_of(&[number, count]), &carried, SendFlags::DONTWAIT).unwrap();
    }

    fn take(socket: &DescriptorSocket, number: u32, count: usize) -> Result<usize, Errno> {
        socket.take(number, count).map(|fds| fds.len())
    }

    fn kept(socket: &DescriptorSocket) -> Vec<u32> {
        let mut kept: Vec<_> = socket.received.lock().early.keys().copied().collect();
        kept.sort_unstable();
        kept
    }

    fn end_of_pipe(theirs: &OwnedFd, number: u32) -> OwnedFd {
        let (read, write) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        let packet = [number, 1];
        packet::send(theirs, bytes_of(&packet), &[write.as_fd()], SendFlags::DONTWAIT).unwrap();
        read
    }

    fn is_closed(read: &OwnedFd) -> bool {
        rustix::io::read(read, &mut [0]) == Ok(0)
    }

    #[test]
    fn descriptors_come_with_their_message_whatever_the_order() {
        let (socket, theirs) = socket(1024);
        (0..6).for_each(|number| send(&theirs, number, number + 1, number as usize + 1));
        assert_eq!(take(&socket, 0, 1), Ok(1));
        assert_eq!(take(&socket, 3, 4), Ok(4));
        assert_eq!(kept(&socket), [1, 2]);
        assert_eq!(take(&socket, 2, 3), Ok(3));
        assert_eq!(take(&socket, 4, 5), Ok(5));
        assert_eq!(take(&socket, 1, 3), Err(Errno::PROTO), "there were two");
        assert_eq!(take(&socket, 1, 2), Err(Errno::PROTO), "they are gone");
        assert_eq!(take(&socket, 6, 1), Err(Errno::PROTO), "never sent");
        assert_eq!(take(&socket, 5, 6), Ok(6));
        assert_eq!(take(&socket, 6 + MOST_BEHIND, 1), Err(Errno::PROTO));
        assert_eq!(kept(&socket), []);
    }

    #[test]
    fn numbers_begin_again_after_the_last_one() {
        let (socket, theirs) = socket(1024);
        socket.received.lock().next = u32::MAX;
        let sender = DescriptorSocket::new(theirs, Accounts::default().of(0));
        sender.sent.lock().next = u32::MAX;
        let sent = [socket.fd()];
        assert_eq!([sender.send(&sent), sender.send(&sent)], [Ok(u32::MAX), Ok(0)]);
        assert_eq!(take(&socket, 0, 1), Ok(1));
        assert_eq!(kept(&socket), [u32::MAX]);
        assert_eq!(take(&socket, u32::MAX, 1), Ok(1));
    }

    #[test]
    fn descriptors_wait_in_their_socket_beyond_their_users_share() {
        // A stranger gets seven of sixteen.
        let (socket, theirs) = socket(64);
        (0..4).for_each(|number| send(&theirs, number, 3, 3));
        let last = end_of_pipe(&theirs, 4);
        assert_eq!(take(&socket, 3, 3), Err(Errno::MFILE), "it lies behind the third");
        assert_eq!(kept(&socket), [0, 1]);
        assert_eq!(take(&socket, 4, 1), Err(Errno::MFILE));
        assert_eq!(take(&socket, 2, 3), Ok(3), "it is the next, and needs no room");
        assert!(is_closed(&last), "what has failed is dropped");
        assert_eq!(take(&socket, 3, 3), Err(Errno::PROTO));
        assert_eq!([take(&socket, 0, 3), take(&socket, 1, 3)], [Ok(3), Ok(3)]);
        (5..8).for_each(|number| send(&theirs, number, 3, 3));
        assert_eq!(take(&socket, 7, 3), Ok(3), "the shares are back");
        let received = socket.received.lock();
        assert!(received.unwanted.is_empty());
    }

    #[test]
    fn descriptors_whose_message_will_not_come_are_closed() {
        let (socket, theirs) = socket(1024);
        let ends: Vec<_> = (0..5).map(|number| end_of_pipe(&theirs, number)).collect();
        let closed = || ends.iter().map(is_closed).collect::<Vec<_>>();
        assert_eq!(socket.forget(0), Ok(()));
        assert_eq!(closed(), [true, false, false, false, false], "it was the next");
        assert_eq!(socket.forget(3), Ok(()));
        assert_eq!(closed(), [true, false, false, false, false], "it lies behind others");
        assert_eq!(take(&socket, 2, 1), Ok(1));
        assert_eq!(closed(), [true, false, true, true, false]);
        assert_eq!(kept(&socket), [1]);
        assert_eq!(socket.forget(1), Ok(()));
        assert_eq!(closed(), [true, true, true, true, false], "it had been read");
        // Numbers of packets that have been read, or that nobody can have sent.
        for number in [0, 3, 4 + MOST_BEHIND, u32::MAX] {
            assert_eq!(socket.forget(number), Ok(()));
        }
        // One that comes after it was cancelled.
        assert_eq!(socket.forget(5), Ok(()));
        assert_eq!(socket.received.lock().unwanted.len(), 1);
        let late = end_of_pipe(&theirs, 5);
        assert_eq!(take(&socket, 4, 1), Ok(1));
        assert!(is_closed(&late) && socket.received.lock().unwanted.is_empty());
        // A message behind one that is cancelled and has not come.
        assert_eq!(socket.forget(6), Ok(()));
        assert_eq!(take(&socket, 7, 1), Err(Errno::PROTO));
    }

    #[test]
    fn descriptors_of_a_message_that_stays_on_its_lane_are_given_back() {
        // A stranger gets seven of sixteen.
        let (socket, theirs) = socket(16);
        let count = |taken: Option<TakenFds<'_>>| taken.map(|it| it.keep().len());
        let reads = [0, 1].map(|number| end_of_pipe(&theirs, number));
        for _ in 0..2 {
            drop(socket.take_for_now(1, 1).unwrap());
        }
        assert_eq!(kept(&socket), [0, 1]);
        assert_eq!(count(socket.take_for_now(1, 1)), Some(1));
        assert!(is_closed(&reads[1]) && !is_closed(&reads[0]));
        drop(socket.take_for_now(0, 1).unwrap());
        assert_eq!(take(&socket, 0, 1), Ok(1), "by the general path");
        assert!(is_closed(&reads[0]));
        assert_eq!(count(socket.take_for_now(9, 0)), Some(0));
        // One that has failed fails again, and none is given back beyond the share.
        for (number, count, fds, comes) in [(2, 1, 9, false), (3, 8, 8, true)] {
            send(&theirs, number, count as u32, fds);
            assert_eq!(socket.take_for_now(number, count).is_some(), comes, "{number}");
            assert_eq!(take(&socket, number, count), Err(Errno::MFILE), "{number}");
        }
        assert!(socket.take_for_now(4, 1).is_none(), "never sent");
        assert_eq!(kept(&socket), []);
    }

    #[test]
    fn descriptors_are_as_many_as_is_said() {
        // A few more are cut off, as if there were no room; everything else ends the socket.
        for (number, count, fds, ends) in [
            (0, 1, 9, false),
            (0, 2, 3, true),
            (0, 3, 2, true),
            (0, 1, 0, true),
            (0, 0, 0, true),
            (0, 254, 1, true),
            (0, u32::MAX, 1, true),
            (1, 1, 1, true),
        ] {
            for early in [false, true] {
                let (socket, theirs) = socket(1024);
                send(&theirs, number, count, fds);
                send(&theirs, number + 1, 1, 1);
                let taken = take(&socket, u32::from(early), usize::from(count as u8));
                assert!(early && !ends || taken.is_err(), "{number} {count} {fds} {early}");
                assert_eq!(socket.received.lock().ended, ends, "{number} {count} {fds} {early}");
            }
        }
        let (socket, theirs) = socket(1024);
        packet::send(&theirs, &[0; 4], &[], SendFlags::empty()).unwrap();
        assert_eq!(take(&socket, 0, 1), Err(Errno::CONNRESET), "no packet");
        assert_eq!(socket.forget(0), Err(Errno::CONNRESET));
    }

    #[test]
    fn the_last_descriptors_of_a_peer_that_is_gone_come() {
        let (socket, theirs) = socket(1024);
        // The peer has not read this: the kernel says so before its last packets.
        assert_eq!(socket.send(&[file().as_fd()]), Ok(0));
        (0..3).for_each(|number| send(&theirs, number, 1, 1));
        drop(theirs);
        assert_eq!(take(&socket, 1, 1), Ok(1));
        assert_eq!([take(&socket, 2, 1), take(&socket, 0, 1)], [Ok(1), Ok(1)]);
        assert_eq!(take(&socket, 3, 1), Err(Errno::CONNRESET));
        assert!(matches!(socket.send(&[socket.fd()]), Err(Errno::PIPE | Errno::CONNRESET)));
    }

    #[test]
    fn descriptors_that_the_peer_does_not_read_are_bounded_by_its_user() {
        // A stranger gets fifteen of thirty-two.
        let (socket, theirs) = socket(64);
        let (other, _others) = pair();
        let other = DescriptorSocket::new(other, socket.account.clone());
        let sent = [theirs.as_fd()];
        let mut read = 0;
        for _ in 0..2 {
            let ok = (0..100).take_while(|_| socket.send(&sent).is_ok()).count();
            assert_eq!(ok, 15);
            assert_eq!(socket.send(&sent), Err(Errno::TOOMANYREFS));
            assert_eq!(other.send(&sent), Err(Errno::TOOMANYREFS));
            let mut packet: Announced = [0; 2];
            let mut receive =
                || packet::receive_into(&theirs, bytes_of_mut(&mut packet), 1, RecvFlags::DONTWAIT);
            while receive().is_ok() {
                read += 1;
            }
        }
        assert_eq!(read, 30);
        assert_eq!(other.send(&sent), Err(Errno::TOOMANYREFS), "nobody has asked");
        socket.forget_read();
        assert_eq!(other.send(&sent), Ok(0));
    }

    #[test]
    fn a_number_is_used_only_if_its_packet_was_sent() {
        let (socket, theirs) = socket(1 << 20);
        let sent = [theirs.as_fd()];
        let full = (0..100_000).find_map(|_| socket.send(&sent).err());
        assert_eq!(full, Some(Errno::AGAIN));
        let n_sent = socket.sent.lock().next;
        let mut announced: Announced = [0; 2];
        for number in 0..n_sent {
            let packet = bytes_of_mut(&mut announced);
            packet::receive_into(&theirs, packet, 1, RecvFlags::DONTWAIT).unwrap();
            assert_eq!(announced, [number, 1]);
        }
        assert_eq!(socket.send(&sent), Ok(n_sent));
    }
}
