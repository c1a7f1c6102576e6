//! Fields by their IDs.

use crate::env::{Call, Env, begin, call_for_object};
use crate::handle::Handle;
use baton_vm::boxing::field_value;
use baton_vm::class::{Class, Field};
use baton_vm::linker::restricting_class;
use baton_vm::natives::values;
use baton_vm::object::{Kind, Ref};
use baton_vm::stack::Value;

/// The field of an ID, and the object that holds it.
fn place(
    call: &Call<'_>,
    holder: Handle,
    id: *const Field,
    kind: Kind,
    is_static: bool,
) -> (&'static Field, Ref) {
    let field = call.field(id);
    let name = || format!("{}.{}", field.class().java_name(), field.name);
    if field.kind != kind || field.is_static() != is_static {
        let sort = if field.is_static() { "static" } else { "instance" };
        call.wrong(format_args!("{} is an {sort} field of {}", name(), field.descriptor));
    }
    if is_static {
        // A static field is the class's that declares it, whichever subclass C names.
        if !call.class(holder).is_assignable_to(field.class()) {
            call.wrong(format_args!("the class has no field {}", name()));
        }
        return (field, field.holder());
    }
    let object = call.non_null(holder, "the object");
    if !field.is_in(object) {
        call.wrong(format_args!("an object of {} has no field {}", call.name_of(object), name()));
    }
    (field, object)
}

macro_rules! fields {
    ($($kind:ident, $type:ty, $get:ident, $set:ident, $get_static:ident, $set_static:ident,
        $value:ident, $from:expr, $to:expr;)+) => {$(
        /// Reads an instance's field.
        pub extern "C" fn $get(env: *const Env, object: Handle, id: *const Field) -> $type {
            let call = begin(env, concat!("Get", stringify!($kind), "Field"));
            let (field, object) = place(&call, object, id, Kind::$kind, false);
            let $value = field_value(field, object);
            $from
        }

        /// Writes an instance's field.
        pub extern "C" fn $set(env: *const Env, object: Handle, id: *const Field, $value: $type) {
            let call = begin(env, concat!("Set", stringify!($kind), "Field"));
            let (field, object) = place(&call, object, id, Kind::$kind, false);
            values::set(field, object, $to);
        }

        /// Reads a static field.
        pub extern "C" fn $get_static(env: *const Env, class: Handle, id: *const Field) -> $type {
            let call = begin(env, concat!("GetStatic", stringify!($kind), "Field"));
            let (field, class) = place(&call, class, id, Kind::$kind, true);
            let $value = field_value(field, class);
            $from
        }

        /// Writes a static field.
        pub extern "C" fn $set_static(
            env: *const Env, class: Handle, id: *const Field, $value: $type,
        ) {
            let call = begin(env, concat!("SetStatic", stringify!($kind), "Field"));
            let (field, class) = place(&call, class, id, Kind::$kind, true);
            values::set(field, class, $to);
        }
    )+};
}

fn double(value: Value) -> f64 {
    let Value::Double(value) = value else { unreachable!("{value:?} is no double") };
    value
}

fn float(value: Value) -> f32 {
    let Value::Float(value) = value else { unreachable!("{value:?} is no float") };
    value
}

fields! {
    Boolean, u8, get_boolean, set_boolean, get_static_boolean, set_static_boolean,
        value, value.int() as u8, Value::Int((value != 0).into());
    Byte, i8, get_byte, set_byte, get_static_byte, set_static_byte,
        value, value.int() as i8, Value::Int(value.into());
    Char, u16, get_char, set_char, get_static_char, set_static_char,
        value, value.int() as u16, Value::Int(value.into());
    Short, i16, get_short, set_short, get_static_short, set_static_short,
        value, value.int() as i16, Value::Int(value.into());
    Int, i32, get_int, set_int, get_static_int, set_static_int,
        value, value.int(), Value::Int(value);
    Long, i64, get_long, set_long, get_static_long, set_static_long,
        value, value.long(), Value::Long(value);
    Float, f32, get_float, set_float, get_static_float, set_static_float,
        value, float(value), Value::Float(value);
    Double, f64, get_double, set_double, get_static_double, set_static_double,
        value, double(value), Value::Double(value);
}

/// `GetObjectField`.
pub extern "C" fn get_object(env: *const Env, object: Handle, id: *const Field) -> Handle {
    get(env, "GetObjectField", object, id, false)
}

/// `GetStaticObjectField`.
pub extern "C" fn get_static_object(env: *const Env, class: Handle, id: *const Field) -> Handle {
    get(env, "GetStaticObjectField", class, id, true)
}

fn get(
    env: *const Env,
    function: &'static str,
    holder: Handle,
    id: *const Field,
    is_static: bool,
) -> Handle {
    call_for_object(env, function, |call| {
        let (field, holder) = place(call, holder, id, Kind::Reference, is_static);
        Ok(field.get_ref(holder))
    })
}

/// `SetObjectField`.
pub extern "C" fn set_object(env: *const Env, object: Handle, id: *const Field, value: Handle) {
    set(env, "SetObjectField", object, id, false, value);
}

/// `SetStaticObjectField`.
pub extern "C" fn set_static_object(
    env: *const Env,
    class: Handle,
    id: *const Field,
    value: Handle,
) {
    set(env, "SetStaticObjectField", class, id, true, value);
}

fn set(
    env: *const Env,
    function: &'static str,
    holder: Handle,
    id: *const Field,
    is_static: bool,
    value: Handle,
) {
    let call = begin(env, function);
    let (field, holder) = place(&call, holder, id, Kind::Reference, is_static);
    let value = call.object(value);
    if !value.is_null() && Class::of(value).descriptor != field.descriptor {
        let class =
            call.t.scope(|| restricting_class(call.t, field.class().loader, field.descriptor));
        if class.is_some_and(|class| !Class::of(value).is_assignable_to(class)) {
            let names = (call.name_of(value), field.class().java_name(), field.name);
            let (value, class, name) = names;
            call.wrong(format_args!("{value} for {class}.{name} of {}", field.descriptor));
        }
    }
    field.set_ref(holder, value);
}
