//! Whether somebody waits for news: a page that readers write and every writer looks at.
//!
//! The page is a System V segment, because that is the one kind of shared memory with an owner and
//! permissions that nobody can shrink: a file that readers may write they may truncate, and each
//! writer that looks at it then would end by SIGBUS. Its number stands in the directory's `watch`
//! file, which belongs to the directory's owner, whose process makes the segment. Of a private
//! directory it goes when the last process that has it ends; else it stays.
//!
//! What stands there is explained in `bell`. A writer rings at most once in `QUIET_NS`, so whatever
//! readers do there costs it one wake in so long.

use crate::bell::{LEASE_NS, Until, Words};
use crate::files::place::Directory;
use baton_shm::clock;
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

const NAME: &str = "watch";
const BYTES: usize = 4096;
/// In double words.
const TOKEN_AT: usize = 0;
const WORDS_AT: usize = 8;

/// Never rung for: where there is no page.
static NEVER: Words = Words::none();

/// The page, if there is one.
#[derive(Debug)]
pub(crate) struct Watch {
    page: Option<NonNull<AtomicU64>>,
}

// SAFETY: the page is reached by atomics only, in any thread.
unsafe impl Send for Watch {}
// SAFETY: as above.
unsafe impl Sync for Watch {}

/// What a process does with the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Writer,
    Reader,
}

impl Watch {
    /// Attaches the directory's page, or makes it if it is ours to make. Without one, readers have
    /// to look from time to time.
    pub fn attach(directory: &Directory, role: Role) -> Watch {
        let known = || directory.read(NAME).and_then(|text| Watch::named(&text, role));
        let page =
            known().or_else(|| directory.is_ours().then(|| make(directory, known).ok()).flatten());
        Watch { page }
    }

    /// Whether readers can be heard by writers, and this one may speak.
    pub fn is_there(&self) -> bool {
        self.page.is_some()
    }

    /// What readers ask for.
    #[inline]
    pub fn words(&self) -> &Words {
        match self.page {
            // SAFETY: within the page, which is attached as long as we live; double words, of which
            // `Words` is made.
            Some(page) => unsafe { page.add(WORDS_AT).cast().as_ref() },
            None => &NEVER,
        }
    }

    /// What to ask for from now on.
    pub fn lease(&self, ticks_in_lease: u64) -> Until {
        Until {
            counter: clock::counter() + ticks_in_lease,
            monotonic_ns: clock::now_ns() + LEASE_NS,
        }
    }

    fn token(&self) -> Option<&AtomicU64> {
        // SAFETY: within the page, which is attached as long as we live.
        self.page.map(|page| unsafe { page.add(TOKEN_AT).as_ref() })
    }

    /// `None` if the segment is gone, another one, or not for us.
    fn named(text: &str, role: Role) -> Option<NonNull<AtomicU64>> {
        let (id, token) = text.trim().split_once(' ')?;
        let (id, token) = (id.parse().ok()?, token.parse().ok()?);
        let page = attach(id, role)?;
        let watch = Watch { page: Some(page) };
        // Of a segment that has its number by accident, the size is not known either; it has a page
        // at least.
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
            // SAFETY: attached by us, and nobody has a reference any more.
            unsafe { libc::shmdt(page.as_ptr().cast()) };
        }
    }
}

/// A reader that may not write there cannot ask.
fn attach(id: i32, role: Role) -> Option<NonNull<AtomicU64>> {
    let how = match role {
        Role::Writer => libc::SHM_RDONLY,
        Role::Reader => 0,
    };
    // SAFETY: attaches at an address of the kernel's choice, or fails.
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
    rustix::io::pwrite(&file, format!("{id} {token}\n").as_bytes(), 0)?;
    std::mem::forget(watch);
    Ok(page)
}

/// Somebody who reads the directory could hold the lock for good, so nobody waits for it for long.
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
    // SAFETY: makes a segment of our own.
    let id = unsafe { libc::shmget(libc::IPC_PRIVATE, BYTES, libc::IPC_CREAT | mode) };
    if id == -1 {
        return Err(last_error());
    }
    let page = attach(id, Role::Reader).ok_or_else(last_error);
    // SAFETY: a structure of plain data, which the first call fills, of a segment of our own.
    unsafe {
        let mut status: libc::shmid_ds = std::mem::zeroed();
        if page.is_err() || directory.is_private() {
            // It stays as long as somebody has it, and others may come.
            libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut());
        } else if libc::shmctl(id, libc::IPC_STAT, &raw mut status) == 0 {
            status.shm_perm.gid = directory.group();
            libc::shmctl(id, libc::IPC_SET, &raw mut status);
        }
    }
    Ok((id, page?))
}

/// For readers to write, and for writers to read.
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
