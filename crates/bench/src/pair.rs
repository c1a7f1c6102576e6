//! Two processes that play one system.

use crate::party::{Order, Side};
use crate::processors::{Placement, Processors};
use crate::system::System;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A chunk takes some seconds at most: who is silent for longer has got stuck.
const PATIENCE_S: i64 = 60;
/// For an end in good order, in which some peers take away what they have put into the system.
const FAREWELL_S: i64 = 2;

/// The two ends. Dropped, they end.
pub struct Pair {
    client: Party,
    server: Party,
}

/// Why a system could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum PairError {
    /// A part of it is not there.
    #[error("{what} is not there: {advice}")]
    NotInstalled {
        /// The file.
        what: &'static str,
        /// What to do.
        advice: &'static str,
    },
    /// This machine or this program cannot have it.
    #[error("{what} is not there: {why}")]
    NotHere {
        /// The file.
        what: &'static str,
        /// Why it cannot be.
        why: &'static str,
    },
    /// A process could not be started.
    #[error("start {0}: {1}")]
    Start(PathBuf, io::Error),
    /// A system call failed.
    #[error("{0}: {1}")]
    System(&'static str, io::Error),
    /// One of the two has ended; it has said why.
    #[error("the {0:?} has ended")]
    Ended(Side),
    /// One of the two has said nothing for a minute.
    #[error("the {0:?} has got stuck")]
    Stuck(Side),
    /// One of the two has said something else than was agreed.
    #[error("the {0:?} says something else")]
    Garbled(Side),
}

/// What every pair needs to be started.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The broker's socket.
    pub broker: &'a Path,
    /// Where the pair may have a directory of its own.
    pub directory: &'a Path,
}

/// What a pair is to measure, at once.
#[derive(Clone, Copy, Debug)]
pub struct Chunk {
    /// How the two lie to each other.
    pub placement: Placement,
    /// Bytes there and back.
    pub payload_bytes: usize,
    /// Calls whose times are forgotten.
    pub n_warm_up: u32,
    /// Calls whose times count.
    pub n_calls: u32,
}

impl Pair {
    /// Starts both ends.
    pub fn start(system: System, place: Place<'_>) -> Result<Pair, PairError> {
        let directory = place.directory.join(system.name());
        std::fs::create_dir(&directory).map_err(|error| PairError::System("mkdir", error))?;
        let start = |side| Party::start(system, side, &directory, place.broker);
        let server = start(Side::Server)?;
        Ok(Pair { server, client: start(Side::Client)? })
    }

    /// Measures: the time of each call, in nanoseconds.
    pub fn measure(&mut self, chunk: &Chunk, at: &Processors) -> Result<Vec<u64>, PairError> {
        let Chunk { placement, payload_bytes, n_warm_up, n_calls } = *chunk;
        let order = |cpu| Order { cpu, payload_bytes, n_warm_up, n_calls };
        let server_cpu = at.server(placement).expect("only placements that exist are measured");
        self.server.order(&order(server_cpu))?;
        self.server.is_ready()?;
        self.client.order(&order(at.client))?;
        let times_ns = self.client.hear()?;
        self.server.is_ready()?;
        serde_json::from_str(&times_ns).map_err(|_| PairError::Garbled(Side::Client))
    }
}

/// One end.
struct Party {
    side: Side,
    process: Child,
    /// `None` once it is to end.
    orders: Option<ChildStdin>,
    words: BufReader<ChildStdout>,
}

