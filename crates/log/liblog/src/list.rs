//! Events of several values: a context collects the values, and then writes the event.
//!
//! A payload is a list. With one value or none, it is that value without the list around it.

use crate::event::{
    __android_log_bwrite, __android_log_security_bwrite, __android_log_stats_bwrite,
};
use crate::ffi::{BAD_BUFFER, INVALID, guard};
use crate::parser::{MAX_BYTES, MAX_DEPTH, Parser};
use std::ffi::{c_char, c_int, c_void};

const IO: c_int = -libc::EIO;
const OVERFLOW: c_int = -libc::EOVERFLOW;
const FAULT: c_int = -libc::EFAULT;
/// Numbers of `log_id_t`.
const EVENTS: c_int = 2;
const STATS: c_int = 5;
const SECURITY: c_int = 6;

const INT: u8 = 0;
const LONG: u8 = 1;
const STRING: u8 = 2;
const LIST: u8 = 3;
const FLOAT: u8 = 4;

/// `android_log_context`'s type, of which programs know only a pointer.
#[derive(Debug)]
pub enum Context {
    /// Values that are to be written.
    Writer(List),
    /// Values that are being read.
    Parser(Parser),
}

/// The values of an event that is not written yet.
#[derive(Debug)]
pub struct List {
    tag: u32,
    payload: Vec<u8>,
    /// The position of each open list's count, the outermost first.
    open: Vec<usize>,
    /// A value did not fit. Later values are refused.
    overflow: bool,
}

impl List {
    fn new(tag: u32) -> List {
        List { tag, payload: vec![LIST, 0], open: vec![1], overflow: false }
    }

    fn room(&self) -> usize {
        MAX_BYTES - self.payload.len()
    }

    /// Adds a value to the innermost list.
    fn add(&mut self, value: &[u8]) -> Result<c_int, c_int> {
        if self.overflow || self.room() < value.len() {
            self.overflow = true;
            return Err(IO);
        }
        let count = self.open.last().map(|at| &mut self.payload[*at]);
        if let Some(count) = count {
            *count = count.wrapping_add(1);
        }
        self.payload.extend(value);
        Ok(0)
    }

    /// Adds a string, cut to the room that there is. Returns the bytes that fit.
    fn add_string(&mut self, words: &[u8]) -> Result<c_int, c_int> {
        let head = 1 + size_of::<u32>();
        let cut = &words[..words.len().min(self.room().saturating_sub(head))];
        if cut.is_empty() && !words.is_empty() {
            self.overflow = true;
            return Err(IO);
        }
        self.add(&[&[STRING][..], &(cut.len() as u32).to_le_bytes(), cut].concat())?;
        Ok(cut.len() as c_int)
    }

    fn begin(&mut self) -> Result<c_int, c_int> {
        if self.open.len() > MAX_DEPTH {
            self.overflow = true;
            return Err(OVERFLOW);
        }
        self.add(&[LIST, 0])?;
        self.open.push(self.payload.len() - 1);
        Ok(0)
    }

    fn end(&mut self) -> Result<c_int, c_int> {
        if self.open.len() == 1 {
            self.overflow = true;
            return Err(OVERFLOW);
        }
        self.open.pop();
        Ok(0)
    }

    /// The payload of the event, if no inner list is open.
    fn payload(&self) -> Option<&[u8]> {
        let without = if self.payload[1] <= 1 { 2 } else { 0 };
        (self.open.len() == 1).then(|| &self.payload[without..])
    }
}

/// Calls `body` with the list of a context. A null or a context of the other kind is an error.
///
/// # Safety
/// `context` is null, or was made by [`create_android_logger`] or
/// [`crate::read_list::create_android_log_parser`] and no other thread uses it.
unsafe fn writer<T>(
    context: *mut Context,
    body: impl FnOnce(&mut List) -> Result<T, c_int>,
) -> Result<T, c_int> {
    // SAFETY: by this function's contract.
    match unsafe { context.as_mut() } {
        Some(Context::Writer(list)) => body(list),
        _ => Err(BAD_BUFFER),
    }
}

/// Calls [`writer`] for a function that returns a number.
///
/// # Safety
/// That of [`writer`].
unsafe fn write(
    context: *mut Context,
    body: impl FnOnce(&mut List) -> Result<c_int, c_int>,
) -> c_int {
    // SAFETY: by this function's contract.
    guard(INVALID, || unsafe { writer(context, body) }.unwrap_or_else(|error| error))
}

/// Makes a context for an event with this number.
#[unsafe(no_mangle)]
pub extern "C" fn create_android_logger(tag: u32) -> *mut Context {
    guard(std::ptr::null_mut(), || Box::into_raw(Box::new(Context::Writer(List::new(tag)))))
}

