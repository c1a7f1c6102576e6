//! The system calls and files that a server needs beside a mount. It says at its start what it
//! lacks: its programs would be told at each open or ioctl, by an error that says nothing.

use crate::client_memory::ClientMemory;
use crate::mount_error::MountError;
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use std::path::Path;

/// Looks whether this process can serve programs. A seccomp profile may forbid what that takes.
pub fn check() -> Result<(), MountError> {
    let own = std::process::id();
    let shown = std::fs::read_link("/proc/self").unwrap_or_default();
    if shown != Path::new(&own.to_string()) {
        return Err(MountError::OtherProc);
    }
    let accessible = ClientMemory::of(own).check();
    accessible.map_err(|(call, errno)| MountError::system(call)(errno))?;
    let opened = pidfd_open(getpid(), PidfdFlags::empty());
    opened.map(drop).map_err(MountError::system("pidfd_open"))
}
