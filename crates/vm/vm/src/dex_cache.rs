//! Which dex files have been checked before, so that the next start need not check them.
//!
//! A record is a small file in a directory of the user alone. Its name says which file it is about
//! and which program has checked it: device and inode of both. Its content says in which state both
//! were: size, and times of the last modification and of the last change of the inode. The kernel
//! sets the latter, so no program can give a changed file its old state back.
//!
//! **Invariant**: a record is believed only if this user or root owns the file and nobody else may
//! write to it. Then nobody can change a checked file but who could change the program itself.
//! Without a record, or without a directory that can be trusted, a file is checked as a whole.

use rustix::fs::{self, AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// A record that nobody has used for so long goes.
const UNUSED_S: i64 = 30 * DAY_S;
const DAY_S: i64 = 24 * 60 * 60;
/// A file that changed just now may change again at the same time, as clocks tell it.
const SETTLED_S: i64 = 2;

/// The directory of records.
#[derive(Debug)]
pub(crate) struct DexCache {
    directory: OwnedFd,
    /// The program that checks
    program: Stat,
    user: u32,
    /// When the VM started, or was forked, in seconds since 1970
    now_s: AtomicI64,
}

/// The bytes of a file, and whether they have been checked before.
pub(crate) struct Opened {
    pub bytes: &'static [u8],
    pub is_checked: bool,
    state: Stat,
}

impl DexCache {
    /// Opens the directory; makes it if it is missing. None if it cannot be trusted: it is not this
    /// user's, or others may enter it.
    pub fn open(path: &Path) -> Option<DexCache> {
        let user = rustix::process::geteuid().as_raw();
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).ok()?;
        }
        match fs::mkdir(path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(_) => return None,
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = fs::open(path, flags, Mode::empty()).ok()?;
        let state = fs::fstat(&directory).ok()?;
        let program = fs::stat("/proc/self/exe").ok()?;
        let is_own = state.st_uid == user && state.st_mode & 0o077 == 0;
        is_own.then_some(DexCache { directory, program, user, now_s: AtomicI64::new(now_s()) })
    }

    /// Looks at the clock again: a child of fork starts later than its parent.
    pub fn start_again(&self) {
        self.now_s.store(now_s(), Relaxed);
    }

    /// Whether a file in this state has been checked before.
    fn knows(&self, state: &Stat) -> bool {
        let is_private = [0, self.user].contains(&state.st_uid) && state.st_mode & 0o022 == 0;
        let is_known = is_private && self.record(state) == Some(self.content(state));
        if is_known {
            self.keep_record(state);
        }
        is_known
    }

    /// Records that a file is good. Failures only cost the next start its time.
    pub fn insert(&self, file: &File, opened: &Opened) {
        let state = &opened.state;
        let unchanged = fs::fstat(file).is_ok_and(|now| self.content(&now) == self.content(state));
        let age = self.now_s.load(Relaxed) - state.st_ctime;
        if unchanged && age >= SETTLED_S {
            let _ = self.write(&self.name(state), self.content(state).as_bytes());
            self.drop_unused();
        }
    }

    fn name(&self, of: &Stat) -> String {
        let program = &self.program;
        format!("{:x}-{:x}-{:x}-{:x}", of.st_dev, of.st_ino, program.st_dev, program.st_ino)
    }

    fn content(&self, of: &Stat) -> String {
        let one = |it: &Stat| {
            let modified = (it.st_mtime, it.st_mtime_nsec);
            let changed = (it.st_ctime, it.st_ctime_nsec);
            let (size, user, mode) = (it.st_size, it.st_uid, it.st_mode);
            format!("{size} {user} {mode:o} {modified:?} {changed:?}\n")
        };
        one(of) + &one(&self.program)
    }

    /// The record about a file.
    fn record(&self, of: &Stat) -> Option<String> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let record = fs::openat(&self.directory, self.name(of), flags, Mode::empty()).ok()?;
        let mut content = String::new();
        File::from(record).take(4096).read_to_string(&mut content).ok()?;
        Some(content)
    }

    /// Notes, once a day, that a record is in use.
    fn keep_record(&self, of: &Stat) {
        let name = self.name(of);
        let Ok(record) = fs::statat(&self.directory, &name, AtFlags::SYMLINK_NOFOLLOW) else {
            return;
        };
        if self.now_s.load(Relaxed) - record.st_mtime > DAY_S {
            let _ = self.write(&name, self.content(of).as_bytes());
        }
    }

    /// Replaces a record as a whole.
    fn write(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let part = format!("part-{}", std::process::id());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = fs::openat(&self.directory, &part, flags, Mode::RUSR | Mode::WUSR)?;
        let written = File::from(file).write_all(content);
        let renamed =
            written.and_then(|()| Ok(fs::renameat(&self.directory, &part, &self.directory, name)?));
        if renamed.is_err() {
            let _ = fs::unlinkat(&self.directory, &part, AtFlags::empty());
        }
        renamed
    }

    fn drop_unused(&self) {
        let Ok(entries) = fs::Dir::read_from(&self.directory) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let unused = fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|it| self.now_s.load(Relaxed) - it.st_mtime > UNUSED_S);
            if unused {
                let _ = fs::unlinkat(&self.directory, name, AtFlags::empty());
            }
        }
    }
}

fn now_s() -> i64 {
    rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec
}

