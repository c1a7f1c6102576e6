//! A thread's `JNIEnv`, and how a function of its table begins and ends.
//!
//! **Invariant**: [`CURRENT`] is null or points to the calling thread's env, whose thread exists.
//! The thread owns its env, which takes itself out when it goes.

use crate::handle::{Handle, Kind};
use crate::interface::{FUNCTIONS, N_FUNCTIONS, Table};
use crate::locals::Locals;
use crate::report;
use baton_vm::class::{Class, Field, Loader, Method};
use baton_vm::globals::Global;
use baton_vm::object::{Array, Ref};
use baton_vm::reference;
use baton_vm::runtime;
use baton_vm::vm::{Thread, Thrown};
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char};
use std::fmt::Display;

/// What C gets as `JNIEnv *`: its first word points to the table of functions.
#[derive(Debug)]
#[repr(C)]
pub struct Env {
    functions: &'static Table<N_FUNCTIONS>,
    thread: Cell<*const Thread>,
    /// The thread's local references
    pub locals: Locals,
    /// Below this address the thread's own stack, which C and Rust use, is nearly full
    low: usize,
    /// Who loads a library at this moment: its JNI_OnLoad sees classes as the loader does
    pub loading: Cell<Option<Loader>>,
    /// Objects whose monitors C has entered and not left, once for each time
    pub monitors: RefCell<Vec<Global>>,
}

thread_local! {
    static CURRENT: Cell<*const Env> = const { Cell::new(std::ptr::null()) };
}

/// The calling thread's env, null if the thread is not attached.
pub fn current() -> *const Env {
    CURRENT.get()
}

impl Env {
    /// The env of the calling thread.
    #[inline]
    pub fn of(t: &Thread) -> &Env {
        // SAFETY: the module's invariant.
        match unsafe { CURRENT.get().as_ref() } {
            Some(env) if std::ptr::eq(env.thread.get(), t) => env,
            _ => Env::first(t),
        }
    }

    #[cold]
    fn first(t: &Thread) -> &Env {
        let make = || -> Box<dyn std::any::Any> {
            Box::new(Env {
                functions: FUNCTIONS.get().expect("it is filled before a VM starts"),
                thread: Cell::new(t),
                locals: Locals::new(&t.state.stack),
                low: low_address(),
                loading: Cell::new(None),
                monitors: RefCell::default(),
            })
        };
        let env = t.extension.get_or_init(make).downcast_ref::<Env>();
        let env = env.expect("nobody else extends threads");
        // The thread may have moved since.
        env.thread.set(t);
        CURRENT.set(env);
        env
    }

    /// Whether C has to be kept from being called: the thread's own stack has no room.
    #[inline]
    pub fn is_stack_low(&self) -> bool {
        let here = 0u8;
        (&raw const here).addr() < self.low
    }

    /// The object of a handle that is not `NULL`: `None` if the handle is not valid, null for a
    /// weak reference to an object that is gone.
    #[inline]
    pub fn object(&self, t: &Thread, handle: Handle) -> Option<Ref> {
        held(t, handle).map(|(kind, object)| match kind {
            Kind::Weak => reference::get(object),
            Kind::Local | Kind::Global => object,
        })
    }
}

/// Where the calling thread's stack has no more than what a function of C may use, or a quarter of
/// a small stack. 0 if the system does not say.
fn low_address() -> usize {
    const MOST_OF_C_BYTES: usize = 256 << 10;
    let mut attributes = std::mem::MaybeUninit::uninit();
    let (mut start, mut n_bytes) = (std::ptr::null_mut(), 0);
    // SAFETY: the attributes are used only if the first call fills them, and destroyed once.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return 0;
        }
        libc::pthread_attr_getstack(attributes.as_ptr(), &mut start, &mut n_bytes);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
    }
    start.addr() + MOST_OF_C_BYTES.min(n_bytes / 4)
}

