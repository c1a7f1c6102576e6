//! java.lang.reflect: Field, Method, Constructor and Array

use super::annotations;
use super::boxes::unboxed;
use super::members::{
    check_instantiable, mirrors, numbered_field, numbered_method, parameter_types,
};
use super::proxy;
use super::values::{self, NULL, Outcome, VOID, find, non_null, text, throw};
use crate::boxing::boxed;
use crate::class::{Class, Field, Method, access};
use crate::object::{Kind, Ref};
use crate::stack::{Args, Value};
use crate::vm::{Native, Thread, Thrown};
use crate::{exception, initialize};

const FIELD: &str = "Ljava/lang/reflect/Field;";
const METHOD: &str = "Ljava/lang/reflect/Method;";
const CONSTRUCTOR: &str = "Ljava/lang/reflect/Constructor;";
const ARRAY: &str = "Ljava/lang/reflect/Array;";

fn method(t: &Thread, a: Args) -> Result<&'static Method, Thrown> {
    numbered_method(t, a.long(0))
}

fn text_or_null(t: &Thread, of: Option<String>) -> Outcome {
    match of {
        Some(of) => Ok(Value::Ref(text(t, &of)?)),
        None => NULL,
    }
}

/// The object and the field of a getter or setter: (Object, long field, ...).
fn place(t: &Thread, a: Args) -> Result<(&'static Field, Ref), Thrown> {
    let field = numbered_field(t, a.long(1))?;
    if field.is_static() {
        initialize::initialize(t, field.class())?;
        return Ok((field, field.holder()));
    }
    let object = non_null(t, a.reference(0), "object")?;
    if !Class::of(object).is_subclass_of(field.class()) {
        return Err(throw(t, "java/lang/IllegalArgumentException", "not an object of the class"));
    }
    Ok((field, object))
}

fn get(t: &Thread, a: Args) -> Outcome {
    let (field, object) = place(t, a)?;
    Ok(crate::boxing::field_value(field, object))
}

fn set(t: &Thread, a: Args, value: Value) -> Outcome {
    let (field, object) = place(t, a)?;
    if field.is_static() && field.access & access::FINAL != 0 {
        let message = format!("the static field {} is final", field.name);
        return Err(throw(t, "java/lang/IllegalAccessException", &message));
    }
    if let (Kind::Reference, Value::Ref(value)) = (field.kind, value)
        && !value.is_null()
        && !Class::of(value).is_assignable_to(find(t, field.class().loader, field.descriptor)?)
    {
        return Err(throw(t, "java/lang/IllegalArgumentException", "a value of a wrong type"));
    }
    let kind_fits = match value {
        Value::Ref(_) => field.kind == Kind::Reference,
        Value::Long(_) => field.kind == Kind::Long,
        Value::Double(_) => field.kind == Kind::Double,
        Value::Float(_) => field.kind == Kind::Float,
        _ => !field.kind.is_wide() && !matches!(field.kind, Kind::Reference | Kind::Float),
    };
    if !kind_fits {
        return Err(throw(t, "java/lang/IllegalArgumentException", "a value of a wrong type"));
    }
    values::set(field, object, value);
    VOID
}

macro_rules! accessors {
    ($(($get:literal, $set:literal, $type:literal, $value:expr)),+) => {
        &[
            $((FIELD, $get, concat!("(Ljava/lang/Object;J)", $type), |t, a| get(t, a)),)+
            $((FIELD, $set, concat!("(Ljava/lang/Object;J", $type, ")V"), |t, a| {
                let value: fn(Args) -> Value = $value;
                set(t, a, value(a))
            }),)+
        ]
    };
}

