//! The page with the requests of followers: readers write it, and every writer reads it.
//!
//! The page is a System V segment, the one kind of shared memory with an owner and permissions that
//! no user can shrink. A user that may write a file may also truncate it, and each writer that
//! reads it then would get SIGBUS. The directory's `watch` file has the segment's number. A process
//! of the directory's owner makes both. The segment of a private directory goes with its last
//! process; any other stays.
//!
//! `wakeup` explains the words in it. A writer wakes followers at most once in `QUIET_NS`, so a
//! hostile reader costs it at most one wake-up in that time.

use crate::files::directory::Directory;
use crate::wakeup::{LEASE_NS, Until, WakeRequests};
use baton_shm::clock;
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

const NAME: &str = "watch";
const BYTES: usize = 4096;
/// Offsets in double words.
const TOKEN_AT: usize = 0;
const WORDS_AT: usize = 8;

/// The requests where there is no page: none.
static NEVER: WakeRequests = WakeRequests::none();

/// The page, if there is one.
#[derive(Debug)]
pub(crate) struct Watch {
    page: Option<NonNull<AtomicU64>>,
}

// SAFETY: all threads use the page through atomics only.
unsafe impl Send for Watch {}
// SAFETY: all threads use the page through atomics only.
unsafe impl Sync for Watch {}

/// The use that a process makes of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Writer,
    Reader,
}

impl Watch {
    /// Attaches the directory's page, or makes it if the directory is this user's. Without a page,
    /// followers have to look from time to time.
    pub fn attach(directory: &Directory, role: Role) -> Watch {
        let known = || directory.read(NAME).and_then(|text| Watch::named(&text, role));
        let page =
            known().or_else(|| directory.is_ours().then(|| make(directory, known).ok()).flatten());
        Watch { page }
    }

    /// Whether there is a page, so that this process can ask or be asked.
    pub fn is_there(&self) -> bool {
        self.page.is_some()
    }

    /// The requests of followers.
    #[inline]
    pub fn words(&self) -> &WakeRequests {
        match self.page {
            // SAFETY: within the page, which stays attached as long as `self` lives; `WakeRequests`
            // is made of double words.
            Some(page) => unsafe { page.add(WORDS_AT).cast().as_ref() },
            None => &NEVER,
        }
    }

    /// The request of a follower from now on.
    pub fn lease(&self, ticks_in_lease: u64) -> Until {
        Until {
            counter: clock::counter() + ticks_in_lease,
            monotonic_ns: clock::now_ns() + LEASE_NS,
        }
    }

    fn token(&self) -> Option<&AtomicU64> {
        // SAFETY: within the page, which stays attached as long as `self` lives.
        self.page.map(|page| unsafe { page.add(TOKEN_AT).as_ref() })
    }

    /// Attaches the segment that the `watch` file names. `None`: it is gone, has been replaced, or
    /// this user may not attach it.
    fn named(text: &str, role: Role) -> Option<NonNull<AtomicU64>> {
        let (id, token) = text.trim().split_once(' ')?;
        let (id, token) = (id.parse().ok()?, token.parse().ok()?);
        let page = attach(id, role)?;
        let watch = Watch { page: Some(page) };
        // A segment that has the number by accident may have any size, but it has at least a page.
        let same = watch.token()?.load(Ordering::Relaxed) == token;
        same.then(|| {
            std::mem::forget(watch);
            page
        })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(page) = self.page {
            // SAFETY: attached by this value, and no reference to it is left.
            unsafe { libc::shmdt(page.as_ptr().cast()) };
        }
    }
}

/// Attaches a segment. `None` also for a reader that may not write it, as it cannot ask.
fn attach(id: i32, role: Role) -> Option<NonNull<AtomicU64>> {
    let how = match role {
        Role::Writer => libc::SHM_RDONLY,
        Role::Reader => 0,
    };
    // SAFETY: the system chooses the address, or the call fails.
    let page = unsafe { libc::shmat(id, std::ptr::null(), how) };
    NonNull::new(page.cast()).filter(|page| page.as_ptr() as isize != -1)
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Makes a page, unless another process of this user has made one meanwhile.
fn make(
    directory: &Directory,
    known: impl Fn() -> Option<NonNull<AtomicU64>>,
) -> Result<NonNull<AtomicU64>, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let everybody_reads = Mode::from_raw_mode(0o644);
    let file = rustix::fs::openat(&directory.file, NAME, flags, everybody_reads)?;
    lock(&file)?;
    if let Some(page) = known() {
        return Ok(page);
    }
    rustix::fs::fchmod(&file, everybody_reads)?;
    let (id, page) = make_segment(directory)?;
    let token = new_token()?;
    let watch = Watch { page: Some(page) };
    watch.token().ok_or(Errno::NOMEM)?.store(token, Ordering::Relaxed);
    rustix::fs::ftruncate(&file, 0)?;
    let line = format!("{id} {token}\n");
    baton_shm::file_size::check(line.len() as u64)?;
    rustix::io::pwrite(&file, line.as_bytes(), 0)?;
    std::mem::forget(watch);
    Ok(page)
}

/// Takes the file's lock, but does not wait for it for long, since any reader of the directory
/// could hold it for ever.
fn lock(file: &OwnedFd) -> Result<(), Errno> {
    const ATTEMPTS: usize = 100;
    const PAUSE: std::time::Duration = std::time::Duration::from_millis(1);
    for _ in 0..ATTEMPTS {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => std::thread::sleep(PAUSE),
            done => return done,
        }
    }
    Err(Errno::BUSY)
}

fn new_token() -> Result<u64, Errno> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes))
}

fn make_segment(directory: &Directory) -> Result<(i32, NonNull<AtomicU64>), Errno> {
    let mode = mode_of_segment(directory).as_raw_mode() as i32;
    // SAFETY: makes a new segment.
    let id = unsafe { libc::shmget(libc::IPC_PRIVATE, BYTES, libc::IPC_CREAT | mode) };
    if id == -1 {
        return Err(last_error());
    }
    let page = attach(id, Role::Reader).ok_or_else(last_error);
    // SAFETY: the first call fills the structure, which is plain data; the segment is this
    // process's.
    unsafe {
        let mut status: libc::shmid_ds = std::mem::zeroed();
        if page.is_err() || directory.is_private() {
            // The segment lives as long as a process has it attached, and others may attach it.
            libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut());
        } else if libc::shmctl(id, libc::IPC_STAT, &raw mut status) == 0 {
            status.shm_perm.gid = directory.group();
            libc::shmctl(id, libc::IPC_SET, &raw mut status);
        }
    }
    Ok((id, page?))
}

/// The permissions of the segment: readers write, and writers read.
fn mode_of_segment(directory: &Directory) -> Mode {
    let readers = directory.mode_of_files();
    let mut mode = readers;
    if !directory.is_private() {
        mode |= Mode::RGRP | Mode::ROTH;
    }
    for (reads, writes) in [(Mode::RGRP, Mode::WGRP), (Mode::ROTH, Mode::WOTH)] {
        if readers.contains(reads) {
            mode |= writes;
        }
    }
    mode
}
