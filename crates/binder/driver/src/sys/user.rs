//! The program's own memory, named by addresses in ioctl arguments.
//!
//! The kernel answers `EFAULT` for a bad address. Here a bad address would be a fault of the whole
//! program, so an address is asked about before it is used: a system call with an argument that
//! is refused after it has been read (or that only writes) tells for some 60 ns a page. Between
//! question and use another thread may unmap the memory; that is the program's own race.
//!
//! A program's buffers are the same pages call after call, and a question costs a system call: a
//! thread remembers the last few answers until the program unmaps something ([`unmapped`]). Memory
//! that the C library gives back by itself is not noticed: a buffer used after `free` may then be a
//! fault, as at any other use.

use baton_shm::mapping::View;
use baton_shm::sync::{AtomicU64, Ordering};
use rustix::io::Errno;
use std::cell::Cell;

const PAGE: usize = 4096;
const SIGSET_BYTES: usize = 8;
/// No program has an address beyond: the kernel has the upper half.
const LAST_ADDRESS: usize = isize::MAX as usize;

/// The kind of access that is checked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

/// The memory that a thread knows: its stack, and pages that it has asked about.
struct Known {
    /// The end of the thread's stack, 0 before it has asked.
    stack_end: Cell<usize>,
    /// Each with its access in the lowest bit.
    pages: [Cell<usize>; REMEMBERED],
    /// When it asked about the pages.
    epoch: Cell<u64>,
    /// The place of the next page.
    next: Cell<usize>,
}

const REMEMBERED: usize = 8;
/// Bytes of [`Source::beginning`].
const BEGINNING: usize = 2 * PAGE;
const NOTHING: usize = usize::MAX;
thread_local! {
    static KNOWN: Known = const {
        let pages = [const { Cell::new(NOTHING) }; REMEMBERED];
        Known { stack_end: Cell::new(0), pages, epoch: Cell::new(0), next: Cell::new(0) }
    };
}
static EPOCH: AtomicU64 = AtomicU64::new(0);

/// The program has unmapped memory, or changed what may be done with it.
pub fn unmapped() {
    EPOCH.fetch_add(1, Ordering::Release);
}

/// An ioctl begins: answers from before the last change are forgotten.
pub fn begin() {
    let epoch = EPOCH.load(Ordering::Acquire);
    KNOWN.with(|known| {
        if known.epoch.replace(epoch) != epoch {
            known.pages.iter().for_each(|page| page.set(NOTHING));
        }
    });
}

impl Known {
    #[inline]
    fn has_page(&self, page: usize, access: Access) -> bool {
        // A writable page is readable, too.
        let enough = usize::from(access == Access::Read);
        self.pages.iter().any(|known| known.get() | enough == page << 1 | 1)
    }

    fn remember(&self, page: usize, access: Access) {
        let next = self.next.get() % REMEMBERED;
        self.pages[next].set(page << 1 | usize::from(access == Access::Write));
        self.next.set(next + 1);
    }

    /// Whether the range lies in the part of the calling thread's stack that is in use: it is there
    /// as long as the call is.
    #[inline]
    fn has_on_stack(&self, address: usize, bytes: usize) -> bool {
        let here = std::hint::black_box(0u8);
        let used = std::ptr::addr_of!(here) as usize;
        address > used && address.checked_add(bytes).is_some_and(|end| end <= self.stack_end.get())
    }

    /// Looks at each page of the range, and asks about those that the thread does not know. A range
    /// that ends beyond a program's half of the addresses is not asked about: a write probe of its
    /// pages would change whatever follows the program's buffer.
    #[cold]
    fn ask(&self, address: usize, bytes: usize, access: Access) -> Result<(), Errno> {
        if self.stack_end.get() == 0 {
            self.stack_end.set(stack_end());
            if self.has_on_stack(address, bytes) {
                return Ok(());
            }
        }
        let last = address.checked_add(bytes - 1).filter(|last| *last <= LAST_ADDRESS);
        let last = last.ok_or(Errno::FAULT)?;
        let mut at = address;
        loop {
            if !self.has_page(at / PAGE, access) {
                probe(at, access)?;
                self.remember(at / PAGE, access);
            }
            if at / PAGE == last / PAGE {
                return Ok(());
            }
            at = (at / PAGE + 1) * PAGE;
        }
    }
}

