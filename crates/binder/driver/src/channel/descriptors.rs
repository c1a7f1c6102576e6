//! A channel's second socket: descriptors, which go ahead of their messages.
//!
//! No thread waits for this socket, so that a descriptor wakes nobody: the thread that takes a
//! message in reads its descriptors. A packet is two u32: its number, and how many descriptors come
//! with it. An end numbers its packets from 0 on, in the order in which it sends them.
//!
//! Messages are taken in by another order. Descriptors of a later message are kept until it comes,
//! as far as their user's share goes. A stranger's packet stays in the socket until copies of its
//! descriptors are here: the kernel would close those that find no room, and wait.

use super::peer_files::{PeerFiles, PeerSocket, UserCloser};
use crate::sys::packet::{self, passes, receive_last_words};
use baton_abi::lane::MAX_FDS;
use baton_shm::lock::Lock;
use baton_shm::socket::unread_bytes;
use baton_state::account::{Held, Resource};
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
    fd: PeerSocket,
    received: Lock<ReceivedFds>,
    sent: Lock<Sent>,
    /// See [`Account::is_of_stranger`](baton_state::account::Account::is_of_stranger).
    is_of_stranger: bool,
}

/// What has been read, and what is to be done with the rest.
#[derive(Debug, Default)]
struct ReceivedFds {
    /// Number of the packet that is read next.
    next: u32,
    /// Packets that were read before their message.
    early: HashMap<u32, EarlyFds>,
    /// Packets, `next` or later, whose message will not come or was refused.
    unwanted: BTreeSet<u32>,
    /// The peer has closed the socket or misbehaved.
    ended: bool,
}

#[derive(Debug)]
struct EarlyFds {
    /// `None` if there was no room for them, or their user had no share when they were given back.
    fds: Option<PeerFiles>,
    /// The share for `fds`.
    _held: Option<Held>,
}

/// Descriptors that have been read for a message which may stay on its lane. Dropped, they are
/// given back, for the next look at that message.
#[derive(Debug)]
pub struct TakenFds<'a> {
    socket: &'a DescriptorSocket,
    number: u32,
    /// `None` if there are none, or they have been taken out.
    fds: Option<PeerFiles>,
}

impl TakenFds<'_> {
    /// The descriptors: the message has been taken in.
    pub fn keep(mut self) -> Vec<OwnedFd> {
        self.fds.take().map_or_else(Vec::new, PeerFiles::keep)
    }
}

