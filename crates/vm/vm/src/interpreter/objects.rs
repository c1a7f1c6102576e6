//! Instances, their types and their monitors.

use super::context::{Context, Flow, Place};
use crate::allocation;
use crate::class::{Class, access};
use crate::exception::OrThrow;
use crate::finalizer;
use crate::initialize;
use crate::linker;
use crate::monitor;
use crate::vm::Thrown;
use baton_dex::TypeId;

#[inline(always)]
fn class(c: Context<'_>) -> Result<&'static Class, Flow> {
    match c.dex().types[c.pc.bbbb()].get() {
        Some(class) => Ok(class),
        None => Err(Flow::Find(resolve)),
    }
}

#[cold]
fn resolve(p: Place<'_>) -> Result<(), Thrown> {
    p.save();
    let id = TypeId(p.pc.bbbb() as u32);
    p.t.scope(|| linker::resolve_type(p.t, p.code().dex, id).or_throw(p.t))?;
    Ok(())
}

#[inline(always)]
pub(super) fn new_instance(c: Context<'_>) -> Flow {
    let class = match class(c) {
        Ok(class) => class,
        Err(end) => return end,
    };
    c.save();
    if class.access & (access::ABSTRACT | access::INTERFACE) != 0 || class.is_primitive() {
        return c.throw("Ljava/lang/InstantiationError;", &class.java_name()).into();
    }
    if !class.is_initialized()
        && let Err(Thrown) = initialize::initialize(c.t, class)
    {
        return Flow::Throw;
    }
    // An instance of java.lang.Class would be the mirror of nothing.
    if std::ptr::eq(class, c.t.vm.known().class) {
        return c
            .throw("Ljava/lang/IllegalAccessError;", "java.lang.Class is not accessible")
            .into();
    }
    match allocation::instance(c.t, class).or_throw(c.t) {
        Ok(object) => {
            // The register has its old value until nothing can be thrown any more.
            if class.finalizer.is_some()
                && let Err(Thrown) = c.t.scope(|| finalizer::register(c.t, c.t.keep(object)))
            {
                return Flow::Throw;
            }
            c.r.set_reference(c.pc.aa(), object);
            c.next(2)
        }
        Err(Thrown) => Flow::Throw,
    }
}

#[inline(always)]
pub(super) fn check_cast(c: Context<'_>) -> Flow {
    let object = c.r.reference(c.pc.aa());
    if object.is_null() {
        // The class is looked for all the same, as a missing one is an error.
        return match class(c) {
            Ok(_) => c.next(2),
            Err(end) => end,
        };
    }
    match class(c) {
        Ok(class) if Class::of(object).is_assignable_to(class) => c.next(2),
        Ok(class) => {
            let names = (Class::of(object).pretty_name(), class.pretty_name());
            let message = format!("{} cannot be cast to {}", names.0, names.1);
            c.throw("Ljava/lang/ClassCastException;", &message).into()
        }
        Err(end) => end,
    }
}

#[inline(always)]
pub(super) fn instance_of(c: Context<'_>) -> Flow {
    let object = c.r.reference(c.pc.b());
    match class(c) {
        Ok(class) => {
            let is_one = !object.is_null() && Class::of(object).is_assignable_to(class);
            c.r.set_int(c.pc.a(), is_one.into());
            c.next(2)
        }
        Err(end) => end,
    }
}

pub(super) fn monitor_enter(c: Context<'_>) -> Flow {
    let object = c.r.reference(c.pc.aa());
    if object.is_null() {
        return c.null("Attempt to do a synchronize operation on a null object").into();
    }
    c.save();
    monitor::enter(c.t, object);
    c.next(1)
}

pub(super) fn monitor_exit(c: Context<'_>) -> Flow {
    let object = c.r.reference(c.pc.aa());
    if object.is_null() {
        return c.null("Attempt to do a synchronize operation on a null object").into();
    }
    c.save();
    match monitor::exit(c.t, object) {
        Ok(()) => c.next(1),
        Err(Thrown) => Flow::Throw,
    }
}
