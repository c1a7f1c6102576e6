//! `baton log --syslog`: copies messages that programs send to `/dev/log` into the log.
//!
//! The log's records belong to this process. Their tag names the sender, as in `sshd[77]`. The
//! process number in the tag comes from the kernel, not from the datagram.

use crate::failure::{Failure, Kind};
use crate::stop;
use baton_log::{Logger, MAX_TEXT_BYTES};
use baton_logcat::syslog::{self, Message};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, UnixCredentials, recvmsg};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, AsRawFd};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_passcred;
use std::io::{self, ErrorKind, IoSliceMut};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// Largest datagram; a longer text would not fit into a record anyway.
const MAX_DATAGRAM_BYTES: usize = MAX_TEXT_BYTES + 256;

/// The socket, removed when the bridge ends, unless another file has its path by then.
struct SocketPath<'a> {
    path: &'a Path,
    socket: UnixDatagram,
    /// Device and inode of the socket's file.
    identity: (u64, u64),
}

impl<'a> SocketPath<'a> {
    fn bind(path: &'a Path) -> io::Result<SocketPath<'a>> {
        let socket = UnixDatagram::bind(path)?;
        Ok(SocketPath { path, socket, identity: identity(path)? })
    }
}

impl Drop for SocketPath<'_> {
    fn drop(&mut self) {
        if identity(self.path).is_ok_and(|found| found == self.identity) {
            let _ = std::fs::remove_file(self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = path.symlink_metadata()?;
    Ok((found.dev(), found.ino()))
}

/// Copies datagrams until SIGTERM or SIGINT. Calls `ready` once datagrams can arrive.
pub fn run(path: &Path, logger: &Logger, ready: impl FnOnce()) -> Result<(), Failure> {
    let place = listen(path)?;
    let tried = "take datagrams of syslog";
    let stop = stop::signals().map_err(|error| Failure::new(tried, error))?;
    ready();
    let writer = logger.writer();
    let mut bytes = vec![0; MAX_DATAGRAM_BYTES];
    loop {
        let mut fds =
            [PollFd::new(&place.socket, PollFlags::IN), PollFd::new(&stop, PollFlags::IN)];
        match poll(&mut fds, None) {
            Err(Errno::INTR) => continue,
            done => done.map_err(|errno| Failure::new(tried, errno))?,
        };
        if !fds[1].revents().is_empty() {
            return Ok(());
        }
        match receive(&place.socket, &mut bytes) {
            Ok((n_bytes, process)) => {
                let message = syslog::parse(&bytes[..n_bytes]);
                let tag = tag(&message, process);
                writer.write(message.buffer, message.priority, &tag, message.text);
            }
            Err(nix::Error::EINTR | nix::Error::EAGAIN) => {}
            Err(errno) => return Err(Failure::new(tried, errno)),
        }
    }
}

fn tag(message: &Message<'_>, process: Option<u32>) -> Vec<u8> {
    match process.or(message.process) {
        Some(process) => [message.tag, format!("[{process}]").as_bytes()].concat(),
        None => message.tag.to_vec(),
    }
}

/// Receives a datagram. Returns its length and the sender's process, unless that is of a pid
/// namespace that this process does not see: its pid is 0 then, which rustix takes for impossible.
fn receive(socket: impl AsFd, bytes: &mut [u8]) -> Result<(usize, Option<u32>), nix::Error> {
    let mut space = nix::cmsg_space!(UnixCredentials);
    let mut parts = [IoSliceMut::new(bytes)];
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
    let socket = socket.as_fd().as_raw_fd();
    let received = recvmsg::<()>(socket, &mut parts, Some(&mut space), flags)?;
    let process = received.cmsgs()?.find_map(|message| match message {
        ControlMessageOwned::ScmCredentials(sender) => u32::try_from(sender.pid()).ok(),
        _ => None,
    });
    Ok((received.bytes, process.filter(|pid| *pid != 0)))
}

/// Listens at the socket's path, unless another process does or another file is there.
fn listen(path: &Path) -> Result<SocketPath<'_>, Failure> {
    let tried = format!("listen at {}", path.display());
    let place = match SocketPath::bind(path) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            remove_stale(path, &tried)?;
            SocketPath::bind(path)
        }
        bound => bound,
    };
    let place = place.map_err(|error| Failure::new(&tried, error))?;
    let everybody = Mode::from_raw_mode(0o666);
    rustix::fs::chmod(path, everybody)
        .and_then(|()| set_socket_passcred(&place.socket, true))
        .map_err(|errno| Failure::new(&tried, errno))?;
    Ok(place)
}

/// Removes a socket that nobody listens at. Any other file stays.
fn remove_stale(path: &Path, tried: &str) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::new(tried, error);
    if !path.symlink_metadata().map_err(failed)?.file_type().is_socket() {
        let wrong = format!("{} is there and is no socket of syslog", path.display());
        return Err(Failure::new(tried, wrong)
            .kind(Kind::Usage)
            .advice("remove that file, or give another path"));
    }
    match UnixDatagram::unbound().and_then(|asks| asks.connect(path)) {
        Err(error) if error.raw_os_error() == Some(Errno::PROTOTYPE.raw_os_error()) => {
            Err(failed(error).advice("a socket of another kind is there: give another path"))
        }
        Err(error) if error.kind() != ErrorKind::ConnectionRefused => Err(failed(error)),
        Err(_) => std::fs::remove_file(path).map_err(failed),
        Ok(()) => Err(Failure::new(tried, "somebody takes datagrams there already")
            .advice("end that one, journald or another syslog, or give another path")),
    }
}