/// What a handle's slot holds, if the handle is valid.
#[inline]
fn held(t: &Thread, handle: Handle) -> Option<(Kind, Ref)> {
    let (kind, slot, address) = handle.parts()?;
    let held = match kind {
        Kind::Local => t.state.stack.reference_at(slot, address),
        Kind::Global | Kind::Weak => {
            let held = t.vm.globals.get(slot as u32);
            (held.address() == address && !held.is_null()).then_some(held)
        }
    };
    held.map(|object| (kind, object))
}

impl Drop for Env {
    fn drop(&mut self) {
        if std::ptr::eq(CURRENT.get(), self) {
            CURRENT.set(std::ptr::null());
        }
    }
}

/// A call of a function of the table: its thread is running while this lives.
pub struct Call<'a> {
    /// The calling thread
    pub t: &'a Thread,
    /// Its env
    pub env: &'a Env,
    function: &'static str,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.t.vm.threads.leave(&self.t.state);
    }
}

/// Begins a call of a function that may be called while an exception is pending.
#[inline]
pub fn begin_anyway<'a>(env: *const Env, function: &'static str) -> Call<'a> {
    if env.is_null() || env != CURRENT.get() {
        foreign_env(function);
    }
    // SAFETY: it is the calling thread's, by the module's invariant; the thread outlives the call,
    // as C cannot detach it meanwhile.
    let (env, t) = unsafe {
        let env = &*env;
        (env, &*env.thread.get())
    };
    t.vm.threads.enter(&t.state);
    Call { t, env, function }
}

/// Begins a call.
#[inline]
pub fn begin<'a>(env: *const Env, function: &'static str) -> Call<'a> {
    let call = begin_anyway(env, function);
    if !call.t.exception().is_null() {
        pending_exception(&call);
    }
    call
}

#[cold]
fn foreign_env(function: &'static str) -> ! {
    // SAFETY: the module's invariant.
    let t = unsafe { CURRENT.get().as_ref().map(|env| &*env.thread.get()) };
    report::wrong_use(t, function, "the JNIEnv is not the calling thread's")
}

#[cold]
fn pending_exception(call: &Call<'_>) -> ! {
    let class = Class::of(call.t.exception()).java_name();
    call.wrong(format_args!("an exception is pending: {class}"))
}

