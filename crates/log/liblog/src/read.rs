//! Reading the log: `<log/log_read.h>`.
//!
//! A list of loggers is one reader of the buffers that were opened in it. It begins to read at the
//! first call of [`android_logger_list_read`].

use crate::ffi::{BAD_BUFFER, INVALID, guard};
use baton_logcat::entry::Entry;
use baton_logcat::wire;
use ring_log::{Buffer, Item, Reader, Settings, Start};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_long, c_uint, c_ulong};
use std::time::Duration;

/// `ANDROID_LOG_NONBLOCK`
const NONBLOCK: c_int = libc::O_NONBLOCK;
/// `ANDROID_LOG_PSTORE`
const PSTORE: c_int = i32::MIN;
/// The version of `struct logger_entry`.
const VERSION: c_int = 4;

/// `log_time`
#[repr(C, packed)]
#[derive(Clone, Copy, Debug)]
pub struct LogTime {
    seconds: u32,
    nanoseconds: u32,
}

/// `struct logger`
#[derive(Debug)]
pub struct Logger {
    /// The number that the program has given.
    number: c_int,
    buffer: Option<Buffer>,
}

/// `struct logger_list`
#[derive(Debug)]
pub struct LoggerList {
    mode: c_int,
    /// The number of the last entries that are returned of those at the beginning; 0: all.
    tail: usize,
    /// Entries before this time are skipped.
    start: Duration,
    /// Only entries of this process are returned; 0: of all.
    pid: u32,
    /// Boxes, because programs keep their addresses.
    #[allow(clippy::vec_box, reason = "programs keep their addresses")]
    loggers: Vec<Box<Logger>>,
    reader: Option<Reader>,
    /// Entries from the beginning that were not returned yet.
    first: VecDeque<Entry>,
}

impl LoggerList {
    fn new(mode: c_int, tail: usize, start: Duration, pid: libc::pid_t) -> LoggerList {
        let pid = pid.max(0).cast_unsigned();
        LoggerList {
            mode,
            tail,
            start,
            pid,
            loggers: Vec::new(),
            reader: None,
            first: VecDeque::new(),
        }
    }

    fn open(&mut self, number: c_int) -> *mut Logger {
        let known = self.loggers.iter().position(|logger| logger.number == number);
        let at = known.unwrap_or_else(|| {
            let buffer = u8::try_from(number).ok().and_then(Buffer::numbered);
            self.loggers.push(Box::new(Logger { number, buffer }));
            self.loggers.len() - 1
        });
        &raw mut *self.loggers[at]
    }

    fn is_meant(&self, entry: &Entry) -> bool {
        (self.pid == 0 || entry.pid == self.pid) && entry.wall >= self.start
    }

    /// Opens the reader, and finds the last entries if only those are wanted.
    fn begin(&mut self) -> Result<(), Errno> {
        if self.reader.is_some() {
            return Ok(());
        }
        let buffers: Vec<Buffer> = self.loggers.iter().filter_map(|logger| logger.buffer).collect();
        let directory = ring_log::directory();
        if self.mode & (NONBLOCK | PSTORE) == 0 {
            ring_log::make_directory(&directory)?;
        }
        self.reader = match self.mode & PSTORE {
            0 => Some(Reader::open_from(&directory, &buffers, Start::Oldest)?),
            _ => Some(Reader::open_last(&directory, &buffers)?.ok_or(Errno::NOENT)?),
        };
        while self.tail > 0 {
            let Some(entry) = self.take() else { break };
            self.first.push_back(entry);
            if self.first.len() > self.tail {
                self.first.pop_front();
            }
        }
        Ok(())
    }

    /// The next of the present entries that is wanted.
    fn take(&mut self) -> Option<Entry> {
        loop {
            let entry = match self.reader.as_mut()?.next_item()? {
                Item::Record(record) => Entry::from(&record),
                Item::Lost(_) => continue,
            };
            if self.is_meant(&entry) {
                return Some(entry);
            }
        }
    }

