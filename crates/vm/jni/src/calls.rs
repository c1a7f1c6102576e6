//! Calls of Java methods, with arguments in an array. The forms with `...` and `va_list` lead here:
//! see `variadic.c`.

use crate::env::{Call, Env, begin, call_for_object};
use crate::handle::Handle;
use baton_vm::class::{Class, Method, access};
use baton_vm::object::{Kind, Ref};
use baton_vm::stack::Value;
use baton_vm::vm::Thrown;
use baton_vm::{exception, finalizer, initialize, linker, natives};
use smallvec::SmallVec;
use std::ffi::c_char;

/// A `jvalue`: its first bytes are the value.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct JValue(u64);

/// As many arguments as most methods have.
type Values = SmallVec<[Value; 8]>;

/// How a method is chosen.
enum How {
    /// As the object's class implements it
    Virtual(Handle),
    /// Exactly it, for the object
    Nonvirtual(Handle),
    /// A static one
    Static(Handle),
}

/// A result as C gets it.
trait Returned: Sized {
    /// The kind of methods with such results
    const KIND: Kind;

    /// The value; without one, an exception is pending.
    fn of(value: Option<Value>, call: &Call<'_>) -> Self;
}

macro_rules! returned {
    ($($type:ty, $kind:ident, $of:ident, $value:ident, $result:expr;)+) => {$(
        impl Returned for $type {
            const KIND: Kind = Kind::$kind;

            fn of(value: Option<Value>, _: &Call<'_>) -> $type {
                match value {
                    Some(Value::$of($value)) => $result,
                    _ => <$type>::default(),
                }
            }
        }
    )+};
}

returned! {
    i8, Byte, Int, value, value as i8;
    u16, Char, Int, value, value as u16;
    i16, Short, Int, value, value as i16;
    i32, Int, Int, value, value;
    i64, Long, Long, value, value;
    f32, Float, Float, value, value;
    f64, Double, Double, value, value;
    u8, Boolean, Int, value, (value != 0).into();
}

impl Returned for () {
    const KIND: Kind = Kind::Void;

    fn of(_: Option<Value>, _: &Call<'_>) {}
}

impl Returned for Handle {
    const KIND: Kind = Kind::Reference;

