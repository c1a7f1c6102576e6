//! Memory that another process can write at any instant.
//!
//! **Invariant**: no Rust reference or slice points into a [`Mapping`], except for atomics. Bytes
//! are copied in and out within checked bounds; callers validate the copy. A mapped file is sealed
//! against shrinking, so no access faults.

use crate::fd_numbers::set_apart;
use crate::file_size;
use crate::forks::ForkGeneration;
use crate::sync::{AtomicU32, AtomicU64};
use core::marker::PhantomData;
use core::ptr::NonNull;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::{Errno, Result};
use rustix::mm::{MapFlags, ProtFlags};

/// The permitted direction of access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading and writing.
    ReadWrite,
    /// Reading only.
    Read,
}

/// A shared mapping of `BYTES` bytes of a sealed file, unmapped when dropped. A child of fork does
/// not have the mapping and must not use it, but may drop it. The constant length lets the compiler
/// remove most bounds checks.
#[derive(Debug)]
pub struct Mapping<const BYTES: usize> {
    base: NonNull<u8>,
    generation: ForkGeneration,
}

/// A mapping of any length, for copies in and out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View<'a> {
    base: NonNull<u8>,
    bytes: usize,
    mapping: PhantomData<&'a ()>,
}

/// A part of a mapping, with its length in the type.
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

/// A file that a peer may have made, and that cannot shrink: what the system says of it is asked
/// for once.
#[derive(Debug)]
pub struct SealedFile {
    file: OwnedFd,
    /// Seals that it had when it was looked at. There may be more by now.
    pub seals: SealFlags,
    /// Bytes that it had then. It may have grown since, unless it is sealed against that.
    pub bytes: u64,
    /// Bytes of its pages.
    pub page_bytes: usize,
}

impl SealedFile {
    /// Looks at a file. The error is the file: one that can shrink, or no memory.
    pub fn new(file: OwnedFd) -> core::result::Result<SealedFile, OwnedFd> {
        let seals = rustix::fs::fcntl_get_seals(&file).unwrap_or(SealFlags::empty());
        if !seals.contains(SealFlags::SHRINK) {
            return Err(file);
        }
        // Of memory alone: for any other file, `fstat` may wait for a peer that serves it.
        match rustix::fs::fstat(&file) {
            Ok(found) => {
                let (bytes, page_bytes) = (found.st_size as u64, found.st_blksize as usize);
                Ok(SealedFile { file, seals, bytes, page_bytes })
            }
            Err(_) => Err(file),
        }
    }

    /// The file itself.
    pub fn into_file(self) -> OwnedFd {
        self.file
    }
}

impl AsFd for SealedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Creates a zero-filled memfd of exactly `bytes` bytes that can neither shrink nor grow. `EFBIG`
/// if RLIMIT_FSIZE is less.
pub fn create(name: &str, bytes: usize) -> Result<OwnedFd> {
    file_size::check(bytes as u64)?;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = set_apart(rustix::fs::memfd_create(name, flags)?);
    rustix::fs::ftruncate(&file, bytes as u64)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
    Ok(file)
}

/// Creates a file like [`create`], of `BYTES` bytes, and maps it.
pub fn create_mapped<const BYTES: usize>(name: &str) -> Result<(OwnedFd, Mapping<BYTES>)> {
    let file = create(name, BYTES)?;
    let map = Mapping::map(file.as_fd(), 0, Access::ReadWrite)?;
    Ok((file, map))
}

/// Forbids new writable mappings and writes. Existing mappings keep their rights.
pub fn forbid_new_writers(file: impl AsFd) -> Result<()> {
    rustix::fs::fcntl_add_seals(file, SealFlags::FUTURE_WRITE | SealFlags::SEAL)
}

/// Forbids further seals.
pub fn freeze_seals(file: impl AsFd) -> Result<()> {
    rustix::fs::fcntl_add_seals(file, SealFlags::SEAL)
}

/// Locks any pages of this process in memory, like [`View::lock_in_memory`].
pub fn lock_in_memory_at(address: usize, bytes: usize) -> Result<()> {
    #[cfg(simulated)]
    if crate::simulation::is_simulated() {
        return Ok(());
    }
    // SAFETY: locks pages or finds none; the contents do not change.
    unsafe { rustix::mm::mlock(core::ptr::with_exposed_provenance_mut(address), bytes) }
}

impl<const BYTES: usize> Mapping<BYTES> {
    /// Maps the first `BYTES` bytes of a file that a peer may have made. `EINVAL` if the file is
    /// shorter or can shrink, which is its maker's fault.
    pub fn new(file: impl AsFd, access: Access) -> Result<Self> {
        Mapping::part(file, 0, access)
    }

