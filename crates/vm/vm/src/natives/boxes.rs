//! Primitive values of objects: arguments of reflection, and elements of arrays.

use super::values::throw;
use crate::boxing;
use crate::class::Class;
use crate::descriptor::java_name;
use crate::object::{Kind, Ref};
use crate::stack::Value;
use crate::vm::{Thread, Thrown};

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
    boxing::unboxed(object)
        .and_then(|(from, value)| boxing::widened(from, value, class.kind))
        .ok_or_else(mismatch)
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
