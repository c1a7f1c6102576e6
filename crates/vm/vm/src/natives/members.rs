//! Java's objects for classes, fields and methods
//!
//! A java.lang.reflect object holds the number of its field or method: its place in a list.

use super::values::{self, find, throw};
use crate::class::{Class, Field, Method, access};
use crate::object::Ref;
use crate::stack::Value;
use crate::vm::{Thread, Thrown};
use rustc_hash::FxHashMap;
use std::sync::{LazyLock, RwLock};

/// A list of fields or methods, and the number of each by its address.
type List<T> = (Vec<&'static T>, FxHashMap<usize, i64>);

/// Fields or methods that Java objects name.
struct Numbered<T: 'static> {
    all: LazyLock<RwLock<List<T>>>,
}

impl<T> Numbered<T> {
    const fn new() -> Numbered<T> {
        Numbered { all: LazyLock::new(RwLock::default) }
    }

    fn number(&self, of: &'static T) -> i64 {
        let mut all = self.all.write().expect("no holder panics");
        let (list, numbers) = &mut *all;
        *numbers.entry(std::ptr::from_ref(of).addr()).or_insert_with(|| {
            list.push(of);
            list.len() as i64
        })
    }

    fn get(&self, number: i64) -> Option<&'static T> {
        let all = self.all.read().expect("no holder panics");
        all.0.get(usize::try_from(number - 1).ok()?).copied()
    }
}

static FIELDS: Numbered<Field> = Numbered::new();
static METHODS: Numbered<Method> = Numbered::new();

/// A new java.lang.reflect.Field.
pub fn field_object(t: &Thread, field: &'static Field) -> Result<Ref, Thrown> {
    let number = [Value::Long(FIELDS.number(field))];
    values::construct(t, "java/lang/reflect/Field", "(J)V", &number)
}

/// The number of a method for a Java object.
pub fn number_of(method: &'static Method) -> i64 {
    METHODS.number(method)
}

/// A new java.lang.reflect.Method or Constructor.
pub fn method_object(t: &Thread, method: &'static Method) -> Result<Ref, Thrown> {
    let class = match method.is_constructor() {
        true => "java/lang/reflect/Constructor",
        false => "java/lang/reflect/Method",
    };
    values::construct(t, class, "(J)V", &[Value::Long(METHODS.number(method))])
}

/// The field of a java.lang.reflect.Field.
pub fn field_of(t: &Thread, object: Ref) -> Result<&'static Field, Thrown> {
    numbered_field(t, values::field(object, "field", "J").get64(object) as i64)
}

/// The field of a number that a Java object has.
pub fn numbered_field(t: &Thread, number: i64) -> Result<&'static Field, Thrown> {
    FIELDS.get(number).ok_or_else(|| throw(t, "java/lang/InternalError", "no such field"))
}

/// The method of a number that a Java object has.
pub fn numbered_method(t: &Thread, number: i64) -> Result<&'static Method, Thrown> {
    METHODS.get(number).ok_or_else(|| throw(t, "java/lang/InternalError", "no such method"))
}

/// Throws InstantiationException for a class that has no instances.
pub fn check_instantiable(t: &Thread, class: &Class) -> Result<(), Thrown> {
    let flags = access::ABSTRACT | access::INTERFACE;
    if class.access & flags != 0 || class.is_array() || class.is_primitive() {
        let message = format!("{} cannot be instantiated", class.java_name());
        return Err(throw(t, "java/lang/InstantiationException", &message));
    }
    Ok(())
}

/// The classes of a method's parameters.
pub fn parameter_types(t: &Thread, method: &Method) -> Result<Vec<&'static Class>, Thrown> {
    let loader = method.class().loader;
    method.parameter_descriptors().into_iter().map(|it| find(t, loader, it)).collect()
}

/// A `Class[]`.
pub fn mirrors(t: &Thread, classes: &[&'static Class]) -> Result<Ref, Thrown> {
    let mirrors: Vec<Ref> = classes.iter().map(|class| class.mirror()).collect();
    values::objects(t, t.vm.known().class, &mirrors)
}
