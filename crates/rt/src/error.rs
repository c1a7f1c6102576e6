//! Errors: what is not available, which right is missing, and what to do about it.

use crate::holder::Holder;
use rustix::io::Errno;
use std::fmt::Display;
use std::io;
use std::path::PathBuf;

/// The reason for which a setting is not available.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel has no frequency scaling here, as in most virtual machines.
    #[error("{0} has no frequency policy: the kernel does not set frequencies here")]
    NoCpufreq(PathBuf),
    /// A policy cannot run at that frequency.
    #[error("{policy} cannot run at {khz} kHz, only at {able}")]
    Unable {
        /// The policy's name.
        policy: String,
        /// Requested frequency.
        khz: u32,
        /// Possible frequencies.
        able: String,
    },
    /// Other processes hold the lock at another frequency.
    #[error("the frequency is locked at {at} by {}", names(.holders))]
    Held {
        /// The frequency.
        at: String,
        /// The processes that hold the lock.
        holders: Vec<Holder>,
    },
    /// The driver chose other settings than the requested ones.
    #[error("{policy} was told {wanted} and took {got}")]
    NotTaken {
        /// The policy's name.
        policy: String,
        /// The settings as written.
        wanted: String,
        /// The settings as read back.
        got: String,
    },
    /// The machine, or this process's control group, has none of these processors.
    #[error("this process may run on none of the processors {wanted:?}")]
    NoProcessors {
        /// The numbers of the processors.
        wanted: Vec<usize>,
    },
    /// A right is missing.
    #[error("{what} is not permitted: it needs {needs}")]
    Denied {
        /// The setting that was tried.
        what: String,
        /// The missing right.
        needs: String,
        /// Advice on getting the right.
        advice: &'static str,
    },
    /// The file with the record of the frequency lock is damaged.
    #[error("{0} is damaged: {1}")]
    Record(PathBuf, serde_json::Error),
    /// There is no guardian that would undo the frequency lock of a killed process.
    #[error("no guardian: {0}")]
    NoGuardian(String),
    /// The process that a guardian was to watch does not exist.
    #[error("there is no process {0} to watch")]
    NoOwner(u32),
    /// A system call failed.
    #[error("{what}: {errno}")]
    System {
        /// The operation, and the path if it has one.
        what: String,
        /// The error of the operation.
        errno: Errno,
    },
}

fn names(holders: &[Holder]) -> String {
    holders.iter().map(Holder::to_string).collect::<Vec<_>>().join(", ")
}

impl Error {
    /// A failed system call.
    pub(crate) fn system(what: impl Display, error: impl Into<io::Error>) -> Error {
        let errno = Errno::from_io_error(&error.into()).unwrap_or(Errno::IO);
        Error::System { what: what.to_string(), errno }
    }

    /// Advice to the user, if there is any.
    pub fn advice(&self) -> Option<String> {
        Some(match self {
            Error::NoCpufreq(_) => {
                "leave the frequency out: there is nothing here that would change it either, \
                                    or set it on the host"
                    .to_owned()
            }
            Error::Held { at, .. } => {
                format!("ask for {at} as well, or wait until they have ended")
            }
            Error::Denied { advice, .. } => (*advice).to_owned(),
            Error::Record(path, _) => {
                format!("set the governors by hand, then remove {}", path.display())
            }
            Error::NoProcessors { .. } => {
                "`grep Cpus_allowed_list /proc/self/status` shows where it may run".to_owned()
            }
            Error::NoGuardian(_) => "install `baton` beside this program or in PATH".to_owned(),
            Error::Unable { .. } | Error::NotTaken { .. } => {
                "`baton rt status` shows what each policy can do".to_owned()
            }
            Error::NoOwner(_) | Error::System { .. } => return None,
        })
    }
}
