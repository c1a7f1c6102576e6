//! Why a call came back without an answer.

use baton_abi::uapi::{BR_DEAD_REPLY, BR_FROZEN_REPLY};
use rustix::io::Errno;

/// Why a call came back without an answer. [`CallError::errno`] is the number for those who want
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The process that serves the object is gone, or died before it answered.
    #[error("the object's process is gone")]
    DeadObject,
    /// Nobody manages the context.
    #[error("the context has no manager")]
    NoManager,
    /// The process that serves the object is frozen.
    #[error("the object's process is frozen")]
    Frozen,
    /// No transaction carries so many bytes: 4 MiB are the most.
    #[error("there are more bytes than a transaction carries")]
    TooLarge,
    /// The process that serves the object has no room for the transaction, or this one none for
    /// the answer.
    #[error("there is no room for the transaction")]
    NoRoom,
    /// No answer came in the time that the caller gave it. The call may still be served; its answer
    /// is dropped.
    #[error("no answer came in time")]
    TimedOut,
    /// The broker is gone, and no other has taken its place yet.
    #[error("the broker is gone")]
    BrokerGone,
    /// This process has closed the device, or is a child of fork of the process that opened it.
    #[error("the device is closed")]
    Closed,
    /// The parcel has a handle or a counted object that belongs to another opened device.
    #[error("the parcel has a handle of another device")]
    ForeignHandle,
    /// The handler, or the driver on its way there, refused: the errno is theirs. `EFAULT` stands
    /// for a handler that panicked.
    #[error("the call was refused: {0}")]
    Refused(#[source] Errno),
}

impl CallError {
    /// The errno that comes closest: `EPIPE` for a dead object, `ESRCH` for no manager, `EAGAIN`
    /// for a frozen process, `EMSGSIZE`, `ENOSPC`, `ETIMEDOUT`, `ECONNREFUSED` for no broker,
    /// `EBADF` for a closed device, `EINVAL` for a foreign handle, or the refusal's own.
    pub fn errno(self) -> Errno {
        match self {
            CallError::DeadObject => Errno::PIPE,
            CallError::NoManager => Errno::SRCH,
            CallError::Frozen => Errno::AGAIN,
            CallError::TooLarge => Errno::MSGSIZE,
            CallError::NoRoom => Errno::NOSPC,
            CallError::TimedOut => Errno::TIMEDOUT,
            CallError::BrokerGone => Errno::CONNREFUSED,
            CallError::Closed => Errno::BADF,
            CallError::ForeignHandle => Errno::INVAL,
            CallError::Refused(errno) => errno,
        }
    }

    /// Of a BR_ code and the errno that goes with it.
    pub(crate) fn of_reply(command: u32, errno: i32) -> CallError {
        match command {
            BR_DEAD_REPLY => CallError::DeadObject,
            BR_FROZEN_REPLY => CallError::Frozen,
            _ => match Errno::from_raw_os_error(errno.clamp(1, 4095)) {
                Errno::NOSPC => CallError::NoRoom,
                Errno::CONNREFUSED => CallError::BrokerGone,
                errno => CallError::Refused(errno),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_abi::uapi::BR_FAILED_REPLY;
    use std::error::Error;

    #[test]
    fn replies_are_named() {
        for (command, errno, error) in [
            (BR_DEAD_REPLY, 0, CallError::DeadObject),
            (BR_FROZEN_REPLY, 0, CallError::Frozen),
            (BR_FAILED_REPLY, Errno::NOSPC.raw_os_error(), CallError::NoRoom),
            (BR_FAILED_REPLY, Errno::DOM.raw_os_error(), CallError::Refused(Errno::DOM)),
            (BR_FAILED_REPLY, i32::MIN, CallError::Refused(Errno::PERM)),
        ] {
            assert_eq!(CallError::of_reply(command, errno), error);
        }
    }

    #[test]
    fn a_refusal_has_a_source_and_its_own_errno() {
        let error = CallError::Refused(Errno::DOM);
        assert_eq!(error.errno(), Errno::DOM);
        assert_eq!(error.source().map(ToString::to_string), Some(Errno::DOM.to_string()));
        assert!(CallError::TimedOut.source().is_none());
    }
}
