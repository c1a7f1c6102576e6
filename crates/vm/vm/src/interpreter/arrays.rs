//! Arrays.

use super::context::{Context, Flow, Place};
use crate::allocation;
use crate::class::Class;
use crate::exception::OrThrow;
use crate::linker;
use crate::object::{Array, Kind, Ref};
use crate::vm::Thrown;
use baton_dex::TypeId;
use std::sync::atomic::Ordering::Relaxed;

const BOUNDS: &str = "Ljava/lang/ArrayIndexOutOfBoundsException;";

#[inline(always)]
pub(super) fn length(c: Context<'_>) -> Flow {
    let array = c.r.reference(c.pc.b());
    if array.is_null() {
        return c.null("Attempt to get length of null array").into();
    }
    let Some(array) = array.array() else { return c.unverified("an array").into() };
    c.r.set_int(c.pc.a(), array.length() as i32);
    c.next(1)
}

#[inline(always)]
pub(super) fn new_array(c: Context<'_>) -> Flow {
    let length = c.r.int(c.pc.b());
    c.save();
    let class = linker::resolve_type(c.t, c.dex(), TypeId(c.pc.bbbb() as u32)).or_throw(c.t);
    let Ok(class) = class else { return Flow::Throw };
    if !class.is_array() {
        return c.unverified("a type of arrays").into();
    }
    if length < 0 {
        return c.throw("Ljava/lang/NegativeArraySizeException;", &length.to_string()).into();
    }
    match allocation::array(c.t, class, length as u32).or_throw(c.t) {
        Ok(array) => {
            c.r.set_reference(c.pc.a(), array);
            c.next(2)
        }
        Err(Thrown) => Flow::Throw,
    }
}

/// filled-new-array: the result waits for move-result-object.
pub(super) fn filled(c: Context<'_>, is_range: bool) -> Flow {
    c.save();
    let class = linker::resolve_type(c.t, c.dex(), TypeId(c.pc.bbbb() as u32)).or_throw(c.t);
    let Ok(class) = class else { return Flow::Throw };
    let registers = if is_range { super::calls::range(c) } else { super::calls::list(c) };
    let Some(component) = class.component else { return c.unverified("a type of arrays").into() };
    let kind = component.kind;
    if !matches!(kind, Kind::Int | Kind::Float | Kind::Reference) {
        let message = format!("filled-new-array of {}", class.descriptor);
        return c.throw("Ljava/lang/InternalError;", &message).into();
    }
    let array = allocation::array(c.t, class, registers.count() as u32).or_throw(c.t);
    let Ok(array) = array else { return Flow::Throw };
    for index in 0..registers.count() {
        let (at, register) = (index as u32, registers.get(index));
        match kind {
            Kind::Int => array.set_i32(at, c.r.int(register)),
            Kind::Float => array.set_f32_bits(at, c.r.int(register) as u32),
            _ => {
                let value = c.r.reference(register);
                if !may_store(array, value) {
                    return c.unverified(component.descriptor).into();
                }
                array.set_ref(at, value);
            }
        }
    }
    c.t.state.result.store(array.address(), Relaxed);
    c.next(3)
}

/// fill-array-data.
pub(super) fn fill(c: Context<'_>) -> Flow {
    let array = c.r.reference(c.pc.aa());
    if array.is_null() {
        return c.null("Attempt to write to null array").into();
    }
    let data = c.pc.jump(c.pc.word(1));
    let (n_bytes, count) = (u32::from(data.unit(1)), data.word(2) as u32);
    let Some(kind) = array.element_kind().filter(|kind| kind.element_bytes() == n_bytes) else {
        return c.unverified("an array of the data's type").into();
    };
    if kind == Kind::Reference {
        return c.unverified("an array of numbers").into();
    }
    if count > array.length() {
        let message = format!("failed FILL_ARRAY_DATA; length={}, index={count}", array.length());
        return c.throw(BOUNDS, &message).into();
    }
    for index in 0..count {
        let unit = |nth: usize| u64::from(data.unit(4 + nth));
        let at = index as usize;
        match kind {
            Kind::Boolean | Kind::Byte => {
                array.set_i8(index, (data.unit(4 + at / 2) >> (8 * (at % 2))) as i8);
            }
            Kind::Char => array.set_u16(index, unit(at) as u16),
            Kind::Short => array.set_i16(index, unit(at) as i16),
            Kind::Int => array.set_i32(index, data.word(4 + 2 * at)),
            Kind::Float => array.set_f32_bits(index, data.word(4 + 2 * at) as u32),
            _ => {
                let at = 4 * at;
                let value = unit(at) | unit(at + 1) << 16 | unit(at + 2) << 32 | unit(at + 3) << 48;
                match kind {
                    Kind::Long => array.set_i64(index, value as i64),
                    _ => array.set_f64_bits(index, value),
                }
            }
        }
    }
    c.next(3)
}

