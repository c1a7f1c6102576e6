//! Refusals: transactions that failed, as returns and as answers in a lane.

use baton_abi::lane::Kind;
use baton_abi::uapi::*;
use rustix::io::Errno;

/// A transaction that failed: the return that its sender gets, and the errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// `BR_FAILED_REPLY`, `BR_DEAD_REPLY` or `BR_FROZEN_REPLY`.
    pub command: u32,
    /// The extended error's errno.
    pub errno: Errno,
}

impl Refusal {
    /// `BR_FAILED_REPLY`.
    pub fn failed(errno: Errno) -> Refusal {
        Refusal { command: BR_FAILED_REPLY, errno }
    }

    /// `BR_DEAD_REPLY`.
    pub fn dead() -> Refusal {
        // BINDER_GET_EXTENDED_ERROR reports this for a dead node.
        Refusal { command: BR_DEAD_REPLY, errno: Errno::INVAL }
    }

    /// There was no lane to the target.
    pub fn lost(errno: Errno) -> Refusal {
        if errno == Errno::SRCH { Refusal::dead() } else { Refusal::failed(errno) }
    }

    /// `binder_extended_error.param`: a frozen target is no error, and says none.
    pub fn param(self) -> i32 {
        if self.command == BR_FROZEN_REPLY { 0 } else { -self.errno.raw_os_error() }
    }

    /// The refusal that arrives as an answer of this kind.
    pub(super) fn of(kind: Kind, errno: Errno) -> Refusal {
        let command = match kind {
            Kind::Dead => BR_DEAD_REPLY,
            Kind::Frozen => BR_FROZEN_REPLY,
            _ => BR_FAILED_REPLY,
        };
        Refusal { command, errno }
    }

    /// The kind of the answer in a lane.
    pub fn kind(self) -> Kind {
        match self.command {
            BR_DEAD_REPLY => Kind::Dead,
            BR_FROZEN_REPLY => Kind::Frozen,
            _ => Kind::Failed,
        }
    }
}
