//! The bare switch with which IPC is compared: a routine as a library of coroutines has it, which
//! saves the registers that the ABI says and resumes by a jump.

#[cfg(target_arch = "aarch64")]
pub use super::aarch64::bare_switch as switch;
#[cfg(target_arch = "x86_64")]
pub use super::x86_64::bare_switch as switch;

/// Words between the stack pointer of a beginning and the end of its stack: the registers that
/// `switch` loads and, on x86-64, the return address that a function expects.
const FRAME_WORDS: usize = if cfg!(target_arch = "aarch64") { 20 } else { 7 };

/// Where a suspended computation goes on.
#[repr(C)]
#[derive(Debug)]
pub struct Context {
    stack_pointer: usize,
    resume: usize,
}

impl Context {
    /// A context that begins with `body`, which does not return, on the stack that ends at
    /// `stack_top`.
    ///
    /// # Safety
    /// `stack_top` is aligned to 16 bytes. Below it there is room for 20 words and for `body`.
    pub unsafe fn beginning(stack_top: *mut usize, body: extern "C" fn() -> !) -> Context {
        let stack_pointer = stack_top.wrapping_sub(FRAME_WORDS) as usize;
        Context { stack_pointer, resume: body as usize }
    }

    /// A context to save a computation in.
    pub const fn empty() -> Context {
        Context { stack_pointer: 0, resume: 0 }
    }
}
