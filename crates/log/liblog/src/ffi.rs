//! The boundary to C: strings of callers, errors, and panics that must not cross it.

use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The negative EPERM, with which liblog reports it.
pub const NOT_PERMITTED: c_int = -libc::EPERM;
/// The negative EBADF.
pub const BAD_BUFFER: c_int = -libc::EBADF;
/// The negative EINVAL.
pub const INVALID: c_int = -libc::EINVAL;

/// Runs the body of a C function, and returns `failed` after a panic. `errno` stays unchanged, as
/// programs log between a failed call and their look at `errno`.
pub fn guard<T>(failed: T, body: impl FnOnce() -> T) -> T {
    // SAFETY: the pointer is to this thread's errno.
    let errno = unsafe { &mut *libc::__errno_location() };
    let before = *errno;
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        // The payload's drop may panic once more.
        std::mem::forget(payload);
        failed
    });
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = before };
    result
}

/// The bytes of a C string; `None` if it is null.
///
/// # Safety
/// `string` is null, or a C string that does not change while the result is used.
pub unsafe fn string<'a>(string: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: by this function's contract.
    (!string.is_null()).then(|| unsafe { CStr::from_ptr(string) }.to_bytes())
}

/// The bytes at an address; empty if it is null.
///
/// # Safety
/// `memory` is null, or `n_bytes` bytes that do not change while the result is used.
pub unsafe fn bytes<'a>(memory: *const c_char, n_bytes: usize) -> &'a [u8] {
    if memory.is_null() {
        return &[];
    }
    // SAFETY: by this function's contract.
    unsafe { std::slice::from_raw_parts(memory.cast(), n_bytes) }
}
