//! The kernel's end of a mounted file system: /dev/fuse.
//!
//! Any thread may answer a request, and in any order.

use crate::errno;
use crate::mount_error::MountError;
use crate::mounted::{self, KIND, Mounted};
use crate::protocol::{NOTIFY_POLL, NOTIFY_RESEND, NOTIFY_STORE, OutHeader, StoreOut};
use bytemuck::bytes_of;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{CString, c_ulong};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const DEVICE: &str = "/dev/fuse";
/// `_IOW(229, 1, struct fuse_backing_map)` and `_IOW(229, 2, uint32_t)`.
const FUSE_DEV_IOC_BACKING_OPEN: c_ulong = 0x4010_e501;
const FUSE_DEV_IOC_BACKING_CLOSE: c_ulong = 0x4004_e502;

/// The kernel's end of a mounted file system.
#[derive(Debug)]
pub struct Connection {
    fuse: OwnedFd,
}

#[repr(C)]
struct BackingMap {
    fd: i32,
    flags: u32,
    padding: u64,
}

impl Connection {
    /// Opens /dev/fuse, by which nothing is mounted yet.
    pub fn open() -> Result<OwnedFd, MountError> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        rustix::fs::open(DEVICE, flags, Mode::empty()).map_err(MountError::NoFuse)
    }

    /// The end of a file system that a server has mounted which was killed.
    pub fn left(fuse: OwnedFd) -> Connection {
        Connection { fuse }
    }

    /// Mounts a file system at a directory. Nothing answers the requests of programs yet.
    pub fn mount(fuse: OwnedFd, directory: &Path) -> Result<(Connection, Mounted), MountError> {
        let directory = mounted::find_free(directory)?;
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
            return Err(MountError::mount(directory, errno::last()));
        }
        Ok((Connection { fuse }, Mounted::at(directory)?))
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

    /// Has the kernel pass on again every request that nobody has answered. False before Linux 6.9.
    pub fn resend(&self) -> bool {
        self.send(0, NOTIFY_RESEND, &[])
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
        if number > 0 { Ok(number) } else { Err(errno::last()) }
    }

    /// Ends a registration. False if there is none of this number.
    pub fn close_backing(&self, number: i32) -> bool {
        let fuse = self.fuse.as_raw_fd();
        // SAFETY: the number that this request reads.
        unsafe { libc::ioctl(fuse, FUSE_DEV_IOC_BACKING_CLOSE, &number) == 0 }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fuse.as_fd()
    }
}
