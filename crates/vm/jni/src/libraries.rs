//! Libraries that Java programs load, and the functions in them.
//!
//! A library belongs to the class loader that has loaded it, and has functions for that loader's
//! classes only. It is never unloaded, as classes and their loaders are not; so JNI_OnUnload runs
//! only when C destroys the VM.

use crate::crossing;
use crate::env::Env;
use crate::interface::{JavaVm, java_vm};
use crate::mangle::{long_name, short_name};
use baton_vm::class::{Foreign, Loader, Method};
use baton_vm::linker::restricting_class;
use baton_vm::natives::values::{self, VOID, rust};
use baton_vm::vm::{Native, Thread, Thrown};
use std::ffi::{CStr, CString, c_void};
use std::sync::{Condvar, Mutex};

/// The native method of java.lang.Runtime.
pub const TABLE: &[Native] = &[(
    "Ljava/lang/Runtime;",
    "nativeLoad",
    "(Ljava/lang/String;Ljava/lang/ClassLoader;)V",
    |t, a| {
        let (path, loader) = (rust(t, a.reference(0))?, Loader::of(a.reference(1)));
        load(t, &path, loader)?;
        VOID
    },
)];

/// Versions of JNI that a library may ask for: from 1.1 to 1.8, and Java 9 to 24.
pub fn is_version(version: i32) -> bool {
    matches!(version, 0x0001_0001 | 0x0001_0002 | 0x0001_0004 | 0x0001_0006 | 0x0001_0008)
        || version & 0xffff == 0 && (9..=24).contains(&(version >> 16))
}

#[derive(Debug)]
struct Library {
    path: String,
    loader: Loader,
    /// The system's, as a number; 0 at first
    handle: usize,
    /// The thread that is loading it
    loading: Option<u32>,
}

static LIBRARIES: Mutex<Vec<Library>> = Mutex::new(Vec::new());
static LOADED: Condvar = Condvar::new();

type OnLoad = extern "C" fn(*const JavaVm, *const c_void) -> i32;
type OnUnload = extern "C" fn(*const JavaVm, *const c_void);

fn unsatisfied(t: &Thread, message: &str) -> Thrown {
    values::throw(t, "java/lang/UnsatisfiedLinkError", message)
}

/// Loads a library for a class loader, unless that has happened, and runs its JNI_OnLoad.
fn load(t: &Thread, path: &str, loader: Loader) -> Result<(), Thrown> {
    if cfg!(target_feature = "crt-static") {
        let message = format!("{path}: this program is linked statically, and loads no libraries");
        return Err(unsatisfied(t, &message));
    }
    if !claim(t, path, loader)? {
        return Ok(());
    }
    let done = open(t, path).and_then(|handle| {
        edit(t, path, |library| library.handle = handle);
        on_load(t, path, handle, loader)
    });
    match done {
        Ok(()) => edit(t, path, |library| library.loading = None),
        Err(_) => t.lock(&LIBRARIES).retain(|library| library.path != path),
    }
    LOADED.notify_all();
    done
}

fn edit(t: &Thread, path: &str, with: impl FnOnce(&mut Library)) {
    let mut libraries = t.lock(&LIBRARIES);
    with(libraries.iter_mut().find(|it| it.path == path).expect("the library is claimed"));
}

/// Claims the loading of a library for this thread; false if it is loaded, or already claimed.
fn claim(t: &Thread, path: &str, loader: Loader) -> Result<bool, Thrown> {
    loop {
        let mut libraries = t.lock(&LIBRARIES);
        let Some(library) = libraries.iter().find(|library| library.path == path) else {
            let loading = Some(t.state.id);
            libraries.push(Library { path: path.to_owned(), loader, handle: 0, loading });
            return Ok(true);
        };
        if library.loader != loader {
            drop(libraries);
            let message = format!("{path}: another class loader has loaded it");
            return Err(unsatisfied(t, &message));
        }
        if library.loading.is_none_or(|thread| thread == t.state.id) {
            return Ok(false);
        }
        t.safe(|| drop(LOADED.wait(libraries).expect("no holder panics")));
    }
}

