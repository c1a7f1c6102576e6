//! Functions that set up devices which already exist: mounting binderfs, linking to a device from
//! `/dev`.

use crate::paths::{BatonPath, classify, settings};
use crate::{files, log, real, status};
use libc::{c_char, c_int, c_ulong, c_void};
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::SystemTime;

/// Flags by which `mount` changes a mount that is there.
const CHANGES: c_ulong = libc::MS_REMOUNT
    | libc::MS_BIND
    | libc::MS_MOVE
    | libc::MS_SHARED
    | libc::MS_PRIVATE
    | libc::MS_SLAVE
    | libc::MS_UNBINDABLE;
/// `FUSE_SUPER_MAGIC` of `statfs`.
const FUSE: i64 = 0x6573_5546;

/// Interposes the C library's function. Mounting binderfs at its usual place succeeds without
/// effect, because it is always there. Elsewhere `baton mount` mounts one, with contexts of its
/// own, as each of the kernel's has.
///
/// # Safety
/// The contract of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mount(
    source: *const c_char,
    target: *const c_char,
    kind: *const c_char,
    flags: c_ulong,
    data: *const c_void,
) -> c_int {
    // SAFETY: null or C strings, by this function's contract.
    let string =
        |string: *const c_char| unsafe { (!string.is_null()).then(|| CStr::from_ptr(string)) };
    if let Some(target) = string(target).filter(|_| string(kind) == Some(c"binder")) {
        if classify(target) == Some(BatonPath::Plain) {
            return 0;
        }
        if let (0, Some(program)) = (flags & CHANGES, &settings().program) {
            let options = string(data.cast()).unwrap_or_default();
            return mount_elsewhere(program, OsStr::from_bytes(target.to_bytes()), options);
        }
    }
    // SAFETY: the caller's arguments.
    unsafe { real::mount(source, target, kind, flags, data) }
}

/// Has `baton mount` mount a binderfs, which ends with the namespace of the calling thread. It says
/// on standard error why it cannot: `EINVAL` for options that it does not know, `ENODEV` without
/// FUSE, otherwise `EPERM`.
fn mount_elsewhere(program: &Path, target: &OsStr, options: &CStr) -> c_int {
    let is_directory = std::fs::metadata(target).map(|it| it.is_dir());
    match is_directory.map_err(|error| error.raw_os_error()) {
        Ok(true) => {}
        Ok(false) => return real::fail(libc::ENOTDIR),
        Err(errno) => return real::fail(errno.unwrap_or(libc::EIO)),
    }
    let mut command = Command::new(program);
    // A server under the interposer would send requests to itself.
    command.env_remove("LD_PRELOAD").env("BATON_SOCKET", &settings().socket);
    command.args(["mount", "--background", "--ends-with-namespace", "--apart", &own_name()]);
    if !options.is_empty() {
        command.arg("--options").arg(OsStr::from_bytes(options.to_bytes()));
    }
    let output = command.arg("--").arg(target).stdin(Stdio::null()).output();
    // The program may wait for all of its children, and so take the exit code.
    let code = output.as_ref().ok().and_then(|output| output.status.code());
    let is_mounted = rustix::fs::statfs(target).is_ok_and(|it| it.f_type == FUSE);
    if is_mounted && matches!(code, Some(0) | None) {
        return 0;
    }
    if let Ok(output) = output {
        log::write_stderr(&String::from_utf8_lossy(&output.stderr));
    }
    match code {
        Some(2) => real::fail(libc::EINVAL),
        _ if !Path::new("/dev/fuse").exists() => real::fail(libc::ENODEV),
        _ => real::fail(libc::EPERM),
    }
}

/// A name that no other mount has.
fn own_name() -> String {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    format!("{}-{:x}", std::process::id(), since.as_nanos())
}

/// Interposes the C library's function. `EEXIST` at the path of a device.
///
/// # Safety
/// The contract of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn symlink(target: *const c_char, path: *const c_char) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { symlinkat(target, libc::AT_FDCWD, path) }
}

/// Interposes the C library's function. `EEXIST` at the path of a device.
///
/// # Safety
/// The contract of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn symlinkat(
    target: *const c_char,
    dir: c_int,
    path: *const c_char,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        let taken = files::classified(path).is_some() && status::access(path, libc::F_OK) == 0;
        if taken { real::fail(libc::EEXIST) } else { real::symlinkat(target, dir, path) }
    }
}
