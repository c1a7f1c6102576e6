//! A look at the broker.

use crate::failure::Failure;
pub use baton_driver::observer::Observer;
use std::path::Path;

/// Connects. `tried` is for the message if that fails.
pub fn connect(socket: &Path, tried: &str) -> Result<Observer, Failure> {
    Observer::connect(socket).map_err(|error| Failure::open(tried, socket, &error))
}