fn open(t: &Thread, path: &str) -> Result<usize, Thrown> {
    let opened = t.safe(|| {
        let path = CString::new(path).map_err(|error| error.to_string())?;
        // SAFETY: the author of the library answers for its constructors; `dlerror` is asked on
        // this thread.
        unsafe {
            let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
            if !library.is_null() {
                return Ok(library.expose_provenance());
            }
            let error = libc::dlerror();
            let error =
                if error.is_null() { c"the loader says nothing" } else { CStr::from_ptr(error) };
            Err(error.to_string_lossy().into_owned())
        }
    });
    opened.map_err(|message| unsatisfied(t, &message))
}

/// The address of a library's function.
fn symbol(handle: usize, name: &str) -> Option<*mut c_void> {
    let name = CString::new(name).ok()?;
    // SAFETY: the handle is the loader's, and libraries stay loaded.
    let symbol =
        unsafe { libc::dlsym(std::ptr::with_exposed_provenance_mut(handle), name.as_ptr()) };
    (!symbol.is_null()).then_some(symbol)
}

fn on_load(t: &Thread, path: &str, handle: usize, loader: Loader) -> Result<(), Thrown> {
    let Some(function) = symbol(handle, "JNI_OnLoad") else { return Ok(()) };
    // SAFETY: a function of this name has this type.
    let function: OnLoad = unsafe { std::mem::transmute(function) };
    let env = Env::of(t);
    let before = env.loading.replace(Some(loader));
    let version = in_frame(t, || function(java_vm(t.vm), std::ptr::null()));
    env.loading.set(before);
    if !t.exception().is_null() {
        return Err(Thrown);
    }
    if !is_version(version) {
        let message = format!("{path}: JNI_OnLoad asks for a version {version:#x} of JNI");
        return Err(unsatisfied(t, &message));
    }
    Ok(())
}

/// Runs a function of a library, which has local references of its own.
fn in_frame<T>(t: &Thread, run: impl FnOnce() -> T) -> T {
    let locals = &Env::of(t).locals;
    t.scope(|| {
        let callers = locals.begin(&t.state.stack);
        let result = t.safe(run);
        locals.end(callers);
        result
    })
}

/// Runs JNI_OnUnload of all libraries, the last one first. What it throws is nobody's.
pub fn unload_all(t: &Thread) {
    let handles: Vec<usize> = t.lock(&LIBRARIES).drain(..).map(|library| library.handle).collect();
    for handle in handles.into_iter().rev() {
        let Some(function) = symbol(handle, "JNI_OnUnload") else { continue };
        // SAFETY: a function of this name has this type.
        let function: OnUnload = unsafe { std::mem::transmute(function) };
        in_frame(t, || function(java_vm(t.vm), std::ptr::null()));
        t.scope(|| t.take_exception());
    }
}

/// The function of a native method, by its name.
///
/// # Errors
/// The names that no library has.
pub fn find(t: &Thread, method: &'static Method) -> Result<Foreign, String> {
    let class = method.class();
    let short = short_name(class.descriptor, method.name);
    let names = [long_name(&short, method.signature), short];
    let found = t.safe(|| {
        let libraries = LIBRARIES.lock().expect("no holder panics");
        let mut own = libraries.iter().filter(|it| it.loader == class.loader && it.handle != 0);
        own.find_map(|library| names.iter().rev().find_map(|name| symbol(library.handle, name)))
    });
    match found {
        Some(function) => Ok(foreign(t, method, function.expose_provenance())),
        None => Err(format!("no library has {} or {}", names[1], names[0])),
    }
}

/// A function for a method.
pub fn foreign(t: &Thread, method: &'static Method, function: usize) -> Foreign {
    // Arguments are checked from here on.
    baton_vm::linker::parameter_classes(t, method);
    let result = restricting_class(t, method.class().loader, method.result_descriptor());
    let (arguments, n_stack_words) = crossing::arguments(method);
    Foreign { function, result, arguments, n_stack_words }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_those_of_jni_h() {
        for version in [0x0001_0001, 0x0001_0006, 0x0001_0008, 0x0009_0000, 0x0015_0000] {
            assert!(is_version(version), "{version:#x}");
        }
        for version in [0, -1, 0x0001_0003, 0x0001_0007, 0x0008_0000, 0x0009_0001] {
            assert!(!is_version(version), "{version:#x}");
        }
    }
}
