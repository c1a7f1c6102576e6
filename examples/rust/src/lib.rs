//! Terms on which the service and its client agree: requests and replies are UTF-8.
#![forbid(unsafe_code)]

/// Asks for a greeting of the name in the request.
pub const GREET: u32 = 1;
/// The service's name, if no other is given.
pub const SERVICE: &str = "greeter";
