//! Moves, arithmetic, comparisons and conditional branches.

use super::context::{Context, Flow, Place};
use crate::vm::Thrown;
use std::cmp::Ordering;

/// Copies a register of any type.
#[inline(always)]
pub(super) fn copy(c: Context<'_>, to: usize, from: usize, n_units: i32) -> Flow {
    c.r.copy(to, &c.r, from);
    c.next(n_units)
}

/// Copies a pair of registers, which may overlap.
#[inline(always)]
pub(super) fn copy_wide(c: Context<'_>, to: usize, from: usize, n_units: i32) -> Flow {
    c.r.set_long(to, c.r.long(from));
    c.next(n_units)
}

/// The bits of a float.
#[inline(always)]
pub(super) fn float_bits(value: f32) -> i32 {
    value.to_bits() as i32
}

/// The bits of a double.
#[inline(always)]
pub(super) fn double_bits(value: f64) -> i64 {
    value.to_bits() as i64
}

/// A float by its bits.
#[inline(always)]
pub(super) fn float(bits: i32) -> f32 {
    f32::from_bits(bits as u32)
}

/// A double by its bits.
#[inline(always)]
pub(super) fn double(bits: i64) -> f64 {
    f64::from_bits(bits as u64)
}

#[inline(always)]
pub(super) fn shl(value: i32, distance: i32) -> i32 {
    value.wrapping_shl(distance as u32)
}

#[inline(always)]
pub(super) fn shr(value: i32, distance: i32) -> i32 {
    value.wrapping_shr(distance as u32)
}

#[inline(always)]
pub(super) fn ushr(value: i32, distance: i32) -> i32 {
    (value as u32).wrapping_shr(distance as u32) as i32
}

#[inline(always)]
pub(super) fn shl_long(value: i64, distance: i32) -> i64 {
    value.wrapping_shl(distance as u32)
}

#[inline(always)]
pub(super) fn shr_long(value: i64, distance: i32) -> i64 {
    value.wrapping_shr(distance as u32)
}

#[inline(always)]
pub(super) fn ushr_long(value: i64, distance: i32) -> i64 {
    (value as u64).wrapping_shr(distance as u32) as i64
}

#[inline(always)]
pub(super) fn int_of_int(c: Context<'_>, of: impl Fn(i32) -> i32) -> Flow {
    c.r.set_int(c.pc.a(), of(c.r.int(c.pc.b())));
    c.next(1)
}

#[inline(always)]
pub(super) fn int_of_long(c: Context<'_>, of: impl Fn(i64) -> i32) -> Flow {
    c.r.set_int(c.pc.a(), of(c.r.long(c.pc.b())));
    c.next(1)
}

#[inline(always)]
pub(super) fn long_of_int(c: Context<'_>, of: impl Fn(i32) -> i64) -> Flow {
    c.r.set_long(c.pc.a(), of(c.r.int(c.pc.b())));
    c.next(1)
}

#[inline(always)]
pub(super) fn long_of_long(c: Context<'_>, of: impl Fn(i64) -> i64) -> Flow {
    c.r.set_long(c.pc.a(), of(c.r.long(c.pc.b())));
    c.next(1)
}

#[inline(always)]
pub(super) fn int(c: Context<'_>, of: impl Fn(i32, i32) -> i32) -> Flow {
    c.r.set_int(c.pc.aa(), of(c.r.int(c.pc.bb()), c.r.int(c.pc.cc())));
    c.next(2)
}

#[inline(always)]
pub(super) fn int_2addr(c: Context<'_>, of: impl Fn(i32, i32) -> i32) -> Flow {
    let a = c.pc.a();
    c.r.set_int(a, of(c.r.int(a), c.r.int(c.pc.b())));
    c.next(1)
}

#[inline(always)]
pub(super) fn int_lit16(c: Context<'_>, of: impl Fn(i32, i32) -> i32) -> Flow {
    c.r.set_int(c.pc.a(), of(c.r.int(c.pc.b()), c.pc.signed()));
    c.next(2)
}

/// The literal of format 22b.
#[inline(always)]
fn literal8(c: Context<'_>) -> i32 {
    i32::from(c.pc.unit(1) as i16 >> 8)
}

#[inline(always)]
pub(super) fn int_lit8(c: Context<'_>, of: impl Fn(i32, i32) -> i32) -> Flow {
    c.r.set_int(c.pc.aa(), of(c.r.int(c.pc.bb()), literal8(c)));
    c.next(2)
}

#[cold]
fn divide_by_zero(p: Place<'_>) -> Thrown {
    p.throw("Ljava/lang/ArithmeticException;", "divide by zero")
}

#[inline(always)]
fn divide(
    c: Context<'_>,
    to: usize,
    operands: (i32, i32),
    of: impl Fn(i32, i32) -> i32,
    n_units: i32,
) -> Flow {
    if operands.1 == 0 {
        return divide_by_zero(c.place()).into();
    }
    c.r.set_int(to, of(operands.0, operands.1));
    c.next(n_units)
}

#[inline(always)]
pub(super) fn int_division(c: Context<'_>, of: impl Fn(i32, i32) -> i32) -> Flow {
    divide(c, c.pc.aa(), (c.r.int(c.pc.bb()), c.r.int(c.pc.cc())), of, 2)
}

#[inline(always)]
pub(super) fn int_division_2addr(c: Context<'_>, of: impl Fn(i32, i32) -> i32) -> Flow {
    divide(c, c.pc.a(), (c.r.int(c.pc.a()), c.r.int(c.pc.b())), of, 1)
}

