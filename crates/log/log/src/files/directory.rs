//! The directory of a log: one for the system, or one for each user.
//!
//! The directory's permissions are those of the log: a user that may write into it may log, and one
//! that may read it may read the log. Its files get its bits for reading and, if its set-group-id
//! bit is set, its group.

use rustix::fd::OwnedFd;
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The variable that names the directory, for writers and readers.
pub const DIRECTORY_VARIABLE: &str = "BATON_LOG_DIR";
/// The directory of the system's log.
pub const SYSTEM_DIRECTORY: &str = "/run/baton/log";
/// The directory of the system's log if /run is on a disk.
const SYSTEM_DIRECTORY_IN_MEMORY: &str = "/dev/shm/baton/log";
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// The directory of this process's log: `$BATON_LOG_DIR`, or else for root the system's. For other
/// users it is in `$XDG_RUNTIME_DIR` or the user's own in /dev/shm, unless only the system's exists
/// and may be written. A directory on a disk that the variable does not name is replaced by one in
/// /dev/shm.
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

/// Makes the log's directory for this user alone, if there is none. A reader that waits for the
/// first record needs it.
pub fn make_directory(path: &Path) -> Result<(), Errno> {
    Directory::open_to_write(path).map(drop)
}

/// An open directory of a log.
pub(crate) struct Directory {
    pub path: PathBuf,
    pub file: OwnedFd,
    pub owner: u32,
    group: u32,
    mode: Mode,
}

impl Directory {
    /// Opens the directory, or makes it for this user alone.
    ///
    /// `EPERM`: other users could replace this user's files. The directory belongs to a user other
    /// than root and this one, or several users may write into it and it is not sticky.
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

    /// Opens an existing directory.
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

    /// Whether only its owner may write into the directory.
    pub fn is_private(&self) -> bool {
        !self.mode.intersects(Mode::WGRP | Mode::WOTH)
    }

    /// The permissions of files in the directory: its owner writes, and users that may read the
    /// directory read.
    pub fn mode_of_files(&self) -> Mode {
        Mode::RUSR | Mode::WUSR | (self.mode & (Mode::RGRP | Mode::ROTH))
    }

    /// The directory's group, whose members may read.
    pub fn group(&self) -> u32 {
        self.group
    }

    /// Whether the directory belongs to this process's user.
    pub fn is_ours(&self) -> bool {
        self.owner == rustix::process::geteuid().as_raw()
    }

    /// Replaces a short file that all readers may read. `EPERM`: only the directory's owner may do
    /// this.
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

    /// Reads a short file of the directory's owner. `None`: there is none, or another user may have
    /// written it.
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
