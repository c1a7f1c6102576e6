//! Why a broker does not start, or stops by itself.

use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// The system's fault or the configuration's; nothing that a peer does ends a broker.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A live broker listens there. Nothing was changed.
    #[error("a broker is already listening at {}", path.display())]
    AlreadyRunning {
        /// The socket.
        path: PathBuf,
    },
    /// Something else than a socket is there. Nothing was changed.
    #[error("{} is in the way: it is not a socket", path.display())]
    InTheWay {
        /// The file.
        path: PathBuf,
    },
    /// Another user could put a socket of his own in the broker's place.
    #[error("{} can be changed by other users: no place for a broker's socket", path.display())]
    UnsafeDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// The inherited descriptor is no listening SOCK_SEQPACKET socket.
    #[error("the inherited descriptor is not a listening SOCK_SEQPACKET socket")]
    NotListening,
    /// A system call failed on a file.
    #[error("{operation} {}: {errno}", path.display())]
    File {
        /// Which.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// How.
        errno: Errno,
    },
    /// A system call failed.
    #[error("{operation}: {errno}")]
    System {
        /// Which.
        operation: &'static str,
        /// How.
        errno: Errno,
    },
}

impl Error {
    pub(crate) fn file(operation: &'static str, path: &Path) -> impl FnOnce(Errno) -> Error {
        let path = path.to_owned();
        move |errno| Error::File { operation, path, errno }
    }

    pub(crate) fn system(operation: &'static str) -> impl FnOnce(Errno) -> Error {
        move |errno| Error::System { operation, errno }
    }
}
