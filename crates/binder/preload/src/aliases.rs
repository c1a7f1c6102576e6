//! Other names of device paths: `/dev/../dev/binder`, `binder` relative to `/dev`, or a symbolic
//! link.
//!
//! In the system's own file tree such a name leads nowhere. So this module only acts after a call
//! has failed, and calls that succeed cost nothing.
//!
//! **Invariant**: no memory is allocated for a name that is neither a link nor contains a device's
//! name. An allocator may look for a file of its own while it initializes itself, as jemalloc does
//! for `/etc/malloc.conf`: it would be entered again, or wait for its own lock.

use crate::{paths, real};
use libc::c_int;
use rustix::fs::{CWD, readlink, readlinkat_raw};
use std::ffi::{CStr, CString, OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

/// Most symbolic links that are followed, as in the kernel.
const MAX_LINKS: usize = 40;

/// After a call that failed with ENOENT: the device path that `path` leads to. Does not change
/// errno.
pub fn resolve(dir: c_int, path: &CStr) -> Option<CString> {
    let errno = real::errno();
    if errno != libc::ENOENT {
        return None;
    }
    let resolve = resolve_path(dir, path);
    real::set_errno(errno);
    resolve
}

fn resolve_path(dir: c_int, path: &CStr) -> Option<CString> {
    let bytes = path.to_bytes();
    if bytes.ends_with(b"/") {
        return None;
    }
    // SAFETY: the caller's descriptor, which it has just used.
    let at = if dir == libc::AT_FDCWD { CWD } else { unsafe { BorrowedFd::borrow_raw(dir) } };
    let mut beginning = [MaybeUninit::uninit()];
    let is_link = readlinkat_raw(at, path, &mut beginning).is_ok();
    if !is_link && !bytes.windows(6).any(|window| window == b"binder") {
        return None;
    }
    let name = CString::new(walk(start_directory(dir)?.join(OsStr::from_bytes(bytes)))?.into_vec())
        .ok()?;
    paths::classify(&name).is_some().then_some(name)
}

/// The directory where a relative path begins.
fn start_directory(dir: c_int) -> Option<PathBuf> {
    let link = match dir {
        libc::AT_FDCWD => "/proc/self/cwd".to_owned(),
        dir => format!("/proc/self/fd/{dir}"),
    };
    let resolve = readlink(link, Vec::new()).ok()?;
    Some(OsStr::from_bytes(resolve.as_bytes()).into())
}

/// The path without links and `..`, resolved as the kernel does, but also through missing
/// components.
fn walk(path: PathBuf) -> Option<OsString> {
    let (mut rest, mut walked) = (path, PathBuf::from("/"));
    for _ in 0..MAX_LINKS {
        let mut components = rest.components();
        let link = loop {
            match components.next() {
                None => return Some(walked.into_os_string()),
                Some(Component::ParentDir) => drop(walked.pop()),
                Some(Component::Normal(name)) => {
                    walked.push(name);
                    if let Ok(link) = readlink(&walked, Vec::new()) {
                        break link;
                    }
                }
                Some(_) => {}
            }
        };
        walked.pop();
        let link = Path::new(OsStr::from_bytes(link.as_bytes()));
        if link.is_absolute() {
            walked = PathBuf::from("/");
        }
        rest = link.join(components.as_path());
    }
    None
}
