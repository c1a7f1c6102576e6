//! Exceptions: how Rust code throws them, and what they remember of the stack.
//!
//! A failure of the modules below becomes an exception here ([`OrThrow`]). A Throwable's hidden
//! field holds the frames at its construction as a long[]: the address of a method, which lives for
//! ever, and a unit of its code, in turns; the innermost frame first.

use crate::allocation::{self, OutOfMemory};
use crate::class::{Class, Loader, Method};
use crate::linker::{self, LinkError};
use crate::object::{Kind, Ref};
use crate::stack::{Overflow, Stack, Value};
use crate::string;
use crate::vm::{Thread, Thrown};
use std::sync::atomic::Ordering::Relaxed;

/// What can be thrown in place of a result.
pub trait OrThrow<T> {
    /// The result.
    ///
    /// # Errors
    /// The failure is an exception that is under way.
    fn or_throw(self, t: &Thread) -> Result<T, Thrown>;
}

impl<T> OrThrow<T> for Result<T, OutOfMemory> {
    #[inline]
    fn or_throw(self, t: &Thread) -> Result<T, Thrown> {
        self.map_err(|OutOfMemory| t.throw_object(t.vm.known().out_of_memory))
    }
}

impl<T> OrThrow<T> for Result<T, Overflow> {
    #[inline]
    fn or_throw(self, t: &Thread) -> Result<T, Thrown> {
        self.map_err(|Overflow| stack_overflow(t))
    }
}

impl<T> OrThrow<T> for Result<T, LinkError> {
    #[inline]
    fn or_throw(self, t: &Thread) -> Result<T, Thrown> {
        self.map_err(|error| match error {
            LinkError::NotFound(descriptor) => {
                let message = format!("Failed resolution of: {descriptor}");
                throw(t, "Ljava/lang/NoClassDefFoundError;", &message)
            }
            LinkError::Error(class, message) => throw(t, class, &message),
            LinkError::OutOfMemory => t.throw_object(t.vm.known().out_of_memory),
            LinkError::Thrown(thrown) => thrown,
        })
    }
}

fn stack_overflow(t: &Thread) -> Thrown {
    t.state.stack.with_reserve(|| {
        let message = format!("stack size {}KB", t.state.stack.n_slots() / 128);
        throw(t, "Ljava/lang/StackOverflowError;", &message)
    })
}

/// Throws an exception of a class of the library, with a message.
pub fn throw(t: &Thread, class: &str, message: &str) -> Thrown {
    t.scope(|| make(t, class, Some(message)).map_or_else(|thrown| thrown, |it| t.throw_object(it)))
}

/// Throws an exception of a class of the library, without a message.
pub fn throw_plain(t: &Thread, class: &str) -> Thrown {
    t.scope(|| make(t, class, None).map_or_else(|thrown| thrown, |it| t.throw_object(it)))
}

/// Makes an exception of a class of the library.
///
/// # Errors
/// Another exception is under way.
pub fn make(t: &Thread, class: &str, message: Option<&str>) -> Result<Ref, Thrown> {
    let class = linker::find(t, Loader::BOOT, class).or_throw(t)?;
    let exception = new_object(t, class)?;
    match message {
        Some(message) => {
            let constructor = class
                .declared_method("<init>", "(Ljava/lang/String;)V")
                .or_else(|| class.declared_method("<init>", "(Ljava/lang/Object;)V"));
            let constructor = constructor.expect("an exception's constructor with a message");
            let message = new_string(t, message)?;
            t.invoke(constructor, &[Value::Ref(exception), Value::Ref(message)])?;
        }
        None => {
            let constructor = class.declared_method("<init>", "()V");
            let constructor = constructor.expect("an exception's constructor");
            t.invoke(constructor, &[Value::Ref(exception)])?;
        }
    }
    Ok(exception)
}

/// Makes an instance whose constructor has not run; the caller's native frame keeps it.
///
/// # Errors
/// An exception is under way.
pub fn new_object(t: &Thread, class: &'static Class) -> Result<Ref, Thrown> {
    allocation::instance(t, class).or_throw(t).map(|object| t.keep(object))
}

/// Makes an array of a class of arrays; the caller's native frame keeps it.
///
/// # Errors
/// An exception is under way.
pub fn new_array(t: &Thread, class: &'static Class, length: u32) -> Result<Ref, Thrown> {
    allocation::array(t, class, length).or_throw(t).map(|array| t.keep(array))
}

/// Makes a string; the caller's native frame keeps it.
///
/// # Errors
/// An exception is under way.
pub fn new_string(t: &Thread, text: &str) -> Result<Ref, Thrown> {
    string::new(t, text).or_throw(t).map(|string| t.keep(string))
}

/// The class of a descriptor in the class library.
///
/// # Errors
/// An exception is under way.
pub fn library_class(t: &Thread, descriptor: &str) -> Result<&'static Class, Thrown> {
    linker::find(t, Loader::BOOT, descriptor).or_throw(t)
}

/// A frame of a stack trace.
#[derive(Clone, Copy, Debug)]
pub struct TraceEntry {
    /// The method
    pub method: &'static Method,
    /// The unit of the instruction
    pub unit: u32,
}

impl TraceEntry {
    /// The line in the source file: -2 in native methods, -1 if it is not known.
    pub fn line(&self) -> i32 {
        self.method.line(self.unit)
    }
}

/// The frames of a stack, the innermost first.
pub fn trace(stack: &Stack) -> Vec<TraceEntry> {
    let frames = (0..stack.depth()).rev().map(|depth| stack.frame(depth));
    frames
        .filter_map(|frame| {
            Some(TraceEntry { method: frame.method.get()?, unit: frame.pc.load(Relaxed) })
        })
        .collect()
}

/// Remembers the stack in a Throwable, from the first frame on that constructs no exception.
///
/// # Errors
/// The heap is full: the exception has no trace.
pub(crate) fn fill_in(t: &Thread, exception: Ref) -> Result<(), OutOfMemory> {
    let known = t.vm.known();
    let is_construction = |it: &TraceEntry| {
        let class = it.method.class();
        let is_own =
            class.is_subclass_of(known.throwable) && Class::of(exception).is_subclass_of(class);
        is_own && matches!(it.method.name, "<init>" | "fillInStackTrace")
    };
    let entries: Vec<TraceEntry> =
        trace(&t.state.stack).into_iter().skip_while(is_construction).collect();
    let backtrace = allocation::array(t, known.array_of(Kind::Long), 2 * entries.len() as u32)?;
    for (index, entry) in (0u32..).zip(&entries) {
        backtrace.set_i64(2 * index, std::ptr::from_ref(entry.method).expose_provenance() as i64);
        backtrace.set_i64(2 * index + 1, i64::from(entry.unit));
    }
    known.backtrace.set_ref(exception, backtrace);
    Ok(())
}

/// The frames that a Throwable remembers.
///
/// # Panics
/// If the object is no Throwable.
pub fn trace_of(t: &Thread, exception: Ref) -> Vec<TraceEntry> {
    let backtrace = t.vm.known().backtrace.get_ref(exception);
    if backtrace.is_null() {
        return Vec::new();
    }
    let entry = |index: u32| {
        let address = backtrace.get_i64(2 * index) as usize;
        let method: *const Method = std::ptr::with_exposed_provenance(address);
        // SAFETY: only `fill_in` writes to the hidden field's array, and methods live for ever.
        let method: &'static Method = unsafe { &*method };
        TraceEntry { method, unit: backtrace.get_i64(2 * index + 1) as u32 }
    };
    (0..backtrace.length() / 2).map(entry).collect()
}