    /// Maps the first `BYTES` bytes of a file that was looked at. `EINVAL` if it is shorter.
    pub fn of(file: &SealedFile, access: Access) -> Result<Self> {
        if BYTES == 0 || file.bytes < BYTES as u64 {
            return Err(Errno::INVAL);
        }
        Mapping::map(file.as_fd(), 0, access)
    }

    /// Maps `BYTES` bytes from `offset` on. Both are multiples of the page size. Errors are those
    /// of [`Mapping::new`].
    pub fn part(file: impl AsFd, offset: usize, access: Access) -> Result<Self> {
        let file = file.as_fd();
        let seals = rustix::fs::fcntl_get_seals(file)?;
        let size = rustix::fs::fstat(file)?.st_size as u64;
        let end = offset.checked_add(BYTES).ok_or(Errno::INVAL)?;
        if BYTES == 0 || !seals.contains(SealFlags::SHRINK) || size < end as u64 {
            return Err(Errno::INVAL);
        }
        Mapping::map(file, offset, access)
    }

    /// Maps `BYTES` bytes, at least one, of a file that has them and cannot shrink.
    fn map(file: BorrowedFd<'_>, offset: usize, access: Access) -> Result<Self> {
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
        #[cfg(simulated)]
        crate::simulation::note_mapping(
            base.as_ptr() as usize,
            BYTES,
            rustix::fs::fstat(file)?.st_ino,
            offset,
        );
        // SAFETY: our own mapping, just made. A child of fork must not write to it.
        let _ = unsafe {
            rustix::mm::madvise(base.as_ptr().cast(), BYTES, rustix::mm::Advice::LinuxDontFork)
        };
        Ok(Mapping { base, generation: ForkGeneration::current() })
    }

    /// The whole mapping.
    #[inline]
    pub fn view(&self) -> View<'_> {
        View { base: self.base, bytes: BYTES, mapping: PhantomData }
    }

    /// The part of `PART` bytes from `offset` on.
    ///
    /// # Panics
    /// Panics if the part ends outside of the mapping.
    #[inline]
    pub fn part_at<const PART: usize>(&self, offset: usize) -> Part<'_, PART> {
        let base = NonNull::new(self.view().at(offset, PART)).expect("an address within a map");
        Part { base, mapping: PhantomData }
    }

    /// Address of the first byte, for a program or the kernel.
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

/// Copies the first and the last `PART` bytes, which may overlap.
///
/// # Safety
/// `from` and `to` are valid for `bytes` bytes and do not overlap. `bytes` is at least `PART` and
/// at most twice as much.
#[inline(always)]
unsafe fn copy_twice<const PART: usize>(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise; both parts lie within the bytes.
    unsafe {
        let [first, last] = [0, bytes - PART].map(|at| from.add(at).cast::<[u8; PART]>().read());
        to.cast::<[u8; PART]>().write(first);
        to.add(bytes - PART).cast::<[u8; PART]>().write(last);
    }
}

/// Makes the compiler use a copy, and not the memory from which the copy was made: it takes that
/// memory for unchanged, and would read it again, after the copy has been checked.
#[inline(always)]
fn keep_copy(copy: &mut [u8]) {
    // SAFETY: does nothing. The compiler must assume that it reads and changes the copy.
    #[cfg(not(miri))]
    unsafe {
        core::arch::asm!("/* {} */", in(reg) copy.as_mut_ptr(), options(nostack, preserves_flags));
    }
    #[cfg(miri)]
    let _ = copy;
}

impl<'a, const BYTES: usize> Part<'a, BYTES> {
    /// The part as a view, for copies in and out.
    #[inline]
    pub fn view(self) -> View<'a> {
        View { base: self.base, bytes: BYTES, mapping: PhantomData }
    }
}

