//! Stacks of threads: mapped memory above guard pages that cannot be accessed.
//!
//! ```text
//!  base            base + GUARD_BYTES                    top
//!  |  guard: none  |  stack, growing down  <-------------|
//! ```
//!
//! **Invariant**: the stack of a thread that has not ended is never unmapped nor used again, as
//! other threads may still use values on it.

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::ffi::c_void;
use std::io;
use std::ops::Range;

/// The compiler probes the stack only for frames that are larger than a page; this is more.
const GUARD_BYTES: usize = 16 << 10;
const PAGE_BYTES: usize = 4096;

/// The stack of one thread.
#[derive(Debug)]
pub(crate) struct Stack {
    base: *mut c_void,
    bytes: usize,
}

impl Stack {
    /// Maps a stack of at least this many bytes.
    pub(crate) fn new(bytes: usize) -> io::Result<Stack> {
        let bytes = bytes.next_multiple_of(PAGE_BYTES) + GUARD_BYTES;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::STACK;
        // SAFETY: the system chooses the address of the new mapping.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags)? };
        let stack = Stack { base, bytes };
        // SAFETY: the lowest pages of the new mapping, to which no other pointer exists.
        unsafe { mprotect(base, GUARD_BYTES, MprotectFlags::empty())? };
        Ok(stack)
    }

    /// The end of the stack, aligned to a page: the first stack pointer of its thread.
    pub(crate) fn top(&self) -> usize {
        self.base as usize + self.bytes
    }

    /// The addresses that an overflow touches.
    pub(crate) fn guard(&self) -> Range<usize> {
        self.base as usize..self.base as usize + GUARD_BYTES
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and used by no thread: the owner of a thread that has not ended
        // leaks its stack instead.
        let _ = unsafe { munmap(self.base, self.bytes) };
    }
}
