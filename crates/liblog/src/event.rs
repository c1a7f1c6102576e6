//! Binary events of one value, or of a payload that the program has made.

use crate::border::{BAD_BUFFER, INVALID, NOT_PERMITTED, bytes, guard, string};
use ring_log::Buffer;
use std::ffi::{c_char, c_int, c_void};

/// A string's type in a payload.
const STRING: u8 = 2;
const INT: u8 = 0;
const LIST: u8 = 3;
/// As much as liblog takes of what a security error is called.
const MAX_SUBTAG_BYTES: usize = 32;

/// Writes an event; answers its bytes, of which the number is four.
fn put(tag: i32, payload: &[u8]) -> c_int {
    ring_log::write_event(Buffer::Events, tag.cast_unsigned(), payload);
    c_int::try_from(payload.len() + size_of::<i32>()).unwrap_or(c_int::MAX)
}

fn sized(string: &[u8]) -> Vec<u8> {
    [&[STRING][..], &(string.len() as u32).to_le_bytes(), string].concat()
}

/// Writes an event with this payload.
///
/// # Safety
/// So many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __android_log_bwrite(
    tag: i32,
    payload: *const c_void,
    n_bytes: usize,
) -> c_int {
    // SAFETY: by this function's contract.
    guard(INVALID, || put(tag, unsafe { bytes(payload.cast(), n_bytes) }))
}

/// Writes an event of one value of this type.
///
/// # Safety
/// So many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __android_log_btwrite(
    tag: i32,
    kind: c_char,
    payload: *const c_void,
    n_bytes: usize,
) -> c_int {
    guard(INVALID, || {
        // SAFETY: by this function's contract.
        let value = unsafe { bytes(payload.cast(), n_bytes) };
        put(tag, &[&[kind.cast_unsigned()], value].concat())
    })
}

/// Writes an event of one string.
///
/// # Safety
/// A string of C's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __android_log_bswrite(tag: i32, payload: *const c_char) -> c_int {
    // SAFETY: by this function's contract.
    guard(INVALID, || put(tag, &sized(unsafe { string(payload) }.unwrap_or_default())))
}

/// Writes an event that says which error of security somebody has tried to use.
///
/// # Safety
/// A string of C's, and so many bytes or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __android_log_error_write(
    tag: c_int,
    subtag: *const c_char,
    uid: i32,
    data: *const c_char,
    data_bytes: u32,
) -> c_int {
    guard(INVALID, || {
        // SAFETY: by this function's contract.
        let subtag = unsafe { string(subtag) }.unwrap_or_default();
        // SAFETY: as above.
        let data = unsafe { bytes(data, data_bytes as usize) };
        let subtag = &subtag[..subtag.len().min(MAX_SUBTAG_BYTES)];
        let number = [&[INT][..], &uid.to_le_bytes()].concat();
        put(tag, &[vec![LIST, 3], sized(subtag), number, sized(data)].concat())
    })
}

/// There is no buffer of statistics.
#[unsafe(no_mangle)]
pub extern "C" fn __android_log_stats_bwrite(_: i32, _: *const c_void, _: usize) -> c_int {
    BAD_BUFFER
}

/// The security buffer is for the owner of a device.
#[unsafe(no_mangle)]
pub extern "C" fn __android_log_security_bwrite(_: i32, _: *const c_void, _: usize) -> c_int {
    NOT_PERMITTED
}

/// The same.
#[unsafe(no_mangle)]
pub extern "C" fn __android_log_security_bswrite(_: i32, _: *const c_char) -> c_int {
    NOT_PERMITTED
}
