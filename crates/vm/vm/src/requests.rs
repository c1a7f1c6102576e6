//! Requests for collections, to the thread that counts references.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, OnceLock};

/// What threads and the collector's thread know of each other.
#[derive(Debug)]
pub(crate) struct Requests {
    thread: OnceLock<std::thread::Thread>,
    /// A collection is asked for
    is_due: AtomicBool,
    done: Mutex<Done>,
    changed: Condvar,
}

/// How many collections have begun and ended.
#[derive(Debug, Default)]
struct Done {
    begun: u64,
    ended: u64,
}

impl Requests {
    pub fn new() -> Requests {
        Requests {
            thread: OnceLock::new(),
            is_due: AtomicBool::new(false),
            done: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Asks for a collection, without waiting for it.
    pub fn request(&self) {
        if !self.is_due.swap(true, SeqCst)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// Makes a thread the one that collects.
    pub fn set_thread(&self, thread: std::thread::Thread) {
        self.thread.set(thread).expect("a VM has one collector");
    }

    /// Whether there is such a thread. A zygote has none.
    pub fn has_thread(&self) -> bool {
        self.thread.get().is_some()
    }

    /// The collecting thread waits until a collection is asked for.
    pub fn wait(&self) {
        while !self.is_due.swap(false, SeqCst) {
            std::thread::park();
        }
    }

    /// Waits for a collection that begins after this call. The calling thread is safe.
    pub fn await_one(&self) {
        let mut done = self.done.lock().expect("no holder panics");
        let number = done.begun + 1;
        self.request();
        while done.ended < number {
            done = self.changed.wait(done).expect("no holder panics");
        }
    }

    /// Begins the collection that was asked for.
    pub fn begin(&self) {
        self.done.lock().expect("no holder panics").begun += 1;
    }

    /// Ends a collection.
    pub fn end(&self) {
        let mut done = self.done.lock().expect("no holder panics");
        done.ended = done.begun;
        drop(done);
        self.changed.notify_all();
    }
}
