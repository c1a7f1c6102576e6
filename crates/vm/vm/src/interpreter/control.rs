//! Results, returns, switches and throws.

use super::context::{Context, Flow};
use crate::class::Class;
use crate::object::Ref;
use std::sync::atomic::Ordering::Relaxed;

#[inline(always)]
pub(super) fn move_result(c: Context<'_>) -> Flow {
    c.r.set_int(c.pc.aa(), c.t.result.get() as i32);
    c.next(1)
}

#[inline(always)]
pub(super) fn move_result_wide(c: Context<'_>) -> Flow {
    c.r.set_long(c.pc.aa(), c.t.result.get());
    c.next(1)
}

/// A caught exception waits where results do.
#[inline(always)]
pub(super) fn move_result_object(c: Context<'_>) -> Flow {
    // SAFETY: the word holds a reference that the roots contain.
    let result = unsafe { Ref::from_address(c.t.state.result.load(Relaxed)) };
    c.r.set_reference(c.pc.aa(), result);
    c.next(1)
}

#[inline(always)]
fn leave(c: Context<'_>) -> Flow {
    c.t.state.stack.pop();
    Flow::Return
}

#[inline(always)]
pub(super) fn return_void(c: Context<'_>) -> Flow {
    leave(c)
}

#[inline(always)]
pub(super) fn return_narrow(c: Context<'_>) -> Flow {
    c.t.result.set(c.r.int(c.pc.aa()).into());
    leave(c)
}

#[inline(always)]
pub(super) fn return_wide(c: Context<'_>) -> Flow {
    c.t.result.set(c.r.long(c.pc.aa()));
    leave(c)
}

#[inline(always)]
pub(super) fn return_object(c: Context<'_>) -> Flow {
    c.t.state.result.store(c.r.reference(c.pc.aa()).address(), Relaxed);
    leave(c)
}

pub(super) fn throw(c: Context<'_>) -> Flow {
    let exception = c.r.reference(c.pc.aa());
    if exception.is_null() {
        return c.null("throw with null exception").into();
    }
    if !Class::of(exception).is_subclass_of(c.t.vm.known().throwable) {
        return c.unverified("a Throwable").into();
    }
    c.save();
    c.t.throw_object(exception).into()
}

#[inline(always)]
pub(super) fn packed_switch(c: Context<'_>) -> Flow {
    let table = c.pc.jump(c.pc.word(1));
    let count = u32::from(table.unit(1));
    let index = c.r.int(c.pc.aa()).wrapping_sub(table.word(2)) as u32;
    if index < count { c.branch(table.word(4 + 2 * index as usize)) } else { c.next(3) }
}

#[inline(always)]
pub(super) fn sparse_switch(c: Context<'_>) -> Flow {
    let table = c.pc.jump(c.pc.word(1));
    let count = usize::from(table.unit(1));
    let value = c.r.int(c.pc.aa());
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        match table.word(2 + 2 * middle).cmp(&value) {
            std::cmp::Ordering::Equal => return c.branch(table.word(2 + 2 * (count + middle))),
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Greater => high = middle,
        }
    }
    c.next(3)
}
