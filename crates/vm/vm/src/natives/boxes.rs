//! Primitive values of objects: arguments of reflection, and elements of arrays.

use super::values::{self, throw};
use crate::class::{Class, java_name};
use crate::object::{Kind, Ref};
use crate::stack::Value;
use crate::vm::{Thread, Thrown};

/// The primitive kind that a box is for.
fn box_kind(class: &Class) -> Option<Kind> {
    Some(match class.descriptor {
        "Ljava/lang/Boolean;" => Kind::Boolean,
        "Ljava/lang/Byte;" => Kind::Byte,
        "Ljava/lang/Character;" => Kind::Char,
        "Ljava/lang/Short;" => Kind::Short,
        "Ljava/lang/Integer;" => Kind::Int,
        "Ljava/lang/Long;" => Kind::Long,
        "Ljava/lang/Float;" => Kind::Float,
        "Ljava/lang/Double;" => Kind::Double,
        _ => return None,
    })
}

/// A value widened to a kind, if the language allows that.
fn widened(from: Kind, value: Value, to: Kind) -> Option<Value> {
    if from == to {
        return Some(value);
    }
    let rank = |kind| match kind {
        Kind::Byte => Some(0),
        Kind::Short => Some(1),
        Kind::Int => Some(2),
        Kind::Long => Some(3),
        Kind::Float => Some(4),
        Kind::Double => Some(5),
        _ => None,
    };
    let from_rank = if from == Kind::Char { Some(1) } else { rank(from) };
    if rank(to)? <= from_rank? {
        return None;
    }
    Some(match (value, to) {
        (Value::Int(value), Kind::Long) => Value::Long(value.into()),
        (Value::Int(value), Kind::Float) => Value::Float(value as f32),
        (Value::Int(value), Kind::Double) => Value::Double(value.into()),
        (Value::Long(value), Kind::Float) => Value::Float(value as f32),
        (Value::Long(value), Kind::Double) => Value::Double(value as f64),
        (Value::Float(value), Kind::Double) => Value::Double(value.into()),
        _ => value,
    })
}

/// A boxed argument as a value of a parameter's type.
pub fn unboxed(
    t: &Thread,
    class: &'static Class,
    object: Ref,
    index: u32,
) -> Result<Value, Thrown> {
    let mismatch = || {
        let got = if object.is_null() { "null".to_owned() } else { Class::of(object).java_name() };
        let expected = java_name(class.descriptor);
        let message = format!("argument {} should have type {expected}, got {got}", index + 1);
        throw(t, "java/lang/IllegalArgumentException", &message)
    };
    if !class.is_primitive() {
        let fits = object.is_null() || Class::of(object).is_assignable_to(class);
        return if fits { Ok(Value::Ref(object)) } else { Err(mismatch()) };
    }
    if object.is_null() {
        return Err(mismatch());
    }
    let of = Class::of(object);
    let Some(from) = box_kind(of) else { return Err(mismatch()) };
    let field = of.fields.iter().find(|field| !field.is_static() && field.name == "value");
    let value = values::get(field.expect("a field of a box"), object);
    widened(from, value, class.kind).ok_or_else(mismatch)
}

/// Stores a primitive value in an array of its kind.
pub fn set_element(array: Ref, kind: Kind, index: u32, value: Value) {
    match (kind, value) {
        (Kind::Boolean | Kind::Byte, Value::Int(value)) => array.set_i8(index, value as i8),
        (Kind::Char, Value::Int(value)) => array.set_u16(index, value as u16),
        (Kind::Short, Value::Int(value)) => array.set_i16(index, value as i16),
        (Kind::Int, Value::Int(value)) => array.set_i32(index, value),
        (Kind::Long, Value::Long(value)) => array.set_i64(index, value),
        (Kind::Float, Value::Float(value)) => array.set_f32_bits(index, value.to_bits()),
        (Kind::Double, Value::Double(value)) => array.set_f64_bits(index, value.to_bits()),
        _ => {}
    }
}
