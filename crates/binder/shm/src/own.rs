//! Mappings of a file that only this process writes and other processes read.
//!
//! The file has a name, so it cannot be sealed. Only a process of its owner's user can shrink it,
//! which would kill the writer with SIGBUS; such a process could kill the writer anyway. Readers of
//! another user do not map the file: see the log's reader.
//!
//! **Invariant**: no Rust reference or slice points into an [`Own`], except for atomics. A child of
//! fork does not have the mapping.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64};
use rustix::fd::AsFd;
use rustix::io::{Errno, Result};
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// A writable mapping.
#[derive(Debug)]
pub struct Own {
    base: NonNull<u8>,
    /// Length of the mapping. Bytes that are mapped twice count twice.
    mapped_bytes: usize,
}

// SAFETY: the base address is valid in every thread, and all access is by atomics or by copies of
// bytes that have no Rust owner.
unsafe impl Send for Own {}
// SAFETY: as above.
unsafe impl Sync for Own {}

impl Own {
    /// Maps a part of the file. Offset and length are multiples of the page size.
    pub fn once(file: impl AsFd, offset: u64, bytes: usize) -> Result<Own> {
        Own::map(file, offset, bytes, 1)
    }

    fn map(file: impl AsFd, offset: u64, bytes: usize, times: usize) -> Result<Own> {
        let mapped_bytes = bytes.checked_mul(times).filter(|&all| all > 0).ok_or(Errno::INVAL)?;
        // SAFETY: a fresh map at an address of the kernel's choice.
        let base = unsafe {
            let none = ProtFlags::empty();
            rustix::mm::mmap_anonymous(
                core::ptr::null_mut(),
                mapped_bytes,
                none,
                MapFlags::PRIVATE,
            )?
        };
        let own = Own { base: NonNull::new(base.cast()).ok_or(Errno::FAULT)?, mapped_bytes };
        for time in 0..times {
            let (read_write, fixed) =
                (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
            // SAFETY: replaces parts of the mapping just made, which no other code knows.
            unsafe {
                let at = own.base.as_ptr().add(time * bytes);
                rustix::mm::mmap(at.cast(), bytes, read_write, fixed, file.as_fd(), offset)?;
            }
        }
        // SAFETY: our own mapping. A child of fork must not write to it.
        let _ = unsafe {
            rustix::mm::madvise(own.base.as_ptr().cast(), mapped_bytes, Advice::LinuxDontFork)
        };
        Ok(own)
    }

    /// Loads a range, so that the first write to it does not fault. Has no effect before Linux
    /// 5.14.
    pub fn populate(&self, offset: usize, bytes: usize) {
        let at = self.at(offset, bytes);
        // SAFETY: our own map; its bytes stay what they are.
        let _ = unsafe { rustix::mm::madvise(at.cast(), bytes, Advice::LinuxPopulateWrite) };
    }

    /// Length of the mapping. Bytes that are mapped twice count twice.
    pub fn mapped_bytes(&self) -> usize {
        self.mapped_bytes
    }

    #[inline]
    fn at(&self, offset: usize, bytes: usize) -> *mut u8 {
        let end = offset.checked_add(bytes);
        assert!(end.is_some_and(|end| end <= self.mapped_bytes), "outside the map");
        // SAFETY: within the map, as just checked.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// The atomic word at `offset`.
    ///
    /// # Panics
    /// Panics, like every method here, if the range is outside of the mapping or unaligned: the
    /// caller's bug.
    #[inline]
    pub fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4));
        // SAFETY: in bounds, aligned, mapped as long as the map lives.
        unsafe { &*self.at(offset, 4).cast::<AtomicU32>() }
    }

    /// The atomic double word at `offset`, a multiple of 8.
    #[inline]
    pub fn double_word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8));
        // SAFETY: in bounds, aligned, mapped as long as the map lives.
        unsafe { &*self.at(offset, 8).cast::<AtomicU64>() }
    }

    /// Copies bytes into the mapping.
    #[inline]
    pub fn write(&self, offset: usize, from: &[u8]) {
        let to = self.at(offset, from.len());
        // SAFETY: `to` is in bounds; no slice of ours overlaps a mapping.
        unsafe { core::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) }
    }
}

/// A ring buffer whose bytes are mapped twice in a row, so that a range past its end continues at
/// its beginning. The capacity is a power of two.
#[derive(Debug)]
pub struct MirroredRing {
    bytes: Own,
    /// The capacity minus one.
    mask: usize,
}

impl MirroredRing {
    /// Most bytes of one write, and the smallest capacity.
    pub const MOST_AT_ONCE: usize = 8192;

    /// Most bytes for which pages are made when a ring is mapped. Larger rings get the rest page by
    /// page, because all pages at once take seconds for 1 GiB.
    const MAX_POPULATED_BYTES: usize = 1 << 20;

    /// Maps a part of the file twice. `EINVAL` if `bytes` is no power of two or less than
    /// [`MirroredRing::MOST_AT_ONCE`].
    pub fn map(file: impl AsFd, offset: u64, bytes: usize) -> Result<MirroredRing> {
        if !bytes.is_power_of_two() || bytes < MirroredRing::MOST_AT_ONCE {
            return Err(Errno::INVAL);
        }
        let ring = MirroredRing { bytes: Own::map(file, offset, bytes, 2)?, mask: bytes - 1 };
        ring.bytes.populate(0, bytes.min(MirroredRing::MAX_POPULATED_BYTES));
        // A write goes no further past the end.
        ring.bytes.populate(bytes, MirroredRing::MOST_AT_ONCE);
        Ok(ring)
    }

