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

/// The kind of access that is checked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

/// Pages that a thread has asked about, each with its access in the lowest bit, and when.
struct Answers {
    pages: [Cell<usize>; REMEMBERED],
    epoch: Cell<u64>,
    /// The place of the next entry.
    next: Cell<usize>,
}

const REMEMBERED: usize = 8;
const NOTHING: usize = usize::MAX;
thread_local! {
    static ANSWERS: Answers = const {
        let pages = [const { Cell::new(NOTHING) }; REMEMBERED];
        Answers { pages, epoch: Cell::new(0), next: Cell::new(0) }
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
    ANSWERS.with(|answers| {
        if answers.epoch.replace(epoch) != epoch {
            answers.pages.iter().for_each(|page| page.set(NOTHING));
        }
    });
}

fn is_known(page: usize, access: Access) -> bool {
    // A writable page is readable, too.
    let written = page << 1 | 1;
    let wanted = if access == Access::Read { page << 1 } else { written };
    ANSWERS.with(|answers| {
        answers.pages.iter().any(|known| known.get() == written || known.get() == wanted)
    })
}

fn remember(page: usize, access: Access) {
    ANSWERS.with(|answers| {
        let next = answers.next.get() % REMEMBERED;
        answers.pages[next].set(page << 1 | usize::from(access == Access::Write));
        answers.next.set(next + 1);
    });
}

thread_local!(static STACK_TOP: usize = stack_top());

/// End of the calling thread's stack, 0 if the system does not say.
fn stack_top() -> usize {
    // SAFETY: plain data, filled in and taken down by the calls.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &mut attributes) != 0 {
            return 0;
        }
        let (mut lowest, mut bytes) = (std::ptr::null_mut(), 0);
        let known = libc::pthread_attr_getstack(&attributes, &mut lowest, &mut bytes) == 0;
        libc::pthread_attr_destroy(&mut attributes);
        if known { lowest as usize + bytes } else { 0 }
    }
}

/// Whether the range lies in the part of the calling thread's stack that is in use: it is there as
/// long as the call is.
fn is_on_own_stack(address: usize, bytes: usize) -> bool {
    let here = std::hint::black_box(0u8);
    let used = std::ptr::addr_of!(here) as usize;
    address > used
        && address.checked_add(bytes).is_some_and(|end| end <= STACK_TOP.with(|top| *top))
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
    if faulted {
        return Err(Errno::FAULT);
    }
    remember(address / PAGE, access);
    Ok(())
}

fn check(address: usize, bytes: usize, access: Access) -> Result<(), Errno> {
    if bytes == 0 || is_on_own_stack(address, bytes) {
        return Ok(());
    }
    let last = address.checked_add(bytes - 1).ok_or(Errno::FAULT)?;
    let mut at = address;
    loop {
        if !is_known(at / PAGE, access) {
            probe(at, access)?;
        }
        if at / PAGE == last / PAGE {
            return Ok(());
        }
        at = (at / PAGE + 1) * PAGE;
    }
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
            check(first, whole - whole % SIGSET_BYTES, Access::Write)
        }
        _ => readable(address, bytes),
    }
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

    /// The length in bytes.
    pub fn bytes(self) -> usize {
        self.bytes
    }

    /// Whether two ranges overlap.
    pub fn overlaps(self, address: usize, bytes: usize) -> bool {
        self.address < address.saturating_add(bytes) && address < self.address + self.bytes
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
    }

    #[test]
    fn the_probe_stays_inside_the_range() {
        begin();
        let mut bytes = [0xa5u8; 48];
        writable(bytes[5..].as_mut_ptr() as usize, 30).unwrap();
        assert!(bytes[..5].iter().chain(&bytes[35..]).all(|&byte| byte == 0xa5));
    }
}