impl Party {
    fn start(
        system: System,
        side: Side,
        directory: &Path,
        broker: &Path,
    ) -> Result<Party, PairError> {
        let mut command = command(system, broker)?;
        let name = match side {
            Side::Client => "client",
            Side::Server => "server",
        };
        command.args(["bench", "party", system.name(), name]).arg(directory);
        command.arg("--broker").arg(broker);
        command.arg("--starter").arg(std::process::id().to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command
            .spawn()
            .map_err(|error| PairError::Start(command.get_program().into(), error))?;
        let orders = Some(process.stdin.take().expect("it is piped"));
        let words = BufReader::new(process.stdout.take().expect("it is piped"));
        let mut party = Party { side, process, orders, words };
        party.is_ready()?;
        Ok(party)
    }

    fn order(&mut self, order: &Order) -> Result<(), PairError> {
        let line = serde_json::to_string(order).expect("numbers only");
        let orders = self.orders.as_mut().expect("it is not to end");
        writeln!(orders, "{line}").map_err(|_| PairError::Ended(self.side))
    }

    fn is_ready(&mut self) -> Result<(), PairError> {
        if self.hear()? == "ready\n" { Ok(()) } else { Err(PairError::Garbled(self.side)) }
    }

    /// The next line. What comes in one piece is written in one piece, or nearly: patience is for
    /// its beginning.
    fn hear(&mut self) -> Result<String, PairError> {
        let mut line = String::new();
        if self.words.buffer().is_empty() {
            let mut fds = [PollFd::new(self.words.get_ref(), PollFlags::IN)];
            let patience = Timespec { tv_sec: PATIENCE_S, tv_nsec: 0 };
            match poll(&mut fds, Some(&patience)) {
                Ok(0) => return Err(PairError::Stuck(self.side)),
                Ok(_) => {}
                Err(errno) => return Err(PairError::System("poll", errno.into())),
            }
        }
        match self.words.read_line(&mut line) {
            Ok(1..) => Ok(line),
            _ => Err(PairError::Ended(self.side)),
        }
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        drop(self.orders.take());
        let farewell = Timespec { tv_sec: FAREWELL_S, tv_nsec: 0 };
        let _ = poll(&mut [PollFd::new(self.words.get_ref(), PollFlags::empty())], Some(&farewell));
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The program that plays a system, with the environment that it needs.
fn command(system: System, broker: &Path) -> Result<Command, PairError> {
    let own = std::env::current_exe().map_err(|error| PairError::System("find itself", error))?;
    match system {
        _ if system.is_apart() => {
            let advice = "`bench/peers/build` builds it";
            let program = beside(&own, "baton-bench-peers", advice)?;
            match system {
                System::DbusDaemon | System::DbusBroker => on_path(system.name())?,
                _ => {}
            }
            Ok(Command::new(program))
        }
        System::BatonUapiLibc | System::BatonUapiTrap => {
            let what = "libbaton_preload.so";
            if cfg!(target_feature = "crt-static") {
                return Err(PairError::NotHere { what, why: "a static program loads no library" });
            }
            let library = beside(&own, what, "`cargo build` builds it")?;
            let mut command = Command::new(own);
            command.env("LD_PRELOAD", library).env("BATON_SOCKET", broker);
            command.env("BATON_CONTEXT", system.name());
            Ok(command)
        }
        System::KernelBinder => {
            has_kernel_binder()?;
            let mut command = Command::new(own);
            command.env_remove("LD_PRELOAD");
            Ok(command)
        }
        _ => Ok(Command::new(own)),
    }
}

/// Whether the kernel has a Binder driver, and has made its device.
fn has_kernel_binder() -> Result<(), PairError> {
    match std::fs::metadata("/dev/binder") {
        Ok(device) if device.file_type().is_char_device() => Ok(()),
        _ => Err(PairError::NotHere {
            what: "/dev/binder",
            why: "this kernel has no Binder driver, or has made no device",
        }),
    }
}

fn beside(program: &Path, what: &'static str, advice: &'static str) -> Result<PathBuf, PairError> {
    let path = program.with_file_name(what);
    if path.exists() { Ok(path) } else { Err(PairError::NotInstalled { what, advice }) }
}

/// Whether a bus is installed.
fn on_path(what: &'static str) -> Result<(), PairError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    match std::env::split_paths(&path).any(|directory| directory.join(what).exists()) {
        true => Ok(()),
        false => Err(PairError::NotInstalled { what, advice: "the package of that name has it" }),
    }
}
