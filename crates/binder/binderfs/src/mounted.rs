//! The mount, among those of the process's mount namespace: where it is, and how it ends.
//!
//! **Invariant**: a server unmounts its own mount, and what other servers have abandoned. A mount
//! is known by its number and by the device number of its file system: another one may have taken
//! its place, or its directory may have another name.

use crate::mount_error::MountError;
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, UnmountFlags};
use rustix::thread::UnshareFlags;
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The type of the file system, as the system shows it.
pub const KIND: &CStr = c"fuse.binder";
/// The mounts of this process's namespace: proc_pid_mountinfo(5).
const MOUNTS: &str = "/proc/self/mountinfo";

/// The two numbers by which a mount is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The mount's number in the namespace.
    pub number: u64,
    /// The file system's device number, as maps of processes show it.
    pub file_system: (u32, u32),
}

impl Identity {
    /// That of the mount to which a path leads. Makes no request to a server.
    fn at(path: &Path) -> Result<Identity, Errno> {
        let found = rustix::fs::statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::MNT_ID)?;
        let file_system = (found.stx_dev_major, found.stx_dev_minor);
        Ok(Identity { number: found.stx_mnt_id, file_system })
    }
}

/// The mount. Dropping it unmounts the directory. Programs that have files open keep them until the
/// connection is closed, too.
#[derive(Debug)]
pub struct Mounted {
    directory: PathBuf,
    identity: Identity,
}

impl Mounted {
    /// The file system that was just mounted at a directory.
    pub fn at(directory: PathBuf) -> Result<Mounted, MountError> {
        match Identity::at(&directory) {
            Ok(identity) => Ok(Mounted { directory, identity }),
            Err(errno) => {
                unmount(&directory);
                Err(MountError::system("statx")(errno))
            }
        }
    }

    /// The mount of a server that was killed, which was at this directory. `None` if others have
    /// unmounted it.
    pub fn left(directory: PathBuf, identity: Identity) -> Option<Mounted> {
        let mounts = std::fs::read(MOUNTS).unwrap_or_default();
        let is_there = place_of(&mounts, identity).is_some();
        is_there.then_some(Mounted { directory, identity })
    }

    /// The numbers by which the mount is known.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The file system's device number, as maps of processes show it.
    pub fn file_system(&self) -> (u32, u32) {
        self.identity.file_system
    }

    /// Gives the calling thread, which is the only one of its process, a mount namespace of its
    /// own. [`Mounted::unmount`] then leaves the mount to the processes of the old one: it goes
    /// with the last of them, or if they unmount it.
    pub fn leave_namespace(&mut self) -> Result<(), MountError> {
        // SAFETY: shares no descriptors and no memory less than before.
        let unshared = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) };
        unshared.map_err(MountError::system("unshare"))?;
        // What is unmounted here stays mounted there.
        let propagation = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        let changed = rustix::mount::mount_change("/", propagation);
        changed.map_err(MountError::system("mount /"))?;
        // The copy has a number of its own.
        self.identity = Identity::at(&self.directory).map_err(MountError::system("statx"))?;
        Ok(())
    }

    /// Unmounts it, wherever its directory is now. One that another mount covers stays.
    pub fn unmount(&self) {
        let mounts = std::fs::read(MOUNTS).unwrap_or_default();
        // Others may have unmounted it.
        let Some(place) = place_of(&mounts, self.identity) else { return };
        if Identity::at(&place) != Ok(self.identity) {
            tracing::warn!("{} stays mounted, below another mount", place.display());
            return;
        }
        unmount(&place);
        // What was covered until now may be a server's that had to leave it.
        let _ = find_free(&place);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.unmount();
    }
}

/// The full path of a directory. Each binderfs that was abandoned there is unmounted.
pub fn find_free(directory: &Path) -> Result<PathBuf, MountError> {
    loop {
        match find(directory) {
            Err(MountError::Abandoned(_)) if unmount_abandoned(directory) => {}
            found => return found,
        }
    }
}

/// The full path of a directory.
fn find(directory: &Path) -> Result<PathBuf, MountError> {
    let failed = |error| MountError::directory(directory, &error);
    let full = directory.canonicalize().map_err(failed)?;
    // The kernel may know the attributes still of a directory whose server has ended.
    let found = rustix::fs::statx(CWD, &full, AtFlags::STATX_FORCE_SYNC, StatxFlags::TYPE);
    let found = found.map_err(|errno| failed(errno.into()))?;
    let is_directory = FileType::from_raw_mode(found.stx_mode.into()) == FileType::Directory;
    if is_directory { Ok(full) } else { Err(MountError::NotADirectory(full)) }
}

