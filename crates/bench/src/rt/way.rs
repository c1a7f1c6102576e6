//! How a call is made: Baton, and its peers.

use crate::pair::{PairError, command};
use crate::rt::found::Bound;
use crate::rt::request::{BYTES, Request};
use crate::rt::{mqueue, typed, uapi, unix};
use crate::system::System;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Way {
    /// Baton's typed API.
    BatonTyped,
    /// A Binder program on Baton, by the C library's `ioctl`.
    BatonUapi,
    /// The same Binder program on the kernel's own driver.
    KernelBinder,
    /// A stream socket, whose server has an ordinary thread for each connection.
    Unix,
    /// POSIX message queues with priorities, and one thread that serves, at the highest caller's.
    Mqueue,
    /// rsbinder's RPC over a stream socket, whose server has an ordinary thread for each
    /// connection.
    RsbinderRpc,
}

/// Where the ends of a way meet.
#[derive(Clone, Debug, clap::Args)]
pub struct Place {
    /// A directory of theirs
    pub directory: PathBuf,
    /// The broker's socket
    pub broker: PathBuf,
    /// Real-time priority: of the thread that serves everybody, or of who calls; 0 for none
    #[arg(long, default_value_t = 0)]
    pub level: u8,
}

/// One caller's end: a request, and its answer.
pub type Call = Box<dyn FnMut(Request) -> io::Result<[u8; BYTES]> + Send>;

/// What both ends do.
#[derive(Clone, Copy)]
pub struct Ends {
    /// Serves until the process ends. Says "ready" when callers can come.
    pub serve: fn(&Place) -> io::Result<()>,
    /// So many callers, for a thread each.
    pub callers: fn(&Place, usize) -> io::Result<Vec<Call>>,
}

impl Way {
    /// All, ours first.
    pub const ALL: [Way; 6] = [
        Way::BatonTyped,
        Way::BatonUapi,
        Way::KernelBinder,
        Way::Unix,
        Way::Mqueue,
        Way::RsbinderRpc,
    ];

    /// Ours.
    pub const OURS: [Way; 2] = [Way::BatonTyped, Way::BatonUapi];

    /// As rows have it.
    pub fn name(self) -> &'static str {
        match self {
            Way::BatonTyped => "baton-typed",
            Way::BatonUapi => "baton-uapi",
            Way::KernelBinder => "kernel-binder",
            Way::Unix => "unix",
            Way::Mqueue => "mqueue",
            Way::RsbinderRpc => "rsbinder-rpc",
        }
    }

    /// Whether it is somebody else's.
    pub fn is_peer(self) -> bool {
        !self.inherits()
    }

    /// Whether the server has a thread at the caller's own priority, once it has come.
    pub fn inherits(self) -> bool {
        matches!(self, Way::BatonTyped | Way::BatonUapi)
    }

    /// Whether it is measured so: Baton's looper goes by itself where its caller is bound, and a
    /// process that serves everybody is rather not bound, unless one thread is all that it has.
    pub fn may_be(self, bound: Bound) -> bool {
        bound != Bound::Both || self == Way::Mqueue
    }

    /// Its ends, if they are in this program.
    pub fn ends(self) -> Option<Ends> {
        match self {
            Way::BatonTyped => Some(typed::ENDS),
            Way::BatonUapi | Way::KernelBinder => Some(uapi::ENDS),
            Way::Unix => Some(unix::ENDS),
            Way::Mqueue => Some(mqueue::ENDS),
            Way::RsbinderRpc => None,
        }
    }

    /// The program that has its ends, with what it needs around it.
    pub fn command(self, broker: &Path) -> Result<Command, PairError> {
        let program_of = match self {
            Way::BatonUapi => System::BatonUapiLibc,
            Way::KernelBinder => System::KernelBinder,
            Way::RsbinderRpc => System::RsbinderRpc,
            Way::BatonTyped | Way::Unix | Way::Mqueue => System::BatonTyped,
        };
        command(program_of, broker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn names_are_those_of_the_command_line() {
        for way in Way::ALL {
            assert_eq!(way.to_possible_value().unwrap().get_name(), way.name());
        }
    }
}