impl<'a> View<'a> {
    /// Address of a range, for raw reads and writes.
    #[inline]
    pub fn at(self, offset: usize, bytes: usize) -> *mut u8 {
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.bytes), "outside the map");
        // SAFETY: within the mapping, as just checked.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// The atomic word at `offset`.
    ///
    /// # Panics
    /// Panics if the offset is outside of the mapping or no multiple of 4.
    #[inline]
    pub fn word(self, offset: usize) -> &'a AtomicU32 {
        assert!(offset.is_multiple_of(4));
        // SAFETY: in bounds, aligned, mapped as long as the mapping; atomics may change under us.
        unsafe { &*self.at(offset, 4).cast::<AtomicU32>() }
    }

    /// The atomic double word at `offset`, a multiple of 8.
    #[inline]
    pub fn double_word(self, offset: usize) -> &'a AtomicU64 {
        assert!(offset.is_multiple_of(8));
        // SAFETY: in bounds, aligned, mapped as long as the mapping; atomics may change under us.
        unsafe { &*self.at(offset, 8).cast::<AtomicU64>() }
    }

    /// Locks whole pages in memory, so that no access to them faults. An error means that the
    /// system does not let this process lock that much; the pages are still loaded if possible.
    pub fn lock_in_memory(self, offset: usize, bytes: usize) -> Result<()> {
        // A machine's memory is never paged out, whatever the limit of its real process.
        #[cfg(simulated)]
        if crate::simulation::is_simulated() {
            return Ok(());
        }
        let at = self.at(offset, bytes).cast();
        // SAFETY: a range of our own mapping. New pages contain zeros or the file's bytes.
        let populated =
            unsafe { rustix::mm::madvise(at, bytes, rustix::mm::Advice::LinuxPopulateWrite) };
        // SAFETY: of our own map, of which nothing changes.
        unsafe { rustix::mm::mlock(at, bytes) }?;
        match populated {
            // Linux before 5.14, where `mlock` itself loaded the pages.
            Err(Errno::INVAL) => Ok(()),
            populated => populated,
        }
    }

    /// Undoes [`View::lock_in_memory`].
    pub fn release(self, offset: usize, bytes: usize) {
        // SAFETY: of our own map, of which nothing changes.
        let _ = unsafe { rustix::mm::munlock(self.at(offset, bytes).cast(), bytes) };
    }

    /// Copies bytes into the mapping.
    #[inline(always)]
    pub fn write(self, offset: usize, from: &[u8]) {
        let (to, bytes, from) = (self.at(offset, from.len()), from.len(), from.as_ptr());
        // SAFETY: `to` is in bounds; no slice of ours overlaps a mapping.
        unsafe {
            // Short copies are faster without a call.
            match bytes {
                4..8 => copy_twice::<4>(from, to, bytes),
                8..=16 => copy_twice::<8>(from, to, bytes),
                _ => core::ptr::copy_nonoverlapping(from, to, bytes),
            }
        }
    }

    /// Copies bytes out of the mapping. If a peer writes them meanwhile, the result is any mixture
    /// of old and new.
    #[inline]
    pub fn read(self, offset: usize, into: &mut [u8]) {
        let from = self.at(offset, into.len());
        // SAFETY: `from` is in bounds; see `write`. Bytes have no invalid value.
        unsafe { core::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) }
        keep_copy(into);
    }

    /// A slice of a file's bytes that no process writes.
    ///
    /// # Safety
    /// No mapping of the file is written in this range as long as the slice lives.
    pub unsafe fn bytes_at(self, offset: usize, bytes: usize) -> &'a [u8] {
        // SAFETY: in bounds and mapped; unchanging by the caller's promise.
        unsafe { core::slice::from_raw_parts(self.at(offset, bytes), bytes) }
    }

    /// Copies from one mapping to another, or within one. The ranges may overlap.
    pub fn copy(from: View<'_>, from_offset: usize, to: View<'_>, to_offset: usize, bytes: usize) {
        let (source, target) = (from.at(from_offset, bytes), to.at(to_offset, bytes));
        // SAFETY: both in bounds. `copy` allows an overlap.
        unsafe { core::ptr::copy(source, target, bytes) }
    }

    /// Copies bytes from an address of this process into the mapping.
    ///
    /// # Safety
    /// `bytes` bytes from `from` on are mapped and readable.
    pub unsafe fn write_from(self, offset: usize, from: *const u8, bytes: usize) {
        let to = self.at(offset, bytes);
        // SAFETY: the caller's promise for `from`; `to` is in bounds. `copy` allows an overlap.
        unsafe { core::ptr::copy(from, to, bytes) }
    }

    /// Fills a range with words. `word` is called once for each index, and the last word is cut to
    /// fit.
    pub fn fill(self, offset: usize, bytes: usize, mut word: impl FnMut(usize) -> u64) {
        const WORD: usize = size_of::<u64>();
        let to = self.at(offset, bytes);
        for index in 0..bytes / WORD {
            // SAFETY: `to` has room for `bytes`, and raw writes need no alignment here.
            unsafe { to.add(index * WORD).cast::<u64>().write_unaligned(word(index)) }
        }
        let rest = bytes % WORD;
        if rest > 0 {
            let last = word(bytes / WORD).to_ne_bytes();
            self.write(offset + bytes - rest, &last[..rest]);
        }
    }

    /// Overwrites a range with zeros.
    pub fn zero(self, offset: usize, bytes: usize) {
        let to = self.at(offset, bytes);
        // SAFETY: in bounds.
        unsafe { core::ptr::write_bytes(to, 0, bytes) }
    }
}

