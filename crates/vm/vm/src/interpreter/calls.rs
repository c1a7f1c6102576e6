//! Calls: which method runs, and how its frame comes to be.

use super::context::{CALL_UNITS, Context, Flow, Place};
use super::prepare::prepare;
use crate::class::{Body, Class, Code, Method};
use crate::exception::{self, OrThrow};
use crate::initialize;
use crate::invoke_dynamic;
use crate::monitor;
use crate::object::Ref;
use crate::resolution;
use crate::stack::{Args, Registers as Frame, Value};
use crate::vm::{Thread, Thrown};
use baton_dex::{CallSiteId, MethodId};
use std::sync::atomic::Ordering::Relaxed;

/// The registers that an instruction passes.
#[derive(Clone, Copy)]
pub(super) enum Registers {
    /// Up to five: a nibble each, the first lowest
    List { nibbles: u32, count: usize },
    /// Consecutive ones
    Range { first: usize, count: usize },
}

impl Registers {
    #[inline(always)]
    pub fn count(self) -> usize {
        match self {
            Registers::List { count, .. } | Registers::Range { count, .. } => count,
        }
    }

    /// The register of an argument.
    #[inline(always)]
    pub fn get(self, index: usize) -> usize {
        match self {
            Registers::List { nibbles, .. } => (nibbles >> (4 * index) & 0xf) as usize,
            Registers::Range { first, .. } => first + index,
        }
    }
}

/// The registers of format 35c or 45cc.
#[inline(always)]
pub(super) fn list(c: Context<'_>) -> Registers {
    let nibbles = u32::from(c.pc.unit(2)) | (c.pc.a() as u32) << 16;
    Registers::List { nibbles, count: c.pc.b() }
}

/// The registers of format 3rc or 4rcc.
#[inline(always)]
pub(super) fn range(c: Context<'_>) -> Registers {
    Registers::Range { first: c.pc.unit(2).into(), count: c.pc.aa() }
}

