//! Memory that another process can write at any instant.
//!
//! **Invariant**: no Rust reference or slice points into a [`Mapping`], but for atomics. Bytes go
//! in and out by copies within checked bounds; what has been copied out is then validated.
//! A mapped file is sealed against shrinking, so no access faults.

use crate::forks::Maker;
use crate::sync::{AtomicU32, AtomicU64};
use core::marker::PhantomData;
use core::ptr::NonNull;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::{Errno, Result};
use rustix::mm::{MapFlags, ProtFlags};

/// What the map is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Both directions.
    ReadWrite,
    /// Looking only.
    Read,
}

/// A shared map of the first `BYTES` of a sealed file, from some offset on. Unmapped when dropped.
/// A child of fork does not have it, must not use it, and may drop it. That the length is of the
/// type makes most checks of bounds the compiler's.
#[derive(Debug)]
pub struct Mapping<const BYTES: usize> {
    base: NonNull<u8>,
    maker: Maker,
}

/// A mapping of whatever length: where bytes go in and out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View<'a> {
    base: NonNull<u8>,
    bytes: usize,
    mapping: PhantomData<&'a ()>,
}

/// A part of a mapping, with its length in its type.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a, const BYTES: usize> {
    base: NonNull<u8>,
    mapping: PhantomData<&'a ()>,
}

// SAFETY: the base address is valid in every thread, and all access is by atomics or by copies of
// bytes that have no Rust owner.
unsafe impl<const BYTES: usize> Send for Mapping<BYTES> {}
// SAFETY: as above.
unsafe impl<const BYTES: usize> Sync for Mapping<BYTES> {}

/// A new zero-filled file of exactly `bytes`, which can neither shrink nor grow.
pub fn create(name: &str, bytes: usize) -> Result<OwnedFd> {
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&file, bytes as u64)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
    Ok(file)
}

/// From now on the file can be mapped and read, not written; maps that exist keep their rights.
pub fn forbid_new_writers(file: impl AsFd) -> Result<()> {
    rustix::fs::fcntl_add_seals(file, SealFlags::FUTURE_WRITE | SealFlags::SEAL)
}

/// No seal can be added any more.
pub fn freeze_seals(file: impl AsFd) -> Result<()> {
    rustix::fs::fcntl_add_seals(file, SealFlags::SEAL)
}

/// [`View::keep`] of any memory of this process, wherever it lies.
pub fn keep_at(address: usize, bytes: usize) -> Result<()> {
    // SAFETY: locks pages, or finds none; nothing that anybody relies on changes.
    unsafe { rustix::mm::mlock(core::ptr::with_exposed_provenance_mut(address), bytes) }
}

impl<const BYTES: usize> Mapping<BYTES> {
    /// Maps the beginning of a file that somebody else may have made.
    ///
    /// `EINVAL` if it is shorter or can shrink: its maker's fault.
    pub fn new(file: impl AsFd, access: Access) -> Result<Self> {
        Mapping::part(file, 0, access)
    }

    /// Maps from `offset` on, which like the length is a multiple of the page size.
    pub fn part(file: impl AsFd, offset: usize, access: Access) -> Result<Self> {
        let file = file.as_fd();
        let seals = rustix::fs::fcntl_get_seals(file)?;
        let size = rustix::fs::fstat(file)?.st_size as u64;
        let end = offset.checked_add(BYTES).ok_or(Errno::INVAL)?;
        if BYTES == 0 || !seals.contains(SealFlags::SHRINK) || size < end as u64 {
            return Err(Errno::INVAL);
        }
        let protection = match access {
            Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
            Access::Read => ProtFlags::READ,
        };
        // SAFETY: a fresh map at an address of the kernel's choice.
        let base = unsafe {
            rustix::mm::mmap(
                core::ptr::null_mut(),
                BYTES,
                protection,
                MapFlags::SHARED | MapFlags::NORESERVE,
                file,
                offset as u64,
            )?
        };
        let base: NonNull<u8> = NonNull::new(base.cast()).ok_or(Errno::FAULT)?;
        // SAFETY: our own map, as just returned. A child of fork must not write here as us.
        let _ = unsafe {
            rustix::mm::madvise(base.as_ptr().cast(), BYTES, rustix::mm::Advice::LinuxDontFork)
        };
        Ok(Mapping { base, maker: Maker::here() })
    }

