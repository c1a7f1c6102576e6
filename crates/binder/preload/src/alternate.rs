//! The program's alternate signal stack, and its state while a call runs on [a stack of
//! Baton's](crate::stack).
//!
//! A thread whose program has set no alternate stack uses Baton's. The program cannot notice that:
//! its `sigaltstack` reports only stacks that the program has set.

use crate::registers;
use libc::{c_int, stack_t};
use std::mem::zeroed;
use std::ptr::null_mut;

/// No alternate stack.
pub const NONE: stack_t = stack_t { ss_sp: null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
/// Flag: the kernel disables the alternate stack while a handler runs on it.
const SS_AUTODISARM: c_int = 1 << 31;
/// Bytes below the stack pointer that a leaf function may use.
pub const RED_ZONE_BYTES: usize = 128;
/// Size of the kernel's signal sets.
const SET_BYTES: isize = 8;

/// Sets the calling thread's alternate stack by a system call, because the C library's function is
/// interposed. Returns whether that worked.
pub fn set(stack: &stack_t) -> bool {
    let arguments = [&raw const *stack as isize, 0, 0, 0, 0, 0];
    // SAFETY: a complete structure.
    unsafe { registers::system_call(libc::SYS_sigaltstack, arguments) == 0 }
}

/// The calling thread's alternate stack.
pub fn current() -> stack_t {
    // SAFETY: zeroes are a complete structure, which the system fills.
    let mut stack: stack_t = unsafe { zeroed() };
    let arguments = [0, &raw mut stack as isize, 0, 0, 0, 0];
    // SAFETY: as above.
    unsafe { registers::system_call(libc::SYS_sigaltstack, arguments) };
    stack
}

/// The state of the alternate stack during a call on Baton's stack.
#[derive(Clone, Copy)]
pub enum Alternate {
    /// The thread has no alternate stack.
    None,
    /// The alternate stack stays unchanged.
    Whole,
    /// The kernel has disabled the stack for the handler of a trapped call; the call enables it
    /// again.
    Disarmed(stack_t),
    /// The caller is a handler that runs on the alternate stack. Other handlers get the rest below
    /// it. All signals are blocked until that is set.
    Rest { whole: stack_t, rest: stack_t, mask: u64 },
}

impl Alternate {
    /// Prepares a call from `stack_pointer` on another stack. [`Alternate::cancel`], or
    /// [`Alternate::enter`] on the other stack, has to follow.
    pub fn prepare(whole: &stack_t, stack_pointer: usize) -> Alternate {
        let (low, whole) = (whole.ss_sp as usize, *whole);
        if whole.ss_flags & libc::SS_DISABLE != 0 {
            return Alternate::None;
        }
        if (low..low + whole.ss_size).contains(&stack_pointer) {
            let left = (stack_pointer - low).saturating_sub(RED_ZONE_BYTES);
            let rest = stack_t { ss_sp: whole.ss_sp, ss_flags: 0, ss_size: left };
            let whole = stack_t { ss_flags: whole.ss_flags & SS_AUTODISARM, ..whole };
            return Alternate::Rest { whole, rest, mask: block(u64::MAX) };
        }
        if whole.ss_flags & SS_AUTODISARM != 0 {
            Alternate::Disarmed(whole)
        } else {
            Alternate::Whole
        }
    }

    /// Whether the caller may be a handler that interrupted a call on Baton's stack.
    pub fn may_nest(self) -> bool {
        matches!(self, Alternate::None | Alternate::Rest { .. })
    }

    /// Undoes [`Alternate::prepare`], because the call does not move to another stack or is over.
    pub fn cancel(self) {
        if let Alternate::Rest { mask, .. } = self {
            block(mask);
        }
    }

    /// Enters the call, on the other stack.
    pub fn enter(self) {
        match self {
            Alternate::None | Alternate::Whole => {}
            Alternate::Disarmed(whole) => _ = set(&whole),
            Alternate::Rest { rest, mask, .. } => {
                // The kernel refuses a rest that is too small for a signal. Handlers then run on
                // Baton's stack.
                if !set(&rest) {
                    set(&NONE);
                }
                block(mask);
            }
        }
    }

    /// Ends the call, still on the other stack. The signals of a calling handler are blocked again
    /// until [`Alternate::cancel`].
    pub fn exit(self) {
        if let Alternate::Rest { whole, .. } = self {
            block(u64::MAX);
            set(&whole);
        }
    }
}

/// Sets the calling thread's signal mask and returns the previous one.
fn block(mask: u64) -> u64 {
    let mut before = 0u64;
    let how = libc::SIG_SETMASK as isize;
    let arguments = [how, &raw const mask as isize, &raw mut before as isize, SET_BYTES, 0, 0];
    // SAFETY: two sets of the kernel's form.
    unsafe { registers::system_call(libc::SYS_rt_sigprocmask, arguments) };
    before
}
