//! A virtual machine for Dalvik's bytecode.
//!
//! From the lowest module to the highest:
//!
//! - [`memory`]: memory below 4 GiB. [`mod@cards`]: which of it has changed. [`object`]:
//!   references, headers, fields and elements. [`heap`]: allocation; mark and sweep; counts of
//!   references. [`resolved`]: a reference that is found once.
//! - [`descriptor`]: descriptors and names of types. [`class`]: classes, fields, methods and dex
//!   files. [`stack`]: frames and registers. [`linker`]: how classes come to be.
//!   [`safepoint`]: threads, the stopped world, and stages of single threads.
//! - [`vm`]: the VM and a thread's side of it. [`mod@reference`]: referents after a collection.
//!   [`collector`]: when to collect. [`allocation`]: objects of a thread. [`boxing`]: of primitive
//!   values.
//! - [`runtime`]: start and end. [`zygote`]: a start that is made once, for many processes.
//! - [`globals`]: references that Rust keeps. [`dex_cache`]: files that were checked before.
//!   [`verifier`]: the types of a program's code.
//!
//! **Roots.** A collection frees what these do not reach: slots of all stacks, the exception and
//! result of each thread, mirrors of classes, interned strings, and [`globals::Global`]s. Rust code
//! holds a [`object::Ref`] across a safepoint (an allocation, a call into Java,
//! [`vm::Thread::safe`]) only if one of them has it: arguments and results are in the frame, for
//! others there is [`vm::Thread::keep`].

pub mod allocation;
pub mod asymmetric_fence;
pub mod boxing;
mod cards;
pub mod class;
pub mod collector;
pub mod descriptor;
mod dex_cache;
pub mod dex_files;
pub mod exception;
mod field_access;
pub mod finalizer;
pub mod globals;
mod handshake;
pub mod heap;
pub mod initialize;
mod interpreter;
mod invoke_dynamic;
mod layout;
pub mod linker;
mod lock;
pub mod memory;
mod method_tables;
#[cfg(loom)]
mod model_memory;
#[cfg(all(loom, test))]
mod models;
pub mod monitor;
pub mod monitors;
pub mod natives;
pub mod object;
pub mod parker;
pub mod pauses;
mod pending;
mod placement;
mod profile;
pub mod reference;
mod regex;
mod requests;
pub mod resolution;
mod resolved;
pub mod runtime;
pub mod safepoint;
pub mod stack;
pub mod string;
mod sync;
pub mod thread;
mod trace;
pub mod verified;
pub mod verifier;
pub mod vm;
pub mod zygote;
