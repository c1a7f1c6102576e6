//! How a VM starts, runs a program, and ends.

use crate::class::{Class, Loader};
use crate::collector;
use crate::dex_files;
use crate::exception::{self, OrThrow};
use crate::globals::Global;
use crate::interpreter;
use crate::linker::{self, LinkError};
use crate::natives;
use crate::object::Ref;
use crate::stack::Value;
use crate::string;
use crate::thread;
use crate::trace::Trace;
use crate::vm::{Known, Options, Program, Thread, Thrown, Vm};
use std::path::PathBuf;

/// Why a VM did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is no room for the heap.
    #[error("no room for the heap below 4 GiB: {0}")]
    Heap(std::io::Error),
    /// The system has no more threads.
    #[error("no thread for the collector: {0}")]
    Thread(std::io::Error),
    /// A file is no dex file and no archive of dex files.
    #[error("{path}: {message}")]
    File {
        /// The file
        path: PathBuf,
        /// What is wrong with it
        message: String,
    },
    /// A class that a zygote was to initialize has thrown an exception.
    #[error("class {0} cannot be initialized: {1}")]
    Preload(String, String),
    /// A zygote has other threads, which its children would lack.
    #[error("a class that was initialized has started threads: {0}")]
    Threads(String),
    /// The class library lacks something.
    #[error("the class library is not complete: {0}")]
    Library(String),
}

/// Starts a VM; the calling thread becomes its main thread.
///
/// # Errors
/// What the VM lacks.
pub fn start(options: Options) -> Result<Thread, StartError> {
    let (class_path, properties) = (options.class_path.clone(), options.properties.clone());
    let trace = options.trace.as_deref().map(|path| {
        let failed = |error: std::io::Error| StartError::File {
            path: path.to_owned(),
            message: format!("no trace there: {error}"),
        };
        Trace::create(path).map_err(failed)
    });
    let t = create(options, trace.transpose()?)?;
    t.vm.program.set(Program { class_path, properties }).expect("a VM starts once");
    collector::start(t.vm).map_err(StartError::Thread)?;
    load_library(&t)?;
    load_program(&t)?;
    Ok(t)
}

/// Makes a VM with the files of its class library; the calling thread becomes its main thread.
pub(crate) fn create(options: Options, trace: Option<Trace>) -> Result<Thread, StartError> {
    let mut vm =
        Vm::new(options, &natives::table(), interpreter::enter).map_err(StartError::Heap)?;
    vm.trace = trace;
    let vm: &'static Vm = Box::leak(Box::new(vm));
    for path in &vm.options.boot_class_path {
        open(vm, Loader::BOOT, path)?;
    }
    Ok(Thread::attach(vm))
}

/// Loads what the VM itself uses, and makes the main thread's java.lang.Thread.
pub(crate) fn load_library(t: &Thread) -> Result<(), StartError> {
    let lacks = |error: LinkError| StartError::Library(format!("{error:?}"));
    linker::bootstrap(t).map_err(lacks)?;
    let known = known(t).map_err(lacks)?;
    t.vm.known.set(known).expect("a VM starts once");
    thread::adopt(t, "main", Ref::NULL, false).map_err(|Thrown| StartError::Library(describe(t)))
}

/// Makes the class path's loader, opens its files, and starts the library's daemons.
pub(crate) fn load_program(t: &Thread) -> Result<(), StartError> {
    system_loader(t).map_err(|Thrown| StartError::Library(describe(t)))?;
    let loader = class_path_loader(t);
    t.vm.program().class_path.iter().try_for_each(|path| open(t.vm, loader, path))
}

fn open(vm: &'static Vm, loader: Loader, path: &std::path::Path) -> Result<(), StartError> {
    dex_files::open(vm, loader, path)
        .map_err(|message| StartError::File { path: path.to_owned(), message })
}

fn known(t: &Thread) -> Result<Known, LinkError> {
    let class = |descriptor| linker::find(t, Loader::BOOT, descriptor);
    let field = |class: &'static Class, name: &str, descriptor: &str| {
        class
            .declared_field(name, descriptor)
            .ok_or_else(|| LinkError::NotFound(format!("{}.{name}", class.descriptor)))
    };
    let (string, throwable) = (class("Ljava/lang/String;")?, class("Ljava/lang/Throwable;")?);
    let out_of_memory = crate::allocation::instance(t, class("Ljava/lang/OutOfMemoryError;")?)?;
    t.keep(out_of_memory);
    Ok(Known {
        object: class("Ljava/lang/Object;")?,
        class: class("Ljava/lang/Class;")?,
        string,
        throwable,
        cloneable: class("Ljava/lang/Cloneable;")?,
        serializable: class("Ljava/io/Serializable;")?,
        string_value: field(string, "value", "[C")?,
        string_offset: field(string, "offset", "I")?,
        string_count: field(string, "count", "I")?,
        arrays: [
            class("[Z")?,
            class("[B")?,
            class("[C")?,
            class("[S")?,
            class("[I")?,
            class("[J")?,
            class("[F")?,
            class("[D")?,
        ],
        backtrace: field(throwable, "backtrace", "[J")?,
        out_of_memory,
    })
}

