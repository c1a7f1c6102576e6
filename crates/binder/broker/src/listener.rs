//! The socket that engines connect to, and the lock that makes one broker serve its path.
//!
//! A broker that serves a path holds a lock on the file beside it, so two brokers never serve one
//! path. The holder removes that file when it ends. A broker that opened the file before checks,
//! once it has the lock, that the file still has its name; otherwise it opens the file anew.
//!
//! The socket appears by a rename, already listening and with its permissions, so that no connect
//! in between is refused.

use crate::run_error::RunError;
use baton_abi::place::devices_beside;
use baton_shm::blocking::pause;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Connections that the kernel keeps for the broker to accept.
const BACKLOG: i32 = 1024;
/// Descriptors that admitting an engine needs: two sockets, the far end of the event socket, two
/// pages and a pidfd.
const DESCRIPTORS_OF_AN_ENGINE: usize = 6;
/// Attempts to take the lock. A broker that starts or ends holds it for a moment without serving
/// the path.
const LOCK_ATTEMPTS: usize = 200;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Suffix of the path that a socket has while it is hidden.
const HIDDEN: &str = ".aside";
/// Longest path of a broker's socket: an address has 107 bytes before its zero byte.
const MAX_PATH_BYTES: usize = 107 - HIDDEN.len();

/// The users that may connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// The broker's own user: directory 0700, socket 0600.
    User,
    /// Every user: directory 0755, socket 0666.
    System,
}

impl Access {
    /// Root's broker serves every user.
    fn of_this_user() -> Access {
        if rustix::process::geteuid().is_root() { Access::System } else { Access::User }
    }
}

/// The listening socket. `place` is `None` for a socket that another program made.
pub(crate) struct Listener {
    socket: OwnedFd,
    place: Option<ServedPath>,
}

/// A path that this broker alone serves.
struct ServedPath {
    path: PathBuf,
    /// Path of the socket before it appears and after it has disappeared.
    hidden_path: PathBuf,
    /// Whether the socket has the path that engines connect to.
    shown: bool,
    /// Whether the broker removes the directory of placeholder devices when it ends: no program
    /// runs that uses them.
    removes_devices: bool,
    /// Dropped last: until then no other broker serves the path.
    _lock: LockFile,
}

/// The lock file beside the socket, locked.
struct LockFile {
    path: PathBuf,
    _file: OwnedFd,
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // No other broker removes the file while it is locked, so the name still belongs to this
        // file.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Listener {
    /// Takes over a listening socket that another program made and will remove. `path` is for
    /// errors. `EINVAL` if the socket does not accept SOCK_SEQPACKET connections.
    pub fn inherited(socket: OwnedFd, path: &Path) -> Result<Listener, RunError> {
        let right_kind = sockopt::socket_type(&socket) == Ok(SocketType::SEQPACKET)
            && sockopt::socket_acceptconn(&socket) == Ok(true);
        if !right_kind {
            let operation = "accept SOCK_SEQPACKET connections on the inherited socket for";
            return Err(RunError::of(operation, path)(Errno::INVAL));
        }
        rustix::io::ioctl_fionbio(&socket, true).map_err(RunError::of("ioctl(FIONBIO)", path))?;
        Ok(Listener { socket, place: None })
    }

