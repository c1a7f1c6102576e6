//! Java values as native methods take and give them.

use crate::class::{Class, Field, Loader};
use crate::exception::OrThrow;
use crate::object::{Kind, Ref};
use crate::stack::Value;
use crate::vm::{Thread, Thrown};
use crate::{exception, initialize, linker, string};

/// What a native method returns.
pub type Outcome = Result<Value, Thrown>;

/// No result.
pub const VOID: Outcome = Ok(Value::Void);
/// The reference to no object.
pub const NULL: Outcome = Ok(Value::Ref(Ref::NULL));

/// A boolean result.
pub fn boolean(value: bool) -> Outcome {
    Ok(Value::Int(i32::from(value)))
}

/// Throws an exception of a class by its name in dex form, without `L` and `;`.
pub fn throw(t: &Thread, class: &str, message: &str) -> Thrown {
    exception::throw(t, &format!("L{class};"), message)
}

/// Throws what `format` says.
pub fn null_pointer(t: &Thread, what: &str) -> Thrown {
    throw(t, "java/lang/NullPointerException", &format!("{what} == null"))
}

/// A reference that must not be null.
pub fn non_null(t: &Thread, object: Ref, what: &str) -> Result<Ref, Thrown> {
    if object.is_null() { Err(null_pointer(t, what)) } else { Ok(object) }
}

/// A new instance, whose constructor has not run.
pub fn instance(t: &Thread, class: &'static Class) -> Result<Ref, Thrown> {
    exception::new_object(t, class)
}

/// A new string.
pub fn text(t: &Thread, text: &str) -> Result<Ref, Thrown> {
    exception::new_string(t, text)
}

/// A new string.
pub fn utf16(t: &Thread, units: &[u16]) -> Result<Ref, Thrown> {
    Ok(t.keep(string::from_utf16(t, units).or_throw(t)?))
}

/// The text of a string that must not be null.
pub fn rust(t: &Thread, string: Ref) -> Result<String, Thrown> {
    non_null(t, string, "string")?;
    Ok(string::to_rust(t, string))
}

/// The units of a string that must not be null.
pub fn units(t: &Thread, string: Ref) -> Result<Vec<u16>, Thrown> {
    non_null(t, string, "string")?;
    Ok(string::units(t, string))
}

/// A class as a loader sees it, by its descriptor.
pub fn find(t: &Thread, loader: Loader, descriptor: &str) -> Result<&'static Class, Thrown> {
    linker::find(t, loader, descriptor).or_throw(t)
}

/// A class of the library by its name in dex form, initialized.
pub fn class(t: &Thread, name: &str) -> Result<&'static Class, Thrown> {
    let class = find(t, Loader::BOOT, &format!("L{name};"))?;
    initialize::initialize(t, class)?;
    Ok(class)
}

