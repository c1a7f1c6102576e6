//! The reasons for which the broker closes a connection.

use crate::outbox::SocketFailed;
use crate::state::Violation;
use rustix::io::Errno;

/// The reason for which the broker closes a connection. The text completes "closed a connection
/// that ...".
#[derive(Debug, thiserror::Error)]
pub(crate) enum CloseReason {
    /// The process ended or closed its socket.
    #[error("ended")]
    Ended,
    #[error("sent a malformed packet")]
    Malformed,
    #[error("sent a request that observers may not send")]
    NotAnObserver,
    #[error("did not begin with a greeting")]
    NoGreeting,
    #[error("exceeds its user's limit of connections")]
    TooManyConnections,
    #[error("floods another process with cancelled tickets")]
    CancelFlood,
    #[error("requests barriers and does not read its events")]
    UnreadBarriers,
    #[error("does not read its replies")]
    UnreadReplies,
    #[error("could not be sent a reply: {0}")]
    Reply(Errno),
    #[error("was refused: {0}")]
    Refused(Errno),
    #[error(transparent)]
    Violation(#[from] Violation),
    #[error(transparent)]
    Events(#[from] SocketFailed),
}
