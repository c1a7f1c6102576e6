//! The directory in which the log is: one for the system, or one for each user.
//!
//! Its permissions are the log's: who may write into it may log, who may read it may read the log.
//! Files in it get the directory's own bits for reading, and with its set-group-id bit, its group.

use rustix::fd::OwnedFd;
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Names the directory, for programs and readers alike.
pub const DIRECTORY_VARIABLE: &str = "BATON_LOG_DIR";
/// The system's log.
pub const SYSTEM_DIRECTORY: &str = "/run/baton/log";
/// The system's log where /run is on a disk.
const SYSTEM_DIRECTORY_IN_MEMORY: &str = "/dev/shm/baton/log";
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// `$BATON_LOG_DIR`; for root the system's; else that of `$XDG_RUNTIME_DIR` or the user's own in
/// /dev/shm, unless only the system's exists and may be written. Whatever is on a disk and not
/// named by the variable is passed over for /dev/shm.
pub fn directory() -> PathBuf {
    let variable =
        |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(path) = variable(DIRECTORY_VARIABLE) {
        return path;
    }
    let system = PathBuf::from(match is_in_memory(Path::new("/run")) {
        true => SYSTEM_DIRECTORY,
        false => SYSTEM_DIRECTORY_IN_MEMORY,
    });
    let user = rustix::process::geteuid();
    if user.is_root() {
        return system;
    }
    let run_time = variable("XDG_RUNTIME_DIR").filter(|path| is_in_memory(path));
    let own = match run_time {
        Some(path) => path.join("baton/log"),
        None => PathBuf::from(format!("/dev/shm/baton-{}/log", user.as_raw())),
    };
    if !own.exists() && may_write(&system) { system } else { own }
}

fn is_in_memory(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|system| system.f_type == TMPFS_MAGIC)
}

fn may_write(directory: &Path) -> bool {
    rustix::fs::accessat(CWD, directory, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)
        .is_ok()
}

/// Makes the log's directory, for this user alone, if there is none: for who waits for the first
/// record.
pub fn make_directory(path: &Path) -> Result<(), Errno> {
    Directory::open_to_write(path).map(drop)
}

/// A directory that the log may be in.
pub(crate) struct Directory {
    pub path: PathBuf,
    pub file: OwnedFd,
    pub owner: u32,
    group: u32,
    mode: Mode,
}

impl Directory {
    /// Opens it, or makes it for this user alone.
    ///
    /// `EPERM` if somebody else could put their files in place of ours: it belongs to another user
    /// than root or this one, or several may write there and it is not sticky.
    pub fn open_to_write(path: &Path) -> Result<Directory, Errno> {
        let directory = match Directory::open(path, OFlags::PATH) {
            Err(Errno::NOENT) => {
                make(path)?;
                Directory::open(path, OFlags::PATH)?
            }
            known => known?,
        };
        let sticky = Mode::from_raw_mode(0o1000);
        let trusted = [0, rustix::process::geteuid().as_raw()].contains(&directory.owner);
        match trusted && (directory.is_private() || directory.mode.contains(sticky)) {
            true => Ok(directory),
            false => Err(Errno::PERM),
        }
    }

    /// Opens one that is there.
    pub fn open_to_read(path: &Path) -> Result<Directory, Errno> {
        Directory::open(path, OFlags::RDONLY)
    }

    fn open(path: &Path, how: OFlags) -> Result<Directory, Errno> {
        let file =
            rustix::fs::open(path, how | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let Stat { st_uid: owner, st_gid: group, st_mode, .. } = rustix::fs::fstat(&file)?;
        let mode = Mode::from_raw_mode(st_mode);
        Ok(Directory { path: path.to_owned(), file, owner, group, mode })
    }

    /// Nobody but its owner may write into it.
    pub fn is_private(&self) -> bool {
        !self.mode.intersects(Mode::WGRP | Mode::WOTH)
    }

    /// Of a file in it: for its owner to write, and for those to read who may read the directory.
    pub fn mode_of_files(&self) -> Mode {
        Mode::RUSR | Mode::WUSR | (self.mode & (Mode::RGRP | Mode::ROTH))
    }

    /// The group of the directory, and of those who may read.
    pub fn group(&self) -> u32 {
        self.group
    }

    /// Whether this process is its owner's.
    pub fn is_ours(&self) -> bool {
        self.owner == rustix::process::geteuid().as_raw()
    }

    /// Puts a short file in place of the one of that name, for everybody to read. Only the
    /// directory's owner does: `EPERM`.
    pub fn write(&self, name: &str, text: &str) -> Result<(), Errno> {
        if !self.is_ours() {
            return Err(Errno::PERM);
        }
        let aside = self.path.join(format!(".{name}-{}", rustix::process::getpid()));
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(CWD, &aside, flags, self.mode_of_files())?;
        rustix::fs::fchmod(&file, self.mode_of_files() | Mode::ROTH)?;
        let written = rustix::io::write(&file, text.as_bytes())?;
        if written < text.len() {
            return Err(Errno::NOSPC);
        }
        rustix::fs::rename(&aside, self.path.join(name))
    }

    /// Reads a short file that the directory's owner has made. `None` if there is none, or it may
    /// be of another.
    pub fn read(&self, name: &str) -> Option<String> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = rustix::fs::openat(&self.file, name, flags, Mode::empty()).ok()?;
        let stat = rustix::fs::fstat(&file).ok()?;
        let regular = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file();
        let strangers = Mode::from_raw_mode(stat.st_mode).intersects(Mode::WGRP | Mode::WOTH);
        if !regular || strangers || stat.st_uid != self.owner {
            return None;
        }
        let mut bytes = [0; 1024];
        let n_bytes = rustix::io::pread(&file, &mut bytes, 0).ok()?;
        String::from_utf8(bytes[..n_bytes].to_vec()).ok()
    }
}

fn make(path: &Path) -> Result<(), Errno> {
    let known = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    if let Some(parent) = path.parent() {
        let mode = if rustix::process::geteuid().is_root() { 0o755 } else { 0o700 };
        std::fs::DirBuilder::new().recursive(true).mode(mode).create(parent).map_err(known)?;
    }
    match std::fs::DirBuilder::new().mode(0o700).create(path).map_err(known) {
        Err(Errno::EXIST) => Ok(()),
        made => made,
    }
}
