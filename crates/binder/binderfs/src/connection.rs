//! The kernel's end of a mounted file system: /dev/fuse.
//!
//! Any thread may answer a request, and in any order.

use crate::mount_error::MountError;
use crate::protocol::{NOTIFY_POLL, NOTIFY_STORE, OutHeader, StoreOut};
use bytemuck::bytes_of;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::UnshareFlags;
use std::ffi::{CStr, CString, c_ulong, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::null;

const DEVICE: &str = "/dev/fuse";
/// The type of the file system, as the system shows it.
const KIND: &CStr = c"fuse.binder";
/// `_IOW(229, 1, struct fuse_backing_map)` and `_IOW(229, 2, uint32_t)`.
const FUSE_DEV_IOC_BACKING_OPEN: c_ulong = 0x4010_e501;
const FUSE_DEV_IOC_BACKING_CLOSE: c_ulong = 0x4004_e502;

/// The kernel's end of a mounted file system.
#[derive(Debug)]
pub struct Connection {
    fuse: OwnedFd,
}

/// The mount. Dropping it unmounts the directory. Programs that have files open keep them until the
/// connection is closed, too.
#[derive(Debug)]
pub struct Mounted {
    directory: PathBuf,
}

#[repr(C)]
struct BackingMap {
    fd: i32,
    flags: u32,
    padding: u64,
}

impl Connection {
    /// Mounts a file system at a directory. Nothing answers the requests of programs yet.
    pub fn mount(directory: &Path) -> Result<(Connection, Mounted), MountError> {
        let directory = match find(directory) {
            Err(MountError::Abandoned(_)) if unmount_abandoned(directory) => find(directory)?,
            found => found?,
        };
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let fuse = rustix::fs::open(DEVICE, flags, Mode::empty()).map_err(MountError::NoFuse)?;
        let options = format!(
            "fd={},rootmode=40755,user_id={},group_id={},allow_other,default_permissions",
            fuse.as_raw_fd(),
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        );
        let options = CString::new(options).expect("no zero byte");
        // A path of the system's has none either.
        let target = CString::new(directory.as_os_str().as_bytes()).expect("no zero byte");
        // SAFETY: all are C strings that outlive the call.
        let mounted = unsafe {
            libc::mount(
                c"binder".as_ptr(),
                target.as_ptr(),
                KIND.as_ptr(),
                libc::MS_NOSUID | libc::MS_NOEXEC | libc::MS_NODEV,
                options.as_ptr().cast(),
            )
        };
        if mounted != 0 {
            return Err(MountError::mount(directory, last_errno()));
        }
        Ok((Connection { fuse }, Mounted { directory }))
    }

    /// Waits for a request. `ENODEV` if the file system was unmounted.
    pub fn receive<'a>(&self, buffer: &'a mut [u8]) -> Result<&'a [u8], Errno> {
        let bytes = rustix::io::read(&self.fuse, &mut *buffer)?;
        Ok(&buffer[..bytes])
    }

    /// Answers a request with these bytes. False if nobody waits for the answer any more.
    pub fn answer(&self, unique: u64, parts: &[&[u8]]) -> bool {
        self.send(unique, 0, parts)
    }

    /// Answers a request with an error.
    pub fn refuse(&self, unique: u64, errno: Errno) {
        self.send(unique, -errno.raw_os_error(), &[]);
    }

    /// Wakes the threads that poll an open file, by the kernel's number of it.
    pub fn notify_readable(&self, kernel_handle: u64) {
        self.send(0, NOTIFY_POLL, &[&kernel_handle.to_ne_bytes()]);
    }

    /// Puts bytes into the kernel's pages of a file, from this offset on. Waits for reads of these
    /// pages that are under way: the thread that answers them must not call this.
    pub fn store(&self, node: u64, offset: usize, bytes: &[u8]) {
        let store = StoreOut { node, offset: offset as u64, bytes: bytes.len() as u32, padding: 0 };
        self.send(0, NOTIFY_STORE, &[bytes_of(&store), bytes]);
    }

    fn send(&self, unique: u64, error: i32, parts: &[&[u8]]) -> bool {
        let bytes = size_of::<OutHeader>() + parts.iter().map(|part| part.len()).sum::<usize>();
        let header = OutHeader { bytes: bytes as u32, error, unique };
        // In one piece: the kernel looks up the pages of each.
        let mut all = Vec::with_capacity(bytes);
        all.extend(bytes_of(&header));
        parts.iter().for_each(|part| all.extend(*part));
        match rustix::io::write(&self.fuse, &all) {
            Ok(_) => return true,
            // The caller has been killed, the open file closed, or the file system unmounted.
            Err(Errno::NOENT | Errno::NODEV | Errno::NOTCONN) => {}
            Err(errno) => tracing::warn!(unique, %errno, "/dev/fuse refused an answer"),
        }
        false
    }

    /// Registers a file to be mapped in place of another. Returns its number.
    pub fn open_backing(&self, file: BorrowedFd<'_>) -> Result<i32, Errno> {
        let map = BackingMap { fd: file.as_raw_fd(), flags: 0, padding: 0 };
        let fuse = self.fuse.as_raw_fd();
        // SAFETY: the structure that this request reads.
        let number = unsafe { libc::ioctl(fuse, FUSE_DEV_IOC_BACKING_OPEN, &map) };
        if number > 0 { Ok(number) } else { Err(last_errno()) }
    }

    /// Ends a registration.
    pub fn close_backing(&self, number: i32) {
        let fuse = self.fuse.as_raw_fd();
        // SAFETY: the number that this request reads.
        unsafe { libc::ioctl(fuse, FUSE_DEV_IOC_BACKING_CLOSE, &number) };
    }
}

