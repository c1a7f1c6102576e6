//! Why a device could not be opened.

use rustix::io::Errno;

/// Why a device could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No process listens at the broker's socket.
    #[error("no broker listens at {socket}: {errno}")]
    NoBroker {
        /// The socket that was tried.
        socket: String,
        /// The error of `connect`.
        errno: Errno,
    },
    /// A user other than root and this process's user listens at the broker's socket.
    #[error("user {uid}, who is neither root nor the own user, listens at {socket}")]
    Stranger {
        /// The socket that was tried.
        socket: String,
        /// The listener's effective user id.
        uid: u32,
    },
    /// The user namespace of this process has no number for the listener's user, who may be
    /// anybody, or the number that such users have.
    #[error("this user namespace does not have the user who listens at {socket}")]
    Unmapped {
        /// The socket that was tried.
        socket: String,
    },
    /// The broker refused.
    #[error("the broker refused context {context:?}: {errno}")]
    Refused {
        /// The context that was asked for.
        context: String,
        /// The broker's reason.
        errno: Errno,
    },
    /// The broker refused to be looked at.
    #[error("the broker refused an observer: {errno}")]
    NotObserved {
        /// The broker's reason.
        errno: Errno,
    },
    /// A system call failed.
    #[error("{operation}: {errno}")]
    System {
        /// The call.
        operation: &'static str,
        /// Its error.
        errno: Errno,
    },
}

impl OpenError {
    /// The errno that `open("/dev/binder")` fails with.
    pub fn errno(&self) -> Errno {
        match self {
            OpenError::Stranger { .. } | OpenError::Unmapped { .. } => Errno::ACCESS,
            OpenError::NoBroker { errno, .. }
            | OpenError::Refused { errno, .. }
            | OpenError::NotObserved { errno }
            | OpenError::System { errno, .. } => *errno,
        }
    }
}