    /// Makes the socket at `path`. [`RunError::AlreadyRunning`] if another broker serves the path.
    /// No file is left after an error.
    pub fn at(path: &Path) -> Result<Listener, RunError> {
        if path.as_os_str().len() > MAX_PATH_BYTES {
            return Err(RunError::TooLong { path: path.to_owned(), most_bytes: MAX_PATH_BYTES });
        }
        let access = Access::of_this_user();
        prepare_directory(path, access)?;
        let lock = lock(path)?;
        // A broker with an inherited socket may serve the path without the lock.
        if is_served(path)? {
            return Err(RunError::AlreadyRunning(path.to_owned()));
        }
        match std::fs::symlink_metadata(path) {
            Ok(found) if !FileType::from_raw_mode(found.mode()).is_socket() => {
                return Err(RunError::NotASocket(path.to_owned()));
            }
            _ => (),
        }
        let hidden_path = sibling_path(path, HIDDEN);
        let mut place = ServedPath {
            path: path.to_owned(),
            hidden_path,
            shown: false,
            removes_devices: false,
            _lock: lock,
        };
        let socket = place.bind(access)?;
        place.show()?;
        Ok(Listener { socket, place: Some(place) })
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Accepts one connection. `EAGAIN` if none waits. If descriptors `may_lack`: `EMFILE` if the
    /// broker lacks those that an engine needs. The connection then stays in the backlog.
    pub fn accept(&self, may_lack: bool) -> Result<OwnedFd, Errno> {
        if may_lack {
            let mut room = [const { None }; DESCRIPTORS_OF_AN_ENGINE];
            for descriptor in &mut room {
                *descriptor = Some(rustix::io::fcntl_dupfd_cloexec(&self.socket, 0)?);
            }
        }
        rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
    }

    /// Hides the socket: engines no longer find this broker. Earlier connections are in the
    /// backlog.
    pub fn hide(&mut self) {
        if let Some(place) = &mut self.place {
            place.hide();
        }
    }

    /// Makes the broker remove its placeholder devices when it ends, because no engine is left.
    pub fn remove_devices_at_end(&mut self) {
        if let Some(place) = &mut self.place {
            place.removes_devices = true;
        }
    }

    /// Undoes [`Listener::hide`]. The path is still free, because this broker has the lock.
    pub fn show(&mut self) -> Result<(), RunError> {
        self.place.as_mut().map_or(Ok(()), ServedPath::show)
    }
}

impl ServedPath {
    fn bind(&self, access: Access) -> Result<OwnedFd, RunError> {
        let _ = std::fs::remove_file(&self.hidden_path); // Left by a broker that was killed.
        let address = SocketAddrUnix::new(&self.hidden_path)
            .map_err(RunError::of("name a socket", &self.hidden_path))?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = seqpacket(&self.hidden_path, flags)?;
        rustix::net::bind(&socket, &address).map_err(RunError::of("bind", &self.hidden_path))?;
        let mode = match access {
            Access::User => Mode::RUSR | Mode::WUSR,
            Access::System => Mode::from_raw_mode(0o666),
        };
        rustix::fs::chmodat(CWD, &self.hidden_path, mode, AtFlags::empty())
            .map_err(RunError::of("chmod", &self.hidden_path))?;
        rustix::net::listen(&socket, BACKLOG).map_err(RunError::of("listen", &self.hidden_path))?;
        Ok(socket)
    }

    fn show(&mut self) -> Result<(), RunError> {
        rustix::fs::rename(&self.hidden_path, &self.path)
            .map_err(RunError::of("rename", &self.path))?;
        self.shown = true;
        Ok(())
    }

    fn hide(&mut self) {
        if self.shown {
            self.shown = rustix::fs::rename(&self.path, &self.hidden_path).is_err();
        }
    }
}

impl Drop for ServedPath {
    fn drop(&mut self) {
        self.hide();
        let _ = std::fs::remove_file(&self.hidden_path);
        if self.removes_devices {
            remove_own_directory(&devices_beside(&self.path));
        }
    }
}

/// Removes a directory that belongs to this user.
fn remove_own_directory(path: &Path) {
    let uid = rustix::process::geteuid().as_raw();
    let is_own = |found: std::fs::Metadata| found.is_dir() && found.uid() == uid;
    if std::fs::symlink_metadata(path).is_ok_and(is_own) {
        let _ = std::fs::remove_dir_all(path);
    }
}

fn seqpacket(path: &Path, flags: SocketFlags) -> Result<OwnedFd, RunError> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .map_err(RunError::of("socket", path))
}

