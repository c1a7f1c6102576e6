//! Exceptions: thrown by C, and pending after a call of Java.

use crate::env::{Env, begin_anyway, call};
use crate::handle::Handle;
use crate::report;
use baton_vm::class::Class;
use baton_vm::exception::OrThrow;
use baton_vm::natives::values;
use baton_vm::object::Ref;
use baton_vm::stack::Value;
use baton_vm::{exception, initialize, string};
use std::ffi::{CStr, c_char};

const ERROR: i32 = -1;

/// `Throw`.
pub extern "C" fn throw(env: *const Env, handle: Handle) -> i32 {
    call(env, "Throw", ERROR, |call| {
        let exception = call.non_null(handle, "the exception");
        if !Class::of(exception).is_subclass_of(call.t.vm.known().throwable) {
            let name = call.name_of(exception);
            call.wrong(format_args!("an object of {name} cannot be thrown"));
        }
        let _ = call.t.throw_object(exception);
        Ok(0)
    })
}

/// `ThrowNew`. Without a message, the exception has a null message.
pub extern "C" fn throw_new(env: *const Env, class: Handle, message: *const c_char) -> i32 {
    call(env, "ThrowNew", ERROR, |call| {
        let (t, class) = (call.t, call.class(class));
        if !class.is_subclass_of(t.vm.known().throwable) {
            call.wrong(format_args!("{} is no class of exceptions", class.java_name()));
        }
        let message = match message.is_null() {
            true => Ref::NULL,
            false => {
                // SAFETY: C gives a string.
                let bytes = unsafe { CStr::from_ptr(message) }.to_bytes();
                t.keep(string::from_utf16(t, &call.units(bytes)).or_throw(t)?)
            }
        };
        let signature = "(Ljava/lang/String;)V";
        let Some(constructor) = class.declared_method("<init>", signature) else {
            let message = format!("{}.<init>{signature}", class.java_name());
            return Err(values::throw(t, "java/lang/NoSuchMethodError", &message));
        };
        initialize::initialize(t, class)?;
        let exception = exception::new_object(t, class)?;
        t.invoke(constructor, &[Value::Ref(exception), Value::Ref(message)])?;
        let _ = t.throw_object(exception);
        Ok(0)
    })
}

/// `ExceptionOccurred`.
pub extern "C" fn exception_occurred(env: *const Env) -> Handle {
    let call = begin_anyway(env, "ExceptionOccurred");
    call.local(call.t.exception())
}

/// `ExceptionCheck`.
pub extern "C" fn exception_check(env: *const Env) -> u8 {
    (!begin_anyway(env, "ExceptionCheck").t.exception().is_null()).into()
}

/// `ExceptionClear`.
pub extern "C" fn exception_clear(env: *const Env) {
    let call = begin_anyway(env, "ExceptionClear");
    call.t.scope(|| call.t.take_exception());
}

/// `ExceptionDescribe`: shows the stack trace on standard error. Nothing is pending afterwards, as
/// the specification says.
pub extern "C" fn exception_describe(env: *const Env) {
    let call = begin_anyway(env, "ExceptionDescribe");
    let t = call.t;
    t.scope(|| {
        let exception = t.take_exception();
        if exception.is_null() {
            return;
        }
        if values::call_on(t, exception, "printStackTrace", "()V", &[]).is_err() {
            t.take_exception();
        }
    });
}

/// `FatalError`.
pub extern "C" fn fatal_error(env: *const Env, message: *const c_char) {
    let call = begin_anyway(env, "FatalError");
    let message = call.text(message, "the message");
    report::abort(Some(call.t), format_args!("JNI: FatalError: {message}"))
}
