//! A thread's stack: mapped memory with pages below it that cannot be touched.
//!
//! ```text
//!  base            base + GUARD_BYTES                    top
//!  |  guard: none  |  stack, growing down  <-------------|
//! ```
//!
//! **Invariant**: memory whose thread has not come to its end is never unmapped and never used
//! again: what it has pinned there may still be looked at.

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::ffi::c_void;
use std::io;
use std::ops::Range;

/// More than a frame that the compiler does not probe for.
const GUARD_BYTES: usize = 16 << 10;
const PAGE_BYTES: usize = 4096;

/// A stack.
#[derive(Debug)]
pub(crate) struct Stack {
    base: *mut c_void,
    bytes: usize,
}

impl Stack {
    /// A stack of at least so many bytes.
    pub(crate) fn new(bytes: usize) -> io::Result<Stack> {
        let bytes = bytes.next_multiple_of(PAGE_BYTES) + GUARD_BYTES;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::STACK;
        // SAFETY: new memory, at an address of the kernel's choice.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags)? };
        let stack = Stack { base, bytes };
        // SAFETY: the lowest pages of that memory, which nobody knows of yet.
        unsafe { mprotect(base, GUARD_BYTES, MprotectFlags::empty())? };
        Ok(stack)
    }

    /// Where it begins to grow down from, aligned to a page.
    pub(crate) fn top(&self) -> usize {
        self.base as usize + self.bytes
    }

    /// The addresses that are touched if it overflows.
    pub(crate) fn guard(&self) -> Range<usize> {
        self.base as usize..self.base as usize + GUARD_BYTES
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and nobody's any more: who has it in a thread that did not come
        // to its end forgets it instead.
        let _ = unsafe { munmap(self.base, self.bytes) };
    }
}
