//! A channel's socket: doorbells, descriptors, the server's bell.

use super::{Channel, MAX_STASHED, Stash};
use crate::control::receive_into;
use crate::state::transaction::Refusal;
use baton_abi::control::End;
use baton_abi::lane::*;
use baton_shm::mapping::{self, Access, Mapping};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::RecvFlags;

/// The message that is only a nudge or, from the server and with a descriptor, its bell page.
const DOORBELL: u32 = 0;

impl Stash {
    fn forget(&mut self, number: u32) {
        self.by_number.remove(&number);
        self.failed.retain(|failed| *failed != number);
    }
}

/// Makes the server's bell page and sends it to the client.
pub(super) fn send_bell(socket: &OwnedFd) -> Result<Mapping<BELL_BYTES>, Errno> {
    let file = mapping::create("baton-bell", BELL_BYTES)?;
    let page = Mapping::<BELL_BYTES>::new(&file, Access::ReadWrite)?;
    mapping::freeze_seals(&file)?;
    let flags = rustix::net::SendFlags::DONTWAIT;
    crate::control::send(socket, &DOORBELL.to_ne_bytes(), &[file.as_fd()], flags)?;
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

impl Channel {
    fn hear_of_bell(&self, fds: Vec<OwnedFd>) {
        if self.end == End::Client
            && let Some(file) = fds.first()
            && let Ok(page) = Mapping::<BELL_BYTES>::new(file, Access::ReadWrite)
        {
            // The first one counts.
            let _ = self.bell.set(page);
        }
    }

    /// The doorbell that always works: the peer's control thread looks.
    pub fn ring_socket(&self) {
        let doorbell = DOORBELL.to_ne_bytes();
        // A full queue means that the peer has been told often enough.
        let flags = rustix::net::SendFlags::NOSIGNAL | rustix::net::SendFlags::DONTWAIT;
        let _ = rustix::net::send(&self.socket, &doorbell, flags);
    }

    /// Sends descriptors ahead of their message. `EAGAIN` if the peer does not read; dead if there is
    /// none any more.
    pub fn send_fds(&self, owned: &[OwnedFd]) -> Result<u32, Refusal> {
        let number = {
            let mut ends = self.ends();
            ends.fds_number = ends.fds_number.wrapping_add(1).max(1);
            ends.fds_number
        };
        let borrowed: Vec<_> = owned.iter().map(AsFd::as_fd).collect();
        // A peer that does not read its socket keeps nobody waiting.
        let flags = rustix::net::SendFlags::DONTWAIT;
        let sent = crate::control::send(&self.socket, &number.to_ne_bytes(), &borrowed, flags);
        match sent {
            Ok(()) => Ok(number),
            Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => Err(Refusal::dead()),
            Err(errno) => Err(Refusal::failed(errno)),
        }
    }

    /// The message for which descriptors were sent ahead will not come.
    pub fn cancel_fds(&self, number: u32) {
        if number != DOORBELL {
            let flags = rustix::net::SendFlags::NOSIGNAL | rustix::net::SendFlags::DONTWAIT;
            let _ = rustix::net::send(&self.socket, &number.to_ne_bytes(), flags);
        }
    }

    /// Reads the socket until it is empty. `Err` once the peer has closed it or misbehaved.
    pub fn drain_socket(&self) -> Result<(), Errno> {
        let mut stash = self.stash.lock();
        self.drain_into(&mut stash)
    }

    fn drain_into(&self, stash: &mut Stash) -> Result<(), Errno> {
        if stash.ended {
            return Err(Errno::CONNRESET);
        }
        while stash.by_number.len() + stash.failed.len() < MAX_STASHED {
            let mut number = [0; 4];
            match receive_into(&self.socket, &mut number, MAX_FDS, RecvFlags::DONTWAIT) {
                Ok((4, fds)) => match u32::from_ne_bytes(number) {
                    DOORBELL => self.hear_of_bell(fds),
                    number if fds.is_empty() => stash.forget(number),
                    number => _ = stash.by_number.insert(number, fds),
                },
                Err(Errno::MFILE) => stash.failed.push(u32::from_ne_bytes(number)),
                Err(Errno::AGAIN) => return Ok(()),
                Ok(_) | Err(_) => {
                    stash.ended = true;
                    return Err(Errno::CONNRESET);
                }
            }
        }
        Ok(())
    }

    /// The descriptors of a message. `EMFILE` if this process has no room for them, `EPROTO` if
    /// the peer did not send as many as it says.
    pub fn take_fds(&self, message: &Message) -> Result<Vec<OwnedFd>, Errno> {
        if message.fds == 0 {
            return Ok(Vec::new());
        }
        let mut stash = self.stash.lock();
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

#[cfg(test)]
mod tests {
    use super::*;
    use baton_abi::control::{ChannelId, ProcessId};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    #[test]
    fn descriptors_for_a_peer_that_is_gone_are_for_the_dead() {
        let memory = mapping::create("channel", CHANNEL_BYTES).unwrap();
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (ours, theirs) = socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        let fds = vec![memory, ours];
        let channel = Channel::new(ChannelId(1), End::Server, ProcessId(2), fds).unwrap();
        assert_eq!(duplicate(-1).unwrap_err(), Errno::BADF);
        let sent = [duplicate(0).unwrap()];
        assert!(channel.send_fds(&sent).is_ok());
        drop(theirs);
        assert_eq!(channel.send_fds(&sent), Err(Refusal::dead()));
    }
}
