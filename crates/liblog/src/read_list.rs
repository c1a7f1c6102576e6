//! Reads the values of a binary event: a context, from which one call after the other takes an
//! element.

use crate::border::{BAD_BUFFER, bytes, guard};
use crate::list::Context;
use crate::parser::{Element, Parser, STOP, UNKNOWN};
use std::ffi::{c_char, c_int};

/// Whether the element is still the next one afterwards.
enum Look {
    Read,
    Peek,
}

/// # Safety
/// Null, or a context in use here alone.
unsafe fn look(context: *mut Context, look: Look) -> Element {
    guard(Element::new(UNKNOWN, true), || {
        // SAFETY: by this function's contract.
        let parser = match unsafe { context.as_mut() } {
            Some(Context::Parser(parser)) => parser,
            Some(Context::Writer(_)) => return Element::new(STOP, true),
            None => return Element::new(UNKNOWN, true),
        };
        match look {
            Look::Read => parser.read(),
            Look::Peek => parser.peek(),
        }
    })
}

/// A context for reading this payload (without the event's number), of which it makes a copy.
///
/// # Safety
/// So many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn create_android_log_parser(
    payload: *const c_char,
    n_bytes: usize,
) -> *mut Context {
    guard(std::ptr::null_mut(), || {
        // SAFETY: by this function's contract.
        let payload = unsafe { bytes(payload, n_bytes) };
        Box::into_raw(Box::new(Context::Parser(Parser::new(payload))))
    })
}

/// Has the context read another payload.
///
/// # Safety
/// Null, or a context in use here alone; so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn android_log_parser_reset(
    context: *mut Context,
    payload: *const c_char,
    n_bytes: usize,
) -> c_int {
    guard(BAD_BUFFER, || {
        // SAFETY: by this function's contract.
        let Some(Context::Parser(parser)) = (unsafe { context.as_mut() }) else {
            return BAD_BUFFER;
        };
        // SAFETY: as above.
        *parser = Parser::new(unsafe { bytes(payload, n_bytes) });
        0
    })
}

/// The next element.
///
/// # Safety
/// Null, or a context in use here alone. A string is good until the context changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn android_log_read_next(context: *mut Context) -> Element {
    // SAFETY: by this function's contract.
    unsafe { look(context, Look::Read) }
}

/// The next element, which stays the next one.
///
/// # Safety
/// As [`android_log_read_next`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn android_log_peek_next(context: *mut Context) -> Element {
    // SAFETY: by this function's contract.
    unsafe { look(context, Look::Peek) }
}
