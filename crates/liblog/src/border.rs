//! The border to C: strings that come over it, and what must not go over it.

use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// `<errno.h>`, negative, as liblog answers.
pub const NOT_PERMITTED: c_int = -libc::EPERM;
/// The same.
pub const BAD_BUFFER: c_int = -libc::EBADF;
/// The same.
pub const INVALID: c_int = -libc::EINVAL;

/// Runs a function's body; `failed` in place of a panic. `errno` stays as it was, as loggers are
/// called between a failure and a look at its reason.
pub fn guard<T>(failed: T, body: impl FnOnce() -> T) -> T {
    // SAFETY: the thread's own errno.
    let errno = unsafe { &mut *libc::__errno_location() };
    let before = *errno;
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        // A payload's own drop may panic.
        std::mem::forget(payload);
        failed
    });
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = before };
    result
}

/// A string's bytes; `None` if there is no string.
///
/// # Safety
/// It is null, or a string of C's that is not changed as long as the result is used.
pub unsafe fn string<'a>(string: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: by this function's contract.
    (!string.is_null()).then(|| unsafe { CStr::from_ptr(string) }.to_bytes())
}

/// So many bytes; none if there is no memory.
///
/// # Safety
/// It is null, or memory of so many bytes that is not changed as long as the result is used.
pub unsafe fn bytes<'a>(memory: *const c_char, n_bytes: usize) -> &'a [u8] {
    if memory.is_null() {
        return &[];
    }
    // SAFETY: by this function's contract.
    unsafe { std::slice::from_raw_parts(memory.cast(), n_bytes) }
}
