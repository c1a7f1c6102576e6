//! One opened device, as everything that belongs to it refers to it.
//!
//! ```text
//!   Process ----> Callbacks ----> handlers ----> handles
//!      |              ^ weak                        |
//!      +----------> Driver <------------------------+
//! ```
//!
//! **Invariant**: no strong reference leads from a `Driver` to the program's code. So handlers may
//! keep handles: they go with the last [`Process`], or when it is closed.

use crate::{Handle, Parcel, Process, Request};
use baton_driver::typed::Engine;
use baton_shm::lock::Lock;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// What serves an object: the program's code.
pub(crate) type Handler = Box<dyn Fn(&Request<'_>) -> Result<Parcel, Errno> + Send + Sync>;
pub(crate) type Recipient = Box<dyn FnOnce() + Send>;
type Handlers = HashMap<u64, Arc<Handler>>;
type Recipients = HashMap<u64, Vec<Recipient>>;

/// The engine, which is closed with the last that refers to it.
pub(crate) struct Driver {
    pub engine: Arc<Engine>,
    pub callbacks: Weak<Callbacks>,
}

/// The program's code.
#[derive(Default)]
pub(crate) struct Callbacks {
    /// By the object's number.
    pub handlers: Lock<Handlers>,
    /// By the cookie of the one notice that a handle has.
    pub recipients: Lock<Recipients>,
}

impl Callbacks {
    /// Drops the program's code, which may keep this process alive.
    pub fn clear(&self) {
        // Not under the locks: what is dropped is the program's.
        let handlers = std::mem::take(&mut *self.handlers.lock());
        let recipients = std::mem::take(&mut *self.recipients.lock());
        drop((handlers, recipients));
    }
}

impl Driver {
    /// The process, unless its last owner has dropped it.
    pub fn process(self: &Arc<Self>) -> Option<Process> {
        let callbacks = self.callbacks.upgrade()?;
        Some(Process { driver: Arc::clone(self), callbacks })
    }

    pub fn handler(&self, object: u64) -> Option<Arc<Handler>> {
        self.callbacks.upgrade()?.handlers.lock().get(&object).cloned()
    }

    /// A handle for one that the state has counted already.
    pub fn handle(self: &Arc<Self>, number: u32) -> Handle {
        Handle { driver: Arc::clone(self), number }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.engine.close();
    }
}
