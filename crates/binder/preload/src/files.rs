//! Functions that open, duplicate and close descriptors: `open`, `close`, `dup`, `fcntl` and
//! others.
//!
//! A program's device descriptor is a duplicate of the engine's memfd. So the program's own system
//! calls on it (`mmap`, `F_GETFD`, inheritance by `exec`) work without help. An inline system call
//! may close a descriptor unseen, and the kernel then gives its number to another file. This module
//! notices that when `open` or `dup` returns the number, or by [`current`].

use crate::paths::{self, BatonPath, classify, settings};
use crate::table::{self, FileId, Object, Open};
use crate::{aliases, filter, log, real, stack};
use arc_swap::Guard;
use baton_abi::holder_list::TALLY_FILE_BYTES;
use baton_abi::lane::MAX_PAYLOAD_BYTES;
use baton_driver::device::{Device, OpenError, leave_low_numbers};
use libc::{FILE, c_char, c_int, c_uint, mode_t, size_t};
use rustix::fd::IntoRawFd;
use rustix::io::{Errno, fcntl_dupfd_cloexec, fcntl_setfd};
use std::ffi::{CStr, CString};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Opens the device or file that `path` names, or calls `real` with the path to use.
///
/// # Safety
/// `path` is null or a C string.
pub unsafe fn open_by(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    real: &dyn Fn(*const c_char) -> c_int,
) -> c_int {
    // SAFETY: by this function's contract.
    let Some((name, place)) = (unsafe { classified(path) }) else {
        let fd = real(path);
        // SAFETY: as above.
        return match unsafe { resolved_alias(fd < 0, dir, path) } {
            // SAFETY: a C string.
            Some(target) => unsafe { open_by(dir, target.as_ptr(), flags, real) },
            None => forget_stale(fd),
        };
    };
    let looks_only = flags & (libc::O_PATH | libc::O_DIRECTORY) != 0;
    let opened = match place {
        BatonPath::Device(context) if !looks_only => {
            stack::on_large_stack(|| open_device(context, flags))
        }
        BatonPath::Control if !looks_only => open_control(flags),
        _ => {
            let placeholder = paths::placeholder(name);
            return forget_stale(real(placeholder.as_deref().map_or(path, CStr::as_ptr)));
        }
    };
    opened.unwrap_or_else(|errno| real::fail(errno.raw_os_error()))
}

/// A path and its kind, if it is a device path.
///
/// # Safety
/// `path` is null or a C string that outlives the result.
pub unsafe fn classified<'a>(path: *const c_char) -> Option<(&'a CStr, BatonPath<'a>)> {
    if path.is_null() {
        return None;
    }
    // SAFETY: by this function's contract.
    let path = unsafe { CStr::from_ptr(path) };
    Some((path, classify(path)?))
}

/// The device path that `path` leads to, after a call with another path that has failed.
///
/// # Safety
/// `path` is null or a C string.
pub unsafe fn resolved_alias(failed: bool, dir: c_int, path: *const c_char) -> Option<CString> {
    // SAFETY: by this function's contract.
    (failed && !path.is_null()).then(|| aliases::resolve(dir, unsafe { CStr::from_ptr(path) }))?
}

/// The object behind a descriptor, for functions that programs use on other files, too. An entry
/// that is stale is removed: the number is another file's by now, which takes a system call to see.
pub fn current(fd: c_int) -> Option<Guard<Option<Arc<Open>>>> {
    let guard = table::get(fd)?;
    if guard.as_deref()?.is_file_of(fd) {
        return Some(guard);
    }
    drop(guard);
    forget_stale(fd);
    None
}

/// Removes a stale table entry for a descriptor that the kernel has just returned.
fn forget_stale(fd: c_int) -> c_int {
    if table::contains(fd) && table::is_owner() {
        forget(fd);
    }
    fd
}

/// Drops a table entry and keeps `errno`. The last entry of a device closes it.
fn forget(fd: c_int) {
    let errno = real::errno();
    drop_entry(table::remove(fd));
    real::set_errno(errno);
}

