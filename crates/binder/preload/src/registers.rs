//! The registers of an interrupted system call, and system calls by instruction.

use libc::{c_long, siginfo_t, ucontext_t};
use std::ops::Range;

pub use architecture::*;

/// The registers of an interrupted system call, and the frame where the kernel saved them.
#[cfg(target_arch = "x86_64")]
mod architecture {
    use super::{Range, c_long, siginfo_t, ucontext_t};
    use std::arch::asm;

    const ARGUMENTS: [libc::c_int; 6] =
        [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX, libc::REG_R10, libc::REG_R8, libc::REG_R9];
    /// Size of the old form of a saved floating-point state, and the offset where the kernel
    /// describes a newer form (`_fpx_sw_bytes`).
    const LEGACY_BYTES: usize = 512;
    const EXTENSION_AT: usize = 464;
    const EXTENSION: u32 = 0x4650_5853;

    pub fn number(context: &ucontext_t) -> c_long {
        context.uc_mcontext.gregs[libc::REG_RAX as usize]
    }

    pub fn arguments(context: &ucontext_t) -> [c_long; 6] {
        ARGUMENTS.map(|register| context.uc_mcontext.gregs[register as usize])
    }

    pub fn set_result(context: &mut ucontext_t, result: c_long) {
        context.uc_mcontext.gregs[libc::REG_RAX as usize] = result;
    }

    pub fn stack_pointer(context: &ucontext_t) -> usize {
        context.uc_mcontext.gregs[libc::REG_RSP as usize] as usize
    }

    /// The addresses of a signal's frame, which `rt_sigreturn` reads.
    ///
    /// # Safety
    /// The context is the kernel's, of a signal whose handler has not returned.
    pub unsafe fn frame(_info: *const siginfo_t, context: *const ucontext_t) -> Range<usize> {
        // The frame consists of the handler's return address, the context, the information, and
        // above them the floating-point state.
        let start = context as usize - size_of::<usize>();
        // SAFETY: by this function's contract, also below.
        let state = unsafe { (*context).uc_mcontext.fpregs }.cast::<u8>();
        if state.is_null() {
            return start..context as usize + size_of::<ucontext_t>();
        }
        // SAFETY: the old form is always present, with two words that describe a newer one.
        let [magic, bytes] = unsafe { state.add(EXTENSION_AT).cast::<[u32; 2]>().read_unaligned() };
        let bytes = if magic == EXTENSION { bytes as usize } else { LEGACY_BYTES };
        start..state as usize + bytes
    }

    /// The stack pointer with which `rt_sigreturn` finds the frame.
    pub fn frame_pointer(frame: &Range<usize>) -> usize {
        frame.start + size_of::<usize>()
    }

    /// A system call that is neither interposed nor trapped: a value or a negative errno.
    ///
    /// # Safety
    /// The contract of the system call.
    pub unsafe fn system_call(number: c_long, arguments: [isize; 6]) -> c_long {
        let [first, second, third, fourth, fifth, sixth] = arguments;
        let result: c_long;
        // SAFETY: by this function's contract; the kernel changes no register but these.
        unsafe {
            asm!(
                "syscall", inlateout("rax") number => result, in("rdi") first, in("rsi") second,
                in("rdx") third, in("r10") fourth, in("r8") fifth, in("r9") sixth,
                lateout("rcx") _, lateout("r11") _, options(nostack),
            );
        }
        result
    }
}

/// The registers of an interrupted system call, and the frame where the kernel saved them.
#[cfg(target_arch = "aarch64")]
mod architecture {
    use super::{Range, c_long, siginfo_t, ucontext_t};
    use std::arch::asm;

    /// Type of a record in `uc_mcontext.__reserved` that refers to further records
    /// (`extra_context`).
    const EXTRA: u32 = 0x4558_5401;
    const HEADER_BYTES: usize = 8;
    const RECORDS_BYTES: usize = 4096;

    pub fn number(context: &ucontext_t) -> c_long {
        context.uc_mcontext.regs[8] as c_long
    }

    pub fn arguments(context: &ucontext_t) -> [c_long; 6] {
        [0, 1, 2, 3, 4, 5].map(|register| context.uc_mcontext.regs[register] as c_long)
    }

    pub fn set_result(context: &mut ucontext_t, result: c_long) {
        context.uc_mcontext.regs[0] = result as u64;
    }

    pub fn stack_pointer(context: &ucontext_t) -> usize {
        context.uc_mcontext.sp as usize
    }

    /// The addresses of a signal's frame, which `rt_sigreturn` reads.
    ///
    /// # Safety
    /// The context is the kernel's, of a signal whose handler has not returned.
    pub unsafe fn frame(info: *const siginfo_t, context: *const ucontext_t) -> Range<usize> {
        let start = info as usize;
        let mut end = context as usize + size_of::<ucontext_t>();
        // SAFETY: by this function's contract, also below. The records are the context's last
        // field.
        let records = unsafe { (&raw const (*context).uc_mcontext).add(1).cast::<u8>() };
        let records = records.wrapping_sub(RECORDS_BYTES);
        let mut at = 0;
        while at + HEADER_BYTES + 16 <= RECORDS_BYTES {
            // SAFETY: within the records.
            let [magic, bytes] = unsafe { records.add(at).cast::<[u32; 2]>().read_unaligned() };
            if magic == EXTRA {
                // SAFETY: within the records: an address and a size.
                let (address, bytes) = unsafe {
                    let words = records.add(at + HEADER_BYTES);
                    (
                        words.cast::<u64>().read_unaligned(),
                        words.add(8).cast::<u32>().read_unaligned(),
                    )
                };
                end = end.max(address as usize + bytes as usize);
            }
            if magic == 0 || bytes == 0 {
                break;
            }
            at += bytes as usize;
        }
        start..end
    }

    /// The stack pointer with which `rt_sigreturn` finds the frame.
    pub fn frame_pointer(frame: &Range<usize>) -> usize {
        frame.start
    }

    /// A system call that is neither interposed nor trapped: a value or a negative errno.
    ///
    /// # Safety
    /// The contract of the system call.
    pub unsafe fn system_call(number: c_long, arguments: [isize; 6]) -> c_long {
        let [first, second, third, fourth, fifth, sixth] = arguments;
        let result: isize;
        // SAFETY: by this function's contract; the kernel changes no register but these.
        unsafe {
            asm!(
                "svc 0", in("x8") number, inlateout("x0") first => result, in("x1") second,
                in("x2") third, in("x3") fourth, in("x4") fifth, in("x5") sixth, options(nostack),
            );
        }
        result as c_long
    }
}
