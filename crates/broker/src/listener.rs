//! The socket that engines connect to, and the one broker behind its path.
//!
//! Two brokers never serve one path: whoever serves it holds a lock on the file beside it. Its
//! holder removes that file when it ends; who has opened it before finds, once it has locked it,
//! that there is no file of that name or another one, and tries again. The socket appears by a
//! rename, listening already and with its permissions, so that no connect is refused in between.

use crate::run::RunError;
use baton_abi::place::devices_beside;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Connects that wait for the broker to accept them.
const BACKLOG: i32 = 1024;
/// Its two sockets, one end for itself to take away, its two pages, and its pidfd.
const DESCRIPTORS_OF_AN_ENGINE: usize = 6;
/// A broker that is starting or ending holds the lock without being found; it is done soon.
const LOCK_ATTEMPTS: usize = 200;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

const NOT_A_SOCKET: &str = "listen in place of what is no broker's socket at";

/// Who may connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// The broker's user: directory 0700, socket 0600.
    User,
    /// Everybody on the system: directory 0755, socket 0666.
    System,
}

impl Access {
    /// Root serves the system.
    fn of_this_user() -> Access {
        if rustix::process::geteuid().is_root() { Access::System } else { Access::User }
    }
}

pub(crate) struct Listener {
    socket: OwnedFd,
    place: Option<Place>,
}

/// A path that this broker alone serves.
struct Place {
    path: PathBuf,
    /// Where the socket is before it appears and after it has disappeared.
    aside: PathBuf,
    /// Whether engines can find it.
    shown: bool,
    /// The directory of placeholders goes with the broker: nobody runs who might look there.
    leaves_nothing: bool,
    /// Goes last: until then nobody else serves the path.
    _lock: LockFile,
}

/// The file beside the socket, locked.
struct LockFile {
    path: PathBuf,
    _file: OwnedFd,
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // Of this name there is no other file: nobody else removes it while it is locked.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Listener {
    /// A socket that somebody else made, and will remove. The path is for errors.
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

    pub fn at(path: &Path) -> Result<Listener, RunError> {
        let access = Access::of_this_user();
        prepare_directory(path, access)?;
        let lock = lock(path)?;
        // A broker without our lock, as with an inherited socket, may serve the path all the same.
        if is_served(path)? {
            return Err(RunError::AlreadyRunning(path.to_owned()));
        }
        match std::fs::symlink_metadata(path) {
            Ok(there) if !FileType::from_raw_mode(there.mode()).is_socket() => {
                return Err(RunError::of(NOT_A_SOCKET, path)(Errno::EXIST));
            }
            _ => (),
        }
        let aside = beside(path, ".aside");
        let mut place = Place {
            path: path.to_owned(),
            aside,
            shown: false,
            leaves_nothing: false,
            _lock: lock,
        };
        let socket = place.bind(access)?;
        place.show()?;
        Ok(Listener { socket, place: Some(place) })
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// `EAGAIN` when nobody waits. `EMFILE` while there is no room for all that an engine needs:
    /// better it waits in the backlog than that it is let in halfway.
    pub fn accept(&self) -> Result<OwnedFd, Errno> {
        let mut room = [const { None }; DESCRIPTORS_OF_AN_ENGINE];
        for descriptor in &mut room {
            *descriptor = Some(rustix::io::fcntl_dupfd_cloexec(&self.socket, 0)?);
        }
        drop(room);
        rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
    }

    /// From now on engines do not find this broker. Whoever connected before is in the backlog.
    pub fn hide(&mut self) {
        if let Some(place) = &mut self.place {
            place.hide();
        }
    }

    /// Nobody is connected: the placeholders beside the socket go with it.
    pub fn leave_nothing(&mut self) {
        if let Some(place) = &mut self.place {
            place.leaves_nothing = true;
        }
    }

    /// Undoes [`Listener::hide`]: the lock kept the path free.
    pub fn show(&mut self) -> Result<(), RunError> {
        self.place.as_mut().map_or(Ok(()), Place::show)
    }
}

impl Place {
    fn bind(&self, access: Access) -> Result<OwnedFd, RunError> {
        let _ = std::fs::remove_file(&self.aside); // Left by a broker that was killed.
        let address =
            SocketAddrUnix::new(&self.aside).map_err(RunError::of("name a socket", &self.aside))?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = seqpacket(&self.aside, flags)?;
        rustix::net::bind(&socket, &address).map_err(RunError::of("bind", &self.aside))?;
        let mode = match access {
            Access::User => Mode::RUSR | Mode::WUSR,
            Access::System => Mode::from_raw_mode(0o666),
        };
        rustix::fs::chmodat(CWD, &self.aside, mode, AtFlags::empty())
            .map_err(RunError::of("chmod", &self.aside))?;
        rustix::net::listen(&socket, BACKLOG).map_err(RunError::of("listen", &self.aside))?;
        Ok(socket)
    }

