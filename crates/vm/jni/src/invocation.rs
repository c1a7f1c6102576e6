//! The functions of a `JavaVM`: threads that C has started, and the VM's end.
//!
//! A thread that C attaches is a Java thread until C detaches it, or until it ends.

use crate::env::{self, Env, begin};
use crate::handle::Handle;
use crate::interface::{JavaVm, N_MACHINE_FUNCTIONS, Table, java_vm};
use crate::libraries::{is_version, unload_all};
use crate::objects::leave_monitors;
use crate::{env::give, report};
use baton_vm::object::Ref;
use baton_vm::thread;
use baton_vm::vm::Thread;
use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_void};
use std::ptr;

const OK: i32 = 0;
const ERROR: i32 = -1;
const DETACHED: i32 = -2;
const WRONG_VERSION: i32 = -3;

/// A `JavaVMAttachArgs`.
#[repr(C)]
pub struct AttachArgs {
    version: i32,
    name: *const c_char,
    group: Handle,
}

/// The thread that C has attached.
struct Attached(RefCell<Option<Box<Thread>>>);

impl Drop for Attached {
    fn drop(&mut self) {
        if let Some(t) = self.0.take() {
            detach(t);
        }
    }
}

thread_local! {
    static ATTACHED: Attached = const { Attached(RefCell::new(None)) };
}

fn machine(vm: *const JavaVm, function: &'static str) -> &'static JavaVm {
    // SAFETY: C has the pointer from this crate, and what it points to lives for ever.
    match unsafe { vm.as_ref() } {
        Some(machine) => machine,
        None => report::wrong_use(None, function, "the JavaVM is NULL"),
    }
}

/// `GetJavaVM`.
pub extern "C" fn get_java_vm(env: *const Env, to: *mut *const JavaVm) -> i32 {
    let call = begin(env, "GetJavaVM");
    give(to, java_vm(call.t.vm));
    OK
}

extern "C" fn get_env(_: *const JavaVm, to: *mut *const Env, version: i32) -> i32 {
    let current = env::current();
    let result = match (current.is_null(), is_version(version)) {
        (true, _) => DETACHED,
        (false, false) => WRONG_VERSION,
        (false, true) => OK,
    };
    give(to, if result == OK { current } else { ptr::null() });
    result
}

extern "C" fn attach_current_thread(
    vm: *const JavaVm,
    to: *mut *const Env,
    args: *const AttachArgs,
) -> i32 {
    attach(machine(vm, "AttachCurrentThread"), to, args, false)
}

extern "C" fn attach_current_thread_as_daemon(
    vm: *const JavaVm,
    to: *mut *const Env,
    args: *const AttachArgs,
) -> i32 {
    attach(machine(vm, "AttachCurrentThreadAsDaemon"), to, args, true)
}

fn attach(
    machine: &'static JavaVm,
    to: *mut *const Env,
    args: *const AttachArgs,
    is_daemon: bool,
) -> i32 {
    let current = env::current();
    if !current.is_null() {
        give(to, current);
        return OK;
    }
    // SAFETY: C gives null, or arguments.
    let args = unsafe { args.as_ref() };
    let version = args.map_or(0x0001_0006, |args| args.version);
    if !is_version(version) {
        return WRONG_VERSION;
    }
    if !thread::has_room(machine.vm) {
        return ERROR;
    }
    let name = args.map(|args| args.name).filter(|name| !name.is_null());
    // SAFETY: C gives a string.
    let name = name.map(|name| unsafe { CStr::from_ptr(name) }.to_string_lossy());
    let t = Box::new(Thread::attach(machine.vm));
    let env = Env::of(&t);
    let name = name.unwrap_or_else(|| format!("Thread-{}", t.state.id).into());
    let group = args.map_or(Handle::NULL, |args| args.group);
    let group = match group.is_null() {
        true => Some(Ref::NULL),
        false => env.object(&t, group),
    };
    let Some(group) = group else {
        report::wrong_use(None, "AttachCurrentThread", "the group is no reference");
    };
    let adopted = t.scope(|| thread::adopt(&t, &name, t.keep(group), is_daemon));
    if adopted.is_err() {
        t.take_exception();
        return ERROR;
    }
    if args.is_some_and(|args| !args.name.is_null()) {
        thread::name(t.state.tid(), &name);
    }
    give(to, ptr::from_ref(env));
    t.vm.threads.leave(&t.state);
    ATTACHED.with(|attached| attached.0.replace(Some(t)));
    OK
}

extern "C" fn detach_current_thread(_: *const JavaVm) -> i32 {
    let is_in_java = |t: &Thread| t.state.stack.depth() > 0;
    let attached = ATTACHED.with(|attached| {
        let mut attached = attached.0.borrow_mut();
        attached.take_if(|t| !is_in_java(t))
    });
    match attached {
        Some(t) => {
            detach(t);
            OK
        }
        // Java has started the thread, or runs below; or nobody has attached it.
        None => {
            if env::current().is_null() {
                OK
            } else {
                ERROR
            }
        }
    }
}

/// Ends the Java thread. It is safe.
fn detach(t: Box<Thread>) {
    t.vm.threads.enter(&t.state);
    t.scope(|| {
        if !t.exception().is_null() {
            thread::uncaught(&t, t.state.java());
        }
        leave_monitors(&t, Env::of(&t));
        thread::end(&t, t.state.java());
    });
}

/// Waits for the other threads, and runs JNI_OnUnload. The VM lives as long as the process.
extern "C" fn destroy_java_vm(vm: *const JavaVm) -> i32 {
    let machine = machine(vm, "DestroyJavaVM");
    let mut env = ptr::null();
    if attach(machine, &mut env, ptr::null(), false) != OK {
        return ERROR;
    }
    let call = begin(env, "DestroyJavaVM");
    thread::await_others(call.t);
    unload_all(call.t);
    drop(call);
    detach_current_thread(vm);
    OK
}

/// The table, in the order of `jni.h`.
pub fn table() -> Table<N_MACHINE_FUNCTIONS> {
    let none = ptr::null::<c_void>();
    Table([
        none,
        none,
        none,
        destroy_java_vm as *const c_void,
        attach_current_thread as *const c_void,
        detach_current_thread as *const c_void,
        get_env as *const c_void,
        attach_current_thread_as_daemon as *const c_void,
    ])
}