    fn next(&mut self) -> Result<Entry, Errno> {
        self.begin()?;
        loop {
            if let Some(entry) = self.first.pop_front().or_else(|| self.take()) {
                return Ok(entry);
            }
            match (&mut self.reader, self.mode & (NONBLOCK | PSTORE)) {
                (Some(reader), 0) => reader.wait(None)?,
                _ => return Err(Errno::AGAIN),
            }
        }
    }
}

fn error(errno: Errno) -> c_int {
    -errno.raw_os_error()
}

/// Makes a list without loggers that begins at the oldest entry, or at the last entries.
#[unsafe(no_mangle)]
pub extern "C" fn android_logger_list_alloc(
    mode: c_int,
    tail: c_uint,
    pid: libc::pid_t,
) -> *mut LoggerList {
    guard(std::ptr::null_mut(), || {
        Box::into_raw(Box::new(LoggerList::new(mode, tail as usize, Duration::ZERO, pid)))
    })
}

/// Makes a list without loggers that begins at a time.
#[unsafe(no_mangle)]
pub extern "C" fn android_logger_list_alloc_time(
    mode: c_int,
    start: LogTime,
    pid: libc::pid_t,
) -> *mut LoggerList {
    guard(std::ptr::null_mut(), || {
        let LogTime { seconds, nanoseconds } = start;
        let start = Duration::new(seconds.into(), nanoseconds.min(999_999_999));
        Box::into_raw(Box::new(LoggerList::new(mode, 0, start, pid)))
    })
}

/// Makes a list with one logger.
#[unsafe(no_mangle)]
pub extern "C" fn android_logger_list_open(
    buffer: c_int,
    mode: c_int,
    tail: c_uint,
    pid: libc::pid_t,
) -> *mut LoggerList {
    guard(std::ptr::null_mut(), || {
        let mut list = LoggerList::new(mode, tail as usize, Duration::ZERO, pid);
        list.open(buffer);
        Box::into_raw(Box::new(list))
    })
}

/// Frees a list and its loggers.
///
/// # Safety
/// `list` is null, or a list that is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn android_logger_list_free(list: *mut LoggerList) {
    if !list.is_null() {
        // SAFETY: by this function's contract.
        guard((), || drop(unsafe { Box::from_raw(list) }));
    }
}

/// Opens a buffer in this list, before the list is read. The logger lives as long as the list.
///
/// # Safety
/// `list` is null, or a list that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn android_logger_open(list: *mut LoggerList, buffer: c_int) -> *mut Logger {
    guard(std::ptr::null_mut(), || {
        // SAFETY: by this function's contract.
        unsafe { list.as_mut() }.map_or(std::ptr::null_mut(), |list| list.open(buffer))
    })
}

/// The number of a logger's buffer.
///
/// # Safety
/// `logger` is null or a logger.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn android_logger_get_id(logger: *mut Logger) -> c_int {
    // SAFETY: by this function's contract.
    guard(BAD_BUFFER, || unsafe { logger.as_ref() }.map_or(BAD_BUFFER, |logger| logger.number))
}

/// Writes the next entry as a `struct logger_entry`. Returns its bytes, or `-EAGAIN` if there is
/// none now and the list does not wait.
///
/// # Safety
/// `list` is null, or a list that no other thread uses; `message` is null or a `struct log_msg`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn android_logger_list_read(
    list: *mut LoggerList,
    message: *mut u8,
) -> c_int {
    guard(INVALID, || {
        // SAFETY: by this function's contract.
        let Some(list) = (unsafe { list.as_mut() }).filter(|_| !message.is_null()) else {
            return INVALID;
        };
        match list.next() {
            Ok(entry) => {
                let bytes = wire::encode(&entry);
                // SAFETY: by this function's contract, there is room for the largest entry and a
                // NUL.
                unsafe {
                    std::ptr::copy_nonoverlapping(bytes.as_ptr(), message, bytes.len());
                    *message.add(bytes.len()) = 0;
                }
                bytes.len() as c_int
            }
            Err(errno) => error(errno),
        }
    })
}

/// # Safety
/// `logger` is null or a logger.
unsafe fn buffer_of(logger: *mut Logger) -> Option<Buffer> {
    // SAFETY: by this function's contract.
    unsafe { logger.as_ref() }.and_then(|logger| logger.buffer)
}

