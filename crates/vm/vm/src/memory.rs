//! Memory below 4 GiB, and access to its words.
//!
//! An address of such memory fits in 32 bits. A [`Region`] is mapped once and never unmapped, so an
//! address inside it stays valid until the process ends. Java's threads race for the words of
//! objects, so that every access is atomic: relaxed for plain fields, sequentially consistent for
//! volatile ones.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::io;
use std::sync::atomic::{
    AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, Ordering::Relaxed,
};

/// Where a region may begin: above what programs and the kernel's lower limit use.
const FIRST_ADDRESS: usize = 0x1000_0000;
const END_ADDRESS: usize = 0x1_0000_0000;
/// Distance of the places that [`Region::map`] tries.
const STEP_BYTES: usize = 1 << 20;

/// Zeroed memory below 4 GiB that stays mapped until the process ends.
#[derive(Debug)]
pub struct Region {
    start: u32,
    n_bytes: u32,
}

impl Region {
    /// Maps `n_bytes`, rounded up to whole pages. The kernel commits pages at their first use.
    ///
    /// # Errors
    /// ENOMEM if no gap below 4 GiB is large enough.
    pub fn map(n_bytes: usize) -> io::Result<Region> {
        let n_bytes = n_bytes.max(1).next_multiple_of(4096);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
        let mut at = FIRST_ADDRESS;
        while at + n_bytes <= END_ADDRESS {
            let hint = std::ptr::without_provenance_mut(at);
            // SAFETY: FIXED_NOREPLACE maps only where nothing is mapped.
            match unsafe {
                mmap_anonymous(hint, n_bytes, ProtFlags::READ | ProtFlags::WRITE, flags)
            } {
                Ok(start) if start.addr() == at => {
                    start.expose_provenance();
                    return Ok(Region { start: at as u32, n_bytes: n_bytes as u32 });
                }
                Ok(elsewhere) => {
                    // A kernel without FIXED_NOREPLACE, or valgrind: something is mapped there.
                    // SAFETY: the map is this call's alone.
                    unsafe { munmap(elsewhere, n_bytes)? };
                    at += STEP_BYTES;
                }
                Err(rustix::io::Errno::EXIST) => at += STEP_BYTES,
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::Error::from(rustix::io::Errno::NOMEM))
    }

    /// The address of the first byte.
    pub fn start(&self) -> u32 {
        self.start
    }

    /// The size in bytes.
    pub fn n_bytes(&self) -> u32 {
        self.n_bytes
    }

    /// Gives the pages from an address to the end back to the system: they are zero again.
    ///
    /// # Safety
    /// The address is a page's. Nothing uses what lies there.
    pub unsafe fn discard_from(&self, address: u32) {
        assert!(address.is_multiple_of(4096) && address >= self.start);
        let n_bytes = self.n_bytes as usize - (address - self.start) as usize;
        let (at, advice) = (pointer::<u8>(address).cast(), Advice::LinuxDontNeed);
        // SAFETY: the pages are the region's; by the caller's promise, nobody misses their content.
        let discarded = unsafe { madvise(at, n_bytes, advice) };
        discarded.expect("memory that a region has mapped");
    }

    /// Whether the byte at an address belongs to the region.
    pub fn contains(&self, address: u32) -> bool {
        address.wrapping_sub(self.start) < self.n_bytes
    }
}

/// Values that are placed below 4 GiB and live until the process ends.
#[derive(Debug)]
pub struct Arena {
    region: Region,
    used: AtomicUsize,
}

impl Arena {
    /// An arena with room for `n_bytes`.
    ///
    /// # Errors
    /// Those of [`Region::map`].
    pub fn map(n_bytes: usize) -> io::Result<Arena> {
        Ok(Arena { region: Region::map(n_bytes)?, used: AtomicUsize::new(0) })
    }