    fn of(value: Option<Value>, call: &Call<'_>) -> Handle {
        call.local(value.map_or(Ref::NULL, Value::reference))
    }
}

/// The parameters of a method for C's variadic functions: a letter each. Returns how many.
///
/// # Safety
/// `id` is a method's, and `letters` has room for 255.
#[unsafe(no_mangle)]
unsafe extern "C" fn baton_jni_parameters(id: *const Method, letters: *mut c_char) -> usize {
    // SAFETY: by the caller's promise. Null is found by the function that takes an array.
    let Some(method) = (unsafe { id.as_ref() }) else { return 0 };
    for (index, kind) in method.parameters.iter().enumerate() {
        let letter = match kind {
            Kind::Boolean => b'Z',
            Kind::Byte => b'B',
            Kind::Char => b'C',
            Kind::Short => b'S',
            Kind::Int => b'I',
            Kind::Long => b'J',
            Kind::Float => b'F',
            Kind::Double => b'D',
            Kind::Reference | Kind::Void => b'L',
        };
        // SAFETY: a method has at most 255 parameters.
        unsafe { letters.add(index).write(letter as c_char) };
    }
    method.parameters.len()
}

/// The arguments after the receiver, checked.
fn arguments(call: &Call<'_>, method: &'static Method, values: &mut Values, from: *const JValue) {
    if from.is_null() && !method.parameters.is_empty() {
        call.wrong("the arguments are NULL");
    }
    for (index, kind) in method.parameters.iter().enumerate() {
        // SAFETY: C gives a value for each parameter.
        let bits = unsafe { from.add(index).read() }.0;
        values.push(match kind {
            Kind::Boolean => Value::Int((bits as u8 != 0).into()),
            Kind::Byte => Value::Int((bits as i8).into()),
            Kind::Char => Value::Int((bits as u16).into()),
            Kind::Short => Value::Int((bits as i16).into()),
            Kind::Int => Value::Int(bits as i32),
            Kind::Long => Value::Long(bits as i64),
            Kind::Float => Value::Float(f32::from_bits(bits as u32)),
            Kind::Double => Value::Double(f64::from_bits(bits)),
            Kind::Reference | Kind::Void => {
                Value::Ref(call.t.keep(call.object(Handle::from_bits(bits))))
            }
        });
    }
    let mut register = u16::from(!method.is_static());
    let mut classes = linker::parameter_classes(call.t, method).iter().peekable();
    let first = values.len() - method.parameters.len();
    for (value, kind) in values[first..].iter().zip(&method.parameters) {
        if let Some((_, class)) = classes.next_if(|(of, _)| *of == register)
            && let Value::Ref(object) = value
            && !object.is_null()
            && !Class::of(*object).is_assignable_to(class)
        {
            let names = (call.name_of(*object), class.pretty_name());
            call.wrong(format_args!("{} in place of {}: {}", names.0, names.1, method.pretty()));
        }
        register += 1 + u16::from(kind.is_wide());
    }
}

fn run<R: Returned>(
    env: *const Env,
    function: &'static str,
    how: How,
    id: *const Method,
    from: *const JValue,
) -> R {
    let call = begin(env, function);
    let method = call.method(id);
    if method.result != R::KIND {
        call.wrong(format_args!("the method has another result: {}", method.pretty()));
    }
    let result = call.t.scope(|| invoke(&call, &how, method, from)).ok();
    // No safepoint lies between the end of the scope and a new reference.
    R::of(result, &call)
}

fn invoke(
    call: &Call<'_>,
    how: &How,
    method: &'static Method,
    from: *const JValue,
) -> Result<Value, Thrown> {
    let mut values = Values::new();
    let target = match how {
        How::Static(class) => {
            let class = call.class(*class);
            if !method.is_static() {
                call.wrong(format_args!("the method is not static: {}", method.pretty()));
            }
            if !class.is_assignable_to(method.class()) {
                call.wrong(format_args!("{} has no {}", class.java_name(), method.pretty()));
            }
            method
        }
        How::Virtual(object) | How::Nonvirtual(object) => {
            let object = receiver(call, *object, method);
            values.push(Value::Ref(call.t.keep(object)));
            match how {
                How::Virtual(_) => match Class::of(object).implementation(method) {
                    Some(target) => target,
                    None => call.wrong(format_args!("no implementation of {}", method.pretty())),
                },
                _ => method,
            }
        }
    };
    arguments(call, method, &mut values, from);
    call.t.invoke(target, &values)
}

fn receiver(call: &Call<'_>, handle: Handle, method: &'static Method) -> Ref {
    let object = call.non_null(handle, "the object");
    if method.is_static() {
        call.wrong(format_args!("the method is static: {}", method.pretty()));
    }
    if !Class::of(object).is_assignable_to(method.class()) {
        call.wrong(format_args!(
            "an object of {} has no {}",
            call.name_of(object),
            method.pretty()
        ));
    }
    object
}

macro_rules! calls {
    ($($kind:literal, $type:ty, $virtual:ident, $nonvirtual:ident, $static:ident;)+) => {$(
        /// Calls the object's implementation of a method.
        pub extern "C" fn $virtual(
            env: *const Env, object: Handle, id: *const Method, values: *const JValue,
        ) -> $type {
            run(env, concat!("Call", $kind, "Method"), How::Virtual(object), id, values)
        }

        /// Calls exactly a method.
        pub extern "C" fn $nonvirtual(
            env: *const Env, object: Handle, _: Handle, id: *const Method, values: *const JValue,
        ) -> $type {
            let function = concat!("CallNonvirtual", $kind, "Method");
            run(env, function, How::Nonvirtual(object), id, values)
        }

        /// Calls a static method.
        pub extern "C" fn $static(
            env: *const Env, class: Handle, id: *const Method, values: *const JValue,
        ) -> $type {
            run(env, concat!("CallStatic", $kind, "Method"), How::Static(class), id, values)
        }
    )+};
}

calls! {
    "Object", Handle, object, nonvirtual_object, static_object;
    "Boolean", u8, boolean, nonvirtual_boolean, static_boolean;
    "Byte", i8, byte, nonvirtual_byte, static_byte;
    "Char", u16, char, nonvirtual_char, static_char;
    "Short", i16, short, nonvirtual_short, static_short;
    "Int", i32, int, nonvirtual_int, static_int;
    "Long", i64, long, nonvirtual_long, static_long;
    "Float", f32, float, nonvirtual_float, static_float;
    "Double", f64, double, nonvirtual_double, static_double;
    "Void", (), void, nonvirtual_void, static_void;
}

/// `AllocObject`: an instance whose constructor has not run.
pub extern "C" fn alloc_object(env: *const Env, class: Handle) -> Handle {
    call_for_object(env, "AllocObject", |call| new_instance(call, call.class(class)))
}

/// `NewObject`.
pub extern "C" fn new_object(
    env: *const Env,
    class: Handle,
    id: *const Method,
    values: *const JValue,
) -> Handle {
    call_for_object(env, "NewObject", |call| {
        let (class, constructor) = (call.class(class), call.method(id));
        if constructor.name != "<init>" || !std::ptr::eq(constructor.class(), class) {
            let names = (constructor.pretty(), class.java_name());
            call.wrong(format_args!("{} is no constructor of {}", names.0, names.1));
        }
        let object = new_instance(call, class)?;
        let mut args = Values::new();
        args.push(Value::Ref(object));
        arguments(call, constructor, &mut args, values);
        call.t.invoke(constructor, &args)?;
        Ok(object)
    })
}

fn new_instance(call: &Call<'_>, class: &'static Class) -> Result<Ref, Thrown> {
    let (t, flags) = (call.t, access::ABSTRACT | access::INTERFACE);
    if std::ptr::eq(class, t.vm.known().class) || class.is_array() || class.is_primitive() {
        call.wrong(format_args!("{} has no constructor", class.java_name()));
    }
    if class.access & flags != 0 {
        let message = format!("{} cannot be instantiated", class.java_name());
        return Err(natives::values::throw(t, "java/lang/InstantiationException", &message));
    }
    initialize::initialize(t, class)?;
    let object = exception::new_object(t, class)?;
    if class.finalizer.is_some() {
        finalizer::register(t, object)?;
    }
    Ok(object)
}