/// Lets readers skip the present entries of the buffer. Only the owner of the log's directory may
/// do this.
///
/// # Safety
/// `logger` is null or a logger.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn android_logger_clear(logger: *mut Logger) -> c_int {
    guard(INVALID, || {
        // SAFETY: by this function's contract.
        let Some(buffer) = (unsafe { buffer_of(logger) }) else { return BAD_BUFFER };
        ring_log::clear(&ring_log::directory(), &[buffer]).map_or_else(error, |()| 0)
    })
}

/// The bytes of each thread's ring in the buffer.
///
/// # Safety
/// `logger` is null or a logger.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn android_logger_get_log_size(logger: *mut Logger) -> c_long {
    guard(INVALID.into(), || {
        // SAFETY: by this function's contract.
        let Some(buffer) = (unsafe { buffer_of(logger) }) else { return BAD_BUFFER.into() };
        let settings = Settings::read(&ring_log::directory()).unwrap_or_default();
        settings.ring_bytes[buffer as usize] as c_long
    })
}

/// Sets the bytes of each thread's ring in the buffer, a power of two. Only the owner of the log's
/// directory may do this.
///
/// # Safety
/// `logger` is null or a logger.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn android_logger_set_log_size(logger: *mut Logger, bytes: c_ulong) -> c_int {
    guard(INVALID, || {
        // SAFETY: by this function's contract.
        let Some(buffer) = (unsafe { buffer_of(logger) }) else { return BAD_BUFFER };
        let directory = ring_log::directory();
        let mut settings = Settings::read(&directory).unwrap_or_default();
        let most = ring_log::MAX_RING_BYTES;
        let ring_bytes = usize::try_from(bytes).unwrap_or(most).clamp(1, most).next_power_of_two();
        settings.ring_bytes[buffer as usize] = ring_bytes.max(ring_log::MIN_RING_BYTES);
        settings.write(&directory).map_or_else(error, |()| 0)
    })
}

/// The bytes of the entries that can be read from the buffer.
///
/// # Safety
/// `logger` is null or a logger.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn android_logger_get_log_readable_size(logger: *mut Logger) -> c_long {
    guard(INVALID.into(), || {
        // SAFETY: by this function's contract.
        let Some(buffer) = (unsafe { buffer_of(logger) }) else { return BAD_BUFFER.into() };
        let reader = Reader::open_from(&ring_log::directory(), &[buffer], Start::Oldest);
        let Ok(mut reader) = reader else { return 0 };
        let mut bytes = 0;
        while let Some(item) = reader.next_item() {
            if let Item::Record(record) = item {
                bytes += wire::encode(&Entry::from(&record)).len() as c_long;
            }
        }
        bytes
    })
}

/// The version of `struct logger_entry`.
#[unsafe(no_mangle)]
pub extern "C" fn android_logger_get_log_version(_logger: *mut Logger) -> c_int {
    VERSION
}

/// Returns no statistics: `baton logcat -S` prints them.
#[unsafe(no_mangle)]
pub extern "C" fn android_logger_get_statistics(
    _list: *mut LoggerList,
    _text: *mut c_char,
    _bytes: usize,
) -> isize {
    INVALID as isize
}

/// Returns no rules: nothing is pruned, as each thread's ring overwrites its own oldest entries.
#[unsafe(no_mangle)]
pub extern "C" fn android_logger_get_prune_list(
    _list: *mut LoggerList,
    _text: *mut c_char,
    _bytes: usize,
) -> isize {
    INVALID as isize
}

/// Sets no rules: nothing is pruned.
#[unsafe(no_mangle)]
pub extern "C" fn android_logger_set_prune_list(
    _list: *mut LoggerList,
    _text: *const c_char,
    _bytes: usize,
) -> c_int {
    INVALID
}

/// The clock of entries' times, as a letter.
#[unsafe(no_mangle)]
pub extern "C" fn android_log_clockid() -> libc::clockid_t {
    libc::CLOCK_REALTIME
}
