//! Local, global and weak global references.

use crate::env::{Env, begin, begin_anyway, call, call_for_object};
use crate::handle::{Handle, Kind};
use baton_vm::exception;
use baton_vm::natives::values;
use baton_vm::object::Ref;
use baton_vm::stack::Value;

const OK: i32 = 0;
const ERROR: i32 = -1;

/// `NewLocalRef`.
pub extern "C" fn new_local_ref(env: *const Env, handle: Handle) -> Handle {
    let call = begin(env, "NewLocalRef");
    call.local(call.object(handle))
}

/// `DeleteLocalRef`.
pub extern "C" fn delete_local_ref(env: *const Env, handle: Handle) {
    if handle.is_null() {
        return;
    }
    let call = begin_anyway(env, "DeleteLocalRef");
    call.object(handle);
    match handle.parts() {
        Some((Kind::Local, slot, _)) => call.env.locals.remove(&call.t.state.stack, slot),
        _ => call.wrong("a global reference is no local one"),
    }
}

/// `PushLocalFrame`.
pub extern "C" fn push_local_frame(env: *const Env, capacity: i32) -> i32 {
    let call = begin_anyway(env, "PushLocalFrame");
    let result = ensure(&call, capacity);
    if result == OK {
        call.env.locals.push(&call.t.state.stack);
    }
    result
}

/// `PopLocalFrame`.
pub extern "C" fn pop_local_frame(env: *const Env, result: Handle) -> Handle {
    let call = begin_anyway(env, "PopLocalFrame");
    let result = call.object(result);
    if !call.env.locals.pop(&call.t.state.stack) {
        call.wrong("there is no frame that PushLocalFrame has begun");
    }
    call.local(result)
}

/// `EnsureLocalCapacity`.
pub extern "C" fn ensure_local_capacity(env: *const Env, capacity: i32) -> i32 {
    ensure(&begin(env, "EnsureLocalCapacity"), capacity)
}

fn ensure(call: &crate::env::Call<'_>, capacity: i32) -> i32 {
    let Ok(capacity) = usize::try_from(capacity) else {
        call.wrong(format_args!("a capacity of {capacity}"));
    };
    if capacity <= call.t.state.stack.room() {
        return OK;
    }
    let message = format!("no room for {capacity} local references");
    if call.t.exception().is_null() {
        let _ = exception::throw(call.t, "Ljava/lang/OutOfMemoryError;", &message);
    }
    ERROR
}

/// `NewGlobalRef`.
pub extern "C" fn new_global_ref(env: *const Env, handle: Handle) -> Handle {
    let call = begin(env, "NewGlobalRef");
    global(&call, Kind::Global, call.object(handle))
}

fn global(call: &crate::env::Call<'_>, kind: Kind, object: Ref) -> Handle {
    if object.is_null() {
        return Handle::NULL;
    }
    Handle::new(kind, call.t.vm.globals.add(object) as usize, object.address())
}

/// `DeleteGlobalRef`.
pub extern "C" fn delete_global_ref(env: *const Env, handle: Handle) {
    delete(env, "DeleteGlobalRef", Kind::Global, handle);
}

/// `DeleteWeakGlobalRef`.
pub extern "C" fn delete_weak_global_ref(env: *const Env, handle: Handle) {
    delete(env, "DeleteWeakGlobalRef", Kind::Weak, handle);
}

fn delete(env: *const Env, function: &'static str, wanted: Kind, handle: Handle) {
    if handle.is_null() {
        return;
    }
    let call = begin_anyway(env, function);
    call.object(handle);
    match handle.parts() {
        Some((kind, slot, _)) if kind == wanted => call.t.vm.globals.remove(slot as u32),
        parts => {
            let kind = parts.map(|(kind, ..)| kind);
            call.wrong(format_args!("a reference of kind {kind:?} in place of {wanted:?}"));
        }
    }
}

/// `NewWeakGlobalRef`: a global reference to a java.lang.ref.WeakReference.
pub extern "C" fn new_weak_global_ref(env: *const Env, handle: Handle) -> Handle {
    call(env, "NewWeakGlobalRef", Handle::NULL, |call| {
        let object = call.object(handle);
        if object.is_null() {
            return Ok(Handle::NULL);
        }
        let args = [Value::Ref(call.t.keep(object))];
        let class = "java/lang/ref/WeakReference";
        let weak = values::construct(call.t, class, "(Ljava/lang/Object;)V", &args)?;
        Ok(global(call, Kind::Weak, weak))
    })
}

/// `IsSameObject`.
pub extern "C" fn is_same_object(env: *const Env, one: Handle, other: Handle) -> u8 {
    call(env, "IsSameObject", 0, |call| Ok((call.object(one) == call.object(other)).into()))
}

/// `GetObjectRefType`: 0 for what is no reference.
pub extern "C" fn get_object_ref_type(env: *const Env, handle: Handle) -> i32 {
    call(env, "GetObjectRefType", 0, |call| Ok(call.kind(handle).map_or(0, |kind| kind as i32)))
}

/// `GetObjectClass`.
pub extern "C" fn get_object_class(env: *const Env, handle: Handle) -> Handle {
    call_for_object(env, "GetObjectClass", |call| {
        let object = call.non_null(handle, "the object");
        Ok(baton_vm::class::Class::of(object).mirror())
    })
}
