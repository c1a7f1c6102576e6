//! The things to which C programs refer: opened contexts, their objects, and handles.

use baton::{CountedObject, Handle, Object, Process};
use std::sync::Arc;

/// An opened context, through which this process calls others and is called.
pub struct baton_process {
    pub(crate) process: Arc<Process>,
}

/// An object that this process serves.
pub struct baton_object {
    pub(crate) object: Object,
    /// The object does not end before this value is freed.
    pub(crate) counted: Option<CountedObject>,
    pub(crate) process: Arc<Process>,
}

/// A strong reference to an object of another process.
pub struct baton_handle {
    pub(crate) handle: Handle,
    pub(crate) process: Arc<Process>,
}
