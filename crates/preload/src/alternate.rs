//! The program's alternate signal stack, and what becomes of it while a call is made on [a stack of
//! ours](crate::stack).
//!
//! A thread whose program has set none has ours. The program sees nothing of that: its
//! `sigaltstack` tells of a stack
//! that it has set, and of none otherwise.

use crate::{real, stack, trap};
use libc::{c_int, stack_t};
use std::mem::zeroed;
use std::ptr::null_mut;

/// No alternate stack.
pub const NONE: stack_t = stack_t { ss_sp: null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
/// The kernel takes the alternate stack away while a handler runs on it.
const SS_AUTODISARM: c_int = 1 << 31;
/// Below a stack pointer: what may be in use there, without a frame.
pub const RED_ZONE_BYTES: usize = 128;
/// Of the kernel's signal sets.
const SET_BYTES: isize = 8;

/// The system call: the C library's function is interposed. Whether it has been done.
pub fn set(stack: &stack_t) -> bool {
    let arguments = [&raw const *stack as isize, 0, 0, 0, 0, 0];
    // SAFETY: a complete structure.
    unsafe { trap::system_call(libc::SYS_sigaltstack, arguments) == 0 }
}

/// The calling thread's.
pub fn current() -> stack_t {
    // SAFETY: zeroes are a complete structure, which the system fills.
    let mut stack: stack_t = unsafe { zeroed() };
    let arguments = [0, &raw mut stack as isize, 0, 0, 0, 0];
    // SAFETY: as above.
    unsafe { trap::system_call(libc::SYS_sigaltstack, arguments) };
    stack
}

/// What becomes of the alternate stack during a call on a stack of ours.
#[derive(Clone, Copy)]
pub enum Alternate {
    /// There is none.
    None,
    /// It stays as it is.
    Whole,
    /// The kernel has disarmed it for the handler of a trapped call: it is armed again.
    Disarmed(stack_t),
    /// The caller is a handler that runs on it: other handlers have what is left below. All signals
    /// are blocked until they can.
    Rest { whole: stack_t, rest: stack_t, mask: u64 },
}

impl Alternate {
    /// A call from `stack_pointer` is about to be made elsewhere. To be followed by
    /// [`Alternate::stay`], or [`Alternate::begin`] on the other stack.
    pub fn leave(whole: &stack_t, stack_pointer: usize) -> Alternate {
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

    /// Whether the caller may be a handler that has interrupted a call on our stack.
    pub fn may_nest(self) -> bool {
        matches!(self, Alternate::None | Alternate::Rest { .. })
    }

    /// The call is not made elsewhere, or has been.
    pub fn stay(self) {
        if let Alternate::Rest { mask, .. } = self {
            block(mask);
        }
    }

    /// The thread has left the program's stack.
    pub fn begin(self) {
        match self {
            Alternate::None | Alternate::Whole => {}
            Alternate::Disarmed(whole) => _ = set(&whole),
            Alternate::Rest { rest, mask, .. } => {
                // A rest that is too small for a signal is none: handlers run on our stack then.
                if !set(&rest) {
                    set(&NONE);
                }
                block(mask);
            }
        }
    }

    /// The thread is about to go back. A handler's signals are blocked again until
    /// [`Alternate::stay`].
    pub fn end(self) {
        if let Alternate::Rest { whole, .. } = self {
            block(u64::MAX);
            set(&whole);
        }
    }
}

/// Blocks these signals of the calling thread and no others. What was blocked before.
fn block(mask: u64) -> u64 {
    let mut before = 0u64;
    let how = libc::SIG_SETMASK as isize;
    let arguments = [how, &raw const mask as isize, &raw mut before as isize, SET_BYTES, 0, 0];
    // SAFETY: two sets of the kernel's form.
    unsafe { trap::system_call(libc::SYS_rt_sigprocmask, arguments) };
    before
}

/// As the C library's.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaltstack(new: *const stack_t, old: *mut stack_t) -> c_int {
    if !trap::is_handled() {
        // SAFETY: the caller's arguments.
        return unsafe { real::sigaltstack(new, old) };
    }
    let before = current();
    // SAFETY: the caller's arguments, the stack replaced by ours at most.
    unsafe {
        let ours = match new.as_ref() {
            Some(new) if new.ss_flags & libc::SS_DISABLE != 0 => {
                stack::own().map(stack::Header::as_alternate)
            }
            _ => None,
        };
        let new = ours.as_ref().map_or(new, |ours| ours);
        if !new.is_null() && real::sigaltstack(new, null_mut()) < 0 {
            return -1;
        }
        if let Some(old) = old.as_mut() {
            *old = if stack::is_own(&before) { NONE } else { before };
        }
    }
    0
}
