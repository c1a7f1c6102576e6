//! The typed API for C. `include/baton.h` is generated from this crate.
//!
//! - [`reference`]: contexts, objects and handles, as C refers to them. [`parcel`]: data to send.
//!   [`received`]: received data. [`process`]: calls, serving, deaths.
//! - This file: the boundary between C and Rust, which every function crosses by [`guard`].
//!
//! **Invariant**: no panic leaves a function (it becomes `-ENOTRECOVERABLE`), and no null pointer
//! is followed (`-EINVAL`). Each function's `# Safety` says what else the C caller has to
//! guarantee.
#![allow(non_camel_case_types, reason = "the names are C's")]

pub mod parcel;
pub mod process;
pub mod received;
pub mod reference;

use rustix::io::Errno;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a function's body. Returns its value or a negative errno.
fn guard(body: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    guard_or(-Errno::NOTRECOVERABLE.raw_os_error(), || {
        body().unwrap_or_else(|errno| -errno.raw_os_error())
    })
}

/// Runs the body of a function that returns no errno. Returns `failed` after a panic.
fn guard_or<T>(failed: T, body: impl FnOnce() -> T) -> T {
    // AssertUnwindSafe: the driver's locks stay usable after a panic, and the C caller's data is
    // only read.
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        // A payload's own drop may panic.
        std::mem::forget(payload);
        failed
    })
}

/// The value that a pointer points to; `EINVAL` if the pointer is null.
///
/// # Safety
/// The pointer is null or valid, and not written to as long as the result is used.
unsafe fn given<'a, T>(pointer: *const T) -> Result<&'a T, Errno> {
    // SAFETY: by this function's contract.
    unsafe { pointer.as_ref() }.ok_or(Errno::INVAL)
}

/// Like [`given`], for a value that is changed.
///
/// # Safety
/// The pointer is null or valid, and no other code uses it as long as the result is used.
unsafe fn given_mut<'a, T>(pointer: *mut T) -> Result<&'a mut T, Errno> {
    // SAFETY: by this function's contract.
    unsafe { pointer.as_mut() }.ok_or(Errno::INVAL)
}

/// Passes a value to the caller through its `out` parameter, which is not null.
fn give<T>(out: &mut *mut T, value: T) -> c_int {
    *out = Box::into_raw(Box::new(value));
    0
}

/// Takes back and drops a value that [`give`] passed on.
///
/// # Safety
/// The pointer is null or comes from [`give`], and is used only once.
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
    fn no_panic_crosses_the_boundary() {
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
