//! The function that writes texts (to the log, to standard error, or the program's own), and the
//! function that ends the program.

use crate::ffi::{guard, string};
use crate::text::{Text, put};
use jiff::tz::TimeZone;
use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::io::Write;
use std::sync::atomic::{AtomicPtr, Ordering};

/// `struct __android_logger_data`.
#[repr(C)]
#[derive(Debug)]
pub struct LoggerData {
    struct_size: usize,
    buffer_id: c_int,
    priority: c_int,
    tag: *const c_char,
    file: *const c_char,
    line: c_uint,
}

/// `__android_logger_function`.
pub type Logger = unsafe extern "C" fn(*const LoggerData, *const c_char);
/// `__android_aborter_function`.
pub type Aborter = unsafe extern "C" fn(*const c_char);

/// Null: texts go to the log.
static LOGGER: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());
/// Null: abort(3).
static ABORTER: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());
/// Null: the program's name. A tag that was set is never freed, as another thread may read it.
static DEFAULT_TAG: AtomicPtr<c_char> = AtomicPtr::new(std::ptr::null_mut());

/// Sets the tag of texts without one.
///
/// # Safety
/// `tag` is a C string, or null for the program's name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __android_log_set_default_tag(tag: *const c_char) {
    guard((), || {
        // SAFETY: by this function's contract.
        let tag = unsafe { string(tag) }.and_then(|tag| CString::new(tag).ok());
        DEFAULT_TAG.store(tag.map_or(std::ptr::null_mut(), CString::into_raw), Ordering::Release);
    });
}

/// The tag of texts without one.
fn default_tag() -> *const c_char {
    unsafe extern "C" {
        static program_invocation_short_name: *const c_char;
    }
    // Pairs with the store above.
    let set = DEFAULT_TAG.load(Ordering::Acquire);
    // SAFETY: the C library sets it before `main`, and does not change it.
    if set.is_null() { unsafe { program_invocation_short_name } } else { set }
}

/// Sets the function that writes all texts.
#[unsafe(no_mangle)]
pub extern "C" fn __android_log_set_logger(logger: Option<Logger>) {
    LOGGER
        .store(logger.map_or(std::ptr::null_mut(), |logger| logger as *mut ()), Ordering::Release);
}

/// Sets the function that ends the program.
#[unsafe(no_mangle)]
pub extern "C" fn __android_log_set_aborter(aborter: Option<Aborter>) {
    let aborter = aborter.map_or(std::ptr::null_mut(), |aborter| aborter as *mut ());
    ABORTER.store(aborter, Ordering::Release);
}

/// Ends the program through the function that was set.
///
/// # Safety
/// `message` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __android_log_call_aborter(message: *const c_char) {
    let aborter = ABORTER.load(Ordering::Acquire);
    if aborter.is_null() {
        std::process::abort();
    }
    // SAFETY: the pointer was made from a function of this type; the message is valid by this
    // function's contract.
    unsafe { std::mem::transmute::<*mut (), Aborter>(aborter)(message) };
}

/// Ends the program by abort(3).
#[unsafe(no_mangle)]
pub extern "C" fn __android_log_default_aborter(_message: *const c_char) {
    std::process::abort();
}

/// Passes a text to the function that writes texts.
pub(crate) fn hand_over(buffer: c_int, priority: c_int, tag: *const c_char, text: *const c_char) {
    let mut data = LoggerData {
        struct_size: size_of::<LoggerData>(),
        buffer_id: buffer,
        priority,
        tag,
        file: std::ptr::null(),
        line: 0,
    };
    // SAFETY: the structure is a local one, with the caller's strings.
    unsafe { __android_log_write_logger_data(&raw mut data, text) };
}

/// Writes a text through the function that was set, or to the log.
///
/// # Safety
/// `data` is null or valid, and its strings and `text` are null or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __android_log_write_logger_data(
    data: *mut LoggerData,
    text: *const c_char,
) {
    // SAFETY: by this function's contract.
    let Some(data) = (unsafe { data.as_mut() }) else { return };
    if data.tag.is_null() {
        data.tag = default_tag();
    }
    let logger = LOGGER.load(Ordering::Acquire);
    if logger.is_null() {
        // SAFETY: by this function's contract.
        return unsafe { __android_log_logd_logger(data, text) };
    }
    // SAFETY: the pointer was made from a function of this type; the data is valid by this
    // function's contract.
    unsafe { std::mem::transmute::<*mut (), Logger>(logger)(data, text) };
}

/// Writes a text to the log.
///
/// # Safety
/// `data` is null or valid, and its strings and `text` are null or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __android_log_logd_logger(data: *const LoggerData, text: *const c_char) {
    guard((), || {
        // SAFETY: by this function's contract.
        let Some(data) = (unsafe { data.as_ref() }) else { return };
        // SAFETY: as above.
        let (tag, message) = unsafe { (string(data.tag), string(text)) };
        let (tag, message) = (tag.unwrap_or_default(), message.unwrap_or_default());
        put(data.buffer_id, &Text { priority: data.priority, tag, message });
    });
}

/// Writes a text to standard error.
///
/// # Safety
/// `data` is null or valid, and its strings and `text` are null or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __android_log_stderr_logger(data: *const LoggerData, text: *const c_char) {
    guard((), || {
        // SAFETY: by this function's contract.
        let Some(data) = (unsafe { data.as_ref() }) else { return };
        let words = |string: *const c_char| {
            // SAFETY: as above.
            (!string.is_null()).then(|| unsafe { CStr::from_ptr(string) }.to_string_lossy())
        };
        let letter = usize::try_from(data.priority).ok().and_then(|at| "XXVDIWEF ".chars().nth(at));
        let tag = words(data.tag).unwrap_or("nullptr".into());
        let time = jiff::Timestamp::now().to_zoned(TimeZone::system()).strftime("%m-%d %H:%M:%S");
        // SAFETY: both calls only return numbers.
        let (pid, tid) = unsafe { (libc::getpid(), libc::gettid()) };
        let place = words(data.file).map_or(String::new(), |file| format!(" {file}:{}", data.line));
        let line = format!(
            "{tag} {} {time} {pid:>5} {tid:>5}{place}] {}\n",
            letter.unwrap_or('?'),
            words(text).unwrap_or_default()
        );
        // Without a standard error the text is lost.
        let _ = std::io::stderr().write_all(line.as_bytes());
    });
}

/// Does nothing: there is nothing to close.
#[unsafe(no_mangle)]
pub extern "C" fn __android_log_close() {}
