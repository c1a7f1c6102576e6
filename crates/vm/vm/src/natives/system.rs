//! java.lang.System and java.lang.Runtime; baton.rt.Heap: how the heap's memory is used

use super::values::{VOID, non_null, null_pointer, rust, strings, text, throw};
use crate::class::Class;
use crate::descriptor::java_name;
use crate::heap::Statistics;
use crate::object::{Kind, copy_elements};
use crate::stack::{Args, Value};
use crate::vm::{Native, Thread, Thrown};
use crate::{collector, finalizer, monitor};
use std::time::SystemTime;

const SYSTEM: &str = "Ljava/lang/System;";
const RUNTIME: &str = "Ljava/lang/Runtime;";
const HEAP: &str = "Lbaton/rt/Heap;";
const VM_RUNTIME: &str = "Ldalvik/system/VMRuntime;";

pub(super) const TABLE: &[Native] = &[
    (SYSTEM, "currentTimeMillis", "()J", |_, _| {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Ok(Value::Long(since.as_millis() as i64))
    }),
    (SYSTEM, "nanoTime", "()J", |_, _| {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Ok(Value::Long(now.tv_sec * 1_000_000_000 + now.tv_nsec))
    }),
    (SYSTEM, "identityHashCode", "(Ljava/lang/Object;)I", |t, a| {
        let object = a.reference(0);
        Ok(Value::Int(if object.is_null() { 0 } else { monitor::identity_hash(t, object) }))
    }),
    (SYSTEM, "arraycopy", "(Ljava/lang/Object;ILjava/lang/Object;II)V", array_copy),
    (SYSTEM, "mapLibraryName0", "(Ljava/lang/String;)Ljava/lang/String;", |t, a| {
        let name = rust(t, a.reference(0))?;
        Ok(Value::Ref(text(t, &format!("lib{name}.so"))?))
    }),
    // What the platform adds to the properties.
    (SYSTEM, "specialProperties", "()[Ljava/lang/String;", |t, _| {
        let directory = std::env::current_dir().unwrap_or_default();
        let properties = [format!("user.dir={}", directory.display())];
        Ok(Value::Ref(strings(t, &properties)?))
    }),
    (SYSTEM, "robovmSpecialProperties", "()[Ljava/lang/String;", |t, _| {
        let properties = [
            "java.vm.name=Dalvik",
            "java.vm.version=2.1.0",
            "java.vm.vendor=The Baton Authors",
            "java.vm.vendor.url=",
            "java.vendor=The Baton Authors",
            "java.vendor.url=",
            "java.runtime.name=Android Runtime",
            "java.specification.name=Dalvik Core Library",
            "java.vm.specification.name=Dalvik Virtual Machine Specification",
        ];
        Ok(Value::Ref(strings(t, &properties)?))
    }),
    // The command line's properties; they win.
    (VM_RUNTIME, "properties", "()[Ljava/lang/String;", |t, _| {
        let given = t.vm.program().properties.iter().map(|(key, value)| format!("{key}={value}"));
        Ok(Value::Ref(strings(t, &given.collect::<Vec<_>>())?))
    }),
    (VM_RUNTIME, "getTargetHeapUtilization", "()F", |_, _| Ok(Value::Float(0.5))),
    (
        SYSTEM,
        "setFieldImpl",
        "(Ljava/lang/String;Ljava/lang/String;Ljava/lang/Object;)V",
        |t, a| {
            let (name, descriptor) = (rust(t, a.reference(0))?, rust(t, a.reference(1))?);
            let system = super::values::class(t, "java/lang/System")?;
            let field = system.declared_field(&name, &descriptor).expect("a field of System");
            field.set_ref(field.holder(), a.reference(2));
            VOID
        },
    ),
    (SYSTEM, "log", "(CLjava/lang/String;Ljava/lang/Throwable;)V", |t, a| {
        let message =
            if a.reference(1).is_null() { "null".into() } else { rust(t, a.reference(1))? };
        eprintln!("{}: {message}", char::from_u32(a.int(0) as u32).unwrap_or('?'));
        if !a.reference(2).is_null() {
            super::values::call_on(t, a.reference(2), "printStackTrace", "()V", &[])?;
        }
        VOID
    }),
    (RUNTIME, "gc", "()V", |t, _| {
        collector::collect(t);
        VOID
    }),
    (RUNTIME, "freeMemory", "()J", |t, _| {
        let heap = t.vm.heap.statistics();
        Ok(Value::Long((heap.max - heap.live()) as i64))
    }),
    (RUNTIME, "totalMemory", "()J", |t, _| Ok(Value::Long(t.vm.heap.max_bytes() as i64))),
    (RUNTIME, "maxMemory", "()J", |t, _| Ok(Value::Long(t.vm.options.heap_bytes as i64))),
    (RUNTIME, "nativeExit", "(I)V", |t, a| {
        collector::finish(t.vm);
        std::process::exit(a.int(0))
    }),
    (RUNTIME, "runFinalization", "()V", |t, _| {
        finalizer::await_all(t)?;
        VOID
    }),
    (RUNTIME, "nativeLoad", "(Ljava/lang/String;Ljava/lang/ClassLoader;)V", |t, a| {
        let message = format!("{}: no JNI libraries can be loaded", rust(t, a.reference(0))?);
        Err(throw(t, "java/lang/UnsatisfiedLinkError", &message))
    }),
    (HEAP, "usedBytes", "()J", |t, _| bytes(t, |of| of.used)),
    (HEAP, "liveBytes", "()J", |t, _| bytes(t, |of| of.live())),
    (HEAP, "longestFreeBytes", "()J", |t, _| bytes(t, |of| of.longest_free)),
];

