//! Connections that ask the broker for reports.

use crate::failure::Failure;
pub use baton_driver::observer::Observer;
use std::path::Path;

/// Connects to the broker. `tried` is for the message of a failure.
pub fn connect(socket: &Path, tried: &str) -> Result<Observer, Failure> {
    Observer::connect(socket).map_err(|error| Failure::open(tried, socket, &error))
}