/// Makes the loader of the class path, which becomes the main thread's, keeps it, and starts the
/// library's daemons.
fn system_loader(t: &Thread) -> Result<(), Thrown> {
    let class = exception::library_class(t, "Ljava/lang/ClassLoader;")?;
    let get = class.declared_method("getSystemClassLoader", "()Ljava/lang/ClassLoader;");
    let loader = t.invoke(get.expect("ClassLoader.getSystemClassLoader"), &[])?.reference();
    t.vm.system_loader.set(Global::new(&t.vm.globals, loader)).expect("a VM starts once");
    let main = t.state.java();
    let context = Class::of(main).find_field("contextClassLoader", "Ljava/lang/ClassLoader;");
    context.expect("Thread.contextClassLoader").set_ref(main, loader);
    let daemons = exception::library_class(t, "Ljava/lang/Daemons;")?;
    t.invoke(daemons.declared_method("start", "()V").expect("Daemons.start"), &[])?;
    Ok(())
}

/// The loader of the class path.
///
/// # Panics
/// Before the VM has started.
pub fn class_path_loader(t: &Thread) -> Loader {
    Loader(t.vm.system_loader.get().expect("the VM has started").get())
}

/// Runs `main` of a class of the class path, then waits for threads that are no daemons, and ends
/// the process by System.exit. An uncaught exception goes to the thread's handler, which shows its
/// stack trace; the exit code is 1 then.
///
/// Returns the exit code only if System.exit fails.
pub fn run_main(t: &Thread, class: &str, arguments: &[String]) -> u8 {
    let code = match invoke_main(t, class, arguments) {
        Ok(()) => 0,
        Err(Thrown) => {
            thread::uncaught(t, t.state.java());
            1
        }
    };
    thread::end(t, t.state.java());
    thread::await_others(t);
    // Runs the hooks, and ends the process.
    let _ = exit(t, code);
    code
}

/// Calls Runtime.exit.
fn exit(t: &Thread, code: u8) -> Result<(), Thrown> {
    let class = exception::library_class(t, "Ljava/lang/System;")?;
    let exit = class.declared_method("exit", "(I)V").expect("System.exit");
    t.invoke(exit, &[Value::Int(code.into())])?;
    Ok(())
}

fn invoke_main(t: &Thread, class: &str, arguments: &[String]) -> Result<(), Thrown> {
    let loader = class_path_loader(t);
    let descriptor = format!("L{};", class.replace('.', "/"));
    let class = linker::find(t, loader, &descriptor).or_throw(t)?;
    let main = class.find_method("main", "([Ljava/lang/String;)V").filter(|it| it.is_static());
    let Some(main) = main else {
        let message =
            format!("no static method \"main([Ljava/lang/String;)V\" in class {descriptor}");
        return Err(exception::throw(t, "Ljava/lang/NoSuchMethodError;", &message));
    };
    let strings = linker::array_of(t, t.vm.known().string).or_throw(t)?;
    let array = exception::new_array(t, strings, arguments.len() as u32)?;
    for (index, argument) in (0..).zip(arguments) {
        array.set_ref(index, exception::new_string(t, argument)?);
    }
    t.invoke(main, &[Value::Ref(array)]).map(|_| ())
}

/// The exception under way, as text that needs no Java; it is under way no longer.
pub fn describe(t: &Thread) -> String {
    let exception = t.take_exception();
    if exception.is_null() {
        return "no exception".to_owned();
    }
    let class = Class::of(exception);
    let message = class.library_field("detailMessage", "Ljava/lang/String;");
    let message = message.map_or(Ref::NULL, |field| field.get_ref(exception));
    let mut text = class.java_name();
    if !message.is_null() {
        text += &format!(": {}", string::to_rust(t, message));
    }
    for entry in exception::trace_of(t, exception) {
        let file = entry.method.class().source_file().unwrap_or_default();
        text += &format!("\n\tat {} ({file}:{})", entry.method, entry.line());
    }
    text
}
