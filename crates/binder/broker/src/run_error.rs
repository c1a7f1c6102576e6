//! The error with which a broker ends.

use crate::ledger::LEAST_DESCRIPTORS;
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// The reason for which a broker could not run: the system's or the configuration's fault. No
/// action of a peer ends a broker.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Another broker serves the path.
    #[error("a broker is already listening at {}", .0.display())]
    AlreadyRunning(PathBuf),
    /// A context's name cannot be used.
    #[error("context name {0:?} is invalid or taken")]
    BadContext(String),
    /// A file has the socket's path and is no broker's socket.
    #[error("{} is there and is no broker's socket", .0.display())]
    NotASocket(PathBuf),
    /// Other users could replace a socket in this directory.
    #[error("other users could replace a socket in {}", .0.display())]
    Replaceable(PathBuf),
    /// The socket's path does not fit into an address.
    #[error("{} is longer than a broker's socket may be, {most_bytes} bytes", path.display())]
    TooLong {
        /// The socket's path.
        path: PathBuf,
        /// The longest that there may be.
        most_bytes: usize,
    },
    /// The process may have so few descriptors that its clients would wait for ever.
    #[error("a broker needs {} descriptors, and RLIMIT_NOFILE is {limit}", LEAST_DESCRIPTORS)]
    FewDescriptors {
        /// The descriptors that the process may have.
        limit: u64,
    },
    /// A system call failed.
    #[error("{operation} {}: {errno}", path.display())]
    System {
        /// The operation that failed.
        operation: &'static str,
        /// The path that the operation concerned.
        path: PathBuf,
        /// The error of the operation.
        errno: Errno,
    },
}

impl RunError {
    pub(crate) fn of(operation: &'static str, path: &Path) -> impl FnOnce(Errno) -> RunError {
        let path = path.to_owned();
        move |errno| RunError::System { operation, path, errno }
    }
}
