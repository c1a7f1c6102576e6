//! The virtual machine, and a thread's own side of it.

use crate::cards::Acting;
use crate::class::{Class, Foreign, LoadedDex, Loader, Method};
use crate::dex_cache::DexCache;
use crate::globals::{Global, Globals};
use crate::heap::{Allocator, Collector, Heap};
use crate::memory::Arena;
use crate::monitors::Monitors;
use crate::object::{Kind, Ref};
use crate::pauses::Pauses;
use crate::pending::Pending;
use crate::profile::{Account, Profile};
use crate::requests::Requests;
use crate::safepoint::{ThreadState, Threads};
use crate::stack::{Args, Overflow, Value};
use crate::trace::Trace;
use rustc_hash::FxHashMap;
use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, RwLock};

/// Room for the VM's own description of classes.
const ARENA_BYTES: usize = 32 << 20;

/// An exception is under way: [`Thread::exception`] has it. A function that returns this has to be
/// left at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct Thrown;

/// A native method. It runs on a thread that is running (see the safepoint module): long waits
/// belong into [`Thread::safe`].
pub type NativeFn = fn(&Thread, Args) -> Result<Value, Thrown>;

/// One native method: class descriptor, name, signature, function. A method that has code can be
/// listed, too: the function takes its place.
pub type Native = (&'static str, &'static str, &'static str, NativeFn);

/// How native methods run functions of libraries.
#[derive(Clone, Copy, Debug)]
pub struct ForeignCalls {
    /// Finds the function for a method that no table has. The error says where it was looked for,
    /// for people.
    pub find: fn(&Thread, &'static Method) -> Result<Foreign, String>,
    /// Calls a function for a method, whose frame is the top one.
    pub call: fn(&Thread, &'static Method, &Foreign, Args) -> Result<Value, Thrown>,
}

/// Runs a method with arguments: the interpreter's entry.
pub(crate) type Enter = fn(&Thread, &'static Method, &[Value]) -> Result<Value, Thrown>;

/// What a VM is started with.
#[derive(Debug, Clone)]
pub struct Options {
    /// Dex files, or archives with a classes.dex, of the class library
    pub boot_class_path: Vec<std::path::PathBuf>,
    /// The program's
    pub class_path: Vec<std::path::PathBuf>,
    /// Native methods beside those of the class library
    pub natives: Vec<Native>,
    /// Those in libraries, if there can be any
    pub foreign: Option<ForeignCalls>,
    /// System properties
    pub properties: Vec<(String, String)>,
    /// The heap's size in bytes
    pub heap_bytes: usize,
    /// Slots of a thread's stack, 8 bytes each
    pub stack_slots: usize,
    /// Which collector frees objects
    pub collector: Collector,
    /// Whether the heap is checked after each collection, with the program stopped
    pub verify_heap: bool,
    /// Whether each collection is told of on standard error
    pub reports_collections: bool,
    /// A file for a trace of collections and pauses
    pub trace: Option<std::path::PathBuf>,
    /// A file for a profile of allocations
    pub allocation_profile: Option<std::path::PathBuf>,
    /// Whether collections follow each other without a pause; with mark-sweep, whether there is one
    /// before each allocation. In a zygote that begins with a program.
    pub is_tortured: bool,
    /// The directory that records which dex files have been checked: this user's alone
    pub dex_cache: Option<std::path::PathBuf>,
}

impl Default for Options {
    /// A heap of 256 MiB, stacks of 1 MiB, and the collector that stops the program.
    fn default() -> Options {
        Options {
            boot_class_path: Vec::new(),
            class_path: Vec::new(),
            properties: Vec::new(),
            heap_bytes: 256 << 20,
            stack_slots: 128 << 10,
            collector: Collector::default(),
            verify_heap: false,
            reports_collections: false,
            trace: None,
            allocation_profile: None,
            is_tortured: false,
            dex_cache: None,
            natives: Vec::new(),
            foreign: None,
        }
    }
}

/// What a VM runs, apart from its class.
#[derive(Debug, Clone, Default)]
pub struct Program {
    /// Dex files, or archives with a classes.dex
    pub class_path: Vec<std::path::PathBuf>,
    /// System properties
    pub properties: Vec<(String, String)>,
}

/// The virtual machine. It lives until the process ends.
#[derive(Debug)]
pub struct Vm {
    /// Objects
    pub heap: Heap,
    /// Requests to the collector that counts, if that was chosen
    pub(crate) requests: Option<Requests>,
    /// Threads
    pub threads: Threads,
    /// Monitors of objects
    pub monitors: Monitors,
    /// References whose referents are gone
    pub(crate) pending: Pending,
    /// What it was started with
    pub options: Options,
    /// What runs. A zygote has none: its child sets it.
    pub(crate) program: OnceLock<Program>,
    pub(crate) arena: Arena,
    /// None if there is no directory that can be trusted
    pub(crate) dex_cache: Option<DexCache>,
    pub(crate) classes: RwLock<FxHashMap<(Loader, &'static str), &'static Class>>,
    /// The dex files of each loader
    pub(crate) dexes: RwLock<FxHashMap<Loader, Vec<&'static LoadedDex>>>,
    /// Guards the status of classes.
    pub(crate) initializations: Mutex<()>,
    pub(crate) initialized: Condvar,
    pub(crate) strings: Mutex<FxHashMap<Box<[u16]>, Ref>>,
    /// References that Rust keeps
    pub globals: Globals,
    /// The loader of the class path
    pub(crate) system_loader: OnceLock<Global>,
    /// Objects of lambda expressions that capture nothing, by their class
    pub(crate) lambdas: Mutex<FxHashMap<&'static str, Ref>>,
    pub(crate) natives: FxHashMap<(&'static str, &'static str, &'static str), usize>,
    pub(crate) native_functions: Vec<NativeFn>,
    pub(crate) enter: Enter,
    pub(crate) known: OnceLock<Known>,
    pub(crate) trace: Option<Trace>,
    pub(crate) profile: Option<Profile>,
}

/// Classes, fields and methods that the VM itself uses.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Known {
    pub object: &'static Class,
    pub class: &'static Class,
    pub string: &'static Class,
    pub throwable: &'static Class,
    pub cloneable: &'static Class,
    pub serializable: &'static Class,
    pub string_value: &'static crate::class::Field,
    pub string_offset: &'static crate::class::Field,
    pub string_count: &'static crate::class::Field,
    /// Arrays of the primitive kinds, in the order of [`Kind`]: see [`Known::array_of`]
    pub arrays: [&'static Class; 8],
    /// Throwable's hidden field: a long[] of methods and units
    pub backtrace: &'static crate::class::Field,
    /// Thrown when nothing can be allocated
    pub out_of_memory: Ref,
}

impl Known {
    /// The class of arrays of a primitive kind.
    ///
    /// # Panics
    /// If the kind is not primitive.
    #[inline]
    pub fn array_of(&self, kind: Kind) -> &'static Class {
        self.arrays[kind as usize]
    }
}

impl Vm {
    /// Makes a VM without classes.
    ///
    /// # Errors
    /// ENOMEM if there is no gap below 4 GiB for the heap.
    pub(crate) fn new(options: Options, natives: &[Native], enter: Enter) -> io::Result<Vm> {
        let natives = [natives, &options.natives].concat();
        let by_name = natives.iter().enumerate();
        Ok(Vm {
            heap: Heap::map(options.heap_bytes, options.collector)?,
            requests: (options.collector == Collector::Counting).then(Requests::new),
            dex_cache: options.dex_cache.as_deref().and_then(DexCache::open),
            threads: Threads::default(),
            pending: Pending::default(),
            monitors: Monitors::default(),
            arena: Arena::map(ARENA_BYTES)?,
            classes: RwLock::default(),
            dexes: RwLock::default(),
            initializations: Mutex::default(),
            initialized: Condvar::new(),
            strings: Mutex::default(),
            globals: Globals::default(),
            system_loader: OnceLock::new(),
            lambdas: Mutex::default(),
            natives: by_name.map(|(index, it)| ((it.0, it.1, it.2), index)).collect(),
            native_functions: natives.iter().map(|it| it.3).collect(),
            enter,
            known: OnceLock::new(),
            program: OnceLock::new(),
            trace: None,
            profile: options.allocation_profile.as_deref().map(Profile::new),
            options,
        })
    }

    /// Classes, fields and methods that the VM itself uses.
    ///
    /// # Panics
    /// Before the VM has started.
    #[inline(always)]
    pub fn known(&self) -> &Known {
        self.known.get().expect("the VM has started")
    }

    /// What runs: nothing in a zygote.
    pub(crate) fn program(&self) -> &Program {
        static NOTHING: Program = Program { class_path: Vec::new(), properties: Vec::new() };
        self.program.get().unwrap_or(&NOTHING)
    }

    /// The index of the native function for a method.
    pub(crate) fn native(&self, method: &Method) -> Option<usize> {
        let key = (method.class().descriptor, method.name, method.signature);
        self.natives.get(&key).copied()
    }
}

/// Ends the process if the thread that has this panics. Other threads would wait for ever for its
/// end, its monitors or its work.
#[derive(Debug)]
pub(crate) struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

/// The calling thread's side of the VM.
#[derive(Debug)]
pub struct Thread {
    /// The VM
    pub vm: &'static Vm,
    /// What other threads may know
    pub state: Arc<ThreadState>,
    pub(crate) allocator: RefCell<Allocator>,
    /// Its part of a profile of allocations
    pub(crate) account: Option<Account>,
    /// How many times Rust and Java call each other at this moment.
    pub(crate) nesting: Cell<u32>,
    /// The depth of the stack's frame with which the interpreter was entered last.
    pub(crate) entry_depth: Cell<usize>,
    /// An error says that these are too many, and is being made.
    pub(crate) is_overflowing: Cell<bool>,
    /// A result of 64 bits, until an instruction takes it.
    pub(crate) result: Cell<i64>,
    /// Classes that this thread is loading.
    pub(crate) loading: RefCell<Vec<(Loader, String)>>,
    /// What another crate keeps for this thread
    pub extension: OnceCell<Box<dyn Any>>,
    /// Makes the barrier store for this thread.
    acting: Option<Acting>,
}

impl Thread {
    /// Makes the calling OS thread a thread of the VM, and running.
    pub fn attach(vm: &'static Vm) -> Thread {
        Thread::attach_with_stack(vm, vm.options.stack_slots)
    }

    /// Attaches the calling thread with a stack of this many slots, 8 bytes each.
    pub fn attach_with_stack(vm: &'static Vm, n_slots: usize) -> Thread {
        let pauses = Pauses::new(vm.trace.is_some() || vm.options.reports_collections);
        let state = vm.threads.attach(n_slots, vm.heap.cards(), pauses);
        vm.threads.enter(&state);
        Thread {
            acting: state.mutator().cloned().map(Acting::new),
            vm,
            state,
            allocator: RefCell::default(),
            account: vm.profile.as_ref().map(Profile::open),
            nesting: Cell::new(0),
            entry_depth: Cell::new(0),
            is_overflowing: Cell::new(false),
            result: Cell::new(0),
            loading: RefCell::default(),
            extension: OnceCell::new(),
        }
    }

    /// Whether the frame with which the interpreter was entered last has been popped.
    #[inline(always)]
    pub(crate) fn has_returned(&self) -> bool {
        self.state.stack.depth() < self.entry_depth.get()
    }

    /// The method of the top frame.
    pub fn caller(&self) -> Option<&'static Method> {
        let depth = self.state.stack.depth();
        self.state.stack.frame(depth.checked_sub(1)?).method.get()
    }

    /// The exception under way; null if there is none.
    pub fn exception(&self) -> Ref {
        // SAFETY: the word holds a reference that the roots contain.
        unsafe { Ref::from_address(self.state.exception.load(Relaxed)) }
    }

    /// Throws an exception that exists.
    pub fn throw_object(&self, exception: Ref) -> Thrown {
        self.state.exception.store(exception.address(), Relaxed);
        Thrown
    }

    /// Takes the exception under way, which is then under way no longer.
    pub fn take_exception(&self) -> Ref {
        let exception = self.exception();
        self.state.exception.store(0, Relaxed);
        self.keep(exception)
    }

    /// Keeps a reference among the roots until the native method that runs returns. Arguments, and
    /// results of [`Thread::invoke`] and of functions that make objects, are kept already.
    pub fn keep(&self, object: Ref) -> Ref {
        if !object.is_null() {
            // A native method's frame has room that the interpreter has asked for; one that
            // keeps more references than a stack has slots has to use an array.
            let kept = self.state.stack.keep(object);
            kept.unwrap_or_else(|Overflow| panic!("a native method keeps too many references"));
        }
        object
    }

    /// Keeps references that `run` makes only until it returns.
    pub fn scope<T>(&self, run: impl FnOnce() -> T) -> T {
        let kept = self.state.stack.kept();
        let result = run();
        self.state.stack.release(kept);
        result
    }

    /// Runs something that takes long or waits, as a safe thread: `run` touches no object.
    pub fn safe<T>(&self, run: impl FnOnce() -> T) -> T {
        self.vm.threads.leave(&self.state);
        let result = run();
        self.vm.threads.enter(&self.state);
        result
    }

    /// Does what a collector asks for.
    #[inline(always)]
    pub fn safepoint(&self) {
        if self.state.has_attention() {
            self.vm.threads.attend(&self.state);
        }
    }

    /// In which period this thread allocates (see the heap).
    #[inline(always)]
    pub(crate) fn period(&self) -> u32 {
        match self.state.mutator() {
            Some(mutator) => mutator.stage().epoch(),
            None => self.vm.heap.collections(),
        }
    }

    /// Takes a lock of the VM; waits as a safe thread.
    pub fn lock<'a, T>(&self, mutex: &'a Mutex<T>) -> MutexGuard<'a, T> {
        loop {
            if let Ok(guard) = mutex.try_lock() {
                return guard;
            }
            // A thread that becomes running may wait for a collector, which takes locks as well.
            self.safe(|| drop(mutex.lock().expect("no holder panics")));
        }
    }

    /// Runs exactly this method. Arguments begin with `this` for an instance method. The class is
    /// initialized before.
    ///
    /// # Errors
    /// An exception is under way.
    pub fn invoke(&self, method: &'static Method, args: &[Value]) -> Result<Value, Thrown> {
        let result = (self.vm.enter)(self, method, args)?;
        if let Value::Ref(object) = result {
            self.keep(object);
        }
        Ok(result)
    }

    /// Runs the method that `this` has for `method`.
    ///
    /// # Errors
    /// An exception is under way.
    ///
    /// # Panics
    /// If the first argument is null or its class has no such method.
    pub fn invoke_virtual(&self, method: &'static Method, args: &[Value]) -> Result<Value, Thrown> {
        let class = Class::of(args[0].reference());
        let method = class.implementation(method).expect("a method of the receiver");
        self.invoke(method, args)
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.acting = None;
        if let Some(mutator) = self.state.mutator() {
            mutator.end();
        }
        self.vm.threads.leave(&self.state);
        self.vm.threads.detach(&self.state);
    }
}
