//! A VM without a program: its class library is loaded, and children of fork run programs in it.
//!
//! A zygote has one thread, and runs no Java after its start. So a child has all threads that its
//! parent has. The library's daemons and the thread of the collector that counts start in the
//! child. The start rehearses what a child will do, so that the child finds its classes linked.
//!
//! The heap is frozen ([`Heap::freeze`](crate::heap::Heap::freeze)): what the start has made stays
//! in memory that all children share, but for the pages that they change.

use crate::class::Loader;
use crate::exception::OrThrow;
use crate::natives::values;
use crate::runtime::{self, StartError};
use crate::safepoint::ThreadState;
use crate::stack::Value;
use crate::vm::{Options, Program, Thread, Thrown};
use crate::{collector, initialize, linker, lock};
use std::sync::Arc;

/// A VM that waits for a program.
#[derive(Debug)]
pub struct Zygote {
    t: Thread,
}

impl Zygote {
    /// Starts a VM on the calling thread, and initializes classes of its class library, by their
    /// names. Its class path is empty.
    ///
    /// # Errors
    /// What the VM lacks, or what a class has done.
    pub fn start(options: Options, classes: &[String]) -> Result<Zygote, StartError> {
        // Each program would write over another one's reports.
        let options = Options { trace: None, allocation_profile: None, ..options };
        let t = runtime::create(options, None)?;
        runtime::load_library(&t)?;
        t.scope(|| rehearse(&t)).map_err(|Thrown| StartError::Library(runtime::describe(&t)))?;
        for name in classes {
            t.scope(|| initialize_named(&t, name))
                .map_err(|Thrown| StartError::Preload(name.clone(), runtime::describe(&t)))?;
        }
        let others: Vec<String> = others(&t).map(|it| it.os_name()).collect();
        if !others.is_empty() {
            return Err(StartError::Threads(others.join(", ")));
        }
        collector::freeze(&t);
        Ok(Zygote { t })
    }

    /// Makes this the VM of a program. The calling thread is the only one of a process that the
    /// zygote's thread has forked.
    ///
    /// # Errors
    /// The class path has a bad file, or there are no more threads.
    pub fn into_vm(self, program: Program) -> Result<Thread, StartError> {
        let t = self.t;
        lock::forget_thread();
        t.state.set_tid();
        if let Some(cache) = &t.vm.dex_cache {
            cache.start_again();
        }
        t.vm.program.set(program).expect("a zygote has no program");
        reset_properties(&t).map_err(|Thrown| StartError::Library(runtime::describe(&t)))?;
        collector::start(t.vm).map_err(StartError::Thread)?;
        runtime::load_program(&t)?;
        Ok(t)
    }
}

/// Does without effect what each start does, so that its classes are linked, initialized and know
/// each other.
fn rehearse(t: &Thread) -> Result<(), Thrown> {
    reset_properties(t)?;
    let create = ("createSystemClassLoader", "()Ljava/lang/ClassLoader;");
    values::call(t, "java/lang/ClassLoader", create.0, create.1, &[])?;
    let bytes = values::construct(t, "java/io/ByteArrayOutputStream", "()V", &[])?;
    let arguments = [Value::Ref(bytes)];
    let stream = "java/io/PrintStream";
    let stream = values::construct(t, stream, "(Ljava/io/OutputStream;)V", &arguments)?;
    let line = Value::Ref(values::text(t, "a line")?);
    values::call_on(t, stream, "println", "(Ljava/lang/String;)V", &[line])?;
    values::call_on(t, stream, "println", "(J)V", &[Value::Long(0)])?;
    let null = Value::Ref(values::text(t, "/dev/null")?);
    let input = values::construct(t, "java/io/FileInputStream", "(Ljava/lang/String;)V", &[null])?;
    values::call_on(t, input, "read", "()I", &[])?;
    values::call_on(t, input, "close", "()V", &[])?;
    values::call(t, "java/lang/System", "gc", "()V", &[])?;
    let path = Value::Ref(values::text(t, "/")?);
    let file = values::construct(t, "java/io/File", "(Ljava/lang/String;)V", &[path])?;
    values::call_on(t, file, "getCanonicalPath", "()Ljava/lang/String;", &[])?;
    values::call(t, "java/lang/Daemons", "start", "()V", &[])?;
    let others: Vec<_> = others(t).map(|it| it.tid().as_raw_nonzero()).collect();
    values::call(t, "java/lang/Daemons", "stop", "()V", &[])?;
    // The system tells of no thread's end. The OS thread ends a little after the Java thread.
    let exists = |tid: &std::num::NonZeroI32| {
        std::fs::exists(format!("/proc/self/task/{tid}")).unwrap_or(false)
    };
    while others.iter().any(exists) {
        t.safe(std::thread::yield_now);
    }
    Ok(())
}

/// The other threads of the VM.
fn others(t: &Thread) -> impl Iterator<Item = Arc<ThreadState>> {
    let own = t.state.id;
    t.vm.threads.all().into_iter().filter(move |it| it.id != own)
}

fn initialize_named(t: &Thread, name: &str) -> Result<(), Thrown> {
    let descriptor = format!("L{};", name.replace('.', "/"));
    let class = linker::find(t, Loader::BOOT, &descriptor).or_throw(t)?;
    initialize::initialize(t, class)
}

/// Makes the system properties again: of this process's environment, directory and program.
fn reset_properties(t: &Thread) -> Result<(), Thrown> {
    values::call(t, "java/lang/System", "initSystemProperties", "()V", &[]).map(drop)
}
