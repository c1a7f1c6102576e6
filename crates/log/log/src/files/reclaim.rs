//! Removes the files of dead processes that exceed the budget.

use crate::files::archive::archive;
use crate::files::directory::Directory;
use crate::files::layout::is_name_of_a_file;
use crate::files::lock;
use crate::files::opened::Opened;
use crate::files::settings::Settings;
use rustix::fs::{AtFlags, Dir, Stat};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::path::Path;

struct Left {
    name: CString,
    bytes: u64,
    /// When the process last woke followers, or got a ring.
    changed: (i64, u64),
}

/// Files are archived when those of dead processes exceed this fraction of the budget: one half.
const ARCHIVED_FROM: u64 = 2;

/// Frees memory that files of dead processes take. If those of this user exceed half of the budget,
/// those with few records are copied into archives. Then the oldest files of dead processes are
/// removed until the files of each user fit the budget: this user's, or all users' if the directory
/// belongs to this user. Files of live processes stay. Returns the number of files whose records
/// were removed.
///
/// `EACCES`: this user may not read the directory.
pub fn reclaim(path: &Path) -> Result<usize, Errno> {
    let directory = Directory::open_to_read(path)?;
    let budget_bytes = Settings::of(&directory).budget_bytes;
    let mut files = users(&directory)?;
    let own = rustix::process::geteuid().as_raw();
    let is_archived = |own: &Vec<Left>| archive_some(&directory, own, budget_bytes);
    if files.get(&own).is_some_and(is_archived) {
        files = users(&directory)?;
    }
    let removed = files.into_values().map(|files| trim(&directory, files, budget_bytes));
    Ok(removed.sum())
}

/// Archives files of this user. Says whether any was archived.
fn archive_some(directory: &Directory, own: &[Left], budget_bytes: u64) -> bool {
    let mut files: Vec<&Left> = own.iter().filter(|file| !is_archive(&file.name)).collect();
    let bytes: u64 = files.iter().map(|file| file.bytes).sum();
    if bytes <= budget_bytes / ARCHIVED_FROM {
        return false;
    }
    files.sort_by_key(|file| file.changed);
    let names = files.iter().map(|file| &*file.name);
    archive(directory, names).is_ok_and(|n_files| n_files > 0)
}

fn users(directory: &Directory) -> Result<BTreeMap<u32, Vec<Left>>, Errno> {
    let own = rustix::process::geteuid().as_raw();
    let mut users = BTreeMap::<u32, Vec<Left>>::new();
    for entry in Dir::read_from(&directory.file)? {
        let name = entry?.file_name().to_owned();
        if !is_name_of_a_file(name.to_bytes()) {
            continue;
        }
        let Ok(stat) = rustix::fs::statat(&directory.file, &name, AtFlags::SYMLINK_NOFOLLOW) else {
            continue;
        };
        let Stat { st_uid, st_blocks, st_mtime, st_mtime_nsec, .. } = stat;
        if st_uid == own || directory.is_ours() {
            let changed = (st_mtime, st_mtime_nsec);
            let left = Left { name, bytes: st_blocks as u64 * 512, changed };
            users.entry(st_uid).or_default().push(left);
        }
    }
    Ok(users)
}

fn trim(directory: &Directory, mut files: Vec<Left>, budget_bytes: u64) -> usize {
    let all: u64 = files.iter().map(|file| file.bytes).sum();
    if all <= budget_bytes {
        return 0;
    }
    files.retain(|file| is_dead(directory, &file.name));
    files.sort_by_key(|file| file.changed);
    let mut dead_bytes: u64 = files.iter().map(|file| file.bytes).sum();
    let mut removed = 0;
    for file in files {
        if dead_bytes <= budget_bytes {
            break;
        }
        dead_bytes -= file.bytes;
        let done = rustix::fs::unlinkat(&directory.file, &file.name, AtFlags::empty());
        removed += usize::from(done.is_ok());
    }
    removed
}

/// Whether the process of a file is dead. A file is locked before it has its name, so a file
/// without a lock stays dead.
fn is_dead(directory: &Directory, name: &CStr) -> bool {
    Opened::open(directory, name).is_ok_and(|file| !lock::is_alive(&file))
}

/// Whether this is the name of an archive, hidden or not.
fn is_archive(name: &CStr) -> bool {
    name.to_bytes().starts_with(b"0-") || name.to_bytes().starts_with(b".0-")
}
