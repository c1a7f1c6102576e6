//! java.lang.Throwable's memory of the stack

use super::values::{class, construct, objects};
use crate::class::Class;
use crate::exception::{self, OrThrow, TraceEntry};
use crate::object::Ref;
use crate::stack::Value;
use crate::vm::{Native, Thread, Thrown};

const THROWABLE: &str = "Ljava/lang/Throwable;";
const ELEMENTS: &str = "[Ljava/lang/StackTraceElement;";

pub(super) const TABLE: &[Native] = &[
    (THROWABLE, "fillInStackTrace", "()Ljava/lang/Throwable;", |t, a| {
        let this = a.reference(0);
        let elements = super::values::field(this, "stackTrace", ELEMENTS);
        // Null: the exception's maker wants no trace.
        if !elements.get_ref(this).is_null() {
            exception::fill_in(t, this).or_throw(t)?;
            elements.set_ref(this, no_elements(t)?);
        }
        Ok(Value::Ref(this))
    }),
    (THROWABLE, "getInternalStackTrace", "()[Ljava/lang/StackTraceElement;", |t, a| {
        let this = a.reference(0);
        let field = super::values::field(this, "stackTrace", ELEMENTS);
        let elements_now = field.get_ref(this);
        if elements_now.is_null() {
            return Ok(Value::Ref(no_elements(t)?));
        }
        if elements_now != no_elements(t)? {
            return Ok(Value::Ref(elements_now));
        }
        let made = elements(t, &exception::trace_of(t, this))?;
        field.set_ref(this, made);
        Ok(Value::Ref(made))
    }),
];

/// The array that stands for a trace that nobody has asked for.
fn no_elements(t: &Thread) -> Result<Ref, Thrown> {
    let empty = class(t, "libcore/util/EmptyArray")?;
    let field = empty.declared_field("STACK_TRACE_ELEMENT", ELEMENTS);
    Ok(field.map(|field| field.get_ref(field.holder())).expect("a field of EmptyArray"))
}

/// A `StackTraceElement[]`.
pub(super) fn elements(t: &Thread, trace: &[TraceEntry]) -> Result<Ref, Thrown> {
    let element = class(t, "java/lang/StackTraceElement")?;
    let array = objects(t, element, &vec![Ref::NULL; trace.len()])?;
    for (index, entry) in (0..).zip(trace) {
        let made = t.scope(|| {
            let class: &Class = entry.method.class();
            let file = match class.source_file() {
                Some(file) => super::values::text(t, &file)?,
                None => Ref::NULL,
            };
            let args = [
                Value::Ref(super::values::text(t, &class.java_name())?),
                Value::Ref(super::values::text(t, entry.method.name)?),
                Value::Ref(file),
                Value::Int(entry.line()),
            ];
            let signature = "(Ljava/lang/String;Ljava/lang/String;Ljava/lang/String;I)V";
            construct(t, "java/lang/StackTraceElement", signature, &args)
        })?;
        array.set_ref(index, made);
    }
    Ok(array)
}
