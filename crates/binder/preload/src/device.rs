//! `ioctl` on a device's descriptor.

use crate::table::{self, Object};
use crate::{control, files, real, stack};
use libc::{c_int, c_ulong, size_t};
use rustix::io::Errno;
use std::sync::atomic::Ordering;

/// Whether a request number is one of Binder's, with the type byte `b`.
#[inline]
pub fn is_binder(request: c_ulong) -> bool {
    request >> 8 & 0xff == c_ulong::from(b'b')
}

/// Handles a Binder request. `None` if the descriptor is not in the table.
///
/// # Safety
/// The argument is what the request takes. Devices check theirs and answer `EFAULT`.
pub unsafe fn binder_ioctl(
    fd: c_int,
    request: c_ulong,
    argument: size_t,
    nonblocking: Option<bool>,
) -> Option<Result<c_int, Errno>> {
    let guard = table::get(fd)?;
    // The kernel also uses only the low half of the request.
    let request = request as u32;
    Some(match &guard.as_deref()?.object {
        Object::Device { device, nonblocking: flag, .. } => {
            let nonblocking = nonblocking.unwrap_or_else(|| flag.load(Ordering::Relaxed));
            device.ioctl(request, argument, nonblocking)
        }
        // SAFETY: by this function's contract.
        Object::Control => unsafe { control::ioctl(request, argument) },
    })
}

/// Handles a request that is not Binder's on a device's descriptor. The kernel's file layer answers
/// some requests for every kind of file; the driver refuses the rest.
///
/// # Safety
/// The argument is what the request takes.
unsafe fn file_ioctl(
    fd: c_int,
    request: c_ulong,
    argument: size_t,
    real: impl FnOnce() -> c_int,
) -> c_int {
    let guard = files::current(fd);
    let Some(open) = guard.as_deref().and_then(Option::as_deref) else {
        return real();
    };
    match request {
        libc::FIOCLEX | libc::FIONCLEX => {}
        libc::FIONBIO => {
            // SAFETY: FIONBIO takes the address of an int.
            open.set_nonblocking(unsafe { *(argument as *const c_int) } != 0);
        }
        // The driver refuses the request, but learns of the thread.
        _ => {
            // SAFETY: as `binder_ioctl`, which knows no such request.
            let refused = unsafe { binder_ioctl(fd, request, argument, None) };
            let errno = refused.and_then(Result::err).unwrap_or(Errno::INVAL);
            return real::fail(errno.raw_os_error());
        }
    }
    real()
}

/// Interposes the C library's function of this name.
///
/// # Safety
/// The argument is what the request takes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: size_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { ioctl_by(fd, request, argument, || real::ioctl(fd, request, argument)) }
}

/// Handles a request, or calls `real` if it is for another file.
///
/// # Safety
/// The argument is what the request takes.
#[inline]
pub unsafe fn ioctl_by(
    fd: c_int,
    request: c_ulong,
    argument: size_t,
    real: impl FnOnce() -> c_int,
) -> c_int {
    if !table::contains(fd) {
        return real();
    }
    if !is_binder(request) {
        // SAFETY: the caller's arguments.
        return unsafe { file_ioctl(fd, request, argument, real) };
    }
    // SAFETY: the caller's arguments.
    match stack::on_large_stack(|| unsafe { binder_ioctl(fd, request, argument, None) }) {
        Some(Ok(value)) => value,
        Some(Err(errno)) => real::fail(errno.raw_os_error()),
        None => real::fail(libc::EBADF),
    }
}
