//! A channel's socket: doorbells, descriptors, the page with the server's bell.

use crate::sys::packet::{self, passes, receive_into};
use baton_abi::control::End;
use baton_abi::lane::*;
use baton_shm::lock::Lock;
use baton_shm::mapping::{self, Access, Mapping};
use baton_shm::socket::unread_bytes;
use baton_shm::sync::Ordering;
use baton_state::account::{Account, Held, Resource};
use baton_state::transaction::Refusal;
use bytemuck::{bytes_of, bytes_of_mut};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::collections::{HashMap, VecDeque};
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

/// How many descriptor messages an end keeps at most; further ones wait in the socket.
const MAX_RECEIVED: usize = 1024;

/// The number of a message that is only a nudge or, from the server and with a descriptor, its bell
/// page.
const DOORBELL: u32 = 0;

/// One message of the socket, as it is written: its number, and how many descriptors come with it.
type Announced = [u32; 2];

/// One end's socket, with the descriptors that came by it.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    end: End,
    /// The page with the bell on which the server's loopers sleep. Unset until the client's end has
    /// received it, or for good if there was no descriptor for it: then clients ring the doorbell.
    pub bell: OnceLock<Mapping<BELL_BYTES>>,
    /// The server has taken the channel up; it says so to the client on the socket.
    taken_up: AtomicBool,
    received: Lock<ReceivedFds>,
    /// A thread that looked for descriptors has read doorbells, of which the control thread will
    /// not hear.
    has_missed: AtomicBool,
    sent: Lock<Sent>,
    /// The account of the peer's user.
    account: Account,
}

/// Descriptors that have come before their message.
#[derive(Debug, Default)]
struct ReceivedFds {
    by_number: HashMap<u32, MessageFds>,
    /// Messages whose descriptors could not all be installed.
    failed: Vec<u32>,
    /// Messages that failed because their descriptors lay behind others for which there is no room.
    unwanted: Vec<u32>,
    ended: bool,
}

#[derive(Debug)]
struct MessageFds {
    fds: Vec<OwnedFd>,
    _held: Held,
}

/// The result of a look at the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// It is empty.
    Empty,
    /// Further messages wait for room or for their turn.
    More,
}

/// Descriptors that this end has sent.
#[derive(Debug, Default)]
struct Sent {
    /// Shares of the descriptors on their way to the peer, oldest first.
    unread: VecDeque<Held>,
    /// Number of the last message with descriptors.
    last_number: u32,
}

/// Messages that are read before others have their turn.
const MOST_AT_ONCE: u32 = 64;
/// Like [`MOST_AT_ONCE`], on a muted channel: more than a round forgives.
const MOST_OF_MUTED: u32 = 16;

/// No message takes less of a socket's send buffer.
const LEAST_MESSAGE_BYTES: usize = 512;

impl Sent {
    /// Keeps the shares of so many messages: the peer has read all earlier ones.
    fn keep_last(&mut self, unread: usize) {
        let read = self.unread.len().saturating_sub(unread);
        self.unread.drain(..read);
    }
}

impl ReceivedFds {
    fn forget(&mut self, number: u32) {
        self.by_number.remove(&number);
        self.failed.retain(|failed| *failed != number);
        self.unwanted.retain(|unwanted| *unwanted != number);
    }

    fn is_full(&self) -> bool {
        self.by_number.len() + self.failed.len() + self.unwanted.len() >= MAX_RECEIVED
    }
}