impl<const BYTES: usize> Drop for Mapping<BYTES> {
    fn drop(&mut self) {
        // A child of fork may have another mapping there.
        if self.generation.is_current() {
            #[cfg(simulated)]
            crate::simulation::forget_mapping(self.base.as_ptr() as usize);
            // SAFETY: our own mapping; no borrow of it is left.
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
    fn after_forbid_new_writers_new_maps_are_read_only() {
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

    /// The line of `/proc/self/smaps` that begins with `field`, of the mapping at this address.
    /// `None` if the address is not mapped.
    fn smaps_field(address: usize, field: &str) -> Option<String> {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut lines = smaps.lines().skip_while(|line| {
            let bounds = line.split_once(' ').and_then(|(bounds, _)| bounds.split_once('-'));
            bounds.and_then(|(start, _)| usize::from_str_radix(start, 16).ok()) != Some(address)
        });
        lines.find(|line| line.starts_with(field)).map(str::to_owned)
    }

    fn page() -> Mapping<4096> {
        Mapping::new(create("page", 4096).unwrap(), Access::ReadWrite).unwrap()
    }

    #[test]
    fn a_frozen_file_takes_no_more_seals() {
        let file = create("page", 4096).unwrap();
        freeze_seals(&file).unwrap();
        assert_eq!(forbid_new_writers(&file), Err(Errno::PERM));
    }

    #[test]
    fn pages_are_locked_until_they_are_released() {
        let locked = |map: &Mapping<4096>| {
            let flags = smaps_field(map.address(), "VmFlags:").unwrap();
            flags.split_whitespace().any(|flag| flag == "lo")
        };
        let (one, other) = (page(), page());
        assert!(!locked(&one) && !locked(&other));
        if let Err(errno) = one.view().lock_in_memory(0, 4096) {
            return println!("skipped: this process may lock no memory ({errno})");
        }
        lock_in_memory_at(other.address(), 4096).unwrap();
        assert!(locked(&one) && locked(&other));
        one.view().release(0, 4096);
        assert!(!locked(&one) && locked(&other));
    }

    #[test]
    fn a_mapping_ends_when_it_is_dropped() {
        let file = create("a mapping that ends", 4096).unwrap();
        let is_mapped = || {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            maps.contains("/memfd:a mapping that ends")
        };
        let map = Mapping::<4096>::new(&file, Access::Read).unwrap();
        assert!(is_mapped());
        drop(map);
        assert!(!is_mapped());
    }

    #[test]
    fn a_copy_of_any_length_is_of_these_bytes_alone() {
        let (one, other) = (page(), page());
        let from: Vec<u8> = (1..=40).collect();
        for bytes in (0..=from.len()).rev() {
            one.view().zero(0, 64);
            one.view().write(3, &from[..bytes]);
            let expected = [&[0; 3], &from[..bytes], &vec![0; 61 - bytes]].concat();
            let mut seen = vec![0xff; 64];
            one.view().read(0, &mut seen);
            assert_eq!(seen, expected, "{bytes} bytes written");
            other.view().zero(0, 64);
            View::copy(one.view(), 3, other.view(), 5, bytes);
            other.view().read(2, &mut seen);
            assert_eq!(seen, expected, "{bytes} bytes copied");
        }
    }

    #[test]
    fn a_double_word_is_of_the_bytes_at_its_offset() {
        let map = page();
        map.view().write(16, &7u64.to_ne_bytes());
        let found = [map.double_word(16), map.view().double_word(16)];
        assert_eq!(found.map(|word| word.load(crate::sync::Ordering::Relaxed)), [7, 7]);
    }

    #[test]
    fn a_fill_asks_once_for_each_word() {
        for (bytes, words) in [(0, vec![]), (7, vec![0]), (16, vec![0, 1]), (17, vec![0, 1, 2])] {
            let mut asked = vec![];
            page().view().fill(0, bytes, |index| {
                asked.push(index);
                0
            });
            assert_eq!(asked, words, "{bytes} bytes");
        }
    }

    #[test]
    #[should_panic(expected = "outside the map")]
    fn access_past_the_end_panics() {
        let file = create("page", 4096).unwrap();
        Mapping::<4096>::new(&file, Access::ReadWrite).unwrap().view().write(4095, &[0; 2]);
    }
}