/// Runs a function whose result is no reference; `failed` is its result while an exception is
/// pending.
#[inline]
pub fn call<T>(
    env: *const Env,
    function: &'static str,
    failed: T,
    run: impl FnOnce(&Call<'_>) -> Result<T, Thrown>,
) -> T {
    let call = begin(env, function);
    call.t.scope(|| run(&call)).unwrap_or(failed)
}

/// Runs a function whose result becomes a local reference: `NULL` while an exception is pending.
#[inline]
pub fn call_for_object(
    env: *const Env,
    function: &'static str,
    run: impl FnOnce(&Call<'_>) -> Result<Ref, Thrown>,
) -> Handle {
    let call = begin(env, function);
    // No safepoint lies between the end of the scope and the new reference.
    let object = call.t.scope(|| run(&call)).unwrap_or(Ref::NULL);
    call.local(object)
}

impl<'a> Call<'a> {
    /// Ends the process: C has called the function wrongly.
    #[cold]
    pub fn wrong(&self, wrong: impl Display) -> ! {
        report::wrong_use(Some(self.t), self.function, wrong)
    }

    /// A new local reference; `NULL` for null. Not to be called in a scope of the thread.
    #[inline]
    pub fn local(&self, object: Ref) -> Handle {
        if object.is_null() {
            return Handle::NULL;
        }
        let added = self.env.locals.add(&self.t.state.stack, object);
        added.unwrap_or_else(|_| self.wrong("there is no room for another local reference"))
    }

    /// The object of a handle; null for `NULL`, and for a weak reference to an object that is gone.
    #[inline]
    pub fn object(&self, handle: Handle) -> Ref {
        if handle.is_null() {
            return Ref::NULL;
        }
        self.env.object(self.t, handle).unwrap_or_else(|| {
            self.wrong(format_args!(
                "{:#x} is no reference: it was deleted, or its native method has returned",
                handle.bits()
            ))
        })
    }

    /// The kind of a handle that is valid.
    pub fn kind(&self, handle: Handle) -> Option<Kind> {
        held(self.t, handle).map(|(kind, _)| kind)
    }

    /// The object of a handle that must not be null.
    #[inline]
    pub fn non_null(&self, handle: Handle, what: &str) -> Ref {
        let object = self.object(handle);
        if object.is_null() {
            self.wrong(format_args!("{what} is NULL"));
        }
        object
    }

    /// The class of a `jclass`.
    #[inline]
    pub fn class(&self, handle: Handle) -> &'static Class {
        let object = self.non_null(handle, "the class");
        if !std::ptr::eq(Class::of(object), self.t.vm.known().class) {
            self.wrong(format_args!("an object of {} is no class", self.name_of(object)));
        }
        Class::mirrored_by(object)
    }

    /// The string of a `jstring`.
    #[inline]
    pub fn string(&self, handle: Handle) -> Ref {
        let object = self.non_null(handle, "the string");
        if !std::ptr::eq(Class::of(object), self.t.vm.known().string) {
            self.wrong(format_args!("an object of {} is no string", self.name_of(object)));
        }
        object
    }

    /// The array of a `jarray`.
    #[inline]
    pub fn array(&self, handle: Handle) -> Array {
        let object = self.non_null(handle, "the array");
        object.array().unwrap_or_else(|| {
            self.wrong(format_args!("an object of {} is no array", self.name_of(object)))
        })
    }

    /// The name of an object's class.
    pub fn name_of(&self, object: Ref) -> String {
        Class::of(object).pretty_name()
    }

    /// The method of an ID.
    #[inline]
    pub fn method(&self, id: *const Method) -> &'static Method {
        // SAFETY: C has the ID from a function of the table; methods live for ever.
        match unsafe { id.as_ref() } {
            Some(method) => method,
            None => self.wrong("the method's ID is NULL"),
        }
    }

    /// The field of an ID.
    #[inline]
    pub fn field(&self, id: *const Field) -> &'static Field {
        // SAFETY: C has the ID from a function of the table; fields live for ever.
        match unsafe { id.as_ref() } {
            Some(field) => field,
            None => self.wrong("the field's ID is NULL"),
        }
    }

    /// Text that C has given, which must not be `NULL`: a name, a signature, a message.
    pub fn text(&self, text: *const c_char, what: &str) -> String {
        if text.is_null() {
            self.wrong(format_args!("{what} is NULL"));
        }
        // SAFETY: C gives a string.
        let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
        String::from_utf16_lossy(&self.units(bytes))
    }

    /// The UTF-16 units of C's modified UTF-8. Plain UTF-8 does, too.
    pub fn units(&self, bytes: &[u8]) -> Vec<u16> {
        match (baton_dex::Mutf8::new(bytes), std::str::from_utf8(bytes)) {
            (Ok(modified), _) => modified.utf16().collect(),
            (Err(_), Ok(plain)) => plain.encode_utf16().collect(),
            (Err(at), Err(_)) => {
                self.wrong(format_args!("byte {at} of a string is no modified UTF-8"))
            }
        }
    }

    /// The loader through which C sees classes: that of the native method's class, of the class
    /// that loads a library, or that of the class path.
    pub fn loader(&self) -> Loader {
        let loader = self.t.caller().map(|method| match method.name {
            "nativeLoad" => self.env.loading.get().unwrap_or(method.class().loader),
            _ => method.class().loader,
        });
        loader.unwrap_or_else(|| runtime::class_path_loader(self.t))
    }
}

/// Stores a result where C wants it, if it does.
pub fn give<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: C gives null or a place for the value.
        unsafe { to.write(value) };
    }
}