fn sibling_path(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Creates the socket's directory, and checks that other users cannot replace the socket. Members
/// of the directory's group may: the usual umask of a user with a group of its own allows them to
/// in every directory.
fn prepare_directory(path: &Path, access: Access) -> Result<(), RunError> {
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let mode = match access {
        Access::User => 0o700,
        Access::System => 0o755,
    };
    let io = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    if !directory.exists() {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(mode)
            .create(directory)
            .map_err(|error| RunError::of("create directory", directory)(io(error)))?;
    }
    let status =
        std::fs::metadata(directory).map_err(|error| RunError::of("stat", directory)(io(error)))?;
    let (writable_by_others, sticky) = (status.mode() & 0o002 != 0, status.mode() & 0o1000 != 0);
    let owned = status.uid() == 0 || status.uid() == rustix::process::geteuid().as_raw();
    if !owned || (writable_by_others && !sticky) {
        return Err(RunError::Replaceable(directory.to_owned()));
    }
    Ok(())
}

/// Takes the lock of a path. [`RunError::AlreadyRunning`] if another broker keeps it.
fn lock(path: &Path) -> Result<LockFile, RunError> {
    let name = sibling_path(path, ".lock");
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let open = || {
        rustix::fs::open(&name, flags, Mode::RUSR | Mode::WUSR).map_err(RunError::of("open", &name))
    };
    let mut file = open()?;
    for _ in 0..LOCK_ATTEMPTS {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if is_named(&file, &name) => return Ok(LockFile { path: name, _file: file }),
            // The holder removed the file after it was opened here.
            Ok(()) => {
                file = open()?;
                continue;
            }
            Err(Errno::WOULDBLOCK | Errno::INTR) => (),
            Err(errno) => return Err(RunError::of("lock", &name)(errno)),
        }
        if is_served(path)? {
            break;
        }
        pause(LOCK_PAUSE);
    }
    Err(RunError::AlreadyRunning(path.to_owned()))
}

/// Whether `name` still names this file.
fn is_named(file: &OwnedFd, name: &Path) -> bool {
    let (Ok(file), Ok(named)) = (rustix::fs::fstat(file), rustix::fs::lstat(name)) else {
        return false;
    };
    (file.st_dev, file.st_ino) == (named.st_dev, named.st_ino)
}

/// Whether a broker accepts connections at a path. The probe connects and sends nothing.
fn is_served(path: &Path) -> Result<bool, RunError> {
    let address = SocketAddrUnix::new(path).map_err(RunError::of("name a socket", path))?;
    let socket = seqpacket(path, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
    match rustix::net::connect(&socket, &address) {
        // A full backlog also means that a broker is alive.
        Ok(()) | Err(Errno::AGAIN) => Ok(true),
        // EPROTOTYPE: a socket of another type, so not a broker's.
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(false),
        Err(Errno::PROTOTYPE | Errno::NOTSOCK) => Err(RunError::NotASocket(path.to_owned())),
        Err(errno) => Err(RunError::of("connect", path)(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of descriptors of this process that refer to a file, removed or not.
    fn opened(path: &Path) -> usize {
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        let targets = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        targets.filter(|target| target.starts_with(path)).count()
    }

    /// One thread waits for a lock whose holder removes the file, while another takes the lock
    /// afterwards.
    #[test]
    fn a_removed_lock_file_gives_no_lock() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let holder = lock(&path).unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| lock(&path));
            while opened(&holder.path) < 2 {
                std::thread::yield_now();
            }
            let name = holder.path.clone();
            drop(holder);
            let latecomer = lock(&path);
            let waited = waiter.join().unwrap();
            assert_ne!(latecomer.is_ok(), waited.is_ok(), "one of them");
            assert!(name.exists());
            drop((latecomer, waited));
            assert!(!name.exists());
        });
    }
}
