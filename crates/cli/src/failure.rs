//! Failures of commands: what was tried, what went wrong, what to do, and the exit code.

use crate::stderr::say;
use baton_driver::device::OpenError;
use rustix::io::Errno;
use std::fmt::Display;
use std::path::Path;
use std::process::{ExitCode, ExitStatus};

/// The list of exit codes in every help text.
pub const EXIT_CODES: &str = "\
Exit codes:
  0    success
  1    what was asked for failed or was not found
  2    wrong usage
  3    no broker is listening
  4    the context has no context manager (service manager)
  5    rt run: the frequency is locked at another value; broker: another one has the socket
  124  no answer came in time, of a service (call, ping, dump, am broadcast) or of the service
       manager
  126  run: the program cannot be executed or interposed; bench, latency: nor baton-bench
  127  run: the program was not found; bench, latency: nor was baton-bench
  Otherwise `baton run`, `baton rt run`, `baton bench` and `baton latency` end as their programs
  do.";

/// Advice for a socket's path that does not fit into an address.
pub const SHORTER_PATH: &str = "give a shorter path with --socket or BATON_SOCKET";

/// Advice for a limit of descriptors that is too low.
pub const MORE_DESCRIPTORS: &str =
    "raise the limit, by `ulimit -n 1024` or by LimitNOFILE= in its systemd unit";

/// The kind of a failure, which decides the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Failed = 1,
    Usage = 2,
    NoBroker = 3,
    NoManager = 4,
    Held = 5,
    TimedOut = 124,
    NotExecutable = 126,
    NotFound = 127,
}

impl Kind {
    const ALL: [Kind; 8] = [
        Kind::Failed,
        Kind::Usage,
        Kind::NoBroker,
        Kind::NoManager,
        Kind::Held,
        Kind::TimedOut,
        Kind::NotExecutable,
        Kind::NotFound,
    ];

    /// The kind of a failure with which another `baton` has ended.
    pub fn of(status: ExitStatus) -> Kind {
        let has_code = |kind: &Kind| status.code() == Some(*kind as i32);
        Kind::ALL.into_iter().find(has_code).unwrap_or(Kind::Failed)
    }
}

/// A failure that is reported to the user.
#[derive(Debug)]
pub struct Failure {
    kind: Kind,
    tried: String,
    wrong: String,
    /// Whether the output already contains the result.
    silent: bool,
    advice: Option<String>,
}

impl Failure {
    /// A failure. `tried` completes "cannot ...".
    pub fn new(tried: impl Display, wrong: impl Display) -> Failure {
        let (tried, wrong) = (tried.to_string(), wrong.to_string());
        Failure { kind: Kind::Failed, tried, wrong, silent: false, advice: None }
    }

    /// A negative answer that the output already contains.
    pub fn silent() -> Failure {
        Failure { silent: true, ..Failure::new("", "") }
    }

    /// Changes the kind, and so the exit code.
    pub fn kind(self, kind: Kind) -> Failure {
        Failure { kind, ..self }
    }

    /// Changes what was tried: a part of it has failed.
    pub fn during(self, tried: impl Display) -> Failure {
        Failure { tried: tried.to_string(), ..self }
    }

    /// Adds advice.
    pub fn advice(self, advice: impl Display) -> Failure {
        Failure { advice: Some(advice.to_string()), ..self }
    }

    /// The broker could not be reached.
    fn connect(tried: impl Display, socket: &Path, errno: Errno) -> Failure {
        let failure = Failure::new(tried, format!("no broker at {}: {errno}", socket.display()));
        match errno {
            Errno::ACCESS | Errno::PERM => failure.advice(
                "you may not use this broker: ask its owner, or start your own with \
                 `baton broker --socket PATH`",
            ),
            _ => failure.kind(Kind::NoBroker).advice(
                "start one with `baton broker`, or give the right one with --socket or \
                 BATON_SOCKET",
            ),
        }
    }

