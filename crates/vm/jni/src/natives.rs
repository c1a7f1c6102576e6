//! Functions that C gives to native methods.

use crate::env::{Env, call};
use crate::handle::Handle;
use crate::libraries;
use baton_vm::class::{Class, Method};
use baton_vm::natives::values;
use std::ffi::{c_char, c_void};

const ERROR: i32 = -1;

/// A `JNINativeMethod`.
#[repr(C)]
pub struct NativeMethod {
    name: *const c_char,
    signature: *const c_char,
    function: *const c_void,
}

/// `RegisterNatives`.
pub extern "C" fn register(
    env: *const Env,
    class: Handle,
    methods: *const NativeMethod,
    count: i32,
) -> i32 {
    call(env, "RegisterNatives", ERROR, |call| {
        let (t, class) = (call.t, call.class(class));
        for index in 0..usize::try_from(count).unwrap_or(0) {
            if methods.is_null() {
                call.wrong("the methods are NULL");
            }
            // SAFETY: C gives this many methods.
            let NativeMethod { name, signature, function } = unsafe { methods.add(index).read() };
            let name = call.text(name, "a name");
            let signature = call.text(signature, "a signature");
            // Android's mark of functions that are called without a change of state.
            let signature = signature.trim_start_matches('!');
            let Some(method) = native_method(class, &name, signature) else {
                let message = format!("no native method {}.{name}{signature}", class.java_name());
                return Err(values::throw(t, "java/lang/NoSuchMethodError", &message));
            };
            if function.is_null() {
                call.wrong(format_args!("the function of {} is NULL", method.pretty()));
            }
            method.bind(libraries::foreign(t, method, function.expose_provenance()));
        }
        Ok(0)
    })
}

/// A class's method, which may be inherited, if it is native.
fn native_method(class: &'static Class, name: &str, signature: &str) -> Option<&'static Method> {
    match class.declared_method(name, signature) {
        Some(method) => Some(method).filter(|method| method.is_native()),
        None => native_method(class.superclass?, name, signature),
    }
}

/// `UnregisterNatives`: the class's methods are looked for in libraries anew.
pub extern "C" fn unregister(env: *const Env, class: Handle) -> i32 {
    call(env, "UnregisterNatives", ERROR, |call| {
        call.class(class).methods.iter().for_each(|method| method.unbind());
        Ok(0)
    })
}