fn bytes(t: &Thread, what: impl FnOnce(Statistics) -> usize) -> Result<Value, Thrown> {
    Ok(Value::Long(what(t.vm.heap.statistics()) as i64))
}

/// The name of a class as messages about arrays have it.
fn pretty(class: &Class) -> String {
    match class.component {
        Some(component) => format!("{}[]", pretty(component)),
        None => java_name(class.descriptor),
    }
}

fn array_copy(t: &Thread, a: Args) -> Result<Value, Thrown> {
    let (from, to) = (a.reference(0), a.reference(2));
    let (from_index, to_index, count) = (a.int(1), a.int(3), a.int(4));
    if from.is_null() {
        return Err(null_pointer(t, "src"));
    }
    non_null(t, to, "dst")?;
    let store_error = |message: String| throw(t, "java/lang/ArrayStoreException", &message);
    let (source, target) = (Class::of(from), Class::of(to));
    let Some(source_of) = source.component else {
        return Err(store_error(format!("source of type {} is not an array", pretty(source))));
    };
    let Some(target_of) = target.component else {
        return Err(store_error(format!("destination of type {} is not an array", pretty(target))));
    };
    let kinds_differ = source_of.kind != target_of.kind;
    if kinds_differ {
        let (source, target) = (pretty(source), pretty(target));
        return Err(store_error(format!("Incompatible types: src={source}, dst={target}")));
    }
    let (source_length, target_length) = (from.length() as i32, to.length() as i32);
    let fits = |length: i32, index: i32| index >= 0 && index <= length - count;
    if count < 0 || !fits(source_length, from_index) || !fits(target_length, to_index) {
        let message = format!(
            "src.length={source_length} srcPos={from_index} dst.length={target_length} \
             dstPos={to_index} length={count}"
        );
        return Err(throw(t, "java/lang/ArrayIndexOutOfBoundsException", &message));
    }
    let (first, second, count) = (from_index as u32, to_index as u32, count as u32);
    if source_of.kind != Kind::Reference || source_of.is_assignable_to(target_of) {
        copy_elements(from, first, to, second, count);
        return VOID;
    }
    // Elements before the first one of a wrong type are copied. The arrays differ, as their
    // classes do.
    for nth in 0..count {
        let element = from.get_ref(first + nth);
        if !element.is_null() && !Class::of(element).is_assignable_to(target_of) {
            return Err(store_error(format!(
                "source[{}] of type {} cannot be stored in destination array of type {}",
                first + nth,
                pretty(Class::of(element)),
                pretty(target)
            )));
        }
        to.set_ref(second + nth, element);
    }
    VOID
}
