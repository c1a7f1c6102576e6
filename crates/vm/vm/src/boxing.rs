//! Primitive values as objects of the classes that box them, and widened to other kinds.

use crate::class::{Class, Field};
use crate::exception;
use crate::object::{Kind, Ref};
use crate::stack::Value;
use crate::vm::{Thread, Thrown};

/// A value as an object, by the `valueOf` of the class that boxes its kind. A reference is itself,
/// and no value is null.
///
/// # Errors
/// An exception is under way: there is no memory.
pub fn boxed(t: &Thread, kind: Kind, value: Value) -> Result<Ref, Thrown> {
    let (class, primitive) = match kind {
        Kind::Boolean => ("Ljava/lang/Boolean;", 'Z'),
        Kind::Byte => ("Ljava/lang/Byte;", 'B'),
        Kind::Char => ("Ljava/lang/Character;", 'C'),
        Kind::Short => ("Ljava/lang/Short;", 'S'),
        Kind::Int => ("Ljava/lang/Integer;", 'I'),
        Kind::Long => ("Ljava/lang/Long;", 'J'),
        Kind::Float => ("Ljava/lang/Float;", 'F'),
        Kind::Double => ("Ljava/lang/Double;", 'D'),
        Kind::Reference => return Ok(value.reference()),
        Kind::Void => return Ok(Ref::NULL),
    };
    let signature = format!("({primitive}){class}");
    let class = exception::library_class(t, class)?;
    let value_of = class.declared_method("valueOf", &signature).expect("a box has a valueOf");
    Ok(t.invoke(value_of, &[value])?.reference())
}

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

/// The primitive value of a box, with its kind.
pub fn unboxed(object: Ref) -> Option<(Kind, Value)> {
    let class = Class::of(object);
    let kind = box_kind(class)?;
    let field = class.fields.iter().find(|field| !field.is_static() && field.name == "value")?;
    Some((kind, field_value(field, object)))
}

/// A value widened to a kind, if the language allows that.
pub fn widened(from: Kind, value: Value, to: Kind) -> Option<Value> {
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

/// Reads a field as a value. `object` holds it: an instance, or [`Field::holder`].
pub fn field_value(field: &Field, object: Ref) -> Value {
    match field.kind {
        Kind::Reference => Value::Ref(field.get_ref(object)),
        Kind::Long => Value::Long(field.get64(object) as i64),
        Kind::Double => Value::Double(f64::from_bits(field.get64(object))),
        Kind::Float => Value::Float(f32::from_bits(field.get32(object))),
        _ => Value::Int(field.get32(object) as i32),
    }
}