/// End of the calling thread's stack, 1 if the system does not say.
fn stack_end() -> usize {
    // SAFETY: plain data, filled in and taken down by the calls.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &mut attributes) != 0 {
            return 1;
        }
        let (mut lowest, mut bytes) = (std::ptr::null_mut(), 0);
        let known = libc::pthread_attr_getstack(&attributes, &mut lowest, &mut bytes) == 0;
        libc::pthread_attr_destroy(&mut attributes);
        if known { lowest as usize + bytes } else { 1 }
    }
}

/// Whether the 8 aligned bytes around `address` can be accessed. A write probe overwrites them.
fn probe(address: usize, access: Access) -> Result<(), Errno> {
    let aligned = address & !(SIGSET_BYTES - 1);
    if aligned == 0 {
        // A null pointer means "none" to the system call.
        return Err(Errno::FAULT);
    }
    let (how, set, old) = match access {
        // No such `how`: EINVAL, but only once the set has been copied in.
        Access::Read => (-1, aligned, 0),
        // No new set: the old one is copied out.
        Access::Write => (libc::SIG_BLOCK, 0, aligned),
    };
    // SAFETY: the kernel checks both addresses itself; a changed mask is impossible without a set,
    // and with an unknown `how`.
    let result = unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, set, old, SIGSET_BYTES) };
    let faulted =
        result < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT);
    if faulted { Err(Errno::FAULT) } else { Ok(()) }
}

#[inline(never)]
fn check(address: usize, bytes: usize, access: Access) -> Result<(), Errno> {
    let is_of_one_page = bytes <= PAGE - address % PAGE;
    KNOWN.with(|known| {
        let is_known = bytes == 0
            || known.has_on_stack(address, bytes)
            || is_of_one_page && known.has_page(address / PAGE, access);
        if is_known { Ok(()) } else { known.ask(address, bytes, access) }
    })
}

/// `EFAULT` unless all of the range can be read.
pub fn readable(address: usize, bytes: usize) -> Result<(), Errno> {
    check(address, bytes, Access::Read)
}

/// `EFAULT` unless all of the range can be written. What is in it is lost in places.
pub fn writable(address: usize, bytes: usize) -> Result<(), Errno> {
    let first = address.checked_next_multiple_of(SIGSET_BYTES).ok_or(Errno::FAULT)?;
    match bytes.checked_sub(first - address) {
        Some(whole) if whole >= SIGSET_BYTES => {
            check(first, whole - whole % SIGSET_BYTES, Access::Write)?;
            let is_aligned = first == address && whole.is_multiple_of(SIGSET_BYTES);
            if is_aligned { Ok(()) } else { readable(address, bytes) }
        }
        _ => readable(address, bytes),
    }
}

/// Whether two ranges of the program's memory, each an address and a length, have bytes in common.
#[inline]
pub fn overlap(one: (u64, u64), other: (u64, u64)) -> bool {
    one.0 < other.0.saturating_add(other.1) && other.0 < one.0.saturating_add(one.1)
}

/// A range of the program's memory that has been found readable, and is read in the same call.
#[derive(Clone, Copy)]
pub struct Source {
    address: usize,
    bytes: usize,
}

impl Source {
    /// `EFAULT` unless all of the range can be read.
    pub fn new(address: usize, bytes: usize) -> Result<Source, Errno> {
        readable(address, bytes)?;
        Ok(Source { address, bytes })
    }

    /// The beginning of a range, or nothing if that cannot be read.
    pub fn beginning(address: usize, bytes: usize) -> Source {
        let beginning = Source::new(address, bytes.min(BEGINNING)).ok();
        beginning.unwrap_or(Source { address: 0, bytes: 0 })
    }

    /// Reads a value of the uapi. `EFAULT` unless all of it lies in the range, or can be read.
    #[inline]
    pub fn read<T: bytemuck::AnyBitPattern>(self, address: usize) -> Result<T, Errno> {
        let at = address.wrapping_sub(self.address);
        if self.bytes.checked_sub(at).is_none_or(|left| left < size_of::<T>()) {
            return read(address);
        }
        // SAFETY: readable, as it was made only then; any bit pattern is a T.
        Ok(unsafe { std::ptr::read_unaligned(address as *const T) })
    }

    /// The length in bytes.
    pub fn bytes(self) -> usize {
        self.bytes
    }

    /// Copies the range into a message's area.
    #[inline]
    pub fn copy_to(self, map: View<'_>, at: usize) {
        // SAFETY: readable, as it was made only then; see the module.
        unsafe { map.write_from(at, self.address as *const u8, self.bytes) }
    }
}

