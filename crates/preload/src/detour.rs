//! Ways to a path of ours by another name: `/dev/../dev/binder`, `binder` in `/dev`, a symbolic
//! link.
//!
//! In the system's own tree such a path leads nowhere, so it is enough to look when a call has
//! failed: a path that leads to something costs nothing.

use crate::{paths, real};
use libc::c_int;
use rustix::fs::{CWD, readlink, readlinkat};
use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

/// As many links as the kernel follows.
const MAX_LINKS: usize = 40;

/// After a call that has failed for want of what `path` names: the path of ours that it leads to.
/// Leaves errno alone.
pub fn target(dir: c_int, path: &CStr) -> Option<CString> {
    let errno = real::errno();
    if errno != libc::ENOENT {
        return None;
    }
    let target = follow(dir, path);
    real::set_errno(errno);
    target
}

fn follow(dir: c_int, path: &CStr) -> Option<CString> {
    let bytes = path.to_bytes();
    if bytes.ends_with(b"/") {
        return None;
    }
    // SAFETY: the caller's descriptor, which it has just used.
    let at = if dir == libc::AT_FDCWD { CWD } else { unsafe { BorrowedFd::borrow_raw(dir) } };
    let link = readlinkat(at, path, Vec::new()).is_ok();
    // Most of what is not there is neither a link nor has a name of ours.
    if !link && !bytes.windows(6).any(|window| window == b"binder") {
        return None;
    }
    let name = CString::new(walk(start(dir)?.join(OsStr::from_bytes(bytes)))?.into_vec()).ok()?;
    paths::place(&name).is_some().then_some(name)
}

/// Where a relative path begins.
fn start(dir: c_int) -> Option<PathBuf> {
    let link = match dir {
        libc::AT_FDCWD => "/proc/self/cwd".to_owned(),
        dir => format!("/proc/self/fd/{dir}"),
    };
    let target = readlink(link, Vec::new()).ok()?;
    Some(OsStr::from_bytes(target.as_bytes()).into())
}

/// A path without detours, as the kernel walks it, but through what is not there as well.
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