/// Frees a context of either kind, and sets the pointer to null.
///
/// # Safety
/// `context` points to null or to a context that is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn android_log_destroy(context: *mut *mut Context) -> c_int {
    guard(INVALID, || {
        // SAFETY: by this function's contract.
        let Some(context) = (unsafe { context.as_mut() }).filter(|context| !context.is_null())
        else {
            return BAD_BUFFER;
        };
        // SAFETY: made by `Box::into_raw`, and freed once: null takes its place.
        drop(unsafe { Box::from_raw(std::mem::replace(context, std::ptr::null_mut())) });
        0
    })
}

/// Removes all values.
///
/// # Safety
/// `context` is null, or a context that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn android_log_reset(context: *mut Context) -> c_int {
    let again = |list: &mut List| {
        *list = List::new(list.tag);
        Ok(0)
    };
    // SAFETY: by this function's contract.
    unsafe { write(context, again) }
}

/// Opens a list in the innermost one.
///
/// # Safety
/// `context` is null, or a context that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn android_log_write_list_begin(context: *mut Context) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { write(context, List::begin) }
}

/// Closes the innermost list.
///
/// # Safety
/// `context` is null, or a context that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn android_log_write_list_end(context: *mut Context) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { write(context, List::end) }
}

/// Adds an `int32_t`.
///
/// # Safety
/// `context` is null, or a context that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn android_log_write_int32(context: *mut Context, value: i32) -> c_int {
    let value = [&[INT][..], &value.to_le_bytes()].concat();
    // SAFETY: by this function's contract.
    unsafe { write(context, |list| list.add(&value)) }
}

/// Adds an `int64_t`.
///
/// # Safety
/// `context` is null, or a context that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn android_log_write_int64(context: *mut Context, value: i64) -> c_int {
    let value = [&[LONG][..], &value.to_le_bytes()].concat();
    // SAFETY: by this function's contract.
    unsafe { write(context, |list| list.add(&value)) }
}

/// Adds a `float`.
///
/// # Safety
/// `context` is null, or a context that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn android_log_write_float32(context: *mut Context, value: f32) -> c_int {
    let value = [&[FLOAT][..], &value.to_le_bytes()].concat();
    // SAFETY: by this function's contract.
    unsafe { write(context, |list| list.add(&value)) }
}

/// Adds a string. Returns the bytes of it that fit.
///
/// # Safety
/// `context` is null, or a context that no other thread uses; `value` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn android_log_write_string8(
    context: *mut Context,
    value: *const c_char,
) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { android_log_write_string8_len(context, value, MAX_BYTES) }
}

/// Adds a string that ends at a NUL or after this many bytes.
///
/// # Safety
/// `context` is null, or a context that no other thread uses; `value` is null for an empty string,
/// or has that many bytes or a NUL before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn android_log_write_string8_len(
    context: *mut Context,
    value: *const c_char,
    most: usize,
) -> c_int {
    // SAFETY: by this function's contract, the bytes up to the NUL or the bound are there.
    let words = unsafe {
        let n_bytes = if value.is_null() { 0 } else { libc::strnlen(value, most.min(MAX_BYTES)) };
        crate::ffi::bytes(value, n_bytes)
    };
    // SAFETY: by this function's contract.
    unsafe { write(context, |list| list.add_string(words)) }
}

/// Writes the event to a buffer of events.
///
/// # Safety
/// `context` is null, or a context that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn android_log_write_list(context: *mut Context, buffer: c_int) -> c_int {
    if ![EVENTS, STATS, SECURITY].contains(&buffer) {
        return INVALID;
    }
    let put = |list: &mut List| {
        let payload = list.payload().ok_or(IO)?;
        let (start, n_bytes) = (payload.as_ptr().cast::<c_void>(), payload.len());
        let tag = list.tag.cast_signed();
        Ok(match buffer {
            // SAFETY: `start` and `n_bytes` are those of the payload.
            EVENTS => unsafe { __android_log_bwrite(tag, start, n_bytes) },
            STATS => __android_log_stats_bwrite(tag, start, n_bytes),
            _ => __android_log_security_bwrite(tag, start, n_bytes),
        })
    };
    // SAFETY: by this function's contract.
    unsafe { write(context, put) }
}

/// Returns a pointer to the payload and its bytes.
///
/// # Safety
/// `context` is null, or a context that no other thread uses; `buffer` is null or writable. The
/// pointer is valid until the context changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn android_log_write_list_buffer(
    context: *mut Context,
    buffer: *mut *const c_char,
) -> c_int {
    let lend = |list: &mut List| {
        let payload = list.payload().ok_or(IO)?;
        // SAFETY: by this function's contract.
        let buffer = unsafe { buffer.as_mut() }.ok_or(FAULT)?;
        *buffer = payload.as_ptr().cast();
        Ok(payload.len() as c_int)
    };
    // SAFETY: by this function's contract.
    unsafe { write(context, lend) }
}