#[inline(always)]
pub(super) fn int_division_lit16(c: Context<'_>, of: impl Fn(i32, i32) -> i32) -> Flow {
    divide(c, c.pc.a(), (c.r.int(c.pc.b()), c.pc.signed()), of, 2)
}

#[inline(always)]
pub(super) fn int_division_lit8(c: Context<'_>, of: impl Fn(i32, i32) -> i32) -> Flow {
    divide(c, c.pc.aa(), (c.r.int(c.pc.bb()), literal8(c)), of, 2)
}

#[inline(always)]
pub(super) fn long(c: Context<'_>, of: impl Fn(i64, i64) -> i64) -> Flow {
    c.r.set_long(c.pc.aa(), of(c.r.long(c.pc.bb()), c.r.long(c.pc.cc())));
    c.next(2)
}

#[inline(always)]
pub(super) fn long_2addr(c: Context<'_>, of: impl Fn(i64, i64) -> i64) -> Flow {
    let a = c.pc.a();
    c.r.set_long(a, of(c.r.long(a), c.r.long(c.pc.b())));
    c.next(1)
}

#[inline(always)]
pub(super) fn long_shift(c: Context<'_>, of: impl Fn(i64, i32) -> i64) -> Flow {
    c.r.set_long(c.pc.aa(), of(c.r.long(c.pc.bb()), c.r.int(c.pc.cc())));
    c.next(2)
}

#[inline(always)]
pub(super) fn long_shift_2addr(c: Context<'_>, of: impl Fn(i64, i32) -> i64) -> Flow {
    let a = c.pc.a();
    c.r.set_long(a, of(c.r.long(a), c.r.int(c.pc.b())));
    c.next(1)
}

#[inline(always)]
pub(super) fn long_division(c: Context<'_>, of: impl Fn(i64, i64) -> i64) -> Flow {
    let divisor = c.r.long(c.pc.cc());
    if divisor == 0 {
        return divide_by_zero(c.place()).into();
    }
    c.r.set_long(c.pc.aa(), of(c.r.long(c.pc.bb()), divisor));
    c.next(2)
}

#[inline(always)]
pub(super) fn long_division_2addr(c: Context<'_>, of: impl Fn(i64, i64) -> i64) -> Flow {
    let (a, divisor) = (c.pc.a(), c.r.long(c.pc.b()));
    if divisor == 0 {
        return divide_by_zero(c.place()).into();
    }
    c.r.set_long(a, of(c.r.long(a), divisor));
    c.next(1)
}

#[inline(always)]
pub(super) fn floats(c: Context<'_>, of: impl Fn(f32, f32) -> f32) -> Flow {
    c.r.set_float(c.pc.aa(), of(c.r.float(c.pc.bb()), c.r.float(c.pc.cc())));
    c.next(2)
}

#[inline(always)]
pub(super) fn floats_2addr(c: Context<'_>, of: impl Fn(f32, f32) -> f32) -> Flow {
    let a = c.pc.a();
    c.r.set_float(a, of(c.r.float(a), c.r.float(c.pc.b())));
    c.next(1)
}

#[inline(always)]
pub(super) fn doubles(c: Context<'_>, of: impl Fn(f64, f64) -> f64) -> Flow {
    c.r.set_double(c.pc.aa(), of(c.r.double(c.pc.bb()), c.r.double(c.pc.cc())));
    c.next(2)
}

#[inline(always)]
pub(super) fn doubles_2addr(c: Context<'_>, of: impl Fn(f64, f64) -> f64) -> Flow {
    let a = c.pc.a();
    c.r.set_double(a, of(c.r.double(a), c.r.double(c.pc.b())));
    c.next(1)
}

/// -1, 0 or 1; `unordered` if a value is NaN.
#[inline(always)]
fn sign(order: Option<Ordering>, unordered: i32) -> i32 {
    order.map_or(unordered, |order| order as i32)
}

#[inline(always)]
pub(super) fn compare_floats(c: Context<'_>, unordered: i32) -> Flow {
    let order = c.r.float(c.pc.bb()).partial_cmp(&c.r.float(c.pc.cc()));
    c.r.set_int(c.pc.aa(), sign(order, unordered));
    c.next(2)
}

#[inline(always)]
pub(super) fn compare_doubles(c: Context<'_>, unordered: i32) -> Flow {
    let order = c.r.double(c.pc.bb()).partial_cmp(&c.r.double(c.pc.cc()));
    c.r.set_int(c.pc.aa(), sign(order, unordered));
    c.next(2)
}

#[inline(always)]
pub(super) fn compare_longs(c: Context<'_>) -> Flow {
    let order = c.r.long(c.pc.bb()).cmp(&c.r.long(c.pc.cc()));
    c.r.set_int(c.pc.aa(), order as i32);
    c.next(2)
}

#[inline(always)]
pub(super) fn if_both(c: Context<'_>, holds: impl Fn(i32, i32) -> bool) -> Flow {
    if holds(c.r.int(c.pc.a()), c.r.int(c.pc.b())) { c.branch(c.pc.signed()) } else { c.next(2) }
}

#[inline(always)]
pub(super) fn if_zero(c: Context<'_>, holds: impl Fn(i32) -> bool) -> Flow {
    if holds(c.r.int(c.pc.aa())) { c.branch(c.pc.signed()) } else { c.next(2) }
}
