//! The priorities that are written.

use crate::ffi::guard;
use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicI32, Ordering};

/// `ANDROID_LOG_DEFAULT`: no least priority is set.
const UNSET: c_int = 1;

static LEAST: AtomicI32 = AtomicI32::new(UNSET);

/// Sets the least priority that is written. Returns the former one.
#[unsafe(no_mangle)]
pub extern "C" fn __android_log_set_minimum_priority(priority: c_int) -> c_int {
    LEAST.swap(priority, Ordering::Relaxed)
}

/// The least priority that is written, or `ANDROID_LOG_DEFAULT` if none is set.
#[unsafe(no_mangle)]
pub extern "C" fn __android_log_get_minimum_priority() -> c_int {
    LEAST.load(Ordering::Relaxed)
}

pub(crate) fn is_loggable(priority: c_int, default: c_int) -> bool {
    let least = LEAST.load(Ordering::Relaxed);
    priority >= if least == UNSET { default } else { least }
}

/// Whether this priority is written. Tags have no properties here: the process's least priority
/// counts, or `default_priority` if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn __android_log_is_loggable(
    priority: c_int,
    _tag: *const c_char,
    default_priority: c_int,
) -> c_int {
    guard(1, || is_loggable(priority, default_priority).into())
}

/// Like `__android_log_is_loggable`, for a tag without a NUL.
#[unsafe(no_mangle)]
pub extern "C" fn __android_log_is_loggable_len(
    priority: c_int,
    _tag: *const c_char,
    _tag_bytes: usize,
    default_priority: c_int,
) -> c_int {
    guard(1, || is_loggable(priority, default_priority).into())
}

/// Whether this is a debuggable system: never.
#[unsafe(no_mangle)]
pub extern "C" fn __android_log_is_debuggable() -> c_int {
    0
}