    /// Places a value, or returns `None` if the arena is full.
    pub fn place<T: Sync>(&self, value: T) -> Option<&'static T> {
        // A multiple of 16 keeps every value aligned.
        const { assert!(align_of::<T>() <= 16) };
        let n_bytes = size_of::<T>().next_multiple_of(16);
        let offset = self.used.fetch_add(n_bytes, Relaxed);
        if offset + n_bytes > self.region.n_bytes as usize {
            self.used.fetch_sub(n_bytes, Relaxed);
            return None;
        }
        let place = pointer::<T>(self.region.start + offset as u32);
        // SAFETY: the bytes belong to this call alone by fetch_add, and stay mapped for ever.
        unsafe {
            place.write(value);
            Some(&*place)
        }
    }
}

#[inline(always)]
fn pointer<T>(address: u32) -> *mut T {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

/// A value of an [`Arena`], by its address.
///
/// # Safety
/// [`Arena::place`] put a `T` there; or a value that begins with a `T`, in `repr(C)`.
#[inline(always)]
pub unsafe fn placed<T: Sync>(address: u32) -> &'static T {
    // SAFETY: by the caller's promise.
    unsafe { &*pointer(address) }
}

macro_rules! words {
    ($atomic:ty, $word:ty, $load:ident, $store:ident) => {
        /// Loads a word.
        ///
        /// # Safety
        /// The word lies in a [`Region`], at a multiple of its size.
        #[inline(always)]
        pub unsafe fn $load(address: u32, order: Ordering) -> $word {
            // SAFETY: by the caller's promise. All accesses to a region's words are atomic.
            unsafe { <$atomic>::from_ptr(pointer(address)) }.load(order)
        }

        /// Stores a word.
        ///
        /// # Safety
        /// The word lies in a [`Region`], at a multiple of its size, and does not hold a reference
        /// or a header that the value would make false.
        #[inline(always)]
        pub unsafe fn $store(address: u32, value: $word, order: Ordering) {
            // SAFETY: by the caller's promise. All accesses to a region's words are atomic.
            unsafe { <$atomic>::from_ptr(pointer(address)) }.store(value, order)
        }
    };
}

words!(AtomicU8, u8, load8, store8);
words!(AtomicU16, u16, load16, store16);
words!(AtomicU32, u32, load32, store32);
words!(AtomicU64, u64, load64, store64);

/// A word of 32 bits as an atomic.
///
/// # Safety
/// The word lies in a [`Region`] at a multiple of 4. A store keeps references and headers true.
#[inline(always)]
pub unsafe fn atomic32(address: u32) -> &'static AtomicU32 {
    // SAFETY: by the caller's promise; a region stays mapped for ever.
    unsafe { AtomicU32::from_ptr(pointer(address)) }
}

/// A word of 64 bits as an atomic.
///
/// # Safety
/// As for [`atomic32`], at a multiple of 8.
#[inline(always)]
pub unsafe fn atomic64(address: u32) -> &'static AtomicU64 {
    // SAFETY: by the caller's promise; a region stays mapped for ever.
    unsafe { AtomicU64::from_ptr(pointer(address)) }
}

/// A type of which zero is a value.
///
/// # Safety
/// All bytes of a value may be zero.
pub unsafe trait Zero {}
// SAFETY: zero is a number.
unsafe impl Zero for AtomicU8 {}
// SAFETY: zero is a number.
unsafe impl Zero for AtomicU32 {}
// SAFETY: zero is a number.
unsafe impl Zero for AtomicU64 {}

/// A table of zeros, anywhere in memory. The kernel commits its pages at their first use.
pub fn zeroed<T: Zero>(n: usize) -> Box<[T]> {
    // SAFETY: zero is a value of the type.
    unsafe { Box::<[T]>::new_zeroed_slice(n).assume_init() }
}

/// A table of zeros in pages of its own: the allocator, which may have used other memory before,
/// would write the zeros.
#[derive(Debug)]
pub struct Pages<T: Zero + 'static> {
    all: &'static [T],
}

