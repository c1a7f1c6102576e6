//! Functions that write texts, and the names of buffers.

use crate::ffi::{NOT_PERMITTED, guard};
use crate::loggable::is_loggable;
use crate::logger::hand_over;
use ring_log::Buffer;
use std::ffi::{CStr, c_char, c_int};

const VERBOSE: c_int = 2;
/// The result of a write that has succeeded.
const WRITTEN: c_int = 1;

/// Writes a text to a buffer.
///
/// # Safety
/// `tag` and `text` are null or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __android_log_buf_write(
    buffer: c_int,
    priority: c_int,
    tag: *const c_char,
    text: *const c_char,
) -> c_int {
    guard(NOT_PERMITTED, || {
        if !is_loggable(priority, VERBOSE) {
            return NOT_PERMITTED;
        }
        hand_over(buffer, priority, tag, text);
        WRITTEN
    })
}

/// Writes a text to the buffer `main`.
///
/// # Safety
/// `tag` and `text` are null or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __android_log_write(
    priority: c_int,
    tag: *const c_char,
    text: *const c_char,
) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { __android_log_buf_write(Buffer::Main as c_int, priority, tag, text) }
}

const STATS: c_int = 5;
const NAMES: [&CStr; 8] =
    [c"main", c"radio", c"events", c"system", c"crash", c"stats", c"security", c"kernel"];

/// The name of a buffer, or `unexpected log_id`. Buffers that only Android's own log has have
/// names, too.
#[unsafe(no_mangle)]
pub extern "C" fn android_log_id_to_name(buffer: c_int) -> *const c_char {
    let name = usize::try_from(buffer).ok().and_then(|at| NAMES.get(at));
    name.unwrap_or(&c"unexpected log_id").as_ptr()
}

/// The number of the buffer with this name, which may be the last part of a path; -1 if there is
/// none.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn android_name_to_log_id(name: *const c_char) -> c_int {
    // SAFETY: by this function's contract.
    let name = unsafe { crate::ffi::string(name) }.unwrap_or_default();
    let last = name.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    NAMES.iter().position(|known| known.to_bytes() == last).map_or(-1, |at| at as c_int)
}

const _: () = assert!(STATS as usize + 3 == NAMES.len());
