//! The table of descriptors that stand for Binder devices.
//!
//! Every `close`, `poll` and `ioctl` of the program comes through here, nearly all for other
//! descriptors: one relaxed load of a bitmap decides about those. A descriptor of a device has an
//! [`Open`], like a file descriptor has an open file description. Duplicates share it, and a call
//! in progress keeps it when another thread closes the descriptor.
//!
//! ```text
//!   BITMAP: bit per descriptor  --->  OPENS[fd]: ArcSwapOption<Open>  --->  Open { device, ... }
//! ```
//!
//! The bit is set after the slot is filled, and cleared before the slot is emptied. A reader that
//! sees the bit and finds no `Open` treats the descriptor as closed, which it is.
//!
//! **Invariant**: only the process that opened a device changes the table. The child of a `vfork`
//! has descriptors of its own but its parent's memory, and what the child closes stays open in the
//! parent.

use arc_swap::{ArcSwapOption, Guard};
use baton_driver::device::Device;
use libc::c_int;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

/// The table's size. A device whose descriptor would exceed it is refused with `EMFILE`. Slots are
/// zero pages until they are used.
pub const LIMIT: usize = 1 << 16;

/// A file, whatever its descriptors: the numbers of its file system and its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId(u64, u64);

impl FileId {
    /// The file of a descriptor. An error is the system's.
    pub fn of(fd: impl AsFd) -> Result<FileId, Errno> {
        let found = rustix::fs::fstat(fd)?;
        Ok(FileId(found.st_dev, found.st_ino))
    }
}

/// The object behind a descriptor in the table.
#[derive(Debug)]
pub struct Open {
    /// The file of the program's descriptor.
    pub file: FileId,
    /// The object in its place.
    pub object: Object,
}

/// An object that a program has opened.
#[derive(Debug)]
pub enum Object {
    /// A context's device.
    Device {
        /// The engine of the device.
        device: Arc<Device>,
        /// `O_NONBLOCK`, as last set through the C library.
        nonblocking: AtomicBool,
        /// Whether the process that this one was forked from opened the device.
        inherited: AtomicBool,
    },
    /// binderfs' `binder-control`.
    Control,
}

impl Open {
    /// The device, unless this is `binder-control`.
    pub fn device(&self) -> Option<&Arc<Device>> {
        match &self.object {
            Object::Device { device, .. } => Some(device),
            Object::Control => None,
        }
    }

    /// Whether a descriptor's number is still that of this object's file: a system call.
    pub fn is_file_of(&self, fd: c_int) -> bool {
        // SAFETY: the number is not negative, because the table contains it. It only goes to the
        // kernel, which answers for any number.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        FileId::of(fd) == Ok(self.file)
    }

    /// Whether a parent process opened the device.
    pub fn is_inherited(&self) -> bool {
        match &self.object {
            Object::Device { inherited, .. } => inherited.load(Ordering::Relaxed),
            _ => false,
        }
    }

    /// Records `O_NONBLOCK`.
    pub fn set_nonblocking(&self, value: bool) {
        if let Object::Device { nonblocking, .. } = &self.object {
            // Relaxed: a caller that changes the flag during a call gets either behaviour.
            nonblocking.store(value, Ordering::Relaxed);
        }
    }
}

static BITMAP: [AtomicU64; LIMIT / 64] = [const { AtomicU64::new(0) }; LIMIT / 64];
static OPENS: [ArcSwapOption<Open>; LIMIT] = [const { ArcSwapOption::const_empty() }; LIMIT];
/// The process that owns the table; 0 while the table is empty.
static OWNER: AtomicI32 = AtomicI32::new(0);

fn index(fd: c_int) -> Option<usize> {
    usize::try_from(fd).ok().filter(|fd| *fd < LIMIT)
}

fn bit(fd: usize) -> (&'static AtomicU64, u64) {
    (&BITMAP[fd / 64], 1 << (fd % 64))
}

