//! Whether the calling thread's thread pointer is the C library's.
//!
//! A program may have replaced the thread pointer, as Go without cgo does on x86-64. The C
//! library's functions and thread-locals, including `errno`, would then access memory near the
//! program's own thread data.

/// The beginning of a C library's thread descriptor, by the x86-64 ABI and glibc's `tcbhead_t`.
#[cfg(target_arch = "x86_64")]
#[repr(C)]
struct Descriptor {
    address: usize,
    dynamic: usize,
    thread: usize,
}

/// Whether thread-locals can be used. This function uses none.
#[cfg(target_arch = "x86_64")]
pub fn is_c_librarys() -> bool {
    const ARCH_GET_FS: isize = 0x1003;
    let mut base = 0usize;
    let arguments = [ARCH_GET_FS, &raw mut base as isize, 0, 0, 0, 0];
    // SAFETY: writes a word.
    unsafe { crate::registers::system_call(libc::SYS_arch_prctl, arguments) };
    let descriptor = base as *const Descriptor;
    if !descriptor.is_aligned() || descriptor.is_null() {
        return false;
    }
    // SAFETY: by the ABI a thread pointer is the address of a word that contains this address. The
    // word after the next one is read only if that is so, and then belongs to a thread library.
    unsafe { (*descriptor).address == base && (*descriptor).thread == base }
}

/// Whether thread-locals can be used. This function uses none.
#[cfg(target_arch = "aarch64")]
pub fn is_c_librarys() -> bool {
    let base: usize;
    // SAFETY: reads a register. The ABI reserves it for this purpose; Go without cgo leaves it
    // zero.
    unsafe { std::arch::asm!("mrs {}, tpidr_el0", out(reg) base, options(nomem, nostack)) };
    base != 0
}
