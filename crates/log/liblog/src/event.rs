//! Binary events with one value, or with a payload of the program's own.

use crate::ffi::{BAD_BUFFER, INVALID, NOT_PERMITTED, bytes, guard, string};
use ring_log::Buffer;
use std::ffi::{c_char, c_int, c_void};

/// The type of a string in a payload.
const STRING: u8 = 2;
const INT: u8 = 0;
const LIST: u8 = 3;
/// The bytes of a security error's name that liblog keeps.
const MAX_SUBTAG_BYTES: usize = 32;

/// Writes an event. Returns its bytes, the four of its number included.
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
/// `payload` points to `n_bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __android_log_bwrite(
    tag: i32,
    payload: *const c_void,
    n_bytes: usize,
) -> c_int {
    // SAFETY: by this function's contract.
    guard(INVALID, || put(tag, unsafe { bytes(payload.cast(), n_bytes) }))
}

/// Writes an event with one value of this type, a `char`, which has a sign on some architectures.
///
/// # Safety
/// `payload` points to `n_bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __android_log_btwrite(
    tag: i32,
    kind: u8,
    payload: *const c_void,
    n_bytes: usize,
) -> c_int {
    guard(INVALID, || {
        // SAFETY: by this function's contract.
        let value = unsafe { bytes(payload.cast(), n_bytes) };
        put(tag, &[&[kind], value].concat())
    })
}

/// Writes an event with one string.
///
/// # Safety
/// `payload` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __android_log_bswrite(tag: i32, payload: *const c_char) -> c_int {
    // SAFETY: by this function's contract.
    guard(INVALID, || put(tag, &sized(unsafe { string(payload) }.unwrap_or_default())))
}

/// Writes an event that reports an attempt to use a security error.
///
/// # Safety
/// `subtag` is null or a C string; `data` is null or `data_bytes` bytes.
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

/// Returns an error: this log has no buffer for statistics.
#[unsafe(no_mangle)]
pub extern "C" fn __android_log_stats_bwrite(_: i32, _: *const c_void, _: usize) -> c_int {
    BAD_BUFFER
}

/// Returns an error: only a device's owner has a security buffer.
#[unsafe(no_mangle)]
pub extern "C" fn __android_log_security_bwrite(_: i32, _: *const c_void, _: usize) -> c_int {
    NOT_PERMITTED
}

/// Returns an error, like the function for payloads.
#[unsafe(no_mangle)]
pub extern "C" fn __android_log_security_bswrite(_: i32, _: *const c_char) -> c_int {
    NOT_PERMITTED
}