pub(super) const ACCESSORS: &[Native] = accessors!(
    ("getZ", "setZ", "Z", |a| Value::Int(a.int(3))),
    ("getB", "setB", "B", |a| Value::Int(a.int(3))),
    ("getC", "setC", "C", |a| Value::Int(a.int(3))),
    ("getS", "setS", "S", |a| Value::Int(a.int(3))),
    ("getI", "setI", "I", |a| Value::Int(a.int(3))),
    ("getJ", "setJ", "J", |a| Value::Long(a.long(3))),
    ("getF", "setF", "F", |a| Value::Float(a.float(3))),
    ("getD", "setD", "D", |a| Value::Double(a.double(3))),
    ("getL", "setL", "Ljava/lang/Object;", |a| Value::Ref(a.reference(3)))
);

pub(super) const TABLE: &[Native] = &[
    (FIELD, "getModifiers", "(J)I", |t, a| {
        Ok(Value::Int((numbered_field(t, a.long(0))?.access & 0xffff) as i32))
    }),
    (FIELD, "getName", "(J)Ljava/lang/String;", |t, a| {
        text_or_null(t, Some(numbered_field(t, a.long(0))?.name.to_owned()))
    }),
    (FIELD, "getDeclaringClass", "(J)Ljava/lang/Class;", |t, a| {
        Ok(Value::Ref(numbered_field(t, a.long(0))?.class().mirror()))
    }),
    (FIELD, "getType", "(J)Ljava/lang/Class;", |t, a| {
        let field = numbered_field(t, a.long(0))?;
        Ok(Value::Ref(find(t, field.class().loader, field.descriptor)?.mirror()))
    }),
    (FIELD, "getSignatureAttribute", "(J)Ljava/lang/String;", |t, a| {
        let field = numbered_field(t, a.long(0))?;
        text_or_null(t, annotations::signature(field.class(), annotations::of_field(field)))
    }),
    (FIELD, "getDeclaredAnnotations", "(J)[Ljava/lang/annotation/Annotation;", |t, a| {
        let field = numbered_field(t, a.long(0))?;
        let set = annotations::of_field(field);
        Ok(Value::Ref(annotations::objects_of(t, field.class(), set)?))
    }),
    (METHOD, "getModifiers", "(J)I", |t, a| {
        let method = method(t, a)?;
        // Dex has a flag of its own for a synchronized method that is not native.
        let declared = method.access & access::DECLARED_SYNCHRONIZED != 0;
        let own = method.access & 0xffff | if declared { access::SYNCHRONIZED } else { 0 };
        Ok(Value::Int(own as i32))
    }),
    (METHOD, "getName", "(J)Ljava/lang/String;", |t, a| {
        text_or_null(t, Some(method(t, a)?.name.to_owned()))
    }),
    (METHOD, "getDeclaringClass", "(J)Ljava/lang/Class;", |t, a| {
        Ok(Value::Ref(method(t, a)?.class().mirror()))
    }),
    (METHOD, "getReturnType", "(J)Ljava/lang/Class;", |t, a| {
        let method = method(t, a)?;
        Ok(Value::Ref(find(t, method.class().loader, method.result_descriptor())?.mirror()))
    }),
    (METHOD, "getParameterTypes", "(J)[Ljava/lang/Class;", |t, a| {
        let types = parameter_types(t, method(t, a)?)?;
        Ok(Value::Ref(mirrors(t, &types)?))
    }),
    (METHOD, "getExceptionTypes", "(J)[Ljava/lang/Class;", |t, a| {
        let types = proxy::throws(t, method(t, a)?)?;
        Ok(Value::Ref(mirrors(t, &types)?))
    }),
    (METHOD, "getSignatureAttribute", "(J)Ljava/lang/String;", |t, a| {
        let method = method(t, a)?;
        text_or_null(t, annotations::signature(method.class(), annotations::of_method(method)))
    }),
    (METHOD, "getDeclaredAnnotations", "(J)[Ljava/lang/annotation/Annotation;", |t, a| {
        let method = method(t, a)?;
        let set = annotations::of_method(method);
        Ok(Value::Ref(annotations::objects_of(t, method.class(), set)?))
    }),
    (METHOD, "getParameterAnnotations", "(J)[[Ljava/lang/annotation/Annotation;", |t, a| {
        Ok(Value::Ref(annotations::of_parameters(t, method(t, a)?)?))
    }),
    (METHOD, "getDefaultValue", "(J)Ljava/lang/Object;", |t, a| {
        Ok(Value::Ref(annotations::default_of(t, method(t, a)?)?))
    }),
    (
        METHOD,
        "internalInvoke",
        "(J[Ljava/lang/Class;Ljava/lang/Object;[Ljava/lang/Object;)Ljava/lang/Object;",
        |t, a| {
            let method = method(t, a)?;
            let receiver = (!method.is_static()).then(|| a.reference(3));
            let result = invoke(t, method, receiver, a.reference(4))?;
            Ok(Value::Ref(boxed(t, method.result, result)?))
        },
    ),
    (
        CONSTRUCTOR,
        "internalNewInstance",
        "(J[Ljava/lang/Class;[Ljava/lang/Object;)Ljava/lang/Object;",
        |t, a| {
            let method = method(t, a)?;
            check_instantiable(t, method.class())?;
            initialize::initialize(t, method.class())?;
            let object = exception::new_object(t, method.class())?;
            if method.class().finalizer.is_some() {
                crate::finalizer::register(t, object)?;
            }
            invoke(t, method, Some(object), a.reference(3))?;
            Ok(Value::Ref(object))
        },
    ),
    (ARRAY, "createObjectArray", "(Ljava/lang/Class;I)Ljava/lang/Object;", |t, a| {
        let component = Class::mirrored_by(non_null(t, a.reference(0), "componentType")?);
        Ok(Value::Ref(new_array(t, component, &[a.int(1)])?))
    }),
    (ARRAY, "createMultiArray", "(Ljava/lang/Class;[I)Ljava/lang/Object;", |t, a| {
        let component = Class::mirrored_by(a.reference(0));
        let lengths = a.reference(1);
        let lengths: Vec<i32> = (0..lengths.length()).map(|i| lengths.get_i32(i)).collect();
        let mut innermost = component;
        for _ in 1..lengths.len() {
            innermost = values::array_class(t, innermost)?;
        }
        Ok(Value::Ref(new_array(t, innermost, &lengths)?))
    }),
];