/// The bytes of a file, for ever. Maps a file that has been checked before, and reads another one.
///
/// # Errors
/// Those of the file.
pub(crate) fn read(cache: Option<&DexCache>, file: &mut File) -> io::Result<Opened> {
    let state = fs::fstat(&*file)?;
    let is_checked = cache.is_some_and(|cache| cache.knows(&state));
    let bytes = if is_checked {
        map(file, state.st_size as usize)?
    } else {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        bytes.leak()
    };
    Ok(Opened { bytes, is_checked, state })
}

/// The bytes of a file that only this user and root can change, for ever.
fn map(file: &File, n_bytes: usize) -> io::Result<&'static [u8]> {
    let (any, flags) = (std::ptr::null_mut(), MapFlags::PRIVATE);
    // SAFETY: the kernel chooses the place. The pages are never unmapped, and nobody but this user
    // and root could write to the file: programs replace dex files, and do not change them.
    unsafe {
        let start = rustix::mm::mmap(any, n_bytes, ProtFlags::READ, flags, file, 0)?;
        Ok(std::slice::from_raw_parts(start.cast(), n_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{FileTimes, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;
    use std::time::{Duration, SystemTime};

    /// A directory with a cache and a dex file that has not changed for long.
    struct Place {
        directory: tempfile::TempDir,
        cache: DexCache,
    }

    impl Place {
        fn new() -> Place {
            let directory = tempfile::tempdir().unwrap();
            std::fs::write(directory.path().join("one.dex"), "good").unwrap();
            set_mode(&directory.path().join("one.dex"), 0o644);
            let mut cache = DexCache::open(&directory.path().join("records")).unwrap();
            *cache.now_s.get_mut() += 100;
            Place { directory, cache }
        }

        fn file(&self) -> PathBuf {
            self.directory.path().join("one.dex")
        }

        /// Opens the file as the VM does; returns whether it has been checked before.
        fn open(&self) -> bool {
            let mut file = File::open(self.file()).unwrap();
            let opened = read(Some(&self.cache), &mut file).unwrap();
            assert_eq!(opened.bytes, std::fs::read(self.file()).unwrap());
            if !opened.is_checked {
                self.cache.insert(&file, &opened);
            }
            opened.is_checked
        }

        fn records(&self) -> Vec<PathBuf> {
            let entries = std::fs::read_dir(self.directory.path().join("records")).unwrap();
            entries.map(|entry| entry.unwrap().path()).collect()
        }
    }

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn set_modified(path: &Path, to: SystemTime) {
        let file = File::options().write(true).open(path).unwrap();
        file.set_times(FileTimes::new().set_modified(to)).unwrap();
    }

    #[test]
    fn a_file_is_checked_once() {
        let place = Place::new();
        assert_eq!([place.open(), place.open(), place.open()], [false, true, true]);
        assert_eq!(place.records().len(), 1);
    }

    #[test]
    fn a_changed_file_is_checked_again_even_with_its_old_times() {
        let place = Place::new();
        let modified = std::fs::metadata(place.file()).unwrap().modified().unwrap();
        place.open();
        assert!(place.open());
        std::fs::write(place.file(), "evil").unwrap();
        set_modified(&place.file(), modified);
        assert_eq!(std::fs::metadata(place.file()).unwrap().modified().unwrap(), modified);
        assert!(!place.open());
        assert!(place.open());
    }

    #[test]
    fn a_file_that_others_may_write_to_is_always_checked() {
        let place = Place::new();
        set_mode(&place.file(), 0o664);
        assert_eq!([place.open(), place.open()], [false, false]);
    }

    #[test]
    fn a_file_of_this_moment_is_not_recorded() {
        let mut place = Place::new();
        *place.cache.now_s.get_mut() -= 100;
        assert_eq!([place.open(), place.open()], [false, false]);
        assert!(place.records().is_empty());
    }

    #[test]
    fn another_program_checks_for_itself() {
        let mut place = Place::new();
        place.open();
        place.cache.program.st_size += 1;
        assert!(!place.open());
        place.cache.program.st_ino += 1;
        assert!(!place.open());
        assert_eq!(place.records().len(), 2);
    }

    #[test]
    fn a_broken_record_is_not_believed() {
        let place = Place::new();
        place.open();
        let [record] = &place.records()[..] else { panic!("one record") };
        let content = std::fs::read_to_string(record).unwrap();
        std::fs::write(record, &content[1..]).unwrap();
        assert!(!place.open());
    }

    #[test]
    fn a_directory_that_others_may_enter_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let records = directory.path().join("records");
        assert!(DexCache::open(&records).is_some());
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&records, &link).unwrap();
        assert!(DexCache::open(&link).is_none());
        set_mode(&records, 0o750);
        assert!(DexCache::open(&records).is_none());
    }

    #[test]
    fn records_go_when_nobody_uses_them() {
        let place = Place::new();
        place.open();
        let old = place.records();
        let unused = Duration::from_secs(UNUSED_S as u64 + 200);
        set_modified(&old[0], SystemTime::now() - unused);
        // A use keeps a record.
        assert!(place.open());
        std::fs::copy(place.file(), place.directory.path().join("two.dex")).unwrap();
        std::fs::rename(place.directory.path().join("two.dex"), place.file()).unwrap();
        assert!(!place.open());
        assert_eq!(place.records().len(), 2);
        set_modified(&old[0], SystemTime::now() - unused);
        std::fs::write(place.file(), "next").unwrap();
        assert!(!place.open());
        assert_eq!(place.records().len(), 1);
        assert!(!old[0].exists());
    }
}
