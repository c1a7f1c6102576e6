//! Constants.

use super::context::{Context, Flow};
use crate::exception::OrThrow;
use crate::linker;
use crate::object::Ref;
use crate::resolution;
use crate::vm::Thrown;
use baton_dex::{StringId, TypeId};

#[inline(always)]
pub(super) fn const_4(c: Context<'_>) -> Flow {
    c.r.set_int(c.pc.a(), (c.pc.unit(0) as i16 >> 12).into());
    c.next(1)
}

#[inline(always)]
pub(super) fn narrow(c: Context<'_>, value: i32, n_units: i32) -> Flow {
    c.r.set_int(c.pc.aa(), value);
    c.next(n_units)
}

#[inline(always)]
pub(super) fn wide(c: Context<'_>, value: i64, n_units: i32) -> Flow {
    c.r.set_long(c.pc.aa(), value);
    c.next(n_units)
}

#[inline(always)]
pub(super) fn const_wide(c: Context<'_>) -> Flow {
    let (low, high) = (c.pc.word(1) as u32, c.pc.word(3) as u32);
    wide(c, (u64::from(high) << 32 | u64::from(low)) as i64, 5)
}

#[inline(always)]
fn reference(c: Context<'_>, value: Result<Ref, Thrown>, n_units: i32) -> Flow {
    match value {
        Ok(value) => {
            c.r.set_reference(c.pc.aa(), value);
            c.next(n_units)
        }
        Err(Thrown) => Flow::Throw,
    }
}

#[inline(always)]
pub(super) fn string(c: Context<'_>, index: u32, n_units: i32) -> Flow {
    c.save();
    let string = resolution::resolve_string(c.t, c.dex(), StringId(index)).or_throw(c.t);
    reference(c, string, n_units)
}

#[inline(always)]
pub(super) fn class(c: Context<'_>) -> Flow {
    c.save();
    let class = linker::resolve_type(c.t, c.dex(), TypeId(c.pc.bbbb() as u32)).or_throw(c.t);
    reference(c, class.map(|class| class.mirror()), 2)
}

/// const-method-handle and const-method-type: java.lang.invoke of the class library has no objects
/// for them.
pub(super) fn invoke_constant(c: Context<'_>) -> Flow {
    let message = "the class library has no method handles and no method types";
    c.throw("Ljava/lang/UnsupportedOperationException;", message).into()
}
