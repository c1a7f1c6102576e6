//! `ioctl` and `mmap` on a descriptor of ours.

use crate::table::{self, Open};
use crate::{control, real};
use libc::{c_int, c_ulong, c_void, off_t, size_t};
use rustix::io::Errno;
use std::sync::atomic::Ordering;

/// Whether a request number is one of Binder's: its type byte is `b`.
#[inline]
pub fn is_binder(request: c_ulong) -> bool {
    request >> 8 & 0xff == c_ulong::from(b'b')
}

/// A Binder request; `None` if the descriptor is not ours.
///
/// # Safety
/// The argument is what the request takes. (Devices check theirs and answer `EFAULT`.)
pub unsafe fn binder_ioctl(
    fd: c_int,
    request: c_ulong,
    argument: size_t,
    nonblocking: Option<bool>,
) -> Option<Result<c_int, Errno>> {
    let guard = table::get(fd)?;
    // The kernel, too, looks at the low half of the request only.
    let request = request as u32;
    Some(match guard.as_deref()? {
        Open::Device { device, nonblocking: flag } => {
            let nonblocking = nonblocking.unwrap_or_else(|| flag.load(Ordering::Relaxed));
            device.ioctl(request, argument, nonblocking)
        }
        // SAFETY: by this function's contract.
        Open::Control => unsafe { control::ioctl(request, argument) },
    })
}

/// A request that is not Binder's, on a descriptor of ours: the kernel's file layer answers some
/// for every kind of file, the driver refuses the rest.
///
/// # Safety
/// The argument is what the request takes.
unsafe fn file_ioctl(fd: c_int, request: c_ulong, argument: size_t) -> c_int {
    match request {
        libc::FIOCLEX | libc::FIONCLEX => {}
        libc::FIONBIO => {
            if let Some(open) = table::get(fd).as_deref().and_then(Option::as_deref) {
                // SAFETY: FIONBIO takes the address of an int.
                open.set_nonblocking(unsafe { *(argument as *const c_int) } != 0);
            }
        }
        _ => return real::fail(libc::EINVAL),
    }
    // SAFETY: the caller's arguments.
    unsafe { real::ioctl(fd, request, argument) }
}

/// As the C library's.
///
/// # Safety
/// The argument is what the request takes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: size_t) -> c_int {
    if !table::is_mine(fd) {
        // SAFETY: the caller's arguments.
        return unsafe { real::ioctl(fd, request, argument) };
    }
    if !is_binder(request) {
        // SAFETY: the caller's arguments.
        return unsafe { file_ioctl(fd, request, argument) };
    }
    // SAFETY: the caller's arguments.
    match unsafe { binder_ioctl(fd, request, argument, None) } {
        Some(Ok(value)) => value,
        Some(Err(errno)) => real::fail(errno.raw_os_error()),
        None => real::fail(libc::EBADF),
    }
}

/// Maps a receive buffer. The whole length is mapped although the driver uses 4 MiB of it at
/// most, as in the kernel: the program will unmap what it asked for.
fn map_device(
    fd: c_int,
    bytes: size_t,
    protection: c_int,
    map: impl FnOnce(off_t) -> *mut c_void,
) -> Option<*mut c_void> {
    let guard = table::get(fd)?;
    let device = guard.as_deref()?.device()?;
    let used_bytes = match device.before_map(bytes, protection & libc::PROT_WRITE != 0) {
        Ok(used_bytes) => used_bytes,
        Err(errno) => {
            real::set_errno(errno.raw_os_error());
            return Some(libc::MAP_FAILED);
        }
    };
    let address = map(0);
    if address != libc::MAP_FAILED {
        // SAFETY: the range has just been mapped. A child of fork does not get the map, as it
        // gets none of the kernel's (VM_DONTCOPY); failing to arrange that harms nobody.
        unsafe { libc::madvise(address, bytes, libc::MADV_DONTFORK) };
        device.mapped(address as usize, used_bytes);
    }
    Some(address)
}

macro_rules! mmaps {
    ($($name:ident)*) => {$(
        /// As the C library's.
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            address: *mut c_void,
            bytes: size_t,
            protection: c_int,
            flags: c_int,
            fd: c_int,
            offset: off_t,
        ) -> *mut c_void {
            // SAFETY: the caller's arguments.
            let map = |offset| unsafe { real::$name(address, bytes, protection, flags, fd, offset) };
            let file = flags & libc::MAP_ANONYMOUS == 0 && table::is_mine(fd);
            file.then(|| map_device(fd, bytes, protection, map)).flatten().unwrap_or_else(|| map(offset))
        }
    )*};
}

mmaps! { mmap mmap64 }