/// The class of arrays of a component type.
pub fn array_class(t: &Thread, component: &'static Class) -> Result<&'static Class, Thrown> {
    linker::array_of(t, component).or_throw(t)
}

/// A new array of a class of arrays.
pub fn array(t: &Thread, class: &'static Class, length: usize) -> Result<Ref, Thrown> {
    // Rust's own data of this length exists, and it has at most as many elements.
    exception::new_array(t, class, u32::try_from(length).expect("a length of Java"))
}

/// A new array of a primitive kind.
pub fn primitives(t: &Thread, kind: Kind, length: usize) -> Result<Ref, Thrown> {
    array(t, t.vm.known().array_of(kind), length)
}

/// A new `byte[]`.
pub fn bytes(t: &Thread, from: &[u8]) -> Result<Ref, Thrown> {
    let array = primitives(t, Kind::Byte, from.len())?;
    for (index, byte) in (0..).zip(from) {
        array.set_i8(index, *byte as i8);
    }
    Ok(array)
}

/// A new `char[]`.
pub fn chars(t: &Thread, from: &[u16]) -> Result<Ref, Thrown> {
    let array = primitives(t, Kind::Char, from.len())?;
    for (index, unit) in (0..).zip(from) {
        array.set_u16(index, *unit);
    }
    Ok(array)
}

/// A new array of objects that the caller keeps.
pub fn objects(t: &Thread, component: &'static Class, from: &[Ref]) -> Result<Ref, Thrown> {
    let class = array_class(t, component)?;
    let array = array(t, class, from.len())?;
    for (index, object) in (0..).zip(from) {
        array.set_ref(index, *object);
    }
    Ok(array)
}

/// A copy of an array of objects, which no other thread writes to.
pub fn copy(t: &Thread, from: Ref) -> Result<Ref, Thrown> {
    let length = from.length();
    let copy = array(t, Class::of(from), length as usize)?;
    (0..length).for_each(|index| copy.set_ref(index, from.get_ref(index)));
    Ok(copy)
}

/// A new `String[]`.
pub fn strings<S: AsRef<str>>(t: &Thread, from: &[S]) -> Result<Ref, Thrown> {
    let class = array_class(t, t.vm.known().string)?;
    let array = array(t, class, from.len())?;
    for (index, part) in (0..).zip(from) {
        let part = t.scope(|| text(t, part.as_ref()))?;
        array.set_ref(index, part);
    }
    Ok(array)
}

/// A range of a `byte[]`.
///
/// # Errors
/// NullPointerException or ArrayIndexOutOfBoundsException.
pub fn byte_range(t: &Thread, array: Ref, offset: i32, count: i32) -> Result<Vec<u8>, Thrown> {
    check_range(t, array, offset, count)?;
    Ok((offset as u32..(offset + count) as u32).map(|i| array.get_i8(i) as u8).collect())
}

/// A range of a `char[]`.
///
/// # Errors
/// NullPointerException or ArrayIndexOutOfBoundsException.
pub fn char_range(t: &Thread, array: Ref, offset: i32, count: i32) -> Result<Vec<u16>, Thrown> {
    check_range(t, array, offset, count)?;
    Ok((offset as u32..(offset + count) as u32).map(|i| array.get_u16(i)).collect())
}

/// Whether a range lies in an array.
pub fn check_range(t: &Thread, array: Ref, offset: i32, count: i32) -> Result<(), Thrown> {
    non_null(t, array, "array")?;
    let length = array.length() as i32;
    if offset < 0 || count < 0 || offset > length - count {
        let message = format!("length={length}; regionStart={offset}; regionLength={count}");
        return Err(throw(t, "java/lang/ArrayIndexOutOfBoundsException", &message));
    }
    Ok(())
}

/// Makes an object and runs its constructor. Arguments leave out the object itself.
pub fn construct(t: &Thread, name: &str, signature: &str, args: &[Value]) -> Result<Ref, Thrown> {
    let class = class(t, name)?;
    let object = instance(t, class)?;
    let constructor = class.declared_method("<init>", signature).expect("a class of the library");
    t.invoke(constructor, &[&[Value::Ref(object)], args].concat())?;
    Ok(object)
}

/// Calls a static method of the library.
pub fn call(t: &Thread, class_name: &str, name: &str, signature: &str, args: &[Value]) -> Outcome {
    let class = class(t, class_name)?;
    let method = class.find_method(name, signature).expect("a method of the library");
    t.invoke(method, args)
}

/// Calls an instance method by its name and signature.
pub fn call_on(t: &Thread, object: Ref, name: &str, signature: &str, args: &[Value]) -> Outcome {
    let method = Class::of(object).find_method(name, signature).expect("a method of the library");
    t.invoke_virtual(method, &[&[Value::Ref(object)], args].concat())
}

/// A field of an object of the library.
pub fn field(object: Ref, name: &str, descriptor: &str) -> &'static Field {
    Class::of(object).library_field(name, descriptor).expect("a field of the library")
}

/// Writes a value to a field of its kind.
pub fn set(field: &Field, object: Ref, value: Value) {
    match value {
        Value::Void => {}
        Value::Ref(value) => field.set_ref(object, value),
        Value::Long(value) => field.set64(object, value as u64),
        Value::Double(value) => field.set64(object, value.to_bits()),
        Value::Float(value) => field.set32(object, value.to_bits()),
        Value::Int(value) => field.set32(object, value as u32),
    }
}
