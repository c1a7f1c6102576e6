//! How a broker is started.

use crate::state::Limits;
use rustix::fd::OwnedFd;
use std::fmt;
use std::path::PathBuf;

/// Where engines find the broker.
#[derive(Debug)]
pub enum Listen {
    /// A socket that the broker makes and removes.
    Path(PathBuf, Access),
    /// A listening `SOCK_SEQPACKET` socket that somebody else made, and will remove.
    Inherited(OwnedFd),
}

/// Who may connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The broker's user: directory 0700, socket 0600.
    User,
    /// Everybody on the system: directory 0755, socket 0666.
    System,
}

impl Access {
    /// What fits whom the broker runs as: root serves the system.
    pub fn of_this_user() -> Access {
        if rustix::process::geteuid().is_root() { Access::System } else { Access::User }
    }
}

/// When the broker ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// Never.
    Forever,
    /// When its last client has gone, after it had one.
    UntilIdle,
}

/// What ends the broker from outside.
#[derive(Debug)]
pub enum Stop {
    /// SIGTERM and SIGINT, whose handlers [`crate::run`] sets.
    Signals,
    /// This descriptor, once it is readable or its other end is closed.
    Readable(OwnedFd),
}

/// All of it.
pub struct Config {
    /// Where engines find it.
    pub listen: Listen,
    /// When it ends by itself.
    pub lifetime: Lifetime,
    /// What ends it.
    pub stop: Stop,
    /// Its bounds.
    pub limits: Limits,
    /// Called once, when a connect will succeed.
    pub ready: Box<dyn FnOnce() + Send>,
}

impl Config {
    /// A broker at a path that runs until a signal ends it.
    pub fn at(path: impl Into<PathBuf>) -> Config {
        Config {
            listen: Listen::Path(path.into(), Access::of_this_user()),
            lifetime: Lifetime::Forever,
            stop: Stop::Signals,
            limits: Limits::default(),
            ready: Box::new(|| ()),
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("listen", &self.listen)
            .field("lifetime", &self.lifetime)
            .field("stop", &self.stop)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