/// Copies from the program.
pub fn copy_in(address: usize, into: &mut [u8]) -> Result<(), Errno> {
    readable(address, into.len())?;
    // SAFETY: readable, as just asked; bytes have no invalid value. Our own slice cannot overlap
    // memory that the program named unless it guesses at our heap, and then it is its own.
    unsafe { std::ptr::copy(address as *const u8, into.as_mut_ptr(), into.len()) };
    Ok(())
}

/// Reads a value of the uapi.
pub fn read<T: bytemuck::AnyBitPattern>(address: usize) -> Result<T, Errno> {
    readable(address, size_of::<T>())?;
    // SAFETY: readable, as just asked; any bit pattern is a T.
    Ok(unsafe { std::ptr::read_unaligned(address as *const T) })
}

/// Writes a value of the uapi where one has been read from.
pub fn write<T: bytemuck::NoUninit>(address: usize, value: &T) -> Result<(), Errno> {
    readable(address, size_of::<T>())?;
    // SAFETY: mapped, as just asked, and an argument that the program lent for writing.
    unsafe { std::ptr::write_unaligned(address as *mut T, *value) };
    Ok(())
}

/// Writes bytes into a range that [`writable`] has accepted.
pub fn copy_out(address: usize, from: &[u8]) {
    // SAFETY: accepted by `writable` in this call of the program's; see the module.
    unsafe { std::ptr::copy(from.as_ptr(), address as *mut u8, from.len()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

    #[test]
    fn bad_addresses_are_errors() {
        begin();
        let mut bytes = [1u8; 4];
        for address in [0, 8, usize::MAX - 2, 1 << 60] {
            assert_eq!(copy_in(address, &mut bytes), Err(Errno::FAULT), "{address:#x}");
            assert_eq!(writable(address, 64), Err(Errno::FAULT), "{address:#x}");
        }
        let constant: &'static str = "read-only memory of the test program, long enough";
        assert_eq!(writable(constant.as_ptr() as usize, constant.len()), Err(Errno::FAULT));
        assert_eq!(readable(constant.as_ptr() as usize, constant.len()), Ok(()));
        let known = writable(constant.as_ptr() as usize, constant.len());
        assert_eq!(known, Err(Errno::FAULT), "it is known as one to read");
    }

    #[test]
    fn a_range_that_ends_nowhere_is_an_error_on_pages_that_are_known_too() {
        begin();
        let bytes = Box::new([0xa5u8; 4 * PAGE]);
        let middle = (bytes.as_ptr() as usize).next_multiple_of(PAGE) + PAGE / 2;
        for check in [readable, writable] {
            assert_eq!(check(middle, 64), Ok(()));
            for length in
                [usize::MAX, usize::MAX - 64, usize::MAX - middle + 1, isize::MAX as usize]
            {
                assert_eq!(check(middle, length), Err(Errno::FAULT), "{length:#x}");
            }
        }
        let behind = middle + PAGE - bytes.as_ptr() as usize;
        assert!(bytes[behind..].iter().all(|&byte| byte == 0xa5), "nothing is changed");
    }

    #[test]
    fn values_beside_the_beginning_of_a_range_are_checked() {
        begin();
        let anywhere = std::ptr::null_mut();
        // SAFETY: a new map, which the test unmaps; only the module reads it.
        unsafe {
            let map = mmap_anonymous(anywhere, 2 * PAGE, ProtFlags::READ, MapFlags::PRIVATE);
            let map = map.expect("memory");
            let (first, second) = (map as usize, map as usize + PAGE);
            mprotect(second as *mut _, PAGE, MprotectFlags::empty()).expect("it is ours");
            let readable = Source::beginning(first, PAGE);
            assert_eq!(readable.bytes(), PAGE);
            assert_eq!(Source::beginning(first, PAGE + 1).bytes(), 0, "not all can be read");
            assert_eq!(Source::beginning(first, usize::MAX).bytes(), 0, "it ends nowhere");
            for (address, read) in [
                (first, Ok(0u64)),
                (second - 8, Ok(0)),
                (second - 7, Err(Errno::FAULT)),
                (second, Err(Errno::FAULT)),
            ] {
                assert_eq!(readable.read(address), read, "{:#x}", address - first);
            }
            let bytes = [7u8; 8];
            assert_eq!(readable.read(bytes.as_ptr() as usize), Ok(bytes), "elsewhere");
            munmap(map, 2 * PAGE).expect("it is ours");
        }
    }

    #[test]
    fn the_probe_stays_inside_the_range() {
        begin();
        let mut bytes = [0xa5u8; 48];
        writable(bytes[5..].as_mut_ptr() as usize, 30).unwrap();
        assert!(bytes[..5].iter().chain(&bytes[35..]).all(|&byte| byte == 0xa5));
    }
}