/// Unmounts a binderfs whose server has been killed. Programs that have files of it open get
/// `ENOTCONN`, as before. False if the file system is another one, or cannot be unmounted.
fn unmount_abandoned(directory: &Path) -> bool {
    // The directory itself cannot be looked at.
    let (Some(parent), Some(name)) = (directory.parent(), directory.file_name()) else {
        return false;
    };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let Ok(directory) = parent.canonicalize().map(|parent| parent.join(name)) else { return false };
    let mounts = std::fs::read(MOUNTS).unwrap_or_default();
    if !has_binderfs(&mounts, &directory) {
        return false;
    }
    let unmounted = unmount(&directory);
    if unmounted {
        tracing::info!("unmounted {}, whose server has ended", directory.display());
    }
    unmounted
}

/// One mount, as [`MOUNTS`] shows it.
struct Line<'a> {
    number: &'a [u8],
    file_system: &'a [u8],
    place: PathBuf,
    kind: &'a [u8],
}

/// These mounts, in order.
fn lines(mounts: &[u8]) -> impl DoubleEndedIterator<Item = Line<'_>> {
    mounts.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ');
        let (number, file_system) = (fields.next()?, fields.nth(1)?);
        let place = PathBuf::from(OsString::from_vec(unescape(fields.nth(1)?)));
        let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
        Some(Line { number, file_system, place, kind })
    })
}

/// A path as it is: the system shows some bytes by three octal digits.
fn unescape(mut shown: &[u8]) -> Vec<u8> {
    let mut path = Vec::new();
    while let [first, rest @ ..] = shown {
        let (byte, rest) = match (first, rest) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', rest @ ..]) => {
                ((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'), rest)
            }
            (first, rest) => (*first, rest),
        };
        path.push(byte);
        shown = rest;
    }
    path
}

/// Whether the last of these mounts at a directory is a binderfs of a FUSE server.
fn has_binderfs(mounts: &[u8], directory: &Path) -> bool {
    let last = lines(mounts).rfind(|line| line.place == directory);
    last.is_some_and(|line| line.kind == KIND.to_bytes())
}

/// Where a mount is, if it is one of these.
fn place_of(mounts: &[u8], identity: Identity) -> Option<PathBuf> {
    let Identity { number, file_system: (major, minor) } = identity;
    let (number, file_system) = (number.to_string(), format!("{major}:{minor}"));
    let is_it = |line: &Line<'_>| {
        line.number == number.as_bytes() && line.file_system == file_system.as_bytes()
    };
    lines(mounts).find(is_it).map(|line| line.place)
}

/// Unmounts a directory. False if that is not possible: others have unmounted it, or it is theirs.
fn unmount(directory: &Path) -> bool {
    rustix::mount::unmount(directory, UnmountFlags::DETACH).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"22 1 0:20 / /dev/binderfs rw - ext4 /dev/vda rw\n\
        23 1 0:21 / /dev/binderfs rw shared:1 master:2 - fuse.binder binder rw\n\
        24 1 0:22 / /mnt/with\\040space rw - fuse.binder binder rw\n\
        25 1 0:23 / /mnt/other rw - fuse.sshfs host: rw\n\
        26 1 0:24 / /mnt/hidden rw - fuse.binder binder rw\n\
        27 1 0:25 / /mnt/hidden rw - tmpfs tmpfs rw\n";

    #[test]
    fn an_abandoned_binderfs_is_known_by_its_type_and_its_place() {
        for (directory, is_binderfs) in [
            ("/dev/binderfs", true),
            ("/mnt/with space", true),
            ("/mnt/other", false),
            ("/mnt/hidden", false),
            ("/mnt", false),
        ] {
            let found = has_binderfs(TABLE, Path::new(directory));
            assert_eq!(found, is_binderfs, "{directory}");
        }
        assert!(!has_binderfs(b"cut off", Path::new("/")));
    }

    #[test]
    fn a_mount_is_found_by_its_number_and_its_file_system() {
        for (number, file_system, place) in [
            (23, (0, 21), Some("/dev/binderfs")),
            (24, (0, 22), Some("/mnt/with space")),
            (26, (0, 24), Some("/mnt/hidden")),
            // Another mount has the number by now.
            (23, (0, 20), None),
            (28, (0, 21), None),
        ] {
            let found = place_of(TABLE, Identity { number, file_system });
            assert_eq!(found.as_deref(), place.map(Path::new), "{number}");
        }
    }

    #[test]
    fn paths_are_as_they_are() {
        let (shown, path) = (br"/a\040b\134c\011\012\x\1", b"/a b\\c\t\n\\x\\1");
        assert_eq!(unescape(shown), path);
    }
}
