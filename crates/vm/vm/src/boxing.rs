//! Primitive values as objects of the classes that box them.

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
