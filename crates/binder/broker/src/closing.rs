//! Closes what strangers have sent, so that the broker does not wait for them.
//!
//! Whoever drops the last reference to a file may wait for as long as its owner likes: a TCP socket
//! with SO_LINGER waits for its peer. References may lie in the queue of a socket that is closed,
//! and in sockets in that queue. Also, a close waits for the server of a file of FUSE.
//!
//! **Invariant**: the broker's thread closes no descriptor whose file a peer has chosen, and no
//! socket that may contain one. Memory of a bounded size is excepted.
//!
//! - A [`PeerSocket`] that contains unread packets, and the end of a channel that nobody has taken,
//!   go to a thread that a timer interrupts: it waits a moment for each ([`close_later`]). The
//!   broker accepts no connections while many wait ([`has_many_unfinished`]).
//! - Descriptors that an engine has sent in place of its pages go to a thread that may wait for
//!   ever ([`ForeignFiles`]). The broker takes no more descriptors of a user that has a few there.

use crate::interrupt::interrupted_after_a_moment;
use crate::packet;
use baton_abi::holder_list::TALLY_FILE_BYTES;
use baton_shm::closer::Closer;
use baton_shm::mapping::SealedFile;
use baton_shm::socket::has_unread;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::SealFlags;
use rustix::net::Shutdown;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// Most sockets that wait to be closed while the broker accepts connections.
const MAX_UNFINISHED: usize = 256;
/// Most packets that are removed from a socket before it is closed: more than a greeting.
const MAX_REMOVED: usize = 4;
/// Most files of one user that wait to be closed while the broker takes that user's descriptors.
const MAX_FOREIGN: usize = 64;
/// Largest file whose pages the broker may have to free.
const MAX_FILE_BYTES: u64 = 2 * TALLY_FILE_BYTES as u64;

/// Closes sockets, and does not wait long for any.
static SOCKETS: LazyLock<(Closer<Counted>, Arc<()>)> = LazyLock::new(|| {
    let close = |Counted { file, _token }| {
        interrupted_after_a_moment(|| close_with_packets(file));
    };
    (Closer::new("close sockets", close), Arc::default())
});

/// A descriptor that waits to be closed. The holders of its token tell how many do.
struct Counted {
    file: OwnedFd,
    _token: Arc<()>,
}

/// Closes a socket. Removes the first packets before that, since the other end of a socket that is
/// closed with packets finds an error ahead of the reply.
fn close_with_packets(socket: OwnedFd) {
    for _ in 0..MAX_REMOVED {
        let _ = packet::discard(&socket);
    }
}

/// Closes files that engines have sent in place of memory. May wait for ever.
static FILES: LazyLock<Closer<Counted>> = LazyLock::new(|| {
    Closer::new("close files", |Counted { file, _token }| {
        interrupted_after_a_moment(|| drop(file));
    })
});

/// Has a thread close a descriptor in whose queue there may be files of strangers.
pub(crate) fn close_later(descriptor: OwnedFd) {
    let (closer, token) = &*SOCKETS;
    closer.close(Counted { file: descriptor, _token: Arc::clone(token) });
}

/// Whether so many sockets wait to be closed that the broker must not accept more of them.
pub(crate) fn has_many_unfinished() -> bool {
    Arc::strong_count(&SOCKETS.1) > MAX_UNFINISHED
}

/// A connected socket whose other end is a stranger's. Dropping it ends the connection at once.
#[derive(Debug)]
pub(crate) struct PeerSocket(Option<OwnedFd>);

impl PeerSocket {
    pub fn new(socket: OwnedFd) -> PeerSocket {
        PeerSocket(Some(socket))
    }
}

impl AsFd for PeerSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_ref().expect("it is there until it is dropped").as_fd()
    }
}

impl Drop for PeerSocket {
    fn drop(&mut self) {
        let Some(socket) = self.0.take() else { return };
        // The peer learns of the end now, whenever the socket is closed, and can send no more.
        let _ = rustix::net::shutdown(&socket, Shutdown::Both);
        if has_unread(&socket) {
            close_later(socket);
        }
    }
}

/// The files if both are memory that cannot grow, and so little that whoever closes it last frees
/// it at once. Nothing changes that. The error is the files.
pub(crate) fn small_memory(files: [OwnedFd; 2]) -> Result<[SealedFile; 2], [OwnedFd; 2]> {
    let is_small =
        |file: &SealedFile| file.seals.contains(SealFlags::GROW) && file.bytes <= MAX_FILE_BYTES;
    let look = |file| match SealedFile::new(file) {
        Ok(file) if is_small(&file) => Ok(file),
        found => Err(found.map_or_else(|file| file, SealedFile::into_file)),
    };
    match files.map(look) {
        [Ok(first), Ok(second)] => Ok([first, second]),
        found => Err(found.map(|file| file.map_or_else(|file| file, SealedFile::into_file))),
    }
}

/// The files that users have sent in place of memory and that are not closed yet.
#[derive(Debug, Default)]
pub(crate) struct ForeignFiles {
    tokens: BTreeMap<u32, Arc<()>>,
}

impl ForeignFiles {
    /// Whether the broker may take more descriptors of a user.
    pub fn has_room(&self, user: u32) -> bool {
        self.tokens.get(&user).is_none_or(|token| Arc::strong_count(token) <= MAX_FOREIGN)
    }

    /// Has a thread close files of a user, and counts them until they are closed.
    pub fn close(&mut self, user: u32, files: impl IntoIterator<Item = OwnedFd>) {
        self.tokens.retain(|_, token| Arc::strong_count(token) > 1);
        let token = self.tokens.entry(user).or_default();
        let counted = |file| Counted { file, _token: Arc::clone(token) };
        files.into_iter().for_each(|file| FILES.close(counted(file)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deliver::socket_pair;
    use rustix::pipe::pipe;

    #[test]
    fn a_user_with_many_files_that_are_not_closed_has_no_room() {
        let mut files = ForeignFiles::default();
        files.close(7, [pipe().unwrap().0]);
        let token = Arc::clone(&files.tokens[&7]);
        let unfinished: Vec<_> = (0..MAX_FOREIGN).map(|_| Arc::clone(&token)).collect();
        assert!(!files.has_room(7) && files.has_room(8));
        drop((token, unfinished));
        while !files.has_room(7) {}
        files.close(8, []);
        assert!(files.has_room(7));
    }

    #[test]
    fn small_memory_has_a_bounded_size_that_nobody_changes() {
        use baton_shm::mapping::create;
        for (file, is_small) in [
            (create("small", MAX_FILE_BYTES as usize).unwrap(), true),
            (create("large", MAX_FILE_BYTES as usize + 4096).unwrap(), false),
            (pipe().unwrap().0, false),
        ] {
            let small = create("another one", 1).unwrap();
            assert_eq!(small_memory([small, file]).is_ok(), is_small);
        }
    }

    #[test]
    fn an_end_is_told_apart_from_empty_packets() {
        for packets in [&[][..], &[&b""[..]], &[b"", b""], &[b"a"]] {
            let (ours, theirs) = socket_pair().unwrap();
            for packet in packets {
                rustix::net::send(&theirs, packet, rustix::net::SendFlags::empty()).unwrap();
            }
            rustix::net::shutdown(&ours, Shutdown::Both).unwrap();
            assert_eq!(has_unread(&ours), !packets.is_empty());
        }
    }
}
