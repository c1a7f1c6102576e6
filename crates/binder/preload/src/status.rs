//! Functions that examine a path or change its attributes: `stat`, `access`, `realpath`, `chmod`.
//!
//! The functions use the path's placeholder. They correct what a placeholder cannot show: that it
//! is a character device, and that its real path is the one in `/dev`. Changes of mode or owner
//! succeed without effect, since the broker decides who may open a context.

use crate::files::{self, classified, directory, resolved_alias};
use crate::{paths, real};
use libc::{
    AT_EMPTY_PATH, DIR, c_char, c_int, c_uint, c_void, gid_t, mode_t, size_t, ssize_t,
    stat as Stat, statx as Statx, uid_t,
};

/// The mode of devices: the broker decides who may use one.
const DEVICE_MODE: u32 = libc::S_IFCHR | 0o666;
/// The kernel's "misc" major number, and its minor number for devices without a reserved one.
const DEVICE_NUMBER: (u32, u32) = (10, 255);

/// The result of a C function, which shows whether the function failed.
trait Outcome {
    fn failed(&self) -> bool;
}

impl Outcome for c_int {
    fn failed(&self) -> bool {
        *self < 0
    }
}

impl Outcome for ssize_t {
    fn failed(&self) -> bool {
        *self < 0
    }
}

impl Outcome for *mut DIR {
    fn failed(&self) -> bool {
        self.is_null()
    }
}

/// Calls `real` with a path, or with the placeholder of a device path. Also returns whether the
/// path is a device's.
///
/// # Safety
/// `path` is null or a C string.
unsafe fn call_with_placeholder<R: Outcome>(
    dir: c_int,
    path: *const c_char,
    real: &dyn Fn(*const c_char) -> R,
) -> (R, bool) {
    // SAFETY: by this function's contract. The caller keeps the path during the call.
    let Some((name, place)) = (unsafe { classified(path) }) else {
        let result = real(path);
        // SAFETY: as above.
        return match unsafe { resolved_alias(result.failed(), dir, path) } {
            // SAFETY: a C string.
            Some(target) => unsafe { call_with_placeholder(dir, target.as_ptr(), real) },
            None => (result, false),
        };
    };
    match paths::placeholder(name) {
        Some(placeholder) => (real(placeholder.as_ptr()), place.is_device()),
        None => (real(path), false),
    }
}

/// Whether a call with a directory and a path refers to the directory's descriptor itself, and that
/// is a device's.
///
/// # Safety
/// `path` is null or a C string.
unsafe fn is_device_descriptor(dir: c_int, path: *const c_char, flags: c_int) -> bool {
    // SAFETY: by this function's contract; only the first byte is read.
    flags & AT_EMPTY_PATH != 0 && (path.is_null() || unsafe { *path == 0 }) && is_device(dir)
}

/// Whether a descriptor is that of a device, or of `binder-control`.
fn is_device(fd: c_int) -> bool {
    files::current(fd).is_some()
}

/// Changes the attributes of a placeholder or memfd into those of a character device.
///
/// # Safety
/// `out` was filled by a `stat` that succeeded.
unsafe fn as_device(out: *mut Stat) {
    // SAFETY: by this function's contract.
    let out = unsafe { &mut *out };
    out.st_mode = DEVICE_MODE;
    out.st_rdev = libc::makedev(DEVICE_NUMBER.0, DEVICE_NUMBER.1);
    out.st_size = 0;
    out.st_blocks = 0;
}

/// # Safety
/// As `call_with_placeholder`, and `real` fills `out` when it returns 0.
unsafe fn stat_by(
    dir: c_int,
    path: *const c_char,
    out: *mut Stat,
    real: &dyn Fn(*const c_char) -> c_int,
) -> c_int {
    // SAFETY: by this function's contract.
    let (result, is_device) = unsafe { call_with_placeholder(dir, path, real) };
    if result == 0 && is_device {
        // SAFETY: `real` succeeded.
        unsafe { as_device(out) };
    }
    result
}

