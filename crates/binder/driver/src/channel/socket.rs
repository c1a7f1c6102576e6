//! A channel's first socket: doorbells, the page with the server's bell, and cancelled descriptors.
//!
//! The control thread waits for this socket, and no other thread reads it. A message is two u32:
//! its kind, and the number of a cancelled message. Descriptors have a socket of their own:
//! [`super::descriptors`].

use super::peer_files::{PeerFiles, PeerSocket};
use crate::sys::packet::{self, passes, receive_last_words};
use baton_abi::control::End;
use baton_abi::lane::*;
use baton_shm::lock::Lock;
use baton_shm::mapping::{self, Access, Mapping};
use baton_shm::sync::Ordering;
use bytemuck::{bytes_of, bytes_of_mut};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

/// The kind of a doorbell or, from the server and with a descriptor, of its bell page.
const DOORBELL: u32 = 0;

/// The kind of a message which says that no transaction will come for some descriptors.
const CANCELLED: u32 = 1;

/// One end's socket, with the bell page that came by it.
#[derive(Debug)]
pub struct Socket {
    fd: PeerSocket,
    end: End,
    /// The page with the bell on which the server's loopers sleep. Unset until the client's end has
    /// received it, or for good if there was no descriptor for it: then clients ring the doorbell.
    pub bell: OnceLock<Mapping<BELL_BYTES>>,
    /// The server has taken the channel up; it says so to the client on the socket.
    taken_up: AtomicBool,
    /// The peer has closed the socket or misbehaved.
    ended: AtomicBool,
    /// Held while the socket is read.
    reading: Lock<()>,
}

/// The result of a look at the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// It is empty.
    Empty,
    /// Further messages wait for their turn.
    More,
}

/// Messages that are read before others have their turn.
const MOST_AT_ONCE: u32 = 64;
/// Like [`MOST_AT_ONCE`], on a muted channel: more than a round forgives.
const MOST_OF_MUTED: u32 = 16;

