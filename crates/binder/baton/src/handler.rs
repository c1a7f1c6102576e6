//! Handlers: the program's code that serves objects.

use crate::driver::{Callbacks, Counted, Driver};
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

    /// Adds the handler of an object that may end before the process. What the loopers find and
    /// cache is not the handler itself.
    pub fn add_counted<F>(&self, object: u64, handler: Arc<F>)
    where
        F: Fn(&Request<'_>) -> Result<Parcel, Errno> + Send + Sync + 'static,
    {
        let found = Arc::downgrade(&handler);
        let serve = move |request: &Request<'_>| {
            let handler = found.upgrade().ok_or(Errno::NOENT)?;
            handler(request)
        };
        self.counted.lock().insert(object, Counted { is_had: true, _handler: handler });
        self.add_handler(object, Box::new(serve));
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
