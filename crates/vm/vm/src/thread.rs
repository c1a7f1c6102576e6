//! Java threads: each is an OS thread that is attached to the VM while it runs.

use crate::allocation::OutOfMemory;
use crate::cards::MOST_THREADS;
use crate::class::{Class, Loader};
use crate::exception::OrThrow;
use crate::object::Ref;
use crate::stack::Value;
use crate::vm::{AbortOnPanic, Thread, Thrown, Vm};
use crate::{exception, initialize, linker, monitor};
use rustix::process::{Pid, setpriority_process};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;

/// An OS thread needs little: Java's frames have a stack of their own.
const STACK_BYTES: usize = 4 << 20;
/// The largest Java stack that a program gets if it asks for more: 1 GiB.
const MOST_SLOTS: usize = 128 << 20;
/// How many threads Java may start: the others are for Rust.
const MOST_JAVA_THREADS: usize = MOST_THREADS / 2;

/// Starts a java.lang.Thread, which the caller keeps. It is alive when this returns.
///
/// # Errors
/// OutOfMemoryError if the system, or the VM, has no more threads.
pub fn start(t: &Thread, java: Ref) -> Result<(), Thrown> {
    let vm = t.vm;
    if !has_room(vm) {
        let message = format!("the VM has {MOST_JAVA_THREADS} threads");
        return Err(exception::throw(t, "Ljava/lang/OutOfMemoryError;", &message));
    }
    // With its starter's priority, as the system has it.
    let is_real_time = t.state.is_real_time.load(Relaxed);
    let n_slots = n_slots(vm, java);
    let (attached, is_attached) = mpsc::sync_channel(1);
    let builder = std::thread::Builder::new().stack_size(STACK_BYTES);
    let spawned = builder.spawn(move || {
        let t = Thread::attach_with_stack(vm, n_slots);
        let _abort = AbortOnPanic;
        t.state.set_java(java);
        t.state.set_real_time(is_real_time);
        t.state.is_daemon.store(int_field(java, "daemon", "Z") != 0, Relaxed);
        field(java, "threadPtr", "J").set64(java, u64::from(t.state.id));
        // The starter waits for it.
        let _ = attached.send(());
        run(&t, java);
    });
    if let Err(error) = spawned {
        let message = format!("the system starts no thread: {error}");
        return Err(exception::throw(t, "Ljava/lang/OutOfMemoryError;", &message));
    }
    t.safe(|| is_attached.recv()).expect("a thread attaches itself before it ends");
    Ok(())
}

fn run(t: &Thread, java: Ref) {
    name(t.state.tid(), &thread_name(t, java));
    set_priority(t.state.tid(), int_field(java, "priority", "I"));
    let run = Class::of(java).find_method("run", "()V").expect("Thread.run");
    if t.invoke_virtual(run, &[Value::Ref(java)]).is_err() {
        uncaught(t, java);
    }
    end(t, java);
}

/// The slots of a thread's Java stack: as many as its constructor was given bytes for, and at least
/// as many as other threads have. Memory that a thread does not use costs nothing.
fn n_slots(vm: &Vm, java: Ref) -> usize {
    let n_bytes = field(java, "stackSize", "J").get64(java) as i64;
    let n_slots = usize::try_from(n_bytes / 8).unwrap_or(0);
    n_slots.min(MOST_SLOTS).max(vm.options.stack_slots)
}

/// Whether Java may start another thread.
pub fn has_room(vm: &Vm) -> bool {
    vm.threads.all().len() < MOST_JAVA_THREADS
}

/// Makes the java.lang.Thread of the calling thread, which is attached and has none, in a group:
/// that of the main thread if it is null.
///
/// # Errors
/// The heap is full.
pub fn adopt(t: &Thread, name: &str, group: Ref, is_daemon: bool) -> Result<(), Thrown> {
    if is_daemon {
        t.vm.threads.make_daemon(&t.state);
    }
    let class = exception::library_class(t, "Ljava/lang/Thread;")?;
    let object = exception::new_object(t, class)?;
    t.state.set_java(object);
    let groups = exception::library_class(t, "Ljava/lang/ThreadGroup;")?;
    initialize::initialize(t, groups)?;
    let main = groups.find_field("mMain", "Ljava/lang/ThreadGroup;").expect("the main group");
    let group = if group.is_null() { main.get_ref(main.holder()) } else { group };
    let constructor = class
        .declared_method("<init>", "(JLjava/lang/String;Ljava/lang/ThreadGroup;Z)V")
        .expect("the VM's own constructor of java.lang.Thread");
    let arguments = [
        Value::Ref(object),
        Value::Long(t.state.id.into()),
        Value::Ref(exception::new_string(t, name)?),
        Value::Ref(group),
        Value::Int(is_daemon.into()),
    ];
    t.invoke(constructor, &arguments)?;
    Ok(())
}