/// Tells the client that the channel is there, and sends the bell page if there is a descriptor for
/// it.
fn introduce(socket: &PeerSocket) -> Result<Option<Mapping<BELL_BYTES>>, Errno> {
    if let Ok(page) = send_bell(socket) {
        return Ok(Some(page));
    }
    match packet::send(socket, bytes_of(&[DOORBELL, 0]), &[], SendFlags::DONTWAIT) {
        // A client that is gone may have left messages.
        Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn send_bell(socket: &PeerSocket) -> Result<Mapping<BELL_BYTES>, Errno> {
    let (file, page) = mapping::create_mapped("baton-bell")?;
    mapping::freeze_seals(&file)?;
    let flags = SendFlags::DONTWAIT;
    packet::send(socket, bytes_of(&[DOORBELL, 0]), &[file.as_fd()], flags)?;
    Ok(page)
}

impl Socket {
    /// The socket of this end. A server tells the client that the channel is there, and with it, if
    /// there is room, of the bell page.
    pub fn new(fd: PeerSocket, end: End) -> Result<Socket, Errno> {
        let bell = OnceLock::new();
        if end == End::Server
            && let Some(page) = introduce(&fd)?
        {
            let _ = bell.set(page);
        }
        let taken_up = AtomicBool::new(end == End::Server);
        let (ended, reading) = (AtomicBool::new(false), Lock::default());
        Ok(Socket { fd, end, bell, taken_up, ended, reading })
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

    /// Tells the peer that the transaction for the descriptors with this number will not come.
    pub fn cancel(&self, number: u32) {
        self.write([CANCELLED, number]);
    }

    fn write(&self, message: [u32; 2]) {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let _ = rustix::net::send(&self.fd, bytes_of(&message), flags);
    }

    /// Whether the server has ever taken its end up. If not, no call on the channel has reached it.
    pub fn was_taken_up(&self) -> bool {
        self.taken_up.load(Ordering::Relaxed)
    }

    /// Client: takes the server's first message, if it has come and no thread has taken it. The
    /// bell comes with it.
    #[cold]
    pub fn take_introduction(&self) {
        let _reading = self.reading.lock();
        if self.was_taken_up() || self.ended.load(Ordering::Relaxed) {
            return;
        }
        match self.receive() {
            Ok([DOORBELL, _]) | Err(Errno::AGAIN) => {}
            Err(errno) if passes(errno) => {}
            Ok(_) | Err(_) => {
                // The control thread ends the channel.
                self.ended.store(true, Ordering::Relaxed);
                self.shut_down();
            }
        }
    }

    /// Reads the socket until it is empty or it has been enough for now: less of a muted channel.
    /// With how many messages there were, each of which may have woken the control thread;
    /// `cancelled` gets each cancelled number. `Err` once the peer has closed it or misbehaved.
    pub fn drain(
        &self,
        muted: bool,
        mut cancelled: impl FnMut(u32) -> Result<(), Errno>,
    ) -> Result<(Drained, u32), Errno> {
        let _reading = self.reading.lock();
        if self.ended.load(Ordering::Relaxed) {
            return Err(Errno::CONNRESET);
        }
        let most = if muted { MOST_OF_MUTED } else { MOST_AT_ONCE };
        for n_read in 0..most {
            let read = match self.receive() {
                Ok([DOORBELL, _]) => Ok(()),
                Ok([CANCELLED, number]) => cancelled(number),
                Ok(_) => Err(Errno::PROTO),
                Err(Errno::AGAIN) => return Ok((Drained::Empty, n_read)),
                Err(errno) if passes(errno) => return Ok((Drained::More, n_read)),
                Err(errno) => Err(errno),
            };
            if read.is_err() {
                self.ended.store(true, Ordering::Relaxed);
                return Err(Errno::CONNRESET);
            }
        }
        Ok((Drained::More, most))
    }

    /// Takes the next message, and the bell page that may come with a server's first one. `EPROTO`
    /// if it is none, or has descriptors besides.
    fn receive(&self) -> Result<[u32; 2], Errno> {
        let mut message = [0; 2];
        let may_have_page = self.end == End::Client && !self.was_taken_up();
        let room = if may_have_page { MAX_FDS } else { 0 };
        // The kernel would close descriptors that find no room, and wait.
        let how = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let packet = receive_last_words(&self.fd, bytes_of_mut(&mut message), room, how)?;
        let fds = match packet.fds {
            Ok(fds) => PeerFiles::new(fds, self.fd.closer()),
            // There is no number for the page.
            Err(_) if may_have_page => PeerFiles::new(Vec::new(), self.fd.closer()),
            Err(_) => return Err(Errno::PROTO),
        };
        if packet.bytes != size_of_val(&message) || fds.len() > 1 {
            return Err(Errno::PROTO);
        }
        receive_last_words(&self.fd, &mut [0; size_of::<[u32; 2]>()], 0, RecvFlags::DONTWAIT)?;
        if let Some(file) = fds.first()
            && let Ok(page) = Mapping::<BELL_BYTES>::new(file, Access::ReadWrite)
        {
            let _ = self.bell.set(page);
            // A close of such memory does not wait.
            drop(fds.keep());
        }
        self.taken_up.store(true, Ordering::Relaxed);
        Ok(message)
    }

    /// Ends the conversation: the peer's control thread sees it.
    pub fn shut_down(&self) {
        self.fd.shut_down();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::peer_files::UserCloser;
    use baton_state::account::Accounts;
    use rustix::fd::OwnedFd;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    fn owned(fd: OwnedFd) -> PeerSocket {
        PeerSocket::new(fd, &UserCloser::new(Accounts::default().of(0)))
    }

    /// An end, and the socket of its peer.
    fn socket(end: End) -> (Socket, OwnedFd) {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (ours, theirs) = socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        (Socket::new(owned(ours), end).unwrap(), theirs)
    }

    fn send(theirs: impl AsFd, message: &[u32], fds: &[BorrowedFd<'_>]) {
        packet::send(theirs, bytemuck::cast_slice(message), fds, SendFlags::DONTWAIT).unwrap();
    }

    /// What a look finds, and the numbers that were cancelled.
    fn drain(socket: &Socket, muted: bool) -> (Result<(Drained, u32), Errno>, Vec<u32>) {
        let mut numbers = Vec::new();
        let drained = socket.drain(muted, |number| {
            numbers.push(number);
            Ok(())
        });
        (drained, numbers)
    }

    #[test]
    fn doorbells_and_cancelled_numbers_are_told_until_the_peer_is_gone() {
        let (socket, theirs) = socket(End::Server);
        assert_eq!(drain(&socket, false), (Ok((Drained::Empty, 0)), vec![]));
        [[DOORBELL, 0], [CANCELLED, 7], [DOORBELL, 1]].iter().for_each(|it| send(&theirs, it, &[]));
        assert_eq!(drain(&socket, false), (Ok((Drained::Empty, 3)), vec![7]));
        (0..MOST_AT_ONCE + 5).for_each(|_| send(&theirs, &[DOORBELL, 0], &[]));
        assert_eq!(drain(&socket, true).0, Ok((Drained::More, MOST_OF_MUTED)));
        assert_eq!(drain(&socket, false).0, Ok((Drained::Empty, MOST_AT_ONCE + 5 - MOST_OF_MUTED)));
        // The peer has not read its introduction: the kernel says so before its last messages.
        send(&theirs, &[CANCELLED, 8], &[]);
        drop(theirs);
        assert_eq!(drain(&socket, false), (Err(Errno::CONNRESET), vec![8]));
    }

    #[test]
    fn what_is_no_message_ends_the_socket() {
        for message in [&[DOORBELL][..], &[CANCELLED + 1, 0], &[u32::MAX; 2]] {
            let (socket, theirs) = socket(End::Server);
            send(&theirs, message, &[]);
            send(&theirs, &[DOORBELL, 0], &[]);
            for _ in 0..2 {
                assert_eq!(drain(&socket, false), (Err(Errno::CONNRESET), vec![]), "{message:?}");
            }
        }
        let (socket, theirs) = socket(End::Server);
        send(&theirs, &[CANCELLED, 7], &[]);
        assert_eq!(socket.drain(false, |_| Err(Errno::PROTO)), Err(Errno::CONNRESET));
        drop(theirs);
    }

    #[test]
    fn a_client_takes_one_bell_page_and_no_other_descriptor() {
        let (client, theirs) = socket(End::Client);
        assert!(!client.was_taken_up());
        let server = Socket::new(owned(theirs), End::Server).unwrap();
        assert_eq!(drain(&client, false).0, Ok((Drained::Empty, 1)));
        let address = client.bell.get().expect("its page").address();
        let (read, write) = rustix::pipe::pipe().unwrap();
        send(&server.fd, &[DOORBELL, 0], &[write.as_fd()]);
        send(&client.fd, &[DOORBELL, 0], &[write.as_fd()]);
        send_bell(&server.fd).unwrap();
        drop(write);
        assert_eq!(drain(&client, false).0, Err(Errno::CONNRESET));
        assert_eq!(drain(&server, false).0, Err(Errno::CONNRESET));
        assert_eq!(client.bell.get().unwrap().address(), address);
        assert!(client.was_taken_up());
        drop((client, server));
        assert_eq!(rustix::io::read(&read, &mut [0]), Ok(0), "the other end is closed");
    }
}
