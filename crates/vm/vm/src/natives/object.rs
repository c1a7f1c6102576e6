//! java.lang.Object

use super::values::VOID;
use crate::class::Class;
use crate::object::copy_words;
use crate::stack::Value;
use crate::vm::Native;
use crate::{exception, finalizer, monitor};

const OBJECT: &str = "Ljava/lang/Object;";

pub(super) const TABLE: &[Native] = &[
    (OBJECT, "getClass", "()Ljava/lang/Class;", |_, a| {
        Ok(Value::Ref(Class::of(a.reference(0)).mirror()))
    }),
    (OBJECT, "hashCode", "()I", |t, a| Ok(Value::Int(monitor::identity_hash(t, a.reference(0))))),
    (OBJECT, "notify", "()V", |t, a| {
        monitor::notify(t, a.reference(0), false)?;
        VOID
    }),
    (OBJECT, "notifyAll", "()V", |t, a| {
        monitor::notify(t, a.reference(0), true)?;
        VOID
    }),
    (OBJECT, "wait", "(JI)V", |t, a| {
        monitor::wait(t, a.reference(0), a.long(1), a.int(3))?;
        VOID
    }),
    (OBJECT, "internalClone", "(Ljava/lang/Cloneable;)Ljava/lang/Object;", |t, a| {
        let original = a.reference(1);
        let class = Class::of(original);
        let copy = if class.is_array() {
            exception::new_array(t, class, original.length())?
        } else {
            exception::new_object(t, class)?
        };
        copy_words(original, copy);
        if class.finalizer.is_some() {
            finalizer::register(t, copy)?;
        }
        Ok(Value::Ref(copy))
    }),
];
