//! JNI: native methods in libraries that are built against a stock `jni.h`.
//!
//! From the lowest module to the highest:
//!
//! - [`handle`]: what C gets for an object. [`mangle`]: names of functions of native methods.
//!   [`interface`]: the tables as C sees them.
//! - [`locals`]: the references of one native method. [`report`]: how wrong use ends a process.
//! - [`env`]: a thread's `JNIEnv`; how a function of the table begins and ends.
//! - [`references`], [`exceptions`], [`members`], [`calls`], [`fields`], [`strings`], [`arrays`],
//!   [`objects`], [`natives`]: the functions, by what they are about.
//! - [`crossing`]: calls from Java to C. [`libraries`]: libraries and what is found in them.
//! - [`invocation`]: the `JavaVM`: threads that C has started. [`table`]: fills the tables.
//!
//! **States.** C runs as a safe thread of the VM: no collector waits for it, and it knows no
//! object's address. A function of the table makes its thread running while it works.
//!
//! **References.** A local reference is a slot of the thread's Java stack, and those that are
//! arguments are the registers of the native method's frame: to pass them costs nothing, and they
//! are roots as all of the stack is. A handle also has the object's address, which has to be what
//! the slot holds: so a handle whose slot has been given to another object is noticed.
//!
//! **Invariant**: a handle is never used before it was compared with its slot.
//!
//! Source: the Java Native Interface specification.

mod arrays;
mod calls;
mod crossing;
mod env;
mod exceptions;
mod fields;
mod handle;
mod interface;
mod invocation;
mod libraries;
mod locals;
mod mangle;
mod members;
mod natives;
mod objects;
mod references;
mod report;
mod strings;
mod table;

use baton_vm::vm::{ForeignCalls, Native};

/// How the VM finds and calls functions of libraries: for its options.
pub fn foreign_calls() -> ForeignCalls {
    table::fill();
    ForeignCalls { find: libraries::find, call: crossing::call }
}

/// The native methods that load libraries.
pub fn natives() -> Vec<Native> {
    libraries::TABLE.to_vec()
}