/// Tells the client that the channel is there, and sends the bell page if there is a descriptor for
/// it.
fn introduce(socket: &OwnedFd) -> Result<Option<Mapping<BELL_BYTES>>, Errno> {
    if let Ok(page) = send_bell(socket) {
        return Ok(Some(page));
    }
    match packet::send(socket, bytes_of(&[DOORBELL, 0]), &[], SendFlags::DONTWAIT) {
        // A client that is gone may have left messages.
        Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn send_bell(socket: &OwnedFd) -> Result<Mapping<BELL_BYTES>, Errno> {
    let (file, page) = mapping::create_mapped("baton-bell")?;
    mapping::freeze_seals(&file)?;
    let flags = SendFlags::DONTWAIT;
    packet::send(socket, bytes_of(&[DOORBELL, 1]), &[file.as_fd()], flags)?;
    Ok(page)
}

/// A descriptor of the program's, of our own from now on. `EBADF` if there is none.
pub fn duplicate(fd: i32) -> Result<OwnedFd, Errno> {
    if fd < 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: only duplicated, at once; a closed number is EBADF.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    rustix::io::fcntl_dupfd_cloexec(borrowed, 0)
}

impl Socket {
    /// The socket of this end; `account` is that of the peer's user. A server tells the client that
    /// the channel is there, and with it, if there is room, of the bell page.
    pub fn new(fd: OwnedFd, end: End, account: Account) -> Result<Socket, Errno> {
        let bell = OnceLock::new();
        if end == End::Server
            && let Some(page) = introduce(&fd)?
        {
            let _ = bell.set(page);
        }
        let taken_up = AtomicBool::new(end == End::Server);
        let (received, sent) = (Lock::default(), Lock::default());
        let has_missed = AtomicBool::new(false);
        Ok(Socket { fd, end, bell, taken_up, received, has_missed, sent, account })
    }

    /// The descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Rings the doorbell: the peer's control thread looks.
    pub fn ring(&self) {
        // A full queue means that the peer has been told often enough.
        self.write([DOORBELL, 0]);
    }

    fn write(&self, message: Announced) {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let _ = rustix::net::send(&self.fd, bytes_of(&message), flags);
    }

    /// Sends descriptors ahead of their message. `EAGAIN` if the peer does not read,
    /// `ETOOMANYREFS` if it or its user has as many unread as it may; dead if there is none any
    /// more.
    pub fn send_fds(&self, owned: &[OwnedFd]) -> Result<u32, Refusal> {
        let mut sent = self.sent.lock();
        let unread = unread_bytes(&self.fd).map_or(usize::MAX, |bytes| bytes as usize);
        sent.keep_last(unread / LEAST_MESSAGE_BYTES);
        let held = self.account.take(Resource::Sent, owned.len());
        let held = held.ok_or_else(|| Refusal::failed(Errno::TOOMANYREFS))?;
        sent.last_number = sent.last_number.wrapping_add(1).max(1);
        let number = sent.last_number;
        let borrowed: Vec<_> = owned.iter().map(AsFd::as_fd).collect();
        // A peer that does not read its socket keeps nobody waiting.
        let flags = SendFlags::DONTWAIT;
        let message = [number, owned.len() as u32];
        match packet::send(&self.fd, bytes_of(&message), &borrowed, flags) {
            Ok(()) => {
                sent.unread.push_back(held);
                Ok(number)
            }
            Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => Err(self.ended()),
            Err(errno) => Err(Refusal::failed(errno)),
        }
    }

    /// Whether the server has ever taken its end up. If not, no call on the channel has reached it.
    pub fn was_taken_up(&self) -> bool {
        self.taken_up.load(Ordering::Relaxed)
    }

    /// The error of a call on the channel once it has ended: dead, or `EMFILE` if the server has
    /// never taken it up.
    pub fn ended(&self) -> Refusal {
        match self.was_taken_up() {
            true => Refusal::dead(),
            false => Refusal::failed(Errno::MFILE),
        }
    }

    /// Tells the peer that the message for these descriptors will not come.
    pub fn cancel(&self, number: u32) {
        if number != DOORBELL {
            self.write([number, 0]);
        }
    }

    /// Reads the socket until it is empty, there is no room for what is in it, or it has been
    /// enough for now: less of a muted channel. With how many doorbells there were. `Err` once the
    /// peer has closed it or misbehaved.
    pub fn drain(&self, muted: bool) -> Result<(Drained, u32), Errno> {
        let mut received = self.received.lock();
        let (mut doorbells, mut left) = (0, if muted { MOST_OF_MUTED } else { MOST_AT_ONCE });
        let counted = |number| {
            doorbells += u32::from(number == DOORBELL);
            left -= 1;
            left > 0
        };
        let (drained, _) = self.drain_into(&mut received, None, counted)?;
        Ok((drained, doorbells))
    }

    /// Client: takes the server's first message, if it has come and no thread has taken it. The
    /// bell comes with it.
    #[cold]
    pub fn take_introduction(&self) {
        let mut received = self.received.lock();
        if !self.was_taken_up() {
            // A failure stays for the control thread.
            let _ = self.drain_into(&mut received, None, |_| false);
        }
    }

    /// With the descriptors of a message that is `wanted`, if they have come to light: these need
    /// no room here. Goes on for as long as `goes_on` says of the number that has been read.
    fn drain_into(
        &self,
        received: &mut ReceivedFds,
        wanted: Option<u32>,
        mut goes_on: impl FnMut(u32) -> bool,
    ) -> Result<(Drained, Option<Vec<OwnedFd>>), Errno> {
        let more = Ok((Drained::More, None));
        while !received.ended {
            let [number, count] = match self.peek() {
                Ok(announced) => announced,
                Err(Errno::AGAIN) => return Ok((Drained::Empty, None)),
                Err(errno) if passes(errno) => return more,
                Err(_) => break,
            };
            let is_wanted = wanted == Some(number);
            let is_unwanted = received.unwanted.contains(&number);
            let mut held = None;
            if count > 0 && number != DOORBELL && !is_wanted && !is_unwanted {
                held = self.account.take(Resource::Descriptors, count as usize);
                if held.is_none() || received.is_full() {
                    return more;
                }
            }
            let mut message: Announced = [0; 2];
            let installed = if is_unwanted { 0 } else { count as usize };
            let packet = bytes_of_mut(&mut message);
            let fds = match receive_into(&self.fd, packet, installed, RecvFlags::DONTWAIT) {
                Ok(packet) => packet.fds,
                Err(errno) if passes(errno) => return more,
                Err(_) => break,
            };
            self.taken_up.store(true, Ordering::Relaxed);
            match (fds, held) {
                (Ok(fds), _) if fds.len() != count as usize => break,
                (Ok(fds), _) if number == DOORBELL => self.take_bell(&fds),
                (Ok(fds), _) if is_wanted && count > 0 => {
                    return Ok((Drained::More, Some(fds)));
                }
                (Ok(fds), Some(held)) => {
                    received.by_number.insert(number, MessageFds { fds, _held: held });
                }
                (Err(_), _) if number == DOORBELL => {}
                (Err(_), _) if !is_unwanted => received.failed.push(number),
                (Ok(_) | Err(_), _) => received.forget(number),
            }
            if !goes_on(number) {
                return more;
            }
        }
        received.ended = true;
        Err(Errno::CONNRESET)
    }

    fn take_bell(&self, fds: &[OwnedFd]) {
        if self.end == End::Client
            && let Some(file) = fds.first()
            && let Ok(page) = Mapping::<BELL_BYTES>::new(file, Access::ReadWrite)
        {
            // Only the first bell page counts.
            let _ = self.bell.set(page);
        }
    }

    /// The next message of the socket, which stays there: nothing is installed before it is known
    /// how much that is. `EPROTO` if it is none.
    fn peek(&self) -> Result<Announced, Errno> {
        let mut message: Announced = [0; 2];
        let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        let read = loop {
            match rustix::net::recv(&self.fd, bytes_of_mut(&mut message), flags) {
                // The kernel reports once, before the last messages, that the peer closed with
                // unread messages.
                Err(Errno::INTR | Errno::CONNRESET) => {}
                other => break other?.0,
            }
        };
        let is_one = read == size_of::<Announced>() && message[1] as usize <= MAX_FDS;
        is_one.then_some(message).ok_or(Errno::PROTO)
    }

    /// Whether [`Socket::take_fds`] has read doorbells since this was last asked.
    pub fn take_missed(&self) -> bool {
        self.has_missed.load(Ordering::Relaxed) && self.has_missed.swap(false, Ordering::Relaxed)
    }

    /// The descriptors of a message. `EMFILE` if this process has no room for them, `EPROTO` if
    /// the peer did not send as many as it says.
    pub fn take_fds(&self, message: &Message) -> Result<Vec<OwnedFd>, Errno> {
        if message.fds == 0 {
            return Ok(Vec::new());
        }
        let number = message.fds_number;
        let mut received = self.received.lock();
        let known = received.by_number.remove(&number);
        // A peer may write as fast as this thread reads.
        let mut left = MAX_RECEIVED;
        let goes_on = |number| {
            if number == DOORBELL {
                self.has_missed.store(true, Ordering::Relaxed);
            }
            left -= 1;
            left > 0
        };
        let (drained, found) = match known {
            Some(known) => (Ok(Drained::More), Some(known.fds)),
            None => match self.drain_into(&mut received, Some(number), goes_on) {
                Ok((drained, found)) => (Ok(drained), found),
                Err(errno) => (Err(errno), None),
            },
        };
        if let Some(at) = received.failed.iter().position(|&failed| failed == number) {
            received.failed.remove(at);
            return Err(Errno::MFILE);
        }
        match (found, drained) {
            (Some(fds), _) if fds.len() == usize::from(message.fds) => Ok(fds),
            (None, Ok(Drained::More)) if !received.is_full() => {
                received.unwanted.push(number);
                Err(Errno::MFILE)
            }
            (Some(_), _) | (None, Ok(_)) => Err(Errno::PROTO),
            (None, Err(errno)) => Err(errno),
        }
    }

    /// Ends the conversation: the peer's control thread sees it.
    pub fn shut_down(&self) {
        let _ = rustix::net::shutdown(&self.fd, rustix::net::Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_state::account::Accounts;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    const STRANGER: u32 = 1000;

    /// A server's end whose process may have so many descriptors, and what its client has of it.
    fn channel(descriptors: u64) -> (Socket, OwnedFd) {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (ours, theirs) = socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        let accounts = Accounts::default();
        accounts.set_owner(0, descriptors);
        (Socket::new(ours, End::Server, accounts.of(STRANGER)).unwrap(), theirs)
    }

    fn send(theirs: &OwnedFd, number: u32, count: u32, fds: usize) {
        let carried = vec![theirs.as_fd(); fds];
        let flags = SendFlags::DONTWAIT;
        packet::send(theirs, bytes_of(&[number, count]), &carried, flags).unwrap();
    }

    fn take(channel: &Socket, fds_number: u32, fds: u8) -> Result<usize, Errno> {
        let message = Message { fds, fds_number, ..Message::default() };
        channel.take_fds(&message).map(|fds| fds.len())
    }

    #[test]
    fn descriptors_wait_in_their_socket_beyond_their_users_share() {
        // A stranger gets seven of sixteen.
        let (channel, theirs) = channel(64);
        (1..=5).for_each(|number| send(&theirs, number, 3, 3));
        assert_eq!(channel.drain(false), Ok((Drained::More, 0)));
        assert_eq!(channel.received.lock().by_number.len(), 2);
        assert_eq!(take(&channel, 4, 3), Err(Errno::MFILE), "it lies behind the third");
        assert_eq!(take(&channel, 3, 3), Ok(3), "it is the next, and needs no room");
        assert_eq!(take(&channel, 1, 3), Ok(3));
        assert_eq!(channel.drain(false), Ok((Drained::Empty, 0)));
        let waiting: Vec<u32> = channel.received.lock().by_number.keys().copied().collect();
        assert!(waiting.len() == 2 && !waiting.contains(&4), "what has failed is dropped");
        send(&theirs, 2, 0, 0);
        assert_eq!(take(&channel, 5, 3), Ok(3));
        assert_eq!(channel.drain(false), Ok((Drained::Empty, 0)));
        assert!(channel.received.lock().by_number.is_empty(), "cancelled");
        assert_eq!(take(&channel, 6, 1), Err(Errno::PROTO), "never sent");
    }

    #[test]
    fn descriptors_are_as_many_as_is_said() {
        // A few more are cut off, as if there were no room; everything else ends the channel.
        for (count, fds, ends) in [
            (1, 9, false),
            (2, 3, true),
            (3, 2, true),
            (1, 0, true),
            (254, 1, true),
            (u32::MAX, 1, true),
        ] {
            let (channel, theirs) = channel(1024);
            send(&theirs, 1, count, fds);
            let drained = channel.drain(false);
            assert_eq!(drained.is_err(), ends, "{count} for {fds}");
            assert!(take(&channel, 1, fds as u8 + 1).is_err());
        }
        let (channel, theirs) = channel(1024);
        packet::send(&theirs, &[0; 4], &[], SendFlags::empty()).unwrap();
        assert_eq!(channel.drain(false), Err(Errno::CONNRESET), "no message");
    }

    #[test]
    fn descriptors_that_the_peer_does_not_read_are_bounded_by_its_user() {
        // A stranger gets fifteen of thirty-two.
        let (channel, theirs) = channel(64);
        let sent = [duplicate(0).unwrap()];
        for _ in 0..2 {
            let ok = (0..100).take_while(|_| channel.send_fds(&sent).is_ok()).count();
            assert_eq!(ok, 15);
            assert_eq!(channel.send_fds(&sent), Err(Refusal::failed(Errno::TOOMANYREFS)));
            let read = || receive_into(&theirs, &mut [0; 8], 1, RecvFlags::DONTWAIT);
            while read().is_ok() {}
        }
        drop(theirs);
    }

    #[test]
    fn descriptors_for_a_peer_that_is_gone_are_for_the_dead() {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (ours, theirs) = socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        let channel = Socket::new(ours, End::Server, Accounts::default().of(0)).unwrap();
        assert_eq!(duplicate(-1).unwrap_err(), Errno::BADF);
        let sent = [duplicate(0).unwrap()];
        assert!(channel.send_fds(&sent).is_ok());
        drop(theirs);
        assert_eq!(channel.send_fds(&sent), Err(Refusal::dead()));
    }
}
