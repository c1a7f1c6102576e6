//! Reads the values of a binary event: each call takes one element from a context.

use crate::ffi::{BAD_BUFFER, bytes, guard};
use crate::list::Context;
use crate::parser::{Element, Parser, STOP, UNKNOWN};
use std::ffi::{c_char, c_int};

/// Whether a look at an element also reads it.
enum Look {
    Read,
    Peek,
}

/// # Safety
/// `context` is null, or a context that no other thread uses.
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

/// Makes a context for reading this payload (without the event's number), which it copies.
///
/// # Safety
/// `payload` is null or has `n_bytes` bytes.
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

/// Lets the context read another payload, which it copies.
///
/// # Safety
/// `context` is null, or a context that no other thread uses; `payload` is null or has `n_bytes`
/// bytes.
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

/// Reads the next element.
///
/// # Safety
/// `context` is null, or a context that no other thread uses. A string of the element is valid
/// until the context changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn android_log_read_next(context: *mut Context) -> Element {
    // SAFETY: by this function's contract.
    unsafe { look(context, Look::Read) }
}

/// The next element, without reading it.
///
/// # Safety
/// That of [`android_log_read_next`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn android_log_peek_next(context: *mut Context) -> Element {
    // SAFETY: by this function's contract.
    unsafe { look(context, Look::Peek) }
}