/// Drops the entry of a descriptor that is closed. Whoever still uses the device hears of it.
fn drop_entry(open: Option<Arc<Open>>) {
    stack::on_large_stack(|| {
        let used = open.as_ref().filter(|open| Arc::strong_count(open) > 1 && !open.is_inherited());
        if let Some(device) = used.and_then(|open| open.device()) {
            device.descriptor_closed();
        }
        drop(open);
    });
}

fn open_device(context: &str, flags: c_int) -> Result<c_int, Errno> {
    leave_low_numbers();
    let device = Device::open(context, &settings().socket).map_err(|error| {
        report_open_error(&error);
        error.errno()
    })?;
    let file = fcntl_dupfd_cloexec(device.file(), 0)?;
    let nonblocking = flags & libc::O_NONBLOCK != 0;
    if nonblocking {
        rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::NONBLOCK)?;
    }
    insert_open(
        file,
        flags,
        Object::Device { device, nonblocking: nonblocking.into(), inherited: false.into() },
    )
}

fn open_control(flags: c_int) -> Result<c_int, Errno> {
    let file = rustix::fs::memfd_create("binder-control", rustix::fs::MemfdFlags::CLOEXEC)?;
    insert_open(file, flags, Object::Control)
}

/// Inserts a new descriptor into the table, inheritable if the program asked for that.
fn insert_open(file: rustix::fd::OwnedFd, flags: c_int, object: Object) -> Result<c_int, Errno> {
    let open = Open { file: FileId::of(&file)?, object };
    if flags & libc::O_CLOEXEC == 0 {
        fcntl_setfd(&file, rustix::io::FdFlags::empty())?;
    }
    let fd = file.into_raw_fd();
    if !table::insert(fd, Arc::new(open)) {
        // SAFETY: the descriptor is this function's own, and no other code has seen it.
        unsafe { real::close(fd) };
        return Err(Errno::MFILE);
    }
    filter::install_ioctl_filter();
    Ok(fd)
}

/// Reports an error in one line, once per process. Clients try again in a loop, and each failure
/// also has its errno.
fn report_open_error(error: &OpenError) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    let line = match error {
        OpenError::NoBroker { socket, .. } => format!(
            "baton: no broker at {socket}: start one with `baton broker` or run the program by \
             `baton run`\n"
        ),
        OpenError::Stranger { .. } => format!("baton: {error}\n"),
        OpenError::System { errno: Errno::FBIG, .. } => format!(
            "baton: RLIMIT_FSIZE is too small: a device needs a file of {} KiB in memory\n",
            TALLY_FILE_BYTES.max(MAX_PAYLOAD_BYTES) >> 10
        ),
        _ => return,
    };
    if TOLD.swap(true, Ordering::Relaxed) {
        return;
    }
    log::write_stderr(&line);
}

/// Copies the table entry of `from` to its duplicate `to`.
pub fn duplicated(from: c_int, to: c_int) -> c_int {
    if to < 0 || from == to || !(table::contains(from) || table::contains(to)) || !table::is_owner()
    {
        return to;
    }
    match current(from).and_then(|open| open.clone()) {
        Some(open) => {
            forget(to);
            if !table::insert(to, open) {
                // SAFETY: the duplicate belongs to our caller, who has not seen it yet.
                unsafe { real::close(to) };
                return real::fail(libc::EMFILE);
            }
        }
        None => forget(to),
    }
    to
}

/// The directory argument of a function, or AT_FDCWD for a function without one.
pub fn directory(argument: &[c_int]) -> c_int {
    argument.first().copied().unwrap_or(libc::AT_FDCWD)
}

macro_rules! opens {
    ($($name:ident($([$before:ident: $kind:ty])? path, flags $(,
        $mode:ident: $mode_kind:ty)?);)*) => {$(
        /// Interposes the C library's function of this name.
        ///
        /// # Safety
        /// `path` is null or a C string.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $($before: $kind,)? path: *const c_char, flags: c_int $(, $mode: $mode_kind)?
        ) -> c_int {
            // SAFETY: the caller's arguments, the path replaced by another C string at most.
            unsafe {
                let dir = directory(&[$($before)?]);
                open_by(dir, path, flags, &|path| real::$name($($before,)? path, flags $(, $mode)?))
            }
        }
    )*};
}

