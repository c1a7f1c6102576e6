//! What the fuzz targets do with their bytes. The bodies also run as tests of the driver, on bytes
//! from a seeded generator: what they assert holds for any input.

pub mod control_messages;
mod input;
pub mod lane_messages;
mod machine;
pub mod parcel_objects;
pub mod uapi_commands;