#[inline(always)]
fn method(c: Context<'_>) -> Result<&'static Method, Flow> {
    match c.dex().methods[c.pc.bbbb()].get() {
        Some(method) => Ok(method),
        None => Err(Flow::Find(resolve)),
    }
}

#[cold]
fn resolve(p: Place<'_>) -> Result<(), Thrown> {
    p.save();
    let id = MethodId(p.pc.bbbb() as u32);
    let class = p.method().class();
    p.t.scope(|| resolution::resolve_method(p.t, p.code().dex, id, Some(class)).or_throw(p.t))?;
    Ok(())
}

/// The method that an instruction names, and the receiver; or the end if there is none.
#[inline(always)]
fn method_and_receiver(
    c: Context<'_>,
    registers: Registers,
    how: &str,
) -> Result<(&'static Method, Ref), Flow> {
    let method = method(c)?;
    let receiver = c.r.reference(registers.get(0));
    if receiver.is_null() {
        return Err(on_null(c.place(), method, how).into());
    }
    Ok((method, receiver))
}

#[cold]
fn on_null(p: Place<'_>, method: &'static Method, how: &str) -> Thrown {
    let name = method.pretty();
    p.null(&format!("Attempt to invoke {how} method '{name}' on a null object reference"))
}

#[cold]
fn wrong_sort(p: Place<'_>, method: &Method, expected: &str, found: &str) -> Thrown {
    let name = method.pretty();
    let message = format!(
        "The method '{name}' was expected to be of type {expected} but instead was found to be of \
         type {found}"
    );
    p.throw("Ljava/lang/IncompatibleClassChangeError;", &message)
}

#[inline(always)]
pub(super) fn virtual_(c: Context<'_>, registers: Registers) -> Flow {
    let (method, receiver) = match method_and_receiver(c, registers, "virtual") {
        Ok(found) => found,
        Err(end) => return end,
    };
    match Class::of(receiver).overriding(method) {
        Some(target) => Flow::Call(target),
        None => dispatch(c.place(), method, receiver, "virtual"),
    }
}

#[inline(always)]
pub(super) fn interface(c: Context<'_>, registers: Registers) -> Flow {
    match method_and_receiver(c, registers, "interface") {
        Ok((method, receiver)) => dispatch(c.place(), method, receiver, "interface"),
        Err(end) => end,
    }
}

/// Finds the implementation that the receiver's class has.
// Out of line: needs more registers than a call of a method in a vtable.
#[inline(never)]
fn dispatch(p: Place<'_>, method: &'static Method, receiver: Ref, how: &str) -> Flow {
    if method.is_static() {
        return wrong_sort(p, method, how, "static").into();
    }
    let class = Class::of(receiver);
    let target = class.implementation(method);
    // A method of an interface has an implementation only in a class that implements it.
    match target.filter(|_| method.is_of_interface() || class.is_assignable_to(method.class())) {
        Some(target) => Flow::Call(target),
        None if how == "interface" => lacks_interface(p, class, method).into(),
        // What verification of types would prove.
        None => p.unverified(method.class().descriptor).into(),
    }
}

#[cold]
fn lacks_interface(p: Place<'_>, class: &'static Class, method: &'static Method) -> Thrown {
    let names = (class.pretty_name(), method.class().pretty_name());
    let message = format!("Class '{}' does not implement interface '{}'", names.0, names.1);
    p.throw("Ljava/lang/IncompatibleClassChangeError;", &message)
}

#[inline(always)]
pub(super) fn super_(c: Context<'_>, registers: Registers) -> Flow {
    let (method, receiver) = match method_and_receiver(c, registers, "super") {
        Ok(found) => found,
        Err(end) => return end,
    };
    let target = if method.class().is_interface() {
        Some(method)
    } else {
        // The method may be the class's own, which overrides one of the superclass.
        let class = c.method().class();
        class
            .superclass
            .filter(|_| class.is_assignable_to(method.class()))
            .and_then(|superclass| superclass.implementation(method))
    };
    match target {
        Some(target) if Class::of(receiver).is_assignable_to(c.method().class()) => {
            Flow::Call(target)
        }
        Some(_) => c.unverified("an instance of the class").into(),
        None => no_such_method(c.place(), method).into(),
    }
}

#[cold]
fn no_such_method(p: Place<'_>, method: &'static Method) -> Thrown {
    p.throw("Ljava/lang/NoSuchMethodError;", &method.pretty())
}

#[inline(always)]
pub(super) fn direct(c: Context<'_>, registers: Registers) -> Flow {
    let (method, receiver) = match method_and_receiver(c, registers, "direct") {
        Ok(found) => found,
        Err(end) => return end,
    };
    if method.is_static() {
        return wrong_sort(c.place(), method, "direct", "static").into();
    }
    if !Class::of(receiver).is_assignable_to(method.class()) {
        return c.unverified(method.class().descriptor).into();
    }
    Flow::Call(method)
}

#[inline(always)]
pub(super) fn static_(c: Context<'_>) -> Flow {
    match method(c) {
        Ok(method) if method.class().is_initialized() && method.is_static() => Flow::Call(method),
        Ok(method) => Flow::CallStatic(method),
        Err(end) => end,
    }
}

/// Initializes the class of a method that is called as a static one.
pub(super) fn initialize(p: Place<'_>, method: &'static Method) -> Result<(), Thrown> {
    p.save();
    if !method.is_static() {
        return Err(wrong_sort(p, method, "static", "virtual"));
    }
    initialize::initialize(p.t, method.class())
}

/// Pushes the frame of a method that has bytecode.
#[inline(always)]
pub(super) fn call(
    c: Context<'_>,
    target: &'static Method,
    callee: &'static Code,
    registers: Registers,
) -> Flow {
    match push(c, target, Some(callee), callee.n_registers.into(), registers) {
        Ok(frame) => Flow::Enter(callee, frame),
        Err(Thrown) => Flow::Throw,
    }
}

/// Runs a method that has no bytecode, in a frame of its own.
#[inline(always)]
pub(super) fn call_native(c: Context<'_>, target: &'static Method, registers: Registers) -> Flow {
    let Some(body) = target.body.get() else {
        c.save();
        return match prepare(c.t, target) {
            Ok(_) => Flow::Next(c.pc),
            Err(Thrown) => Flow::Throw,
        };
    };
    match body {
        Body::Native(_) | Body::Foreign(_) | Body::Lambda(_) => {}
        // Another thread has prepared the method meanwhile.
        Body::Code(_) => return Flow::Next(c.pc),
        Body::Abstract | Body::Conflict => {
            c.save();
            return without_body(c.t, target, body).into();
        }
    }
    let count = registers.count();
    let frame = match push(c, target, None, count, registers) {
        Ok(frame) => frame,
        Err(Thrown) => return Flow::Throw,
    };
    let args = Args::new(frame, count);
    let result = match target.native_types.get().and_then(|types| mistyped(types, args)) {
        Some(class) => Err(bad_argument(c.t, target, class)),
        None => native(c.t, target, body, args),
    };
    c.t.state.stack.pop();
    match result {
        Ok(value) => {
            set_result(c.t, value);
            c.next(CALL_UNITS)
        }
        Err(Thrown) => Flow::Throw,
    }
}

/// Pushes a frame of so many registers, the last of which are the arguments.
#[inline(always)]
fn push(
    c: Context<'_>,
    target: &'static Method,
    code: Option<&'static Code>,
    n_registers: usize,
    registers: Registers,
) -> Result<Frame, Thrown> {
    c.save();
    let count = registers.count();
    if count != usize::from(target.n_argument_registers) {
        return Err(c.unverified("as many arguments as the method has parameters"));
    }
    let first = n_registers - count;
    let Ok(frame) = c.t.state.stack.push(target, code, first, count) else {
        return Err(overflow(c.place()));
    };
    for index in 0..count {
        frame.copy(first + index, &c.r, registers.get(index));
    }
    Ok(frame)
}

/// The class that an argument of a native method should have and has not. Verification of types
/// would prove that there is none.
#[inline(always)]
fn mistyped(types: &[(u16, &'static Class)], args: Args) -> Option<&'static Class> {
    let is_wrong = |(register, class): &&(u16, &'static Class)| {
        let object = args.reference((*register).into());
        !object.is_null() && !Class::of(object).is_assignable_to(class)
    };
    types.iter().find(is_wrong).map(|(_, class)| *class)
}

#[cold]
fn bad_argument(t: &Thread, method: &'static Method, class: &'static Class) -> Thrown {
    let message = format!("an argument of {} is no {}", method.pretty(), class.pretty_name());
    exception::throw(t, "Ljava/lang/VerifyError;", &message)
}

#[cold]
fn overflow(p: Place<'_>) -> Thrown {
    let overflow: Result<(), _> = Err(crate::stack::Overflow);
    let _ = overflow.or_throw(p.t);
    Thrown
}

/// Throws what an invocation of a method without body throws.
#[cold]
pub(super) fn without_body(t: &Thread, method: &'static Method, body: &Body) -> Thrown {
    match body {
        Body::Conflict => {
            let message = format!("Conflicting default method implementations {}", method.pretty());
            exception::throw(t, "Ljava/lang/IncompatibleClassChangeError;", &message)
        }
        _ => {
            let message = format!("abstract method \"{}\"", method.pretty());
            exception::throw(t, "Ljava/lang/AbstractMethodError;", &message)
        }
    }
}

/// Runs a method without bytecode in its frame, with its monitor if it is synchronized.
#[inline(always)]
pub(super) fn native(
    t: &Thread,
    method: &'static Method,
    body: &'static Body,
    args: Args,
) -> Result<Value, Thrown> {
    if method.is_synchronized() && !matches!(body, Body::Lambda(_)) {
        return locked(t, method, body, args);
    }
    unlocked(t, method, body, args)
}

/// Runs a method without bytecode with its monitor.
// Out of line: few have one.
#[inline(never)]
fn locked(
    t: &Thread,
    method: &'static Method,
    body: &'static Body,
    args: Args,
) -> Result<Value, Thrown> {
    let lock = if method.is_static() { method.class().mirror() } else { args.reference(0) };
    monitor::enter(t, lock);
    let result = unlocked(t, method, body, args);
    monitor::exit(t, lock)?;
    result
}

/// Runs a method without bytecode, and takes no monitor.
#[inline(always)]
fn unlocked(
    t: &Thread,
    method: &'static Method,
    body: &'static Body,
    args: Args,
) -> Result<Value, Thrown> {
    match body {
        Body::Native(index) => t.vm.native_functions[*index](t, args),
        _ => foreign(t, method, body, args),
    }
}

/// Runs a method that is neither bytecode nor the VM's own.
// Out of line, as the rarer results below: most calls of native methods meet no jump by a table,
// whose target a processor would have to guess.
#[inline(never)]
fn foreign(
    t: &Thread,
    method: &'static Method,
    body: &'static Body,
    args: Args,
) -> Result<Value, Thrown> {
    match body {
        Body::Foreign(foreign) => {
            let calls = t.vm.options.foreign.expect("whoever has bound the method");
            (calls.call)(t, method, foreign, args)
        }
        Body::Lambda(lambda) => invoke_dynamic::run(t, method, lambda, args),
        _ => unreachable!("{method} is neither"),
    }
}

/// Leaves a result for the instruction that moves it.
#[inline(always)]
pub(super) fn set_result(t: &Thread, value: Value) {
    match value {
        Value::Void => {}
        Value::Int(value) => t.result.set(value.into()),
        Value::Ref(object) => t.state.result.store(object.address(), Relaxed),
        _ => set_rarer_result(t, value),
    }
}

#[inline(never)]
fn set_rarer_result(t: &Thread, value: Value) {
    match value {
        Value::Float(value) => t.result.set(i64::from(value.to_bits())),
        Value::Long(value) => t.result.set(value),
        Value::Double(value) => t.result.set(value.to_bits() as i64),
        Value::Void | Value::Int(_) | Value::Ref(_) => set_result(t, value),
    }
}

/// invoke-polymorphic.
pub(super) fn polymorphic(c: Context<'_>, _registers: Registers) -> Flow {
    let message = "the class library has no method handles";
    c.throw("Ljava/lang/UnsupportedOperationException;", message).into()
}

/// invoke-custom.
pub(super) fn custom(c: Context<'_>, registers: Registers) -> Flow {
    c.save();
    let id = CallSiteId(c.pc.bbbb() as u32);
    let args = invoke_dynamic::Captured { r: &c.r, register: &|index| registers.get(index) };
    let made = c.t.scope(|| invoke_dynamic::call_site(c.t, c.dex(), id, &args));
    match made {
        Ok(value) => {
            set_result(c.t, Value::Ref(value));
            c.next(3)
        }
        Err(Thrown) => Flow::Throw,
    }
}
