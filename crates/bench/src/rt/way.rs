//! How a call is made: Baton, and its peers.

use crate::pair::{PairError, command};
use crate::rt::request::{BYTES, Request};
use crate::rt::results::Bound;
use crate::rt::{ends, mqueue};
use crate::system::System;
use clap::ValueEnum;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use strum::{IntoStaticStr, VariantArray};

/// One way.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, IntoStaticStr, VariantArray,
)]
#[strum(serialize_all = "kebab-case")]
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
    /// Ours.
    pub(crate) const OURS: [Way; 2] = [Way::BatonTyped, Way::BatonUapi];

    /// As rows have it.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Whether it is somebody else's.
    pub(crate) fn is_peer(self) -> bool {
        !self.inherits()
    }

    /// Whether the server has a thread at the caller's own priority, once it has come.
    pub(crate) fn inherits(self) -> bool {
        matches!(self, Way::BatonTyped | Way::BatonUapi)
    }

    /// Whether it is measured so: Baton's looper goes by itself where its caller is bound, and a
    /// process that serves everybody is rather not bound, unless one thread is all that it has.
    pub(crate) fn may_be(self, bound: Bound) -> bool {
        bound != Bound::Both || self == Way::Mqueue
    }

    /// Its ends, if they are in this program.
    pub(crate) fn ends(self) -> Option<Ends> {
        match self {
            Way::BatonTyped => Some(ends::TYPED),
            Way::BatonUapi | Way::KernelBinder => Some(ends::UAPI),
            Way::Unix => Some(ends::UNIX),
            Way::Mqueue => Some(mqueue::ENDS),
            Way::RsbinderRpc => None,
        }
    }

    /// The program that has its ends, with what it needs around it.
    pub(crate) fn command(self, broker: &Path) -> Result<Command, PairError> {
        let program_of = match self {
            Way::BatonUapi => System::BatonUapiLibc,
            Way::KernelBinder => System::KernelBinder,
            Way::RsbinderRpc => System::RsbinderRpc,
            Way::BatonTyped | Way::Unix | Way::Mqueue => System::BatonTyped,
        };
        command(program_of, broker)
    }
}
