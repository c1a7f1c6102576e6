//! Android's service manager, as hosts need it.

pub use baton::NameError as AddError;
pub use baton::service_manager::{ADD, CHECK, INTERFACE, LIST, SERVICE_WITH_METADATA};

use baton::service_manager::Protocol;
use baton::{CallError, Errno, Handle, NameError, Object, Process, ServiceManager};

/// Registers an object of a process that serves.
///
/// # Errors
/// Of the manager's side.
pub fn add(process: &Process, name: &str, object: Object) -> Result<(), AddError> {
    ServiceManager::find(process)?.publish(name, object)
}

/// A service that the manager knows. `None`: it knows none of this name that is a Binder object. A
/// manager of Android 16 is asked once, and others are asked for their protocol first.
///
/// # Errors
/// The errors of the call; `EPROTO` if the manager is no service manager.
pub fn find(process: &Process, name: &str) -> Result<Option<Handle>, CallError> {
    let manager = ServiceManager::speaking(process, Protocol::Android16);
    let found = match manager.and_then(|manager| manager.service(name)) {
        Err(NameError::Misunderstood(_)) => {
            ServiceManager::find(process).and_then(|manager| manager.service(name))
        }
        found => found,
    };
    found.map_err(|error| match error {
        NameError::Call(error) => error,
        _ => CallError::Refused(Errno::PROTO),
    })
}
