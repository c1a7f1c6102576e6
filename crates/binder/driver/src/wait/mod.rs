//! How threads wait: for an answer on a lane, or as loopers of the pool for whatever comes.

pub(crate) mod active_set;
pub(crate) mod affinity;
mod attention;
mod bells;
pub(crate) mod mute;
pub(crate) mod policy;
pub(crate) mod pool;
pub(crate) mod server;
pub(crate) mod settings;
