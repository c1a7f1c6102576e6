//! The initialization of classes, as section 12.4.2 of the Java language specification has it.

use crate::cards::note_root;
use crate::class::{Class, Definition, Field, Loader, Status};
use crate::exception::{self, OrThrow};
use crate::linker;
use crate::object::{Kind, Ref};
use crate::resolution;
use crate::stack::Value;
use crate::verifier;
use crate::vm::{Thread, Thrown};
use baton_dex::Value as Constant;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// Initializes a class, or waits until another thread has done so.
///
/// # Errors
/// The initializer has thrown, now or earlier.
#[inline]
pub fn initialize(t: &Thread, class: &'static Class) -> Result<(), Thrown> {
    if class.is_initialized() { Ok(()) } else { t.scope(|| initialize_slowly(t, class)) }
}

#[cold]
fn initialize_slowly(t: &Thread, class: &'static Class) -> Result<(), Thrown> {
    if !begin(t, class)? {
        return Ok(());
    }
    let result = run(t, class);
    if result.is_err() {
        note_root(t.exception().address());
        class.failure.store(t.exception().address(), Relaxed);
    }
    let status = if result.is_ok() { Status::Initialized } else { Status::Erroneous };
    {
        let _guard = t.lock(&t.vm.initializations);
        class.status.store(status as u8, Release);
    }
    t.vm.initialized.notify_all();
    result
}

/// Claims the initialization for this thread; false if it is done, or this thread's already.
fn begin(t: &Thread, class: &'static Class) -> Result<bool, Thrown> {
    let mut guard = t.lock(&t.vm.initializations);
    loop {
        match class.status() {
            Status::Initialized => return Ok(false),
            Status::Initializing if class.initializing_thread.load(Relaxed) == t.state.id => {
                return Ok(false);
            }
            Status::Initializing => {
                // A short wait: the status may change just before the lock is taken.
                let wait = std::time::Duration::from_millis(10);
                let waited = t.safe(|| t.vm.initialized.wait_timeout(guard, wait));
                guard = waited.expect("no holder panics").0;
            }
            Status::Erroneous => {
                drop(guard);
                return Err(earlier_failure(t, class));
            }
            Status::Linked => {
                class.initializing_thread.store(t.state.id, Relaxed);
                class.status.store(Status::Initializing as u8, Release);
                return Ok(true);
            }
        }
    }
}

/// Throws the error of a class whose initializer has failed before.
fn earlier_failure(t: &Thread, class: &'static Class) -> Thrown {
    let name = class.java_name();
    let made = exception::make(t, "Ljava/lang/NoClassDefFoundError;", Some(&name));
    let with_cause = made.and_then(|error| {
        let signature = "(Ljava/lang/Throwable;)Ljava/lang/Throwable;";
        let init = t.vm.known().throwable.declared_method("initCause", signature);
        let arguments = [Value::Ref(error), Value::Ref(class.failure())];
        t.invoke(init.expect("Throwable.initCause"), &arguments)?;
        Ok(t.throw_object(error))
    });
    with_cause.unwrap_or_else(|thrown| thrown)
}

fn run(t: &Thread, class: &'static Class) -> Result<(), Thrown> {
    linker::check_overrides(class).or_throw(t)?;
    // The class library is trusted.
    if class.loader != Loader::BOOT
        && let Err(message) = verifier::verify(t, class)
    {
        return Err(exception::throw(t, "Ljava/lang/VerifyError;", &message));
    }
    if !class.is_interface() {
        if let Some(superclass) = class.superclass {
            initialize(t, superclass)?;
        }
        for interface in interfaces(class) {
            if interface.virtual_methods().any(|method| !method.is_abstract()) {
                initialize(t, interface)?;
            }
        }
    }
    if let Some(definition) = class.definition {
        store_constants(t, class, definition)?;
    }
    let Some(initializer) = class.declared_method("<clinit>", "()V") else { return Ok(()) };
    let Err(thrown) = t.invoke(initializer, &[]) else { return Ok(()) };
    let error = exception::library_class(t, "Ljava/lang/Error;");
    if error.is_ok_and(|error| Class::of(t.exception()).is_subclass_of(error)) {
        return Err(thrown);
    }
    let cause = t.take_exception();
    let wrapper = "Ljava/lang/ExceptionInInitializerError;";
    let wrapper = exception::new_object(t, exception::library_class(t, wrapper)?)?;
    let constructor = Class::of(wrapper)
        .declared_method("<init>", "(Ljava/lang/Throwable;)V")
        .expect("a constructor with a cause");
    t.invoke(constructor, &[Value::Ref(wrapper), Value::Ref(cause)])?;
    Err(t.throw_object(wrapper))
}

/// The interfaces of a class, without those of its superclasses: each after its own superinterfaces
/// (JLS 12.4.2, step 7).
fn interfaces(class: &'static Class) -> Vec<&'static Class> {
    fn add(above: &'static Class, all: &mut Vec<&'static Class>) {
        for interface in above.interfaces.iter().copied() {
            if !all.iter().any(|it| std::ptr::eq(*it, interface)) {
                add(interface, all);
                all.push(interface);
            }
        }
    }
    let mut all = Vec::new();
    add(class, &mut all);
    all
}

/// Stores the values that the dex file has for static fields.
fn store_constants(
    t: &Thread,
    class: &'static Class,
    definition: Definition,
) -> Result<(), Thrown> {
    let Some(values) = definition.class.static_values() else { return Ok(()) };
    for (field, value) in class.fields.iter().zip(values.iter()) {
        store_constant(t, field, definition, value)?;
    }
    Ok(())
}

fn store_constant(
    t: &Thread,
    field: &'static Field,
    definition: Definition,
    value: Constant<'static>,
) -> Result<(), Thrown> {
    let holder = field.holder();
    let dex = definition.dex;
    match (field.kind, value) {
        (Kind::Boolean, Constant::Boolean(value)) => field.set32(holder, value.into()),
        (Kind::Byte, Constant::Byte(value)) => field.set32(holder, value as u32),
        (Kind::Short, Constant::Short(value)) => field.set32(holder, value as u32),
        (Kind::Char, Constant::Char(value)) => field.set32(holder, value.into()),
        (Kind::Int, Constant::Int(value)) => field.set32(holder, value as u32),
        (Kind::Float, Constant::Float(value)) => field.set32(holder, value.to_bits()),
        (Kind::Long, Constant::Long(value)) => field.set64(holder, value as u64),
        (Kind::Double, Constant::Double(value)) => field.set64(holder, value.to_bits()),
        (Kind::Reference, Constant::Null) => field.set_ref(holder, Ref::NULL),
        (Kind::Reference, Constant::String(id)) => {
            field.set_ref(holder, resolution::resolve_string(t, dex, id).or_throw(t)?);
        }
        (Kind::Reference, Constant::Type(id)) => {
            field.set_ref(holder, linker::resolve_type(t, dex, id).or_throw(t)?.mirror());
        }
        _ => {
            let message = format!("the constant of {}.{}", field.class().java_name(), field.name);
            return Err(exception::throw(t, "Ljava/lang/ClassFormatError;", &message));
        }
    }
    Ok(())
}