    /// All of it.
    #[inline]
    pub fn view(&self) -> View<'_> {
        View { base: self.base, bytes: BYTES, mapping: PhantomData }
    }

    /// What begins at an offset.
    ///
    /// # Panics
    /// If it ends outside the map.
    #[inline]
    pub fn part_at<const PART: usize>(&self, offset: usize) -> Part<'_, PART> {
        let base = NonNull::new(self.view().at(offset, PART)).expect("an address within a map");
        Part { base, mapping: PhantomData }
    }

    /// Address of the first byte: to give to a program, or to hand to the kernel.
    pub fn address(&self) -> usize {
        self.base.as_ptr() as usize
    }

    /// [`View::word`].
    #[inline]
    pub fn word(&self, offset: usize) -> &AtomicU32 {
        self.view().word(offset)
    }

    /// [`View::double_word`].
    #[inline]
    pub fn double_word(&self, offset: usize) -> &AtomicU64 {
        self.view().double_word(offset)
    }
}

/// Copies the first and the last so many bytes.
///
/// # Safety
/// Of `bytes` that are valid at both places, which do not overlap: at least so many, and at most
/// twice as many.
#[inline(always)]
unsafe fn copy_twice<const PART: usize>(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise; either part lies within.
    unsafe {
        let [first, last] = [0, bytes - PART].map(|at| from.add(at).cast::<[u8; PART]>().read());
        to.cast::<[u8; PART]>().write(first);
        to.add(bytes - PART).cast::<[u8; PART]>().write(last);
    }
}

impl<'a, const BYTES: usize> Part<'a, BYTES> {
    /// Where bytes go in and out.
    #[inline]
    pub fn view(self) -> View<'a> {
        View { base: self.base, bytes: BYTES, mapping: PhantomData }
    }
}

impl<'a> View<'a> {
    /// Where a range lies, for raw reads and writes.
    #[inline]
    pub fn at(self, offset: usize, bytes: usize) -> *mut u8 {
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.bytes), "outside the map");
        // SAFETY: within the map, as just checked.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// The word at a multiple of 4.
    ///
    /// # Panics
    /// Outside the map or unaligned.
    #[inline]
    pub fn word(self, offset: usize) -> &'a AtomicU32 {
        assert!(offset.is_multiple_of(4));
        // SAFETY: in bounds, aligned, mapped as long as the mapping; atomics may change under us.
        unsafe { &*self.at(offset, 4).cast::<AtomicU32>() }
    }

    /// The double word at a multiple of 8.
    #[inline]
    pub fn double_word(self, offset: usize) -> &'a AtomicU64 {
        assert!(offset.is_multiple_of(8));
        // SAFETY: in bounds, aligned, mapped as long as the mapping; atomics may change under us.
        unsafe { &*self.at(offset, 8).cast::<AtomicU64>() }
    }

    /// From now on a range of whole pages is in memory and stays there: to touch it faults no more.
    /// An error is the system's, which does not let this process lock so much; the pages are there
    /// all the same, if they can be.
    pub fn keep(self, offset: usize, bytes: usize) -> Result<()> {
        let at = self.at(offset, bytes).cast();
        // SAFETY: of our own map. Its pages come as zeros, or as what the file has.
        let there =
            unsafe { rustix::mm::madvise(at, bytes, rustix::mm::Advice::LinuxPopulateWrite) };
        // SAFETY: of our own map, of which nothing changes.
        unsafe { rustix::mm::mlock(at, bytes) }?;
        match there {
            // Linux before 5.14: locking has brought them.
            Err(Errno::INVAL) => Ok(()),
            there => there,
        }
    }

    /// The range may leave memory again.
    pub fn release(self, offset: usize, bytes: usize) {
        // SAFETY: of our own map, of which nothing changes.
        let _ = unsafe { rustix::mm::munlock(self.at(offset, bytes).cast(), bytes) };
    }

    /// Copies bytes in.
    #[inline(always)]
    pub fn write(self, offset: usize, from: &[u8]) {
        let (to, bytes, from) = (self.at(offset, from.len()), from.len(), from.as_ptr());
        // SAFETY: `to` is in bounds; a slice of ours never overlaps a map that nobody borrows.
        unsafe {
            // A few words take less than a call.
            match bytes {
                4..8 => copy_twice::<4>(from, to, bytes),
                8..=16 => copy_twice::<8>(from, to, bytes),
                _ => core::ptr::copy_nonoverlapping(from, to, bytes),
            }
        }
    }

    /// Copies bytes out. What a peer may be writing meanwhile comes out as any mixture.
    #[inline]
    pub fn read(self, offset: usize, into: &mut [u8]) {
        let from = self.at(offset, into.len());
        // SAFETY: `from` is in bounds; see `write`. Bytes have no invalid value.
        unsafe { core::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) }
    }

    /// Bytes that nobody writes to, of a file that no peer can write.
    ///
    /// # Safety
    /// As long as the slice lives, no map of the file is written to in this range.
    pub unsafe fn bytes_at(self, offset: usize, bytes: usize) -> &'a [u8] {
        // SAFETY: in bounds and mapped; unchanging by the caller's promise.
        unsafe { core::slice::from_raw_parts(self.at(offset, bytes), bytes) }
    }

    /// Copies from one map to another, or within one where the two do not overlap.
    pub fn copy(from: View<'_>, from_offset: usize, to: View<'_>, to_offset: usize, bytes: usize) {
        let (source, target) = (from.at(from_offset, bytes), to.at(to_offset, bytes));
        // SAFETY: both in bounds. `copy` allows an overlap.
        unsafe { core::ptr::copy(source, target, bytes) }
    }

    /// Copies in from an address of this process.
    ///
    /// # Safety
    /// `bytes` from `from` on are mapped and readable.
    pub unsafe fn write_from(self, offset: usize, from: *const u8, bytes: usize) {
        let to = self.at(offset, bytes);
        // SAFETY: the caller's promise for `from`; `to` is in bounds. `copy` allows an overlap.
        unsafe { core::ptr::copy(from, to, bytes) }
    }

    /// Writes words that a function makes, each once and in its place: the word with this index,
    /// the last one as far as `bytes` go.
    pub fn fill(self, offset: usize, bytes: usize, mut word: impl FnMut(usize) -> u64) {
        const WORD: usize = size_of::<u64>();
        let to = self.at(offset, bytes);
        for index in 0..bytes / WORD {
            // SAFETY: `to` has room for `bytes`; the pointer is raw, as any write here.
            unsafe { to.add(index * WORD).cast::<u64>().write_unaligned(word(index)) }
        }
        let rest = bytes % WORD;
        if rest > 0 {
            let last = word(bytes / WORD).to_ne_bytes();
            self.write(offset + bytes - rest, &last[..rest]);
        }
    }

    /// Overwrites with zeros.
    pub fn zero(self, offset: usize, bytes: usize) {
        let to = self.at(offset, bytes);
        // SAFETY: in bounds.
        unsafe { core::ptr::write_bytes(to, 0, bytes) }
    }
}

