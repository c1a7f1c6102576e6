//! The end of a thread that has called by the typed API: its engines forget it.
//!
//! A program of the raw interface reports the end itself (BINDER_THREAD_EXIT); without that the
//! kernel would not know of it either. What the kernel does not have, the thread's real-time lanes
//! and the descriptor by which it polls, is given up in any case.
//!
//! **Invariant**: nothing here keeps an engine alive. An engine may be gone before the thread; an
//! engine whose last reference is dropped here is closed here, on a thread that holds none of its
//! locks.

use super::Engine;
use crate::sys::thread::tid;
use rustix::process::{Pid, getpid};
use std::cell::RefCell;
use std::sync::{Arc, Weak};

thread_local! {
    static USED: RefCell<UsedEngines> = const { RefCell::new(UsedEngines(Vec::new())) };
}

/// The engines that know this thread, each with the process that it belongs to.
struct UsedEngines(Vec<(Weak<Engine>, Pid, Scope)>);

/// The part of a thread that an engine forgets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// All of the thread.
    Thread,
    /// The lanes that are reserved for it, or to which it is dedicated, and its descriptor.
    Resources,
}

/// Registers the calling thread, which the engine is about to know.
pub fn remember(engine: &Arc<Engine>) {
    keep(engine, Scope::Thread);
}

/// Registers a thread of the raw interface that polls, or that has, or may get, lanes of its own.
pub fn remember_resources(engine: &Arc<Engine>) {
    keep(engine, Scope::Resources);
}

fn keep(engine: &Arc<Engine>, scope: Scope) {
    // A call by the destructor of another thread-local may come too late to be remembered.
    let _ = USED.try_with(|used| {
        let UsedEngines(engines) = &mut *used.borrow_mut();
        if engines.iter().any(|(old, ..)| std::ptr::eq(old.as_ptr(), Arc::as_ptr(engine))) {
            return;
        }
        engines.retain(|(old, ..)| old.strong_count() > 0);
        engines.push((Arc::downgrade(engine), getpid(), scope));
    });
}

impl Drop for UsedEngines {
    fn drop(&mut self) {
        for (engine, process, scope) in self.0.drain(..) {
            // In a child of fork the holders of the engine's locks may not exist.
            if process == getpid()
                && let Some(engine) = engine.upgrade()
            {
                match scope {
                    Scope::Thread => engine.forget_thread(tid()),
                    Scope::Resources => {
                        engine.forget_lanes(tid());
                        engine.pollables.forget(tid());
                    }
                }
            }
        }
    }
}
