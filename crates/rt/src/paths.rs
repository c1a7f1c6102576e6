//! Where the machine is found.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Roots of the files that are read and written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paths {
    /// Where sysfs is mounted.
    pub sysfs: PathBuf,
    /// The directory of the frequency lock's record: one for all processes that share processors,
    /// and gone with the next boot, as the settings are that it tells of.
    pub state: PathBuf,
    /// The device that takes bounds on the processors' wake-up time.
    pub dma_latency: PathBuf,
}

impl Default for Paths {
    fn default() -> Paths {
        Paths {
            sysfs: "/sys".into(),
            state: "/run/baton-rt".into(),
            dma_latency: "/dev/cpu_dma_latency".into(),
        }
    }
}