/// Whether the table contains a descriptor: one relaxed load.
#[inline]
pub fn contains(fd: c_int) -> bool {
    index(fd).is_some_and(|fd| {
        let (word, mask) = bit(fd);
        // Relaxed: the slot's own load orders the accesses through it.
        word.load(Ordering::Relaxed) & mask != 0
    })
}

/// The object behind a descriptor, kept alive by the guard.
#[inline]
pub fn get(fd: c_int) -> Option<Guard<Option<Arc<Open>>>> {
    if !contains(fd) {
        return None;
    }
    let guard = OPENS[index(fd)?].load();
    guard.is_some().then_some(guard)
}

/// Whether this process may change the table. False in the child of a `vfork`.
pub fn is_owner() -> bool {
    let owner = OWNER.load(Ordering::Relaxed);
    owner == 0 || owner == std::process::id() as i32
}

/// Inserts a descriptor. Returns false if it exceeds [`LIMIT`].
pub fn insert(fd: c_int, open: Arc<Open>) -> bool {
    let Some(fd) = index(fd) else { return false };
    OWNER.store(std::process::id() as i32, Ordering::Relaxed);
    OPENS[fd].store(Some(open));
    let (word, mask) = bit(fd);
    word.fetch_or(mask, Ordering::Release);
    true
}

/// Removes a descriptor that is about to be closed or was reused for another file. Dropping the
/// last `Open` of a device closes it.
pub fn remove(fd: c_int) -> Option<Arc<Open>> {
    let fd = index(fd).filter(|_| contains(fd))?;
    let (word, mask) = bit(fd);
    word.fetch_and(!mask, Ordering::AcqRel);
    OPENS[fd].swap(None)
}

/// Every descriptor in the table from `first` to `last`.
pub fn in_range(first: usize, last: usize) -> impl Iterator<Item = c_int> {
    let last = last.min(LIMIT - 1);
    let words = if first <= last { first / 64..last / 64 + 1 } else { 0..0 };
    words.flat_map(move |word| {
        let mut bits = BITMAP[word].load(Ordering::Relaxed);
        std::iter::from_fn(move || {
            (bits != 0).then(|| {
                let low = bits.trailing_zeros() as usize;
                bits &= bits - 1;
                word * 64 + low
            })
        })
        .filter(move |fd| (first..=last).contains(fd))
        .map(|fd| fd as c_int)
    })
}

/// Makes the table the child's own after a fork. The devices in it stay the parent's.
pub fn forked() {
    if OWNER.load(Ordering::Relaxed) == 0 {
        return;
    }
    OWNER.store(std::process::id() as i32, Ordering::Relaxed);
    for fd in in_range(0, LIMIT - 1) {
        let guard = get(fd);
        let open = guard.as_deref().and_then(Option::as_deref);
        if let Some(Object::Device { device, inherited, .. }) = open.map(|open| &open.object) {
            inherited.store(true, Ordering::Relaxed);
            device.forked();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_exactly_the_descriptors_in_it() {
        let file = FileId::of(std::fs::File::open("/dev/null").unwrap()).unwrap();
        let open = Arc::new(Open { file, object: Object::Control });
        for fd in [40_000, 40_063, 40_064, 40_200] {
            assert!(insert(fd, Arc::clone(&open)));
        }
        let found = |first, last| in_range(first, last).collect::<Vec<_>>();
        assert_eq!(found(40_000, 40_199), [40_000, 40_063, 40_064]);
        assert_eq!(found(40_001, usize::MAX), [40_063, 40_064, 40_200]);
        assert_eq!(found(40_065, 40_064), [0; 0]);
        assert!(remove(40_063).is_some() && remove(40_063).is_none());
        assert!(get(40_063).is_none() && get(40_064).is_some());
        assert_eq!(found(40_001, 40_199), [40_064]);
        assert!(!insert(LIMIT as c_int, open));
        assert!(!contains(-1));
    }
}
