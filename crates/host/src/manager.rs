//! Android's service manager, at handle 0 of a context, in Android 16's protocol. Methods that are
//! not called here are not listed: their numbers change from release to release.

use crate::format::{Reader, Write};
use baton::{CallError, Handle, Object, Parcel, Process};
use rustix::io::Errno;

/// The descriptor of its interface.
pub const INTERFACE: &str = "android.os.IServiceManager";
/// `checkService2`: a union of a service with metadata, and an accessor of one elsewhere.
pub const CHECK: u32 = 4;
/// `addService`.
pub const ADD: u32 = 5;
/// `listServices`.
pub const LIST: u32 = 6;
/// Which member of the union follows.
pub const SERVICE_WITH_METADATA: i32 = 0;

/// Of a service of the system: callers of the same version of it may pass the object on.
const STABILITY: i32 = 0b00_1100;
/// DUMP_FLAG_PRIORITY_DEFAULT.
const DUMP_PRIORITY: i32 = 1 << 3;

/// Why a service was not registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddError {
    /// There is no manager, or it does not answer.
    #[error("the service manager: {0}")]
    Call(#[from] CallError),
    /// It does not want the service.
    #[error("the service manager refuses: {message} (exception {code})")]
    Refused {
        /// `EX_*`.
        code: i32,
        /// The manager's words.
        message: String,
    },
    /// It speaks another protocol.
    #[error("the service manager answers something else")]
    Misunderstood,
}

/// Registers an object of a process that serves.
///
/// # Errors
/// Of the manager's side.
pub fn add(process: &Process, name: &str, object: Object) -> Result<(), AddError> {
    let mut request = Parcel::new();
    request.write_token(INTERFACE);
    request.write_string(name);
    request.write_object(object);
    request.write_i32(STABILITY);
    let is_for_isolated_processes = 0;
    request.write_i32(is_for_isolated_processes);
    request.write_i32(DUMP_PRIORITY);
    let manager = process.context_manager()?;
    let answer = manager.call(ADD, &request)?;
    match Reader::new(answer.data()).status() {
        Some(Ok(())) => Ok(()),
        Some(Err(refused)) => {
            Err(AddError::Refused { code: refused.code, message: refused.message })
        }
        None => Err(AddError::Misunderstood),
    }
}

/// A service that the manager knows. `None`: it knows none of this name that is a Binder object.
///
/// # Errors
/// Those of the call; `EPROTO` if the manager speaks another protocol.
pub fn find(process: &Process, name: &str) -> Result<Option<Handle>, CallError> {
    let mut request = Parcel::new();
    request.write_token(INTERFACE);
    request.write_string(name);
    let manager = process.context_manager()?;
    let answer = manager.call(CHECK, &request)?;
    let mut reader = Reader::new(answer.data());
    let is_fine = matches!(reader.status(), Some(Ok(())));
    match (is_fine, reader.i32(), reader.i32()) {
        (true, Some(1), Some(SERVICE_WITH_METADATA)) => Ok(answer.handle(0)),
        (true, Some(1), Some(_)) => Ok(None),
        _ => Err(CallError::Refused(Errno::PROTO)),
    }
}