/// Whether an array of references may hold a value.
fn may_store(array: Ref, value: Ref) -> bool {
    if value.is_null() {
        return true;
    }
    let component = Class::of(array).component.expect("an array has a component");
    let class = Class::of(value);
    std::ptr::eq(component, class) || class.is_assignable_to(component)
}

/// The array and the index of an access; or the exception.
#[inline(always)]
fn element(c: Context<'_>, verb: &str) -> Result<(Array, u32), Thrown> {
    let array = c.r.reference(c.pc.bb());
    if array.is_null() {
        return Err(on_null(c.place(), verb));
    }
    let Some(array) = array.array() else { return Err(c.unverified("an array")) };
    let index = c.r.int(c.pc.cc());
    if index as u32 >= array.length() {
        return Err(out_of_bounds(c.place(), array.length(), index));
    }
    Ok((array, index as u32))
}

#[cold]
fn on_null(p: Place<'_>, verb: &str) -> Thrown {
    p.null(&format!("Attempt to {verb} null array"))
}

#[cold]
fn out_of_bounds(p: Place<'_>, length: u32, index: i32) -> Thrown {
    p.throw(BOUNDS, &format!("length={length}; index={index}"))
}

macro_rules! get {
    ($name:ident, $set:ident, $($kind:ident $get:ident as $as:ty),+) => {
        #[inline(always)]
        pub(super) fn $name(c: Context<'_>) -> Flow {
            match element(c, "read from") {
                Ok((array, index)) => {
                    match array.kind() {
                        $(Kind::$kind => c.r.$set(c.pc.aa(), array.$get(index) as $as),)+
                        _ => return c.unverified("an array of another type").into(),
                    }
                    c.next(2)
                }
                Err(Thrown) => Flow::Throw,
            }
        }
    };
}

macro_rules! put {
    ($name:ident, $get:ident, $($kind:ident $set:ident as $as:ty),+) => {
        #[inline(always)]
        pub(super) fn $name(c: Context<'_>) -> Flow {
            match element(c, "write to") {
                Ok((array, index)) => {
                    let value = c.r.$get(c.pc.aa());
                    match array.kind() {
                        $(Kind::$kind => array.$set(index, value as $as),)+
                        _ => return c.unverified("an array of another type").into(),
                    }
                    c.next(2)
                }
                Err(Thrown) => Flow::Throw,
            }
        }
    };
}

get!(get_word, set_int, Int get_i32 as i32, Float get_f32_bits as i32);
get!(get_wide, set_long, Long get_i64 as i64, Double get_f64_bits as i64);
get!(get_char, set_int, Char get_u16 as i32);
get!(get_short, set_int, Short get_i16 as i32);
get!(get_reference, set_reference, Reference get_ref as Ref);
put!(put_word, int, Int set_i32 as i32, Float set_f32_bits as u32);
put!(put_wide, long, Long set_i64 as i64, Double set_f64_bits as u64);
put!(put_char, int, Char set_u16 as u16);
put!(put_short, int, Short set_i16 as i16);

#[inline(always)]
pub(super) fn get_byte(c: Context<'_>, of: Kind) -> Flow {
    match element(c, "read from") {
        Ok((array, index)) if array.kind() == of => {
            c.r.set_int(c.pc.aa(), array.get_i8(index).into());
            c.next(2)
        }
        Ok(_) => c.unverified("an array of another type").into(),
        Err(Thrown) => Flow::Throw,
    }
}

#[inline(always)]
pub(super) fn put_byte(c: Context<'_>, of: Kind) -> Flow {
    match element(c, "write to") {
        Ok((array, index)) if array.kind() == of => {
            array.set_i8(index, c.r.int(c.pc.aa()) as i8);
            c.next(2)
        }
        Ok(_) => c.unverified("an array of another type").into(),
        Err(Thrown) => Flow::Throw,
    }
}

#[cold]
fn wrong_store(p: Place<'_>, array: Ref, value: Ref) -> Thrown {
    let names = (Class::of(value).pretty_name(), Class::of(array).pretty_name());
    let message = format!("{} cannot be stored in an array of type {}", names.0, names.1);
    p.throw("Ljava/lang/ArrayStoreException;", &message)
}

#[inline(always)]
pub(super) fn put_reference(c: Context<'_>) -> Flow {
    match element(c, "write to") {
        Ok((array, index)) if array.kind() == Kind::Reference => {
            let value = c.r.reference(c.pc.aa());
            if !may_store(array.object, value) {
                return wrong_store(c.place(), array.object, value).into();
            }
            array.set_ref(index, value);
            c.next(2)
        }
        Ok(_) => c.unverified("an array of references").into(),
        Err(Thrown) => Flow::Throw,
    }
}
