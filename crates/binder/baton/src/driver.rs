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

use baton_driver::typed::Engine;
use baton_shm::lock::Lock;
use rustc_hash::FxHashMap;
use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

pub(crate) type Recipient = Box<dyn FnOnce() + Send>;
/// This process chooses the numbers.
type Handlers = FxHashMap<u64, Arc<dyn Any + Send + Sync>>;
/// The recipients of one notice of a handle.
pub(crate) struct Recipients {
    /// The handle's number.
    pub handle: u32,
    /// Each with the number of its link.
    pub waiting: Vec<(u64, Recipient)>,
}

/// By the cookie of the one notice that a handle has.
type AllRecipients = HashMap<u64, Recipients>;

/// An object that may end before the process.
pub(crate) struct Counted {
    /// The program has a [`CountedObject`](crate::CountedObject) of it.
    pub is_had: bool,
    /// The handler, which goes with this value: what the loopers cache refers to it weakly.
    pub _handler: Arc<dyn Any + Send + Sync>,
}

/// The engine, which is closed with the last that refers to it.
pub(crate) struct Driver {
    pub engine: Arc<Engine>,
    pub callbacks: Weak<Callbacks>,
}

/// The program's code.
#[derive(Default)]
pub(crate) struct Callbacks {
    /// By the object's number: each a [`Handler`](crate::handler::Handler), whose type knows
    /// requests, and these know the driver.
    pub handlers: Lock<Handlers>,
    /// Those of them that may end before the process.
    pub counted: Lock<FxHashMap<u64, Counted>>,
    pub recipients: Lock<AllRecipients>,
}

impl Callbacks {
    /// Drops the program's code, which may keep this process alive.
    pub fn clear(&self) {
        // Not under the locks: what is dropped is the program's.
        let handlers = std::mem::take(&mut *self.handlers.lock());
        let counted = std::mem::take(&mut *self.counted.lock());
        let recipients = std::mem::take(&mut *self.recipients.lock());
        drop((handlers, counted, recipients));
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.engine.close();
    }
}