impl<const BYTES: usize> Drop for Mapping<BYTES> {
    fn drop(&mut self) {
        // A child of fork may have something else there.
        if self.maker.is_here() {
            // SAFETY: our own map; the borrow checker ended every use of it.
            let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), BYTES) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_can_shrink_is_refused() {
        let file = rustix::fs::memfd_create("open", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&file, 4096).unwrap();
        assert_eq!(Mapping::<4096>::new(&file, Access::Read).unwrap_err(), Errno::INVAL);
        let file = create("short", 4096).unwrap();
        assert_eq!(Mapping::<8192>::new(&file, Access::Read).unwrap_err(), Errno::INVAL);
    }

    #[test]
    fn strangers_can_read_and_not_write_a_forbidden_file() {
        let file = create("page", 4096).unwrap();
        let ours = Mapping::<4096>::new(&file, Access::ReadWrite).unwrap();
        forbid_new_writers(&file).unwrap();
        assert_eq!(Mapping::<4096>::new(&file, Access::ReadWrite).unwrap_err(), Errno::PERM);
        let theirs = Mapping::<4096>::new(&file, Access::Read).unwrap();
        ours.view().write(8, &[7; 4]);
        let mut seen = [0; 4];
        theirs.view().read(8, &mut seen);
        assert_eq!(seen, [7; 4]);
    }

    #[test]
    fn words_are_written_up_to_the_last_byte() {
        let file = create("page", 4096).unwrap();
        let map = Mapping::<4096>::new(&file, Access::ReadWrite).unwrap();
        map.view().write(0, &[0xff; 32]);
        map.view().fill(3, 19, |index| u64::from_ne_bytes([index as u8; 8]));
        let mut seen = [0; 24];
        map.view().read(0, &mut seen);
        let expected = [&[0xff; 3][..], &[0; 8], &[1; 8], &[2; 3], &[0xff; 2]].concat();
        assert_eq!(seen, expected[..]);
    }

    #[test]
    #[should_panic(expected = "outside the map")]
    fn access_past_the_end_is_our_bug() {
        let file = create("page", 4096).unwrap();
        Mapping::<4096>::new(&file, Access::ReadWrite).unwrap().view().write(4095, &[0; 2]);
    }
}
