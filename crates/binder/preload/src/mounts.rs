//! Functions that set up devices which already exist: mounting binderfs, linking to a device from
//! `/dev`.

use crate::paths::{BatonPath, classify};
use crate::{files, real, status};
use libc::{c_char, c_int, c_ulong, c_void};
use std::ffi::CStr;

/// Interposes the C library's function. Mounting binderfs at its usual place succeeds without
/// effect, because it is always there.
///
/// # Safety
/// The contract of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mount(
    source: *const c_char,
    target: *const c_char,
    kind: *const c_char,
    flags: c_ulong,
    data: *const c_void,
) -> c_int {
    // SAFETY: null or C strings, by this function's contract.
    let string =
        |string: *const c_char| unsafe { (!string.is_null()).then(|| CStr::from_ptr(string)) };
    let is_ours = string(target).and_then(classify) == Some(BatonPath::Plain);
    if is_ours && string(kind) == Some(c"binder") {
        return 0;
    }
    // SAFETY: the caller's arguments.
    unsafe { real::mount(source, target, kind, flags, data) }
}

/// Interposes the C library's function. `EEXIST` at the path of a device.
///
/// # Safety
/// The contract of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn symlink(target: *const c_char, path: *const c_char) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { symlinkat(target, libc::AT_FDCWD, path) }
}

/// Interposes the C library's function. `EEXIST` at the path of a device.
///
/// # Safety
/// The contract of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn symlinkat(
    target: *const c_char,
    dir: c_int,
    path: *const c_char,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        let taken = files::classified(path).is_some() && status::access(path, libc::F_OK) == 0;
        if taken { real::fail(libc::EEXIST) } else { real::symlinkat(target, dir, path) }
    }
}