    /// Capacity in bytes.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.mask + 1
    }

    /// Copies three slices in a row to a position, modulo the capacity. The first two are short and
    /// are copied without a call.
    ///
    /// # Panics
    /// Panics if the slices together exceed [`MirroredRing::MOST_AT_ONCE`].
    #[inline]
    pub fn write_in_a_row<const N: usize>(
        &self,
        position: u64,
        first: &[u8; N],
        second: &[u8],
        third: &[u8],
    ) {
        let bytes = N.saturating_add(second.len()).saturating_add(third.len());
        // The compiler often knows that this holds.
        assert!(bytes <= MirroredRing::MOST_AT_ONCE, "more than there is room for");
        // SAFETY: the index is below the capacity, and as many bytes again are mapped after it.
        // Slices of ours never overlap a mapping that no code borrows.
        unsafe {
            let to = self.bytes.base.as_ptr().add(position as usize & self.mask);
            to.cast::<[u8; N]>().write_unaligned(*first);
            copy_short(second, to.add(N));
            core::ptr::copy_nonoverlapping(third.as_ptr(), to.add(N + second.len()), third.len());
        }
    }
}

/// Copies up to 32 bytes without a call, as two words that may overlap.
///
/// # Safety
/// `to` has room for the bytes, which do not overlap `from`.
#[inline]
unsafe fn copy_short(from: &[u8], to: *mut u8) {
    /// Copies the first and the last `N` bytes of at most `2 * N`.
    #[inline]
    unsafe fn ends<const N: usize>(from: &[u8], to: *mut u8) {
        let (Some(first), Some(last)) = (from.first_chunk::<N>(), from.last_chunk::<N>()) else {
            return;
        };
        // SAFETY: both lie within the caller's bytes.
        unsafe {
            to.cast::<[u8; N]>().write_unaligned(*first);
            to.add(from.len() - N).cast::<[u8; N]>().write_unaligned(*last);
        }
    }
    // SAFETY: the caller's promise.
    unsafe {
        match from.len() {
            0 => {}
            1..=3 => {
                ends::<1>(from, to);
                to.add(from.len() / 2).write(from[from.len() / 2]);
            }
            4..=7 => ends::<4>(from, to),
            8..=16 => ends::<8>(from, to),
            17..=32 => ends::<16>(from, to),
            _ => core::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()),
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // SAFETY: our own mapping; no borrow of it is left.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.mapped_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::MemfdFlags;

    fn file(bytes: u64) -> rustix::fd::OwnedFd {
        let file = rustix::fs::memfd_create("own", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, bytes).unwrap();
        file
    }

    #[test]
    fn a_write_past_the_end_continues_at_the_beginning() {
        let file = file(12288);
        let ring = MirroredRing::map(&file, 4096, 8192).unwrap();
        ring.write_in_a_row(5 * 8192 + 8190, b"abcd", b"", b"");
        let mut seen = [0; 2];
        for (at, expected) in [(4096 + 8190, b"ab"), (4096, b"cd")] {
            rustix::io::pread(&file, &mut seen, at).unwrap();
            assert_eq!(&seen, expected);
        }
        assert_eq!(ring.capacity(), 8192);
        for bytes in [0, 4096, 12288] {
            assert_eq!(MirroredRing::map(&file, 0, bytes).err(), Some(Errno::INVAL));
        }
    }

    #[test]
    fn a_large_ring_does_not_get_all_its_pages_at_once() {
        for (bytes, most) in [(1 << 16, 1 << 16), (1 << 26, 1 << 21)] {
            let file = file(bytes as u64);
            let ring = MirroredRing::map(&file, 0, bytes).unwrap();
            let populated = rustix::fs::fstat(&file).unwrap().st_blocks * 512;
            assert!(populated <= most, "{populated} of {bytes}");
            ring.write_in_a_row(bytes as u64 - 2, b"abcd", b"", b"");
        }
    }

    #[test]
    fn slices_of_any_length_are_written_in_a_row() {
        let file = file(8192);
        let ring = MirroredRing::map(&file, 0, 8192).unwrap();
        let bytes: Vec<u8> = (1..=100).collect();
        for second in 0..=40 {
            for third in [0, 1, 50] {
                ring.write_in_a_row(0, &[0; 128], &[], &[]);
                ring.write_in_a_row(3, b"head", &bytes[..second], &bytes[40..][..third]);
                let mut seen = [0; 128];
                rustix::io::pread(&file, &mut seen, 0).unwrap();
                let expected =
                    [&[0; 3], &b"head"[..], &bytes[..second], &bytes[40..][..third]].concat();
                let (written, rest) = seen.split_at(expected.len());
                assert_eq!(written, expected);
                assert!(rest.iter().all(|&byte| byte == 0), "{second} {third}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "more than there is room for")]
    fn a_write_of_more_than_the_limit_panics() {
        MirroredRing::map(file(8192), 0, 8192).unwrap().write_in_a_row(0, &[0; 8192], &[1], &[]);
    }

    #[test]
    #[should_panic(expected = "outside the map")]
    fn a_write_past_the_end_panics() {
        Own::once(file(4096), 0, 4096).unwrap().write(4090, &[0; 7]);
    }
}