    /// A refusal by the broker.
    pub fn refused(tried: impl Display, errno: Errno) -> Failure {
        let (wrong, advice) = match errno {
            Errno::PROTO | Errno::PROTONOSUPPORT => (
                "the broker speaks another version of the protocol".to_owned(),
                Some("restart the broker with the `baton` of the same build"),
            ),
            Errno::PERM | Errno::ACCESS => (
                "not permitted".to_owned(),
                Some("this is for the broker's user or root: try as one of them"),
            ),
            Errno::NOENT => (
                "there is no such context".to_owned(),
                Some("see `baton contexts`, or add it with `baton context add NAME`"),
            ),
            Errno::OVERFLOW => (
                "the broker's user namespace does not have your user".to_owned(),
                Some("map your user into the broker's container, or run the broker outside of it"),
            ),
            _ => (format!("the broker refused: {errno}"), None),
        };
        Failure { advice: advice.map(str::to_owned), ..Failure::new(tried, wrong) }
    }

    /// A device or a connection to the broker could not be opened.
    pub fn open(tried: impl Display, socket: &Path, error: &OpenError) -> Failure {
        match error {
            OpenError::NoBroker { errno, .. } => Failure::connect(tried, socket, *errno),
            OpenError::Refused { errno, .. } | OpenError::NotObserved { errno } => {
                Failure::refused(tried, *errno)
            }
            OpenError::Stranger { .. } => Failure::new(tried, error).advice(
                "that is no broker to trust: find out who that is, or give another path with \
                 --socket or BATON_SOCKET",
            ),
            OpenError::Unmapped { .. } => Failure::new(tried, error).advice(
                "run the broker as the user who is root in this user namespace, or map its user \
                 into the namespace",
            ),
            OpenError::System { errno: errno @ Errno::PROTO, .. } => {
                Failure::refused(tried, *errno)
            }
            OpenError::System { errno: Errno::NAMETOOLONG, .. } => {
                let wrong = format!("{} is longer than a socket may be", socket.display());
                Failure::new(tried, wrong).advice(SHORTER_PATH)
            }
            OpenError::System { errno: Errno::MFILE, .. } => {
                Failure::new(tried, error).advice(MORE_DESCRIPTORS)
            }
            OpenError::System { errno: Errno::FBIG, .. } => Failure::new(tried, error).advice(
                "raise the limit of file sizes, by `ulimit -f unlimited` or by LimitFSIZE= in its \
                 systemd unit: it holds for shared memory, too",
            ),
            OpenError::System { .. } => Failure::new(tried, error),
        }
    }

    /// The context has no context manager.
    pub fn no_manager(tried: impl Display, context: &str) -> Failure {
        Failure::new(tried, format!("context {context:?} has no context manager"))
            .kind(Kind::NoManager)
            .advice(format_args!("start one: `baton manager --context {context}`"))
    }

    /// The reason and the advice, for another process to show.
    pub fn reason(&self) -> String {
        let advice = self.advice.iter().map(|advice| format!("; {advice}")).collect::<String>();
        format!("{}{advice}", self.wrong)
    }

    /// Whether the failure is of this kind.
    pub fn is(&self, kind: Kind) -> bool {
        self.kind == kind
    }

    /// Prints the failure and returns the exit code.
    pub fn report(&self) -> ExitCode {
        if !self.silent {
            say(format_args!("baton: cannot {}: {}", self.tried, self.wrong));
        }
        if let Some(advice) = &self.advice {
            say(format_args!("  {advice}"));
        }
        ExitCode::from(self.kind as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn the_exit_code_tells_the_kind() {
        for kind in Kind::ALL {
            assert_eq!(Kind::of(ExitStatus::from_raw((kind as i32) << 8)), kind);
        }
        let (panicked, killed) = (ExitStatus::from_raw(101 << 8), ExitStatus::from_raw(9));
        assert_eq!([Kind::of(panicked), Kind::of(killed)], [Kind::Failed; 2]);
    }
}
