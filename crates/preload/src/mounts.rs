//! Setting up what is there already: mounting binderfs, linking to a device from `/dev`.

use crate::paths::{Place, place};
use crate::{files, real, status};
use libc::{c_char, c_int, c_ulong, c_void};
use std::ffi::CStr;

/// As the C library's; of binderfs at its own place there is one for everybody.
///
/// # Safety
/// As the C library's.
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
    let is_ours = string(target).and_then(place) == Some(Place::Plain);
    if is_ours && string(kind) == Some(c"binder") {
        return 0;
    }
    // SAFETY: the caller's arguments.
    unsafe { real::mount(source, target, kind, flags, data) }
}

/// As the C library's; where a device of ours is there can be no link.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn symlink(target: *const c_char, path: *const c_char) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { symlinkat(target, libc::AT_FDCWD, path) }
}

/// As the C library's; where a device of ours is there can be no link.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn symlinkat(
    target: *const c_char,
    dir: c_int,
    path: *const c_char,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        let taken = files::place_of(path).is_some() && status::access(path, libc::F_OK) == 0;
        if taken { real::fail(libc::EEXIST) } else { real::symlinkat(target, dir, path) }
    }
}
