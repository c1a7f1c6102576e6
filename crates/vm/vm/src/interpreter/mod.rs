//! The interpreter.
//!
//! An [operation](table) executes one instruction. The loop here calls operations one after the
//! other, and does what concerns frames: it follows calls and returns, and looks for handlers of
//! exceptions. Java calls Java without recursion in Rust; a native method that calls Java, and the
//! initialization of a class, enter the loop anew.

mod arrays;
mod calls;
mod checked;
mod constants;
mod context;
mod control;
mod fields;
mod numbers;
mod objects;
mod prepare;
mod table;
mod threaded;

use crate::class::{Body, Class, Code, Method};
use crate::exception::OrThrow;
use crate::initialize;
use crate::linker;
use crate::object::{Kind, Ref};
use crate::stack::{Args, Overflow, Value};
use crate::vm::{Thread, Thrown};
use context::{after_call, top};
use std::sync::atomic::Ordering::Relaxed;
use threaded::Ended;

/// How many times Rust and Java may call each other in turns: bounds the stack of Rust.
const MAX_NESTING: u32 = 600;
/// How many more times while the error about this is made.
const RESERVED_NESTING: u32 = 16;

/// Runs a method to its end.
///
/// # Errors
/// An exception is under way.
pub(crate) fn enter(t: &Thread, method: &'static Method, args: &[Value]) -> Result<Value, Thrown> {
    if method.is_static() || method.name == "<init>" {
        initialize::initialize(t, method.class())?;
    }
    if t.nesting.get() >= MAX_NESTING && !t.is_overflowing.get() {
        t.is_overflowing.set(true);
        let thrown = Err(Overflow).or_throw(t);
        t.is_overflowing.set(false);
        return thrown;
    }
    if t.nesting.get() >= MAX_NESTING + RESERVED_NESTING {
        return Err(t.throw_object(t.vm.known().out_of_memory));
    }
    t.nesting.set(t.nesting.get() + 1);
    let result = enter_nested(t, method, args);
    t.nesting.set(t.nesting.get() - 1);
    result
}

fn enter_nested(t: &Thread, method: &'static Method, args: &[Value]) -> Result<Value, Thrown> {
    let body = match method.body.get() {
        Some(body) => body,
        None => t.scope(|| prepare::prepare(t, method))?,
    };
    let stack = &t.state.stack;
    let count = usize::from(method.n_argument_registers);
    let (n_registers, code) = match body {
        Body::Code(code) => (code.n_registers.into(), Some(code)),
        Body::Native(_) | Body::Foreign(_) | Body::Lambda(_) => (count, None),
        Body::Abstract | Body::Conflict => return Err(calls::without_body(t, method, body)),
    };
    let mut at = n_registers - count;
    let frame = stack.push(method, code, at, count).or_throw(t)?;
    for argument in args {
        at += argument.write(&frame, at);
    }
    assert_eq!(at, n_registers, "{method} gets as many arguments as it has parameters");
    if let Body::Native(_) | Body::Foreign(_) | Body::Lambda(_) = body {
        let result = calls::native(t, method, body, Args::new(frame, count));
        stack.pop();
        return result;
    }
    let outer = t.entry_depth.replace(stack.depth());
    let returned = run(t, stack.depth());
    t.entry_depth.set(outer);
    returned?;
    let bits = t.result.get();
    Ok(match method.result {
        Kind::Void => Value::Void,
        Kind::Float => Value::Float(f32::from_bits(bits as u32)),
        Kind::Long => Value::Long(bits),
        Kind::Double => Value::Double(f64::from_bits(bits as u64)),
        // SAFETY: the word holds a reference that the roots contain.
        Kind::Reference => Value::Ref(unsafe { Ref::from_address(t.state.result.load(Relaxed)) }),
        _ => Value::Int(bits as i32),
    })
}

/// Runs the top frame, at `depth`, until it returns.
fn run(t: &Thread, depth: usize) -> Result<(), Thrown> {
    let (mut code, mut r, mut pc) = top(t);
    loop {
        let ended = threaded::start(t, code, r, pc);
        if let Some(next) = ended.here() {
            pc = next;
            continue;
        }
        if ended == Ended::THROW {
            unwind(t, depth)?;
        } else if t.has_returned() {
            return Ok(());
        }
        (code, r, pc) = if ended == Ended::RETURN { after_call(t) } else { top(t) };
    }
}

/// Pops frames down to `depth` until one has a handler for the exception under way.
///
/// # Errors
/// No frame has one: the frame at `depth` was popped, too.
#[cold]
fn unwind(t: &Thread, depth: usize) -> Result<(), Thrown> {
    let stack = &t.state.stack;
    while stack.depth() >= depth {
        let (code, _, pc) = top(t);
        if let Some(handler) = handler(t, code, pc.index(code)) {
            let frame = stack.top_frame();
            frame.pc.store(handler, Relaxed);
            // What slow paths kept in this frame is needed no longer.
            stack.release(frame.base.load(Relaxed) as usize + usize::from(code.n_registers));
            // The exception waits where results do for move-exception.
            t.state.result.store(t.exception().address(), Relaxed);
            t.state.exception.store(0, Relaxed);
            return Ok(());
        }
        stack.pop();
    }
    Err(Thrown)
}

/// The unit of the handler for the exception under way at a unit.
fn handler(t: &Thread, code: &'static Code, unit: u32) -> Option<u32> {
    let after = code.tries.partition_point(|it| it.start <= unit);
    let tried = code.tries.get(after.checked_sub(1)?).filter(|it| unit < it.end)?;
    let class = Class::of(t.exception());
    let catches = |id| {
        // A class that cannot be found is not the exception's.
        match code.dex.types[baton_dex::TypeId::index(id)].get() {
            Some(caught) => class.is_subclass_of(caught),
            None => is_caught_by(t, code, id, class),
        }
    };
    let found = tried.handlers.iter().find(|it| it.exception.is_none_or(catches))?;
    Some(found.address)
}

#[cold]
fn is_caught_by(t: &Thread, code: &Code, id: baton_dex::TypeId, class: &'static Class) -> bool {
    t.scope(|| {
        let exception = t.take_exception();
        let caught = linker::resolve_type(t, code.dex, id);
        let _ = t.throw_object(exception);
        caught.is_ok_and(|caught| class.is_subclass_of(caught))
    })
}

#[cfg(test)]
mod tests;