macro_rules! stats {
    ($($name:ident($([$version:ident])? path);)*) => {$(
        /// Interposes the C library's function of this name.
        ///
        /// # Safety
        /// `path` is a C string and `out` has room for the answer.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $($version: c_int,)? path: *const c_char, out: *mut Stat,
        ) -> c_int {
            // SAFETY: the caller's arguments, the path replaced by another C string at most.
            unsafe {
                let call = |path| real::$name($($version,)? path, out);
                stat_by(libc::AT_FDCWD, path, out, &call)
            }
        }
    )*};
}

stats! {
    stat(path);
    stat64(path);
    lstat(path);
    lstat64(path);
    __xstat([version] path);
    __xstat64([version] path);
    __lxstat([version] path);
    __lxstat64([version] path);
}

macro_rules! fstats {
    ($($name:ident($([$version:ident])? fd);)*) => {$(
        /// Interposes the C library's function of this name.
        ///
        /// # Safety
        /// `out` has room for the answer.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($version: c_int,)? fd: c_int, out: *mut Stat) -> c_int {
            // SAFETY: the caller's arguments.
            let result = unsafe { real::$name($($version,)? fd, out) };
            if result == 0 && is_device(fd) {
                // SAFETY: the call succeeded.
                unsafe { as_device(out) };
            }
            result
        }
    )*};
}

fstats! {
    fstat(fd);
    fstat64(fd);
    __fxstat([version] fd);
    __fxstat64([version] fd);
}

macro_rules! fstatats {
    ($($name:ident($([$version:ident])? dir);)*) => {$(
        /// Interposes the C library's function of this name.
        ///
        /// # Safety
        /// `path` is a C string and `out` has room for the answer.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $($version: c_int,)? dir: c_int, path: *const c_char, out: *mut Stat, flags: c_int,
        ) -> c_int {
            // SAFETY: the caller's arguments, the path replaced by another C string at most.
            unsafe {
                let call = |path| real::$name($($version,)? dir, path, out, flags);
                let result = stat_by(dir, path, out, &call);
                if result == 0 && is_device_descriptor(dir, path, flags) {
                    as_device(out);
                }
                result
            }
        }
    )*};
}

fstatats! {
    fstatat(dir);
    fstatat64(dir);
    __fxstatat([version] dir);
    __fxstatat64([version] dir);
}

/// Interposes the C library's function of this name.
///
/// # Safety
/// `path` is a C string and `out` has room for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn statx(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    out: *mut Statx,
) -> c_int {
    // SAFETY: the caller's arguments, the path replaced by another C string at most.
    unsafe {
        let call = |path| real::statx(dir, path, flags, mask, out);
        let (result, is_device) = call_with_placeholder(dir, path, &call);
        if result == 0 && (is_device || is_device_descriptor(dir, path, flags)) {
            (*out).stx_mode = DEVICE_MODE as u16;
            ((*out).stx_rdev_major, (*out).stx_rdev_minor) = DEVICE_NUMBER;
            ((*out).stx_size, (*out).stx_blocks) = (0, 0);
        }
        result
    }
}

macro_rules! redirected {
    ($($name:ident($([$before:ident: $before_kind:ty])? path $(,
        $after:ident: $kind:ty)*) -> $result:ty;)*) => {$(
        /// Interposes the C library's function, which gets the placeholder of a device path.
        ///
        /// # Safety
        /// The contract of the C library's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $($before: $before_kind,)? path: *const c_char $(, $after: $kind)*
        ) -> $result {
            // SAFETY: the caller's arguments, the path replaced by another C string at most.
            unsafe {
                let dir = directory(&[$($before)?]);
                let call = |path| real::$name($($before,)? path $(, $after)*);
                call_with_placeholder(dir, path, &call).0
            }
        }
    )*};
}

redirected! {
    access(path, mode: c_int) -> c_int;
    euidaccess(path, mode: c_int) -> c_int;
    eaccess(path, mode: c_int) -> c_int;
    faccessat([dir: c_int] path, mode: c_int, flags: c_int) -> c_int;
    readlink(path, out: *mut c_char, room: size_t) -> ssize_t;
    readlinkat([dir: c_int] path, out: *mut c_char, room: size_t) -> ssize_t;
    getxattr(path, name: *const c_char, out: *mut c_void, room: size_t) -> ssize_t;
    lgetxattr(path, name: *const c_char, out: *mut c_void, room: size_t) -> ssize_t;
    listxattr(path, out: *mut c_char, room: size_t) -> ssize_t;
    llistxattr(path, out: *mut c_char, room: size_t) -> ssize_t;
    opendir(path) -> *mut DIR;
}

