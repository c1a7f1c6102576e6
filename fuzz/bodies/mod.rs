//! The bodies of the fuzz targets. They also run as tests of the driver, on bytes from a seeded
//! generator: their assertions hold for any input.

pub mod control_messages;
mod input;
pub mod lane_messages;
mod machine;
pub mod parcel_objects;
pub mod uapi_commands;
