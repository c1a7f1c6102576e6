//! Threads that run Java, and how one of them stops all others.
//!
//! A thread is *running* or *safe*. A running thread may hold references that nobody else knows,
//! and looks at [`Threads::is_stopping`] at every backward branch, call and allocation. A safe
//! thread touches no object: it waits, or runs code that knows none. To stop the world is to set
//! the flag and wait until no other thread runs.
//!
//! Orders: a thread stores its state and then loads the flag; whoever stops stores the flag and
//! then loads the states. Both in sequential consistency, so that one of them sees the other.

use crate::monitors::Activity;
use crate::object::Ref;
use crate::parker::Parker;
use crate::stack::Stack;
use rustix::thread::Pid;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// What other threads may know of a thread.
#[derive(Debug)]
pub struct ThreadState {
    /// A number that no other thread of the VM has at the same time, from 1 on.
    pub id: u32,
    /// The frames
    pub stack: Stack,
    /// The java.lang.Thread, null at first
    pub(crate) java: AtomicU32,
    /// The exception that is being thrown
    pub(crate) exception: AtomicU32,
    /// A result that is a reference, until an instruction takes it
    pub(crate) result: AtomicU32,
    /// An exception that nothing caught, while its handler runs
    uncaught: AtomicU32,
    /// Where the thread waits
    pub parker: Arc<Parker>,
    /// What it does: a [`Activity`]
    pub(crate) activity: AtomicU8,
    /// The VM does not wait for the end of this thread
    pub(crate) is_daemon: AtomicBool,
    /// The OS thread
    pub tid: Pid,
    is_safe: AtomicBool,
}

impl ThreadState {
    /// The java.lang.Thread; null before it is set.
    pub fn java(&self) -> Ref {
        // SAFETY: the word holds a reference that the roots contain.
        unsafe { Ref::from_address(self.java.load(Relaxed)) }
    }

    /// Sets the java.lang.Thread.
    pub fn set_java(&self, thread: Ref) {
        self.java.store(thread.address(), Relaxed);
    }

    /// Keeps an exception that nothing caught.
    pub(crate) fn set_uncaught(&self, exception: Ref) {
        self.uncaught.store(exception.address(), Relaxed);
    }

    /// Calls `with` for each reference that the thread holds.
    pub fn each_root(&self, mut with: impl FnMut(Ref)) {
        self.stack.each_reference(&mut with);
        for word in [&self.java, &self.exception, &self.result, &self.uncaught] {
            // SAFETY: the word holds a reference that the thread wrote.
            with(unsafe { Ref::from_address(word.load(Relaxed)) });
        }
    }
}

/// All threads of a VM.
#[derive(Debug, Default)]
pub struct Threads {
    stopping: AtomicBool,
    all: Mutex<Listed>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Listed {
    threads: Vec<Arc<ThreadState>>,
}

/// The world is stopped while this lives.
pub struct Stopped<'a> {
    threads: &'a Threads,
    listed: MutexGuard<'a, Listed>,
}

impl std::fmt::Debug for Stopped<'_> {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "Stopped({})", self.listed.threads.len())
    }
}

impl Stopped<'_> {
    /// All threads, the caller's included.
    pub fn threads(&self) -> &[Arc<ThreadState>] {
        &self.listed.threads
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.threads.stopping.store(false, SeqCst);
        self.threads.changed.notify_all();
    }
}

impl Threads {
    /// Adds the calling thread, which is safe at first.
    pub fn attach(&self, n_slots: usize) -> Arc<ThreadState> {
        let mut listed = self.lock();
        let is_free = |id: &u32| listed.threads.iter().all(|thread| thread.id != *id);
        let id = (1..).find(is_free).expect("fewer threads than numbers");
        let state = Arc::new(ThreadState {
            id,
            stack: Stack::new(n_slots),
            java: AtomicU32::new(0),
            exception: AtomicU32::new(0),
            result: AtomicU32::new(0),
            uncaught: AtomicU32::new(0),
            parker: Arc::default(),
            activity: AtomicU8::new(Activity::Running as u8),
            is_daemon: AtomicBool::new(false),
            tid: rustix::thread::gettid(),
            is_safe: AtomicBool::new(true),
        });
        listed.threads.push(state.clone());
        state
    }

    /// Removes a safe thread.
    pub fn detach(&self, state: &Arc<ThreadState>) {
        assert!(state.is_safe.load(Relaxed));
        self.lock().threads.retain(|thread| !Arc::ptr_eq(thread, state));
        self.changed.notify_all();
    }

    /// Makes the calling thread a daemon. A thread in [`Threads::await_others`] looks again.
    pub fn make_daemon(&self, state: &ThreadState) {
        state.is_daemon.store(true, Relaxed);
        drop(self.lock());
        self.changed.notify_all();
    }

    /// Waits until all threads but the calling one, which is safe, are daemons.
    pub fn await_others(&self, own: &Arc<ThreadState>) {
        let mut listed = self.lock();
        let is_done =
            |thread: &Arc<ThreadState>| Arc::ptr_eq(thread, own) || thread.is_daemon.load(Relaxed);
        while !listed.threads.iter().all(is_done) {
            listed = self.changed.wait(listed).expect("no holder panics");
        }
    }

    /// The threads at this moment.
    pub fn all(&self) -> Vec<Arc<ThreadState>> {
        self.lock().threads.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Listed> {
        self.all.lock().expect("no holder panics")
    }

    /// Whether running threads have to become safe.
    #[inline(always)]
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }

    /// Makes a running thread safe.
    pub fn leave(&self, state: &ThreadState) {
        state.is_safe.store(true, SeqCst);
        if self.stopping.load(SeqCst) {
            // Whoever stops holds the lock or waits: the notification is not lost.
            drop(self.lock());
            self.changed.notify_all();
        }
    }

    /// Makes a safe thread running, after a stop that is under way.
    pub fn enter(&self, state: &ThreadState) {
        loop {
            state.is_safe.store(false, SeqCst);
            if !self.stopping.load(SeqCst) {
                return;
            }
            self.leave(state);
            let mut listed = self.lock();
            while self.stopping.load(SeqCst) {
                listed = self.changed.wait(listed).expect("no holder panics");
            }
        }
    }

    /// Stops all threads but the calling one, which has to be safe.
    pub fn stop(&self, own: &ThreadState) -> Stopped<'_> {
        assert!(own.is_safe.load(Relaxed));
        let mut listed = self.lock();
        while self.stopping.load(SeqCst) {
            listed = self.changed.wait(listed).expect("no holder panics");
        }
        self.stopping.store(true, SeqCst);
        while !listed.threads.iter().all(|thread| thread.is_safe.load(SeqCst)) {
            listed = self.changed.wait(listed).expect("no holder panics");
        }
        Stopped { threads: self, listed }
    }
}
