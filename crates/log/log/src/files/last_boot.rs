//! Finds the last start of the machine before this one.

use crate::files::boot::Boot;
use crate::files::directory::Directory;
use crate::files::layout::{HEADER_BYTES, Header, is_name_of_a_file};
use crate::files::opened::Opened;
use crate::memory::read_exactly;
use rustix::fs::Dir;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::CStr;

type Changed = (i64, u64);

/// The start of the machine before `current` from which a directory has files: the one whose file
/// was changed last. If the directory's owner has such files, only they count, so no other user can
/// make up a start that hides it.
pub(crate) fn last_boot(directory: &Directory, current: Boot) -> Result<Option<Boot>, Errno> {
    let mut found = BTreeMap::<Boot, (bool, Changed)>::new();
    for entry in Dir::read_from(&directory.file)? {
        let entry = entry?;
        let Some((boot, is_owners, changed)) = look(directory, entry.file_name()) else {
            continue;
        };
        if boot != current {
            let last = found.entry(boot).or_default();
            *last = (*last).max((is_owners, changed));
        }
    }
    Ok(found.into_iter().max_by_key(|&(_, last)| last).map(|(boot, _)| boot))
}

fn look(directory: &Directory, name: &CStr) -> Option<(Boot, bool, Changed)> {
    if !is_name_of_a_file(name.to_bytes()) {
        return None;
    }
    let opened = Opened::open(directory, name).ok()?;
    let mut bytes = [0; HEADER_BYTES];
    read_exactly(&opened, 0, &mut bytes).ok()?;
    let boot = Header::decode(&bytes)?.boot;
    let changed = (opened.stat.st_mtime, opened.stat.st_mtime_nsec);
    Some((boot, opened.stat.st_uid == directory.owner, changed))
}
