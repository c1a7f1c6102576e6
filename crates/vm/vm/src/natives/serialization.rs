//! java.io.ObjectStreamClass and ObjectOutputStream: what serialization asks the VM

use super::members;
use super::values::{NULL, Outcome, boolean, field, non_null, rust, text, throw};
use crate::class::Class;
use crate::object::Ref;
use crate::stack::{Args, Value};
use crate::vm::{Native, Thread};
use crate::{exception, initialize};

const STREAM_CLASS: &str = "Ljava/io/ObjectStreamClass;";

pub(super) const TABLE: &[Native] = &[
    (STREAM_CLASS, "getConstructorId", "(Ljava/lang/Class;)J", |t, a| {
        let class = Class::mirrored_by(non_null(t, a.reference(0), "c")?);
        match class.declared_method("<init>", "()V") {
            Some(constructor) => Ok(Value::Long(members::number_of(constructor))),
            None => Err(throw(t, "java/io/InvalidClassException", &class.java_name())),
        }
    }),
    // An instance of a class on which only a superclass's constructor has run.
    (STREAM_CLASS, "newInstance", "(Ljava/lang/Class;J)Ljava/lang/Object;", |t, a| {
        let class = Class::mirrored_by(non_null(t, a.reference(0), "c")?);
        let constructor = members::numbered_method(t, a.long(1))?;
        members::check_instantiable(t, class)?;
        if !class.is_subclass_of(constructor.class()) {
            return Err(throw(t, "java/lang/IllegalArgumentException", &class.java_name()));
        }
        initialize::initialize(t, class)?;
        let object = exception::new_object(t, class)?;
        if class.finalizer.is_some() {
            crate::finalizer::register(t, object)?;
        }
        t.invoke(constructor, &[Value::Ref(object)])?;
        Ok(Value::Ref(object))
    }),
    (
        STREAM_CLASS,
        "getConstructorSignature",
        "(Ljava/lang/reflect/Constructor;)Ljava/lang/String;",
        method_signature,
    ),
    (
        STREAM_CLASS,
        "getMethodSignature",
        "(Ljava/lang/reflect/Method;)Ljava/lang/String;",
        method_signature,
    ),
    (STREAM_CLASS, "getFieldSignature", "(Ljava/lang/reflect/Field;)Ljava/lang/String;", |t, a| {
        let field = members::field_of(t, non_null(t, a.reference(0), "f")?)?;
        Ok(Value::Ref(text(t, field.descriptor)?))
    }),
    (STREAM_CLASS, "hasClinit", "(Ljava/lang/Class;)Z", |t, a| {
        let class = Class::mirrored_by(non_null(t, a.reference(0), "cl")?);
        boolean(class.declared_method("<clinit>", "()V").is_some())
    }),
    (
        "Ljava/io/ObjectOutputStream;",
        "getFieldL",
        concat!(
            "(Ljava/lang/Object;Ljava/lang/Class;Ljava/lang/String;Ljava/lang/String;)",
            "Ljava/lang/Object;"
        ),
        |t, a| {
            let object: Ref = non_null(t, a.reference(0), "instance")?;
            let class = Class::mirrored_by(non_null(t, a.reference(1), "declaringClass")?);
            let (name, descriptor) = (rust(t, a.reference(2))?, rust(t, a.reference(3))?);
            match class.declared_field(&name, &descriptor).filter(|field| !field.is_static()) {
                Some(field) => Ok(Value::Ref(field.get_ref(object))),
                None => NULL,
            }
        },
    ),
];

fn method_signature(t: &Thread, a: Args) -> Outcome {
    let object = non_null(t, a.reference(0), "method")?;
    let number = field(object, "method", "J").get64(object) as i64;
    Ok(Value::Ref(text(t, members::numbered_method(t, number)?.signature)?))
}