macro_rules! ignored {
    ($($name:ident($([$before:ident: $before_kind:ty])? path $(,
        $after:ident: $kind:ty)*);)*) => {$(
        /// Interposes the C library's function, which has no effect on a device path.
        ///
        /// # Safety
        /// The contract of the C library's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $($before: $before_kind,)? path: *const c_char $(, $after: $kind)*
        ) -> c_int {
            // SAFETY: the caller's arguments.
            unsafe {
                match classified(path) {
                    Some(_) => access(path, libc::F_OK),
                    None => real::$name($($before,)? path $(, $after)*),
                }
            }
        }
    )*};
}

ignored! {
    chmod(path, mode: mode_t);
    fchmodat([dir: c_int] path, mode: mode_t, flags: c_int);
    chown(path, user: uid_t, group: gid_t);
    lchown(path, user: uid_t, group: gid_t);
    fchownat([dir: c_int] path, user: uid_t, group: gid_t, flags: c_int);
}

/// Interposes the C library's function, which has no effect on a device.
///
/// # Safety
/// The contract of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fchmod(fd: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments.
    if is_device(fd) { 0 } else { unsafe { real::fchmod(fd, mode) } }
}

/// Interposes the C library's function, which has no effect on a device.
///
/// # Safety
/// The contract of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fchown(fd: c_int, user: uid_t, group: gid_t) -> c_int {
    // SAFETY: the caller's arguments.
    if is_device(fd) { 0 } else { unsafe { real::fchown(fd, user, group) } }
}

/// Resolves a path. An existing device path is its own real path.
///
/// # Safety
/// `path` is null or a C string; `out` is null or has room for `PATH_MAX` bytes.
unsafe fn real_path_by(
    path: *const c_char,
    out: *mut c_char,
    real: &dyn Fn(*const c_char) -> *mut c_char,
) -> *mut c_char {
    // SAFETY: by this function's contract.
    let Some((name, _)) = (unsafe { classified(path) }) else {
        let found = real(path);
        // SAFETY: as above.
        return match unsafe { resolved_alias(found.is_null(), libc::AT_FDCWD, path) } {
            // SAFETY: a C string.
            Some(target) => unsafe { real_path_by(target.as_ptr(), out, real) },
            None => found,
        };
    };
    // SAFETY: as above. Sets the errno that the caller gets.
    if unsafe { access(path, libc::F_OK) } != 0 {
        return std::ptr::null_mut();
    }
    let bytes = name.to_bytes();
    let bytes = bytes.strip_suffix(b"/").unwrap_or(bytes);
    // SAFETY: device paths are shorter than PATH_MAX, which is the room in `out` by this function's
    // contract. The caller frees memory from malloc.
    unsafe {
        let out = if out.is_null() { libc::malloc(bytes.len() + 1).cast() } else { out };
        if !out.is_null() {
            out.copy_from_nonoverlapping(bytes.as_ptr().cast(), bytes.len());
            *out.add(bytes.len()) = 0;
        }
        out
    }
}

/// Interposes the C library's function of this name.
///
/// # Safety
/// The contract of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realpath(path: *const c_char, out: *mut c_char) -> *mut c_char {
    // SAFETY: the caller's arguments.
    unsafe { real_path_by(path, out, &|path| real::realpath(path, out)) }
}

/// Interposes the C library's function of this name.
///
/// # Safety
/// The contract of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __realpath_chk(
    path: *const c_char,
    out: *mut c_char,
    room: size_t,
) -> *mut c_char {
    // SAFETY: the caller's arguments. The C library reports too little room.
    unsafe {
        if room < libc::PATH_MAX as size_t {
            return real::__realpath_chk(path, out, room);
        }
        real_path_by(path, out, &|path| real::__realpath_chk(path, out, room))
    }
}

/// Interposes the C library's function of this name.
///
/// # Safety
/// The contract of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn canonicalize_file_name(path: *const c_char) -> *mut c_char {
    // SAFETY: the caller's argument.
    unsafe { realpath(path, std::ptr::null_mut()) }
}