/// Runs Rust code on a thread that Rust has started, as a Java thread for whose end the VM does not
/// wait. The process ends if `run` panics.
///
/// # Errors
/// The heap is full: nothing ran.
pub fn attached<T>(
    vm: &'static Vm,
    name: &str,
    run: impl FnOnce(&Thread) -> T,
) -> Result<T, OutOfMemory> {
    let t = Thread::attach(vm);
    let _abort = AbortOnPanic;
    if adopt(&t, name, Ref::NULL, true).is_err() {
        t.take_exception();
        return Err(OutOfMemory);
    }
    self::name(t.state.tid(), name);
    let result = run(&t);
    end(&t, t.state.java());
    Ok(result)
}

/// Gives the exception under way to the thread's handler.
pub fn uncaught(t: &Thread, java: Ref) {
    let exception = t.take_exception();
    t.state.set_uncaught(exception);
    let handled = || -> Result<(), Thrown> {
        let name = "getUncaughtExceptionHandler";
        let signature = "()Ljava/lang/Thread$UncaughtExceptionHandler;";
        let get = Class::of(java).find_method(name, signature).expect("a method of Thread");
        let handler = t.invoke_virtual(get, &[Value::Ref(java)])?.reference();
        let interface = "Ljava/lang/Thread$UncaughtExceptionHandler;";
        let interface = linker::find(t, Loader::BOOT, interface).or_throw(t)?;
        let signature = "(Ljava/lang/Thread;Ljava/lang/Throwable;)V";
        let handle = interface.declared_method("uncaughtException", signature);
        let args = [Value::Ref(handler), Value::Ref(java), Value::Ref(exception)];
        t.invoke_virtual(handle.expect("a method of the interface"), &args)?;
        Ok(())
    };
    if handled().is_err() {
        // The language ignores what a handler throws.
        t.take_exception();
    }
    t.state.set_uncaught(Ref::NULL);
}

/// Ends a Java thread: its group forgets it, and threads that join it go on.
pub fn end(t: &Thread, java: Ref) {
    let ended = || -> Result<(), Thrown> {
        let group = field(java, "group", "Ljava/lang/ThreadGroup;").get_ref(java);
        if !group.is_null() {
            let remove = Class::of(group).find_method("removeThread", "(Ljava/lang/Thread;)V");
            let remove = remove.expect("a method of ThreadGroup");
            t.invoke(remove, &[Value::Ref(group), Value::Ref(java)])?;
        }
        let lock = field(java, "lock", "Ljava/lang/Object;").get_ref(java);
        monitor::enter(t, lock);
        field(java, "threadPtr", "J").set64(java, 0);
        monitor::notify(t, lock, true)?;
        monitor::exit(t, lock)
    };
    if ended().is_err() {
        t.take_exception();
    }
}

/// Waits until no thread but daemons and the caller is left.
pub fn await_others(t: &Thread) {
    let vm: &'static Vm = t.vm;
    t.safe(|| vm.threads.await_others(&t.state));
}

fn field(java: Ref, name: &str, descriptor: &str) -> &'static crate::class::Field {
    Class::of(java).library_field(name, descriptor).expect("a field of Thread")
}

fn int_field(java: Ref, name: &str, descriptor: &str) -> i32 {
    field(java, name, descriptor).get32(java) as i32
}

fn thread_name(t: &Thread, java: Ref) -> String {
    let name = field(java, "name", "Ljava/lang/String;").get_ref(java);
    if name.is_null() { String::new() } else { crate::string::to_rust(t, name) }
}

/// Names an OS thread, as far as 15 bytes go.
pub fn name(tid: Pid, name: &str) {
    let path = format!("/proc/self/task/{}/comm", tid.as_raw_nonzero());
    let end = name.floor_char_boundary(15);
    // The name is for people who look at the process.
    let _ = std::fs::write(path, &name[..end]);
}

/// Maps a Java priority (1 to 10, 5 is normal) to a nice value, as Android does.
pub fn set_priority(tid: Pid, priority: i32) {
    const NICE: [i32; 10] = [19, 16, 13, 10, 0, -2, -4, -5, -6, -8];
    let nice = NICE[(priority.clamp(1, 10) - 1) as usize];
    // A process without the privilege keeps its threads at normal priority.
    let _ = setpriority_process(Some(tid), nice);
}