impl Drop for TakenFds<'_> {
    fn drop(&mut self) {
        if let Some(fds) = self.fds.take() {
            self.socket.give_back(self.number, fds);
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
    /// The socket of this end.
    pub fn new(fd: PeerSocket) -> DescriptorSocket {
        let is_of_stranger = fd.closer().account().is_of_stranger();
        let (received, sent) = (Lock::default(), Lock::default());
        DescriptorSocket { fd, received, sent, is_of_stranger }
    }

    /// The closer of the peer's user.
    pub fn closer(&self) -> &UserCloser {
        self.fd.closer()
    }

    fn take_share(&self, resource: Resource, n_fds: usize) -> Option<Held> {
        self.closer().account().take(resource, n_fds)
    }

    /// Ends the conversation: no descriptor comes any more.
    pub fn shut_down(&self) {
        self.fd.shut_down();
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
        let take = || self.take_share(Resource::Sent, fds.len());
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

    /// The descriptors of the message that says to have `count` of this number. `EMFILE` if there
    /// is no room for them: the message is refused, and they are dropped later. `EPROTO` if the
    /// peer did not send as many.
    pub fn take(&self, number: u32, count: usize) -> Result<PeerFiles, Errno> {
        let mut received = self.received.lock();
        let taken = self.read(&mut received, number, count);
        if matches!(taken, Err(Errno::MFILE)) {
            match received.is_to_come(number) {
                true => _ = received.unwanted.insert(number),
                // Its packet has been received.
                false => _ = received.early.remove(&number),
            }
        }
        taken
    }

    /// Like [`DescriptorSocket::take`], for a message that may stay on its lane. `None` if that
    /// fails: then the message stays.
    pub fn take_for_now(&self, number: u32, count: usize) -> Option<TakenFds<'_>> {
        let fds = match count {
            0 => None,
            _ => Some(self.read(&mut self.received.lock(), number, count).ok()?),
        };
        Some(TakenFds { socket: self, number, fds })
    }

    /// Keeps the descriptors of a message that stays on its lane. If their user has no share for
    /// them, they are dropped and the message will be refused.
    #[cold]
    fn give_back(&self, number: u32, fds: PeerFiles) {
        let held = self.take_share(Resource::Descriptors, fds.len());
        let fds = held.is_some().then_some(fds);
        let early = &mut self.received.lock().early;
        // An honest peer has fewer packets before the next one, and one message on each lane.
        if early.len() < 2 * MOST_BEHIND as usize {
            early.insert(number, EarlyFds { fds, _held: held });
        }
    }

    /// Drops the descriptors of a message that will not come or is refused: now or, if they lie
    /// behind others or there is no room, before a later packet is read. A number that the peer
    /// cannot have sent is ignored. `Err` if the peer has closed the socket or misbehaved.
    pub fn forget(&self, number: u32) -> Result<(), Errno> {
        let mut received = self.received.lock();
        if received.early.remove(&number).is_some() || !received.is_to_come(number) {
            return Ok(());
        }
        received.unwanted.insert(number);
        // What cannot be dropped now is dropped before the next packet is read.
        self.drop_unwanted(&mut received).or_else(|e| if passes(e) { Ok(()) } else { Err(e) })
    }

    /// The descriptors of a message, with the errors of [`DescriptorSocket::take`].
    fn read(
        &self,
        received: &mut ReceivedFds,
        number: u32,
        count: usize,
    ) -> Result<PeerFiles, Errno> {
        let fds = match received.early.remove(&number) {
            Some(early) => early.fds.ok_or(Errno::MFILE)?,
            None => self.read_until(received, number)?,
        };
        if fds.len() == count { Ok(fds) } else { Err(Errno::PROTO) }
    }

    /// Reads a message's packet, which needs no share, and keeps those before it for their
    /// messages. `EMFILE` if there is no room for it or for one of those.
    fn read_until(&self, received: &mut ReceivedFds, number: u32) -> Result<PeerFiles, Errno> {
        if !received.is_to_come(number) {
            return Err(Errno::PROTO);
        }
        loop {
            let is_wanted = received.next == number;
            let read = match is_wanted {
                true => self.receive_wanted(received).map(Some),
                false => self.read_early(received).map(|()| None),
            };
            match read {
                Ok(Some(fds)) => {
                    // An error further on is for the message that wants that packet.
                    let _ = self.drop_unwanted(received);
                    return Ok(fds);
                }
                Ok(None) => {}
                Err(Errno::AGAIN) => return Err(Errno::PROTO),
                Err(errno) if passes(errno) => return Err(Errno::MFILE),
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
        let (count, _) = self.look(received, 0, RecvFlags::PEEK)?;
        let held = self.take_share(Resource::Descriptors, count).ok_or(Errno::MFILE)?;
        let fds = self.receive(received)?;
        received.early.insert(number, EarlyFds { fds: Some(fds), _held: Some(held) });
        Ok(())
    }

    /// Drops the next packets as long as they are not wanted. With the errors of
    /// [`DescriptorSocket::receive`]: `EAGAIN` if one of them has not come.
    fn drop_unwanted(&self, received: &mut ReceivedFds) -> Result<(), Errno> {
        while received.unwanted.contains(&received.next) {
            drop(self.receive(received)?);
        }
        Ok(())
    }

    /// Receives the next packet's descriptors. Temporary errors are those that [`passes`] says;
    /// then the packet is still the next one: `EMFILE` if this process has no room for its
    /// descriptors, or too many of its user wait to be closed.
    fn receive(&self, received: &mut ReceivedFds) -> Result<PeerFiles, Errno> {
        if !self.closer().has_room() {
            return Err(Errno::MFILE);
        }
        let fds = self.look(received, MAX_FDS, RecvFlags::PEEK)?.1?;
        // The kernel drops the descriptors in the packet, which are not the last ones.
        receive_last_words(&self.fd, &mut [0; size_of::<Announced>()], 0, RecvFlags::DONTWAIT)?;
        received.pass();
        Ok(PeerFiles::new(fds, self.closer()))
    }

    /// Receives the packet of a message that is taken in. `EMFILE` if there is no room. Only that
    /// of a stranger is still the next one then: any other process may harm this one, and its
    /// packets are received at once, by one system call.
    fn receive_wanted(&self, received: &mut ReceivedFds) -> Result<PeerFiles, Errno> {
        if self.is_of_stranger {
            return self.receive(received);
        }
        let (_, fds) = self.look(received, MAX_FDS, RecvFlags::empty())?;
        let number = received.next;
        received.pass();
        if fds.is_err() {
            // The message may stay on its lane, and is refused later.
            received.early.insert(number, EarlyFds { fds: None, _held: None });
        }
        Ok(PeerFiles::new(fds?, self.closer()))
    }

    /// Receives the next packet or, with PEEK, looks at it: how many descriptors it says to have,
    /// and these, or copies of them, if there is `room`. The inner error is `EMFILE` if they could
    /// not all be installed.
    fn look(
        &self,
        received: &mut ReceivedFds,
        room: usize,
        how: RecvFlags,
    ) -> Result<(usize, Result<Vec<OwnedFd>, Errno>), Errno> {
        if received.ended {
            return Err(Errno::CONNRESET);
        }
        let mut announced: Announced = [0; 2];
        let (packet, how) = (bytes_of_mut(&mut announced), how | RecvFlags::DONTWAIT);
        match receive_last_words(&self.fd, packet, room, how) {
            Ok(packet) => {
                let [number, count] = [announced[0], announced[1]];
                let is_one = packet.bytes == size_of::<Announced>() && number == received.next;
                let fds = if room == 0 { Ok(Vec::new()) } else { packet.fds };
                let is_count = |fds: &Vec<_>| room == 0 || fds.len() == count as usize;
                let as_announced = fds.as_ref().map_or(true, is_count);
                if is_one && as_announced && (1..=MAX_FDS).contains(&(count as usize)) {
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
    /// The next packet has been received.
    fn pass(&mut self) {
        self.unwanted.remove(&self.next);
        self.next = self.next.wrapping_add(1);
    }

    /// Whether an honest peer may have sent a packet of this number that has not been read.
    fn is_to_come(&self, number: u32) -> bool {
        number.wrapping_sub(self.next) < MOST_BEHIND
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::lingering::lingering;
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
        socket_of(STRANGER, descriptors)
    }

    fn socket_of(user: u32, descriptors: u64) -> (DescriptorSocket, OwnedFd) {
        let (ours, theirs) = pair();
        let accounts = Accounts::default();
        accounts.set_owner(0, descriptors);
        let closer = UserCloser::new(accounts.of(user));
        (DescriptorSocket::new(PeerSocket::new(ours, &closer)), theirs)
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
        socket.take(number, count).map(|fds| fds.keep().len())
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

    /// A closer needs its time.
    fn await_closed(read: &OwnedFd) {
        while !is_closed(read) {
            std::thread::yield_now();
        }
    }

    fn await_all_closes(socket: &DescriptorSocket) {
        while !socket.closer().is_idle() {
            std::thread::yield_now();
        }
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
        let closer = UserCloser::new(Accounts::default().of(0));
        let sender = DescriptorSocket::new(PeerSocket::new(theirs, &closer));
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
        // What has failed is dropped.
        await_closed(&last);
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
        let closed = || {
            await_all_closes(&socket);
            ends.iter().map(is_closed).collect::<Vec<_>>()
        };
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
        await_closed(&late);
        assert!(socket.received.lock().unwanted.is_empty());
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
        // None is given back beyond the share.
        send(&theirs, 2, 8, 8);
        assert!(socket.take_for_now(2, 8).is_some());
        assert_eq!(take(&socket, 2, 8), Err(Errno::MFILE));
        assert!(socket.received.lock().unwanted.is_empty());
        assert!(socket.take_for_now(3, 1).is_none(), "never sent");
        assert_eq!(kept(&socket), []);
    }

    #[test]
    fn descriptors_are_as_many_as_is_said() {
        for (number, count, fds, ends) in [
            (0, 1, 1, false),
            (0, 1, 9, true),
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
                assert_eq!(taken.is_err(), ends, "{number} {count} {fds} {early}");
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
        let other = DescriptorSocket::new(PeerSocket::new(other, socket.closer()));
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

    /// A stranger of whom descriptors wait to be closed sends no others, and is not waited for.
    #[test]
    fn descriptors_whose_close_waits_hold_up_their_user_alone() {
        // A stranger gets one of three.
        let (socket, theirs) = socket(12);
        let (file, other) = lingering();
        let packet = |number: u32, file: OwnedFd| {
            let sent = [file.as_fd()];
            packet::send(&theirs, bytes_of(&[number, 1]), &sent, SendFlags::DONTWAIT).unwrap();
        };
        packet(0, file);
        packet(1, self::file());
        assert_eq!(socket.forget(0), Ok(()));
        assert!(!socket.closer().is_idle() && !socket.closer().has_room());
        assert_eq!(take(&socket, 1, 1), Err(Errno::MFILE));
        assert_eq!(socket.received.lock().next, 1, "it is still there");
        packet(2, self::file());
        drop(other);
        await_all_closes(&socket);
        assert_eq!(socket.forget(3), Ok(()));
        await_all_closes(&socket);
        assert_eq!(take(&socket, 2, 1), Ok(1));
    }

    /// There may be no room for the descriptors of a packet.
    #[test]
    fn a_packet_is_received_only_with_its_descriptors() {
        let (socket, theirs) = socket(1024);
        let (file, other) = lingering();
        let sent = [file.as_fd(), file.as_fd()];
        // More than it says: the peer has misbehaved.
        packet::send(&theirs, bytes_of(&[0, 1]), &sent, SendFlags::DONTWAIT).unwrap();
        drop(file);
        assert_eq!(socket.take(0, 1).err(), Some(Errno::CONNRESET));
        let closer = socket.closer().clone();
        assert!(closer.is_idle());
        drop(socket);
        assert!(!closer.is_idle(), "the closer closes the socket");
        drop(other);
    }

    #[test]
    fn a_packet_of_ones_own_user_is_received_at_once() {
        let (socket, theirs) = socket_of(0, 1024);
        (0..2).for_each(|number| send(&theirs, number, 2, 2));
        let mut none = [0; size_of::<Announced>()];
        assert_eq!(take(&socket, 0, 2), Ok(2));
        assert_eq!(take(&socket, 1, 2), Ok(2));
        let left = receive_last_words(&socket.fd, &mut none, 0, RecvFlags::DONTWAIT);
        assert_eq!(left.err(), Some(Errno::AGAIN));
    }
}
