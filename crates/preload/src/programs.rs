//! Programs that are executed: one for which nothing can be done is told of, in one line.
//!
//! The interposer comes with the dynamic loader, and does not come to a statically linked program.
//! `baton run` refuses
//! these; what a shell under it executes is seen here.

use crate::image::{self, Hopeless};
use crate::real::{self, Words};
use crate::{log, stack};
use libc::{c_char, c_int, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t};
use std::ffi::CStr;
use std::fmt::Write;

/// The path of this process's program, as it was executed.
pub fn own() -> &'static CStr {
    // SAFETY: a plain question.
    let path = unsafe { libc::getauxval(libc::AT_EXECFN) } as *const c_char;
    // SAFETY: the kernel's word for where it has put a string, which stays there.
    if path.is_null() { c"this program" } else { unsafe { CStr::from_ptr(path) } }
}

/// One line on standard error. The child of a `vfork` may say it: nothing is allocated.
pub fn tell(program: &CStr, why: Hopeless) {
    let mut line = Line { bytes: [0; 1024], used: 0 };
    let _ = line.write_str("baton: ");
    let room = line.bytes.len() / 2;
    for chunk in program.to_bytes()[..program.count_bytes().min(room)].utf8_chunks() {
        let _ = line.write_str(chunk.valid());
    }
    let _ = writeln!(line, " {why}");
    log::say(line.as_str());
}

/// A line in a place of its own. What does not fit is left out.
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

/// A program is about to be executed by its path.
///
/// # Safety
/// `path` is null or a C string.
unsafe fn look_at(path: *const c_char) {
    if !path.is_null() {
        // SAFETY: by this function's contract.
        look(unsafe { CStr::from_ptr(path) });
    }
}

fn look(path: &CStr) {
    let errno = real::errno();
    if let Some(why) = stack::with_room(|| image::of_file(path)) {
        tell(path, why);
    }
    real::set_errno(errno);
}

/// A program is about to be looked for in PATH, and executed.
///
/// # Safety
/// `file` is null or a C string.
unsafe fn look_for(file: *const c_char) {
    if file.is_null() {
        return;
    }
    // SAFETY: by this function's contract.
    let file = unsafe { CStr::from_ptr(file) };
    // SAFETY: a C string, and one of the environment, which nobody may change meanwhile.
    let places = unsafe { libc::getenv(c"PATH".as_ptr()) };
    if file.to_bytes().contains(&b'/') || places.is_null() {
        return look(file);
    }
    // SAFETY: as above.
    let places = unsafe { CStr::from_ptr(places) };
    for place in places.to_bytes().split(|&byte| byte == b':') {
        let mut path = [0u8; libc::PATH_MAX as usize];
        let parts = [place, b"/", file.to_bytes_with_nul()];
        let parts = if place.is_empty() { &parts[2..] } else { &parts[..] };
        let mut at = 0;
        for part in parts {
            let Some(room) = path.get_mut(at..at + part.len()) else { return };
            room.copy_from_slice(part);
            at += part.len();
        }
        let Ok(path) = CStr::from_bytes_until_nul(&path) else { return };
        if rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok() {
            return look(path);
        }
    }
}

macro_rules! executes {
    ($($name:ident by $look:ident($([$before:ident: $kind:ty])? $path:ident $(,
        $rest:ident: $rest_kind:ty)*);)*) => {$(
        /// As the C library's.
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $($before: $kind,)? $path: *const c_char $(, $rest: $rest_kind)*
        ) -> c_int {
            // SAFETY: the caller's arguments.
            unsafe {
                $look($path);
                real::$name($($before,)? $path $(, $rest)*)
            }
        }
    )*};
}

executes! {
    execve by look_at(path, words: Words, environment: Words);
    execv by look_at(path, words: Words);
    execvp by look_for(file, words: Words);
    execvpe by look_for(file, words: Words, environment: Words);
    posix_spawn by look_at(
        [child: *mut pid_t] path, actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t, words: Words, environment: Words
    );
    posix_spawnp by look_for(
        [child: *mut pid_t] file, actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t, words: Words, environment: Words
    );
}