opens! {
    open(path, flags, mode: mode_t);
    open64(path, flags, mode: mode_t);
    openat([dir: c_int] path, flags, mode: mode_t);
    openat64([dir: c_int] path, flags, mode: mode_t);
    __open_2(path, flags);
    __open64_2(path, flags);
    __openat_2([dir: c_int] path, flags);
    __openat64_2([dir: c_int] path, flags);
}

macro_rules! fopens {
    ($($name:ident)*) => {$(
        /// Interposes the C library's function. Devices are not streams: only plain files among the
        /// device paths are redirected.
        ///
        /// # Safety
        /// Both arguments are C strings.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, mode: *const c_char) -> *mut FILE {
            // SAFETY: by this function's contract.
            let placeholder = match unsafe { classified(path) } {
                Some((name, BatonPath::Plain)) => paths::placeholder(name),
                Some(_) => {
                    real::set_errno(libc::EINVAL);
                    return null_mut();
                }
                None => None,
            };
            // SAFETY: the caller's arguments, the path replaced by another C string at most.
            unsafe { real::$name(placeholder.as_deref().map_or(path, CStr::as_ptr), mode) }
        }
    )*};
}

fopens! { fopen fopen64 }

/// Interposes the C library's function of this name.
///
/// # Safety
/// That of the C library: no other code may use the descriptor as its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    // The entry goes first: once the descriptor is closed, another thread may get the same number.
    let open = if table::contains(fd) && table::is_owner() { table::remove(fd) } else { None };
    // SAFETY: the caller's argument.
    let result = unsafe { real::close(fd) };
    if open.is_some() {
        let errno = real::errno();
        drop_entry(open);
        real::set_errno(errno);
    }
    result
}

/// Closes the devices in a range one by one before the rest. Their engines own further descriptors,
/// which they must close before the range does.
fn close_devices_in(first: c_uint, last: c_uint) {
    if table::is_owner() {
        for fd in table::in_range(first as usize, last as usize) {
            // SAFETY: the caller is about to close this descriptor itself.
            unsafe { close(fd) };
        }
    }
}

/// Interposes the C library's function of this name.
///
/// # Safety
/// As `close`, for every descriptor in the range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0 {
        close_devices_in(first, last);
    }
    // SAFETY: the caller's arguments.
    unsafe { real::close_range(first, last, flags) }
}

/// Interposes the C library's function of this name.
///
/// # Safety
/// As `close`, for every descriptor from `first`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    close_devices_in(first.max(0) as c_uint, c_uint::MAX);
    // SAFETY: the caller's argument.
    unsafe { real::closefrom(first) }
}

/// Interposes the C library's function of this name.
///
/// # Safety
/// The contract of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup(fd: c_int) -> c_int {
    // SAFETY: the caller's argument.
    duplicated(fd, unsafe { real::dup(fd) })
}

/// Interposes the C library's function of this name.
///
/// # Safety
/// As `close` for `to`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(from: c_int, to: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    duplicated(from, unsafe { real::dup2(from, to) })
}

/// Interposes the C library's function of this name.
///
/// # Safety
/// As `close` for `to`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    duplicated(from, unsafe { real::dup3(from, to, flags) })
}

/// Does in the table what a command has done to a descriptor. Returns the result.
pub fn after_fcntl(fd: c_int, command: c_int, argument: size_t, result: c_int) -> c_int {
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => duplicated(fd, result),
        libc::F_SETFL if result == 0 => {
            if let Some(open) = table::get(fd).as_deref().and_then(Option::as_deref) {
                open.set_nonblocking(argument as c_int & libc::O_NONBLOCK != 0);
            }
            result
        }
        _ => result,
    }
}

macro_rules! fcntls {
    ($($name:ident)*) => {$(
        /// Interposes the C library's function of this name.
        ///
        /// # Safety
        /// The argument is what the command takes.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fd: c_int, command: c_int, argument: size_t) -> c_int {
            // SAFETY: the caller's arguments.
            let result = unsafe { real::$name(fd, command, argument) };
            after_fcntl(fd, command, argument, result)
        }
    )*};
}

fcntls! { fcntl fcntl64 }
