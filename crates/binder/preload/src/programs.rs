//! Functions that execute programs. An unsupported program is reported in one line.
//!
//! The dynamic loader loads this library, so a statically linked program runs without it. `baton
//! run` refuses such programs; this module sees those that a shell under it executes.

use crate::image::{self, Unsupported};
use crate::real::{self, StringArray};
use crate::{environment, log, stack};
use libc::{c_char, c_int, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t};
use std::ffi::CStr;
use std::fmt::Write;

/// The path by which this process's program was executed.
pub fn own() -> &'static CStr {
    // SAFETY: a query without side effects.
    let path = unsafe { libc::getauxval(libc::AT_EXECFN) } as *const c_char;
    // SAFETY: the kernel says where the string is, which stays there.
    if path.is_null() { c"this program" } else { unsafe { CStr::from_ptr(path) } }
}

/// Writes one line to standard error. Allocates nothing, as it may run in the child of a `vfork`.
pub fn report(program: &CStr, why: Unsupported) {
    let mut line = Line { bytes: [0; 1024], used: 0 };
    let _ = line.write_str("baton: ");
    let room = line.bytes.len() / 2;
    for chunk in program.to_bytes()[..program.count_bytes().min(room)].utf8_chunks() {
        let _ = line.write_str(chunk.valid());
    }
    let _ = writeln!(line, " {why}");
    log::write_stderr(line.as_str());
}

/// A line in a fixed buffer. Text that does not fit is left out.
struct Line {
    bytes: [u8; 1024],
    used: usize,
}

impl Line {
    fn as_str(&self) -> &str {
        str::from_utf8(&self.bytes[..self.used]).unwrap_or_default()
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let room = self.bytes.get_mut(self.used..self.used + text.len()).ok_or(std::fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.used += text.len();
        Ok(())
    }
}

/// Checks a program that is about to be executed by its path.
///
/// # Safety
/// `path` is null or a C string.
unsafe fn check(path: *const c_char) {
    if !path.is_null() {
        // SAFETY: by this function's contract.
        check_program(unsafe { CStr::from_ptr(path) });
    }
}

fn check_program(path: &CStr) {
    let errno = real::errno();
    if let Some(why) = stack::on_large_stack(|| image::check_file(path)) {
        report(path, why);
    }
    real::set_errno(errno);
}

/// Checks a program that is about to be searched in PATH and executed.
///
/// # Safety
/// `file` is null or a C string.
unsafe fn check_in_path(file: *const c_char) {
    if file.is_null() {
        return;
    }
    // SAFETY: by this function's contract.
    let file = unsafe { CStr::from_ptr(file) };
    // SAFETY: a C string of the environment, which no thread may change meanwhile.
    let path_list = unsafe { libc::getenv(c"PATH".as_ptr()) };
    if file.to_bytes().contains(&b'/') || path_list.is_null() {
        return check_program(file);
    }
    // SAFETY: as above.
    let path_list = unsafe { CStr::from_ptr(path_list) };
    for directory in path_list.to_bytes().split(|&byte| byte == b':') {
        let mut path = [0u8; libc::PATH_MAX as usize];
        let parts = [directory, b"/", file.to_bytes_with_nul()];
        let parts = if directory.is_empty() { &parts[2..] } else { &parts[..] };
        let mut at = 0;
        for part in parts {
            let Some(room) = path.get_mut(at..at + part.len()) else { return };
            room.copy_from_slice(part);
            at += part.len();
        }
        let Ok(path) = CStr::from_bytes_until_nul(&path) else { return };
        if rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok() {
            return check_program(path);
        }
    }
}

unsafe extern "C" {
    /// The environment of this process.
    static environ: StringArray;
}

macro_rules! executes {
    ($($name:ident by $check_program:ident($([$before:ident: $kind:ty])? $path:ident $(,
        $rest:ident: $rest_kind:ty)*; $environment:ident);)*) => {$(
        /// Interposes the C library's function of this name.
        ///
        /// # Safety
        /// The contract of the C library's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $($before: $kind,)? $path: *const c_char $(, $rest: $rest_kind)*,
            $environment: StringArray
        ) -> c_int {
            // SAFETY: the caller's arguments.
            unsafe {
                $check_program($path);
                environment::complete($environment, |environment| {
                    real::$name($($before,)? $path $(, $rest)*, environment)
                })
            }
        }
    )*};
}

executes! {
    execve by check(path, words: StringArray; environment);
    execvpe by check_in_path(file, words: StringArray; environment);
    posix_spawn by check(
        [child: *mut pid_t] path, actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t, words: StringArray; environment
    );
    posix_spawnp by check_in_path(
        [child: *mut pid_t] file, actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t, words: StringArray; environment
    );
}

/// Interposes the C library's function of this name.
///
/// # Safety
/// The contract of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: *const c_char, words: StringArray) -> c_int {
    // SAFETY: the caller's arguments, and the environment that the function takes.
    unsafe { execve(path, words, environ) }
}

/// Interposes the C library's function of this name.
///
/// # Safety
/// The contract of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: *const c_char, words: StringArray) -> c_int {
    // SAFETY: as above.
    unsafe { execvpe(file, words, environ) }
}