    fn show(&mut self) -> Result<(), RunError> {
        rustix::fs::rename(&self.aside, &self.path).map_err(RunError::of("rename", &self.path))?;
        self.shown = true;
        Ok(())
    }

    fn hide(&mut self) {
        if self.shown {
            self.shown = rustix::fs::rename(&self.path, &self.aside).is_err();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.hide();
        let _ = std::fs::remove_file(&self.aside);
        if self.leaves_nothing {
            remove_own_directory(&devices_beside(&self.path));
        }
    }
}

/// Removes a directory, if it is this user's.
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

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// The directory exists, and not everybody can put another socket into it. Its group may: with
/// the usual umask of a user's own group it can in every directory that the user makes.
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
        return Err(RunError::of("trust others not to replace a socket in", directory)(
            Errno::PERM,
        ));
    }
    Ok(())
}

/// The right to serve a path, or [`RunError::AlreadyRunning`].
fn lock(path: &Path) -> Result<LockFile, RunError> {
    let name = beside(path, ".lock");
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let open = || {
        rustix::fs::open(&name, flags, Mode::RUSR | Mode::WUSR).map_err(RunError::of("open", &name))
    };
    let mut file = open()?;
    for _ in 0..LOCK_ATTEMPTS {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if is_named(&file, &name) => return Ok(LockFile { path: name, _file: file }),
            // Its holder has removed it since it was opened.
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
        std::thread::sleep(LOCK_PAUSE);
    }
    Err(RunError::AlreadyRunning(path.to_owned()))
}

/// Whether the file still has this name.
fn is_named(file: &OwnedFd, name: &Path) -> bool {
    let (Ok(file), Ok(named)) = (rustix::fs::fstat(file), rustix::fs::lstat(name)) else {
        return false;
    };
    (file.st_dev, file.st_ino) == (named.st_dev, named.st_ino)
}

/// Whether somebody accepts connections there. The probe is a connection that says nothing.
fn is_served(path: &Path) -> Result<bool, RunError> {
    let address = SocketAddrUnix::new(path).map_err(RunError::of("name a socket", path))?;
    let socket = seqpacket(path, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
    match rustix::net::connect(&socket, &address) {
        // With a full backlog it is alive all the more.
        Ok(()) | Err(Errno::AGAIN) => Ok(true),
        // EPROTOTYPE: a socket of another kind, whose owner is no broker.
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(false),
        Err(Errno::PROTOTYPE | Errno::NOTSOCK) => {
            Err(RunError::of(NOT_A_SOCKET, path)(Errno::EXIST))
        }
        Err(errno) => Err(RunError::of("connect", path)(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often this process has a file open, removed or not.
    fn opened(path: &Path) -> usize {
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        let targets = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        targets.filter(|target| target.starts_with(path)).count()
    }

    /// One that waits for a lock whose file its holder removes, beside one that comes afterwards.
    #[test]
    fn a_file_that_has_been_removed_is_nobodys_lock() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let holder = lock(&path).unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| lock(&path));
            while opened(&holder.path) < 2 {
                std::thread::yield_now();
            }
            let name = holder.path.clone();
            drop(holder);
            let comes = lock(&path);
            let waited = waits.join().unwrap();
            assert_ne!(comes.is_ok(), waited.is_ok(), "one of them");
            assert!(name.exists());
            drop((comes, waited));
            assert!(!name.exists());
        });
    }
}
