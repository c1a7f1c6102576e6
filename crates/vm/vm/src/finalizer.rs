//! Finalizers: which objects have one, and a wait for those that are due.

use crate::class::{Class, Loader};
use crate::exception::OrThrow;
use crate::object::Ref;
use crate::stack::Value;
use crate::vm::{Thread, Thrown};
use crate::{initialize, linker};
use std::time::Duration;

/// Makes an object's finalizer run once nothing else reaches it. The caller keeps the object.
///
/// # Errors
/// The heap is full.
pub fn register(t: &Thread, object: Ref) -> Result<(), Thrown> {
    let class = linker::find(t, Loader::BOOT, "Ljava/lang/ref/FinalizerReference;").or_throw(t)?;
    initialize::initialize(t, class)?;
    let add = class.declared_method("add", "(Ljava/lang/Object;)V");
    t.invoke(add.expect("a method of FinalizerReference"), &[Value::Ref(object)])?;
    Ok(())
}

/// Waits until every finalizer has run that earlier collections found due.
///
/// # Errors
/// An exception is under way.
pub fn await_all(t: &Thread) -> Result<(), Thrown> {
    let static_field = |class: &str, name: &str, descriptor: &str| -> Result<Ref, Thrown> {
        let class = linker::find(t, Loader::BOOT, class).or_throw(t)?;
        initialize::initialize(t, class)?;
        let field = class.declared_field(name, descriptor).expect("a field of the library");
        Ok(field.get_ref(field.holder()))
    };
    let queue = static_field(
        "Ljava/lang/ref/FinalizerReference;",
        "queue",
        "Ljava/lang/ref/ReferenceQueue;",
    )?;
    let daemon_class = "Ljava/lang/Daemons$FinalizerDaemon;";
    let daemon = static_field(daemon_class, "INSTANCE", daemon_class)?;
    let is_null = |object: Ref, name: &str, descriptor: &str| {
        let field = Class::of(object).library_field(name, descriptor);
        field.expect("a field of the library").get_ref(object).is_null()
    };
    // The daemons are Java code that tells nobody when it is done.
    let mut idle = 0;
    while idle < 3 {
        let is_idle = t.vm.pending.is_empty()
            && is_null(queue, "head", "Ljava/lang/ref/Reference;")
            && is_null(daemon, "finalizingObject", "Ljava/lang/Object;");
        idle = if is_idle { idle + 1 } else { 0 };
        t.safe(|| std::thread::sleep(Duration::from_millis(1)));
    }
    Ok(())
}