/// An array of arrays: `component` is the type of the outermost array's elements.
fn new_array(t: &Thread, component: &'static Class, lengths: &[i32]) -> Result<Ref, Thrown> {
    if let Some(negative) = lengths.iter().find(|length| **length < 0) {
        let message = negative.to_string();
        return Err(throw(t, "java/lang/NegativeArraySizeException", &message));
    }
    let class = values::array_class(t, component)?;
    let array = exception::new_array(t, class, lengths[0] as u32)?;
    if let (Some(inner), [_, rest @ ..]) = (component.component, lengths)
        && !rest.is_empty()
    {
        for index in 0..array.length() {
            let element = t.scope(|| new_array(t, inner, rest))?;
            array.set_ref(index, element);
        }
    }
    Ok(array)
}

/// Invokes a method with boxed arguments. What it throws is wrapped.
fn invoke(
    t: &Thread,
    method: &'static Method,
    receiver: Option<Ref>,
    boxed: Ref,
) -> Result<Value, Thrown> {
    let types = parameter_types(t, method)?;
    let mut args = Vec::with_capacity(types.len() + 1);
    args.extend(receiver.map(Value::Ref));
    for (index, class) in (0..).zip(types) {
        args.push(unboxed(t, class, boxed.get_ref(index), index)?);
    }
    let result = match receiver {
        Some(_) if !method.is_direct() => t.invoke_virtual(method, &args),
        Some(_) => t.invoke(method, &args),
        None => {
            initialize::initialize(t, method.class())?;
            t.invoke(method, &args)
        }
    };
    result.or_else(|_| {
        let cause = t.take_exception();
        let signature = "(Ljava/lang/Throwable;)V";
        let class = "java/lang/reflect/InvocationTargetException";
        let wrapped = values::construct(t, class, signature, &[Value::Ref(cause)])?;
        Err(t.throw_object(wrapped))
    })
}
