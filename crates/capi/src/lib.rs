//! The typed API for C: `include/baton.h` is generated from here.
//!
//! - [`process`]: opening, objects, calls, serving. [`parcel`]: what is sent. [`received`]: what
//!   has come.
//! - This file: the border itself, which every function crosses by [`guard`].
//!
//! **Invariant**: no panic leaves a function (it becomes `-ENOTRECOVERABLE`), and no null pointer
//! is followed (`-EINVAL`). What else a pointer must be is the C caller's part, in each function's
//! `# Safety`.
#![allow(non_camel_case_types, reason = "the names are C's")]

pub mod parcel;
pub mod process;
pub mod received;

use rustix::io::Errno;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a function's body: its value, or a negative errno.
fn guard(body: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    guard_or(-Errno::NOTRECOVERABLE.raw_os_error(), || {
        body().unwrap_or_else(|errno| -errno.raw_os_error())
    })
}

/// Runs the body of a function that answers no errno: `failed` in place of a panic.
fn guard_or<T>(failed: T, body: impl FnOnce() -> T) -> T {
    // AssertUnwindSafe: the driver's locks are taken again after a panic, and what the C caller
    // holds is only read.
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        // A payload's own drop may panic.
        std::mem::forget(payload);
        failed
    })
}

/// What a pointer points to; `EINVAL` if it is null.
///
/// # Safety
/// It is null or valid, and not written to, for as long as the result is used.
unsafe fn given<'a, T>(pointer: *const T) -> Result<&'a T, Errno> {
    // SAFETY: by this function's contract.
    unsafe { pointer.as_ref() }.ok_or(Errno::INVAL)
}

/// The same to be changed.
///
/// # Safety
/// It is null or valid, and used by nobody else, for as long as the result is used.
unsafe fn given_mut<'a, T>(pointer: *mut T) -> Result<&'a mut T, Errno> {
    // SAFETY: by this function's contract.
    unsafe { pointer.as_mut() }.ok_or(Errno::INVAL)
}

/// Hands a value to the caller through its `out` parameter, which is known not to be null.
fn give<T>(out: &mut *mut T, value: T) -> c_int {
    *out = Box::into_raw(Box::new(value));
    0
}

/// Takes back and drops what [`give`] has handed over.
///
/// # Safety
/// It is null or comes from [`give`], once.
unsafe fn take_back<T>(pointer: *mut T) {
    if !pointer.is_null() {
        guard_or((), || {
            // SAFETY: by this function's contract.
            drop(unsafe { Box::from_raw(pointer) });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_unwinds_past_the_border() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("in the payload's drop");
            }
        }
        assert_eq!(guard(|| panic!("a bug")), -Errno::NOTRECOVERABLE.raw_os_error());
        assert_eq!(guard_or(7, || std::panic::panic_any(Bomb)), 7);
        assert_eq!(guard(|| Err(Errno::PERM)), -Errno::PERM.raw_os_error());
        assert_eq!(guard(|| Ok(3)), 3);
    }
}
