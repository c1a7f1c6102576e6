//! binderfs' `binder-control`, which adds contexts at the broker.

use crate::paths::{self, settings};
use baton_abi::uapi::{BINDER_CTL_ADD, BinderfsDevice};
use baton_driver::observer::Observer;
use libc::{c_int, size_t};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{CStr, CString};

/// Handles an ioctl on `binder-control`. `EINVAL` for any request but `BINDER_CTL_ADD`; other
/// errors are the broker's.
///
/// # Safety
/// The argument of `BINDER_CTL_ADD` is the address of a `binderfs_device`.
pub unsafe fn ioctl(request: u32, argument: size_t) -> Result<c_int, Errno> {
    if request != BINDER_CTL_ADD {
        return Err(Errno::INVAL);
    }
    let device = argument as *mut BinderfsDevice;
    if device.is_null() {
        return Err(Errno::FAULT);
    }
    // SAFETY: by this function's contract; the copy need not be aligned.
    let copy = unsafe { device.read_unaligned() };
    let name = CStr::from_bytes_until_nul(&copy.name).map_err(|_| Errno::NAMETOOLONG)?;
    add(name.to_str().map_err(|_| Errno::INVAL)?)?;
    // SAFETY: as above. Contexts have no device numbers, so the caller gets 0, 0.
    unsafe { device.write_unaligned(BinderfsDevice { major: 0, minor: 0, ..copy }) };
    Ok(0)
}

fn add(name: &str) -> Result<(), Errno> {
    Observer::connect(&settings().socket).map_err(|error| error.errno())?.add_context(name)?;
    // The context exists, with or without a placeholder file.
    let path = CString::new(format!("/dev/binderfs/{name}")).map_err(|_| Errno::INVAL)?;
    if let Some(placeholder) = paths::placeholder(&path) {
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        let _ = rustix::fs::open(&placeholder, flags, Mode::from_raw_mode(0o666));
    }
    Ok(())
}
