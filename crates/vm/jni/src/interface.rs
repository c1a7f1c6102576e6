//! What C sees: the tables of functions, and the `JavaVM`. The module [`table`](crate::table) fills
//! the tables before a VM starts.

use baton_vm::vm::Vm;
use std::ffi::c_void;
use std::sync::OnceLock;

/// Entries of a `JNIEnv`'s table: those of Java 24, of which the last three are later than 1.8.
pub const N_FUNCTIONS: usize = 236;
/// Entries of a `JavaVM`'s table.
pub const N_MACHINE_FUNCTIONS: usize = 8;

/// A table of functions.
#[derive(Debug)]
#[repr(transparent)]
pub struct Table<const N: usize>(pub [*const c_void; N]);

// SAFETY: the pointers are null or those of functions, and never change.
unsafe impl<const N: usize> Send for Table<N> {}
// SAFETY: as above.
unsafe impl<const N: usize> Sync for Table<N> {}

/// The functions of a `JNIEnv`, in the order of `jni.h`.
pub static FUNCTIONS: OnceLock<Table<N_FUNCTIONS>> = OnceLock::new();
/// The functions of a `JavaVM`.
pub static MACHINE_FUNCTIONS: OnceLock<Table<N_MACHINE_FUNCTIONS>> = OnceLock::new();

/// A `JavaVM`: its first word points to the table.
#[derive(Debug)]
#[repr(C)]
pub struct JavaVm {
    functions: &'static Table<N_MACHINE_FUNCTIONS>,
    /// The VM
    pub vm: &'static Vm,
}

/// The `JavaVM` of the process's VM.
pub fn java_vm(vm: &'static Vm) -> &'static JavaVm {
    static JAVA_VM: OnceLock<JavaVm> = OnceLock::new();
    let functions = MACHINE_FUNCTIONS.get().expect("it is filled before a VM starts");
    JAVA_VM.get_or_init(|| JavaVm { functions, vm })
}
