//! What is about whole objects: monitors, and buffers over memory of C.

use crate::env::{Env, begin, begin_anyway, call, call_for_object};
use crate::handle::Handle;
use baton_vm::class::{Class, Field};
use baton_vm::globals::Global;
use baton_vm::monitor;
use baton_vm::natives::values;
use baton_vm::object::Ref;
use baton_vm::stack::Value;
use baton_vm::vm::Thread;
use std::ffi::c_void;
use std::ptr;

/// `MonitorEnter`.
pub extern "C" fn monitor_enter(env: *const Env, object: Handle) -> i32 {
    let call = begin(env, "MonitorEnter");
    let object = call.non_null(object, "the object");
    call.t.scope(|| {
        monitor::enter(call.t, call.t.keep(object));
        call.env.monitors.borrow_mut().push(Global::new(&call.t.vm.globals, object));
    });
    0
}

/// `MonitorExit`: an IllegalMonitorStateException if the thread is not the monitor's owner.
pub extern "C" fn monitor_exit(env: *const Env, object: Handle) -> i32 {
    let call = begin_anyway(env, "MonitorExit");
    let object = call.non_null(object, "the object");
    let left = call.t.scope(|| monitor::exit(call.t, object));
    if left.is_err() {
        return -1;
    }
    let mut entered = call.env.monitors.borrow_mut();
    if let Some(last) = entered.iter().rposition(|global| global.get() == object) {
        entered.remove(last);
    }
    0
}

/// Leaves all monitors that C has entered on this thread, which ends.
pub fn leave_monitors(t: &Thread, env: &Env) {
    for global in env.monitors.take() {
        // Java may have left it by a bytecode that has no entry.
        if monitor::exit(t, t.keep(global.get())).is_err() {
            t.take_exception();
        }
    }
}

/// `NewDirectByteBuffer`.
pub extern "C" fn new_direct_byte_buffer(
    env: *const Env,
    address: *mut c_void,
    capacity: i64,
) -> Handle {
    call_for_object(env, "NewDirectByteBuffer", |call| {
        let Ok(capacity) = i32::try_from(capacity) else {
            let message = format!("a capacity of {capacity}");
            return Err(values::throw(call.t, "java/lang/IllegalArgumentException", &message));
        };
        let args = [Value::Long(address.expose_provenance() as i64), Value::Int(capacity)];
        values::construct(call.t, "java/nio/DirectByteBuffer", "(JI)V", &args)
    })
}

/// A field of a buffer; `None` if the object is no buffer.
fn of_buffer(object: Ref, name: &str, descriptor: &str) -> Option<&'static Field> {
    let mut class = Some(Class::of(object));
    while let Some(of) = class {
        if of.descriptor == "Ljava/nio/Buffer;" {
            return of.declared_field(name, descriptor);
        }
        class = of.superclass;
    }
    None
}

/// Where a direct buffer's memory is; 0 for other objects.
fn address(buffer: Ref) -> i64 {
    let field = of_buffer(buffer, "effectiveDirectAddress", "J");
    field.map_or(0, |field| field.get64(buffer) as i64)
}

/// `GetDirectBufferAddress`: `NULL` if the object is no direct buffer.
pub extern "C" fn get_direct_buffer_address(env: *const Env, buffer: Handle) -> *mut c_void {
    call(env, "GetDirectBufferAddress", ptr::null_mut(), |call| {
        let buffer = call.non_null(buffer, "the buffer");
        Ok(ptr::with_exposed_provenance_mut(address(buffer) as usize))
    })
}

/// `GetDirectBufferCapacity`: -1 if the object is no direct buffer.
pub extern "C" fn get_direct_buffer_capacity(env: *const Env, buffer: Handle) -> i64 {
    call(env, "GetDirectBufferCapacity", -1, |call| {
        let buffer = call.non_null(buffer, "the buffer");
        let capacity = of_buffer(buffer, "capacity", "I").filter(|_| address(buffer) != 0);
        Ok(capacity.map_or(-1, |field| i64::from(field.get32(buffer) as i32)))
    })
}