/// The full path of a directory.
fn find(directory: &Path) -> Result<PathBuf, MountError> {
    let failed = |error| MountError::directory(directory, &error);
    let full = directory.canonicalize().map_err(failed)?;
    let found = full.metadata().map_err(failed)?;
    if found.is_dir() { Ok(full) } else { Err(MountError::NotADirectory(full)) }
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
    let mounts = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    if !has_binderfs(&mounts, &directory) {
        return false;
    }
    let unmounted = unmount(&directory);
    if unmounted {
        tracing::info!("unmounted {}, whose server has ended", directory.display());
    }
    unmounted
}

/// Whether the last of these mounts at a directory is a binderfs of a FUSE server. The text is that
/// of `/proc/PID/mountinfo`: proc_pid_mountinfo(5).
fn has_binderfs(mounts: &[u8], directory: &Path) -> bool {
    let shown = directory.as_os_str().as_bytes().iter().flat_map(|&byte| match byte {
        b' ' | b'\t' | b'\n' | b'\\' => format!("\\{byte:03o}").into_bytes(),
        byte => vec![byte],
    });
    let shown: Vec<u8> = shown.collect();
    let mut at_directory = mounts.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ');
        let is_there = fields.nth(4)? == shown;
        let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
        is_there.then_some(kind)
    });
    at_directory.next_back() == Some(KIND.to_bytes())
}

/// Unmounts a directory. False if that is not possible: others have unmounted it, or it is theirs.
fn unmount(directory: &Path) -> bool {
    let target = CString::new(directory.as_os_str().as_bytes()).expect("no zero byte");
    // SAFETY: a C string that outlives the call.
    unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) == 0 }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fuse.as_fd()
    }
}

impl Mounted {
    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Mounted {
    /// Gives the calling thread, which is the only one of its process, a mount namespace of its
    /// own. [`Mounted::unmount`] then leaves the mount to the processes of the old one: it goes
    /// with the last of them, or if they unmount it.
    pub fn leave_namespace(&self) -> Result<(), MountError> {
        // SAFETY: shares no descriptors and no memory less than before.
        let unshared = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) };
        unshared.map_err(MountError::system("unshare"))?;
        // What is unmounted here stays mounted there.
        let flags = libc::MS_REC | libc::MS_PRIVATE;
        // SAFETY: all are C strings or null.
        let changed =
            unsafe { libc::mount(null(), c"/".as_ptr(), null(), flags, null::<c_void>()) };
        if changed == 0 { Ok(()) } else { Err(MountError::system("mount /")(last_errno())) }
    }

    /// Unmounts the directory.
    pub fn unmount(&self) {
        unmount(&self.directory);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.unmount();
    }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_abandoned_binderfs_is_known_by_its_type_and_its_place() {
        let mounts = b"22 1 0:20 / /dev/binderfs rw - ext4 /dev/vda rw\n\
            23 1 0:21 / /dev/binderfs rw shared:1 master:2 - fuse.binder binder rw\n\
            24 1 0:22 / /mnt/with\\040space rw - fuse.binder binder rw\n\
            25 1 0:23 / /mnt/other rw - fuse.sshfs host: rw\n\
            26 1 0:24 / /mnt/hidden rw - fuse.binder binder rw\n\
            27 1 0:25 / /mnt/hidden rw - tmpfs tmpfs rw\n";
        for (directory, is_binderfs) in [
            ("/dev/binderfs", true),
            ("/mnt/with space", true),
            ("/mnt/other", false),
            ("/mnt/hidden", false),
            ("/mnt", false),
        ] {
            let found = has_binderfs(mounts, Path::new(directory));
            assert_eq!(found, is_binderfs, "{directory}");
        }
        assert!(!has_binderfs(b"cut off", Path::new("/")));
    }
}
