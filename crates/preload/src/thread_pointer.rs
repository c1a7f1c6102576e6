//! Whether the calling thread's thread pointer is the C library's.
//!
//! A program may have replaced it by its own (Go without cgo does on x86-64). There the C library's
//! functions and thread-locals, `errno` among them, read and write whatever lies near the
//! program's.

/// What a C library's thread descriptor begins with, by the x86-64 ABI and glibc's `tcbhead_t`.
#[cfg(target_arch = "x86_64")]
#[repr(C)]
struct Descriptor {
    own: usize,
    dynamic: usize,
    thread: usize,
}

/// Whether thread-locals are there. Uses none.
#[cfg(target_arch = "x86_64")]
pub fn is_the_librarys() -> bool {
    const ARCH_GET_FS: isize = 0x1003;
    let mut base = 0usize;
    let arguments = [ARCH_GET_FS, &raw mut base as isize, 0, 0, 0, 0];
    // SAFETY: writes a word.
    unsafe { crate::trap::system_call(libc::SYS_arch_prctl, arguments) };
    let descriptor = base as *const Descriptor;
    if !descriptor.is_aligned() || descriptor.is_null() {
        return false;
    }
    // SAFETY: by the ABI a thread pointer is the address of a word that says the same; the one
    // after the next is read only if it does, of memory that belongs to a thread library then.
    unsafe { (*descriptor).own == base && (*descriptor).thread == base }
}

/// Whether thread-locals are there. Uses none.
#[cfg(target_arch = "aarch64")]
pub fn is_the_librarys() -> bool {
    let base: usize;
    // SAFETY: reads a register. The ABI leaves a program no other use for it; Go without cgo has
    // none.
    unsafe { std::arch::asm!("mrs {}, tpidr_el0", out(reg) base, options(nomem, nostack)) };
    base != 0
}
