//! The end of a thread that has called by the typed API: its engines forget it.
//!
//! A program of the raw interface says so itself (BINDER_THREAD_EXIT). What it does not say, the
//! kernel does not know either.
//!
//! **Invariant**: nothing here keeps an engine alive. One that is gone first is not missed; one
//! whose last reference goes here is closed here, on a thread that holds none of its locks.

use crate::engine::{Engine, tid};
use rustix::process::{Pid, getpid};
use std::cell::RefCell;
use std::sync::{Arc, Weak};

thread_local! {
    static USED: RefCell<Used> = const { RefCell::new(Used(Vec::new())) };
}

/// The engines that know this thread, each with the process that it belongs to.
struct Used(Vec<(Weak<Engine>, Pid)>);

/// The engine is about to know the calling thread.
pub fn remember(engine: &Arc<Engine>) {
    // A call by the destructor of another thread-local may come too late to be remembered.
    let _ = USED.try_with(|used| {
        let Used(engines) = &mut *used.borrow_mut();
        if engines.iter().any(|(known, _)| std::ptr::eq(known.as_ptr(), Arc::as_ptr(engine))) {
            return;
        }
        engines.retain(|(known, _)| known.strong_count() > 0);
        engines.push((Arc::downgrade(engine), getpid()));
    });
}

impl Drop for Used {
    fn drop(&mut self) {
        for (engine, process) in self.0.drain(..) {
            // In a child of fork nobody may be left to let go of the engine's locks.
            if process == getpid()
                && let Some(engine) = engine.upgrade()
            {
                engine.forget_thread(tid());
            }
        }
    }
}
