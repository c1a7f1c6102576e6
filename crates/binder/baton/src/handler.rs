//! Handlers: the program's code that serves objects.

use crate::driver::{Callbacks, Driver};
use crate::parcel::Parcel;
use crate::received::Request;
use rustix::io::Errno;
use std::sync::Arc;

/// Serves the transactions of one object.
pub(crate) type Handler = Box<dyn Fn(&Request<'_>) -> Result<Parcel, Errno> + Send + Sync>;

impl Callbacks {
    pub fn add_handler(&self, object: u64, handler: Handler) {
        self.handlers.lock().insert(object, Arc::new(handler));
    }

    pub fn handler(&self, object: u64) -> Option<Arc<Handler>> {
        let handler = self.handlers.lock().get(&object).cloned()?;
        Some(handler.downcast().expect("`add_handler` alone adds any"))
    }
}

impl Driver {
    pub fn handler(&self, object: u64) -> Option<Arc<Handler>> {
        self.callbacks.upgrade()?.handler(object)
    }
}