impl<T: Zero> Pages<T> {
    /// Maps room for `n` values. The kernel commits pages at their first use.
    ///
    /// # Panics
    /// If the process has no room.
    pub fn zeroed(n: usize) -> Pages<T> {
        let n_bytes = (n * size_of::<T>()).max(1);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new map at an address that the kernel chooses.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), n_bytes, rights, flags) };
        let start = start.unwrap_or_else(|errno| panic!("no room for {n_bytes} bytes: {errno}"));
        // SAFETY: the map has room for so many values, aligned to a page; zero is a value. It stays
        // until this is dropped, and the slice is lent for no longer.
        Pages { all: unsafe { std::slice::from_raw_parts(start.cast(), n) } }
    }
}

impl<T: Zero> std::ops::Deref for Pages<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        self.all
    }
}

impl<T: Zero> Drop for Pages<T> {
    fn drop(&mut self) {
        let start = std::ptr::from_ref(self.all).cast_mut().cast();
        // SAFETY: `zeroed` has mapped it, and nobody borrows it.
        let unmapped = unsafe { munmap(start, size_of_val(self.all).max(1)) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

/// Zeroes memory.
///
/// # Safety
/// The bytes lie in a [`Region`] and no other thread uses them.
pub unsafe fn zero(address: u32, n_bytes: usize) {
    // SAFETY: by the caller's promise.
    unsafe { pointer::<u8>(address).write_bytes(0, n_bytes) }
}

/// Copies bytes that may overlap. Words of `unit` bytes (1, 2, 4 or 8) are copied whole, so that
/// threads that race for them see old words or new ones.
///
/// # Safety
/// Both ranges lie in regions, at multiples of `unit`; `n_bytes` is a multiple of it, too.
pub unsafe fn copy(from: u32, to: u32, n_bytes: u32, unit: u32) {
    let forwards = to <= from || to >= from + n_bytes;
    let n_units = n_bytes / unit;
    for index in 0..n_units {
        let at = unit * if forwards { index } else { n_units - 1 - index };
        let (from, to) = (from + at, to + at);
        // SAFETY: by the caller's promise.
        unsafe {
            match unit {
                1 => store8(to, load8(from, Relaxed), Relaxed),
                2 => store16(to, load16(from, Relaxed), Relaxed),
                4 => store32(to, load32(from, Relaxed), Relaxed),
                _ => store64(to, load64(from, Relaxed), Relaxed),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_zero_and_apart() {
        let one = Region::map(5000).unwrap();
        let other = Region::map(5000).unwrap();
        assert_eq!(one.n_bytes(), 8192);
        assert!(one.contains(one.start() + 8191) && !one.contains(one.start() + 8192));
        assert!(!one.contains(other.start()) && !other.contains(one.start()));
        // SAFETY: the word lies in the region.
        unsafe {
            assert_eq!(load64(one.start() + 8184, Relaxed), 0);
            store64(one.start() + 8184, 7, Relaxed);
            assert_eq!(load32(one.start() + 8184, Relaxed), 7);
            one.discard_from(one.start() + 4096);
            assert_eq!(load32(one.start() + 8184, Relaxed), 0);
        }
    }

    #[test]
    fn pages_are_zero_and_writable() {
        for n in [0, 1, 5000] {
            let pages = Pages::<AtomicU64>::zeroed(n);
            assert_eq!(pages.len(), n);
            assert!(pages.iter().all(|word| word.swap(7, Relaxed) == 0));
        }
    }

    #[test]
    fn an_arena_that_is_full_says_so() {
        let arena = Arena::map(4096).unwrap();
        let placed: Vec<_> = std::iter::from_fn(|| arena.place([7u64; 8])).collect();
        assert_eq!(placed.len(), 64);
        assert!(placed.iter().all(|value| **value == [7; 8]));
    }

    #[test]
    fn copies_overlap_either_way() {
        let region = Region::map(4096).unwrap();
        for unit in [1, 2, 4, 8u32] {
            for (from, to) in [(0u32, 16), (16, 0), (0, 64)] {
                let at = region.start();
                // SAFETY: all bytes lie in the region.
                unsafe {
                    for byte in 0..128 {
                        store8(at + byte, byte as u8, Relaxed);
                    }
                    copy(at + from, at + to, 48, unit);
                    for byte in 0..48 {
                        assert_eq!(load8(at + to + byte, Relaxed), (from + byte) as u8);
                    }
                }
            }
        }
    }
}
