//! A process of `baton bench log`, as the run starts it: it says "ready" when it is at it, and ends
//! when it is killed, or with who started it.

use crate::child::ChildProcess;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use std::process::Command;

/// What a process is.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Role {
    /// Reads datagrams.
    Datagrams,
    /// Reads a pipe.
    Pipe,
    /// Follows a log.
    Follower,
    /// Ordinary writers of a log, which write as fast as they can.
    Writers { n_threads: usize },
    /// Writers that count what they have written, and are to be killed.
    Killed { n_threads: usize },
}

impl Role {
    /// Starts it at its socket, pipe or log, and waits until it is at it.
    pub fn start(self, place: &Path) -> io::Result<ChildProcess> {
        let mut program = Command::new(std::env::current_exe()?);
        Ok(ChildProcess::start_role("log's process", &mut program, "log-role", &(self, place))?)
    }
}
