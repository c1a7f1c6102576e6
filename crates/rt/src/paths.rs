//! Paths of the machine's files.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The files that this crate reads and writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paths {
    /// The mount point of sysfs.
    pub sysfs: PathBuf,
    /// The directory of the frequency lock's record. All processes that share processors share it.
    /// Like the settings, it does not survive a reboot.
    pub state: PathBuf,
    /// The device that accepts bounds on processors' wake-up times.
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
