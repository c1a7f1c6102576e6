//! Two processes that play one system.

use crate::actor::{Actor, PATIENCE, Silence};
use crate::endpoint::{Measured, Order, Side};
use crate::processors::{Placement, Processors};
use crate::service::Service;
use crate::system::System;
use baton_rt::SchedPriority;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// For an end in good order, in which some peers take away what they have put into the system.
const FAREWELL: Duration = Duration::from_secs(2);

/// The two ends. Dropped, they end.
pub struct Pair {
    client: Endpoint,
    server: Endpoint,
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
    /// What the server does.
    pub service: Service,
    /// What both have in their environment beside this program's.
    pub environment: &'a [(&'a str, &'a str)],
    /// The priority of both; `None` for that of this process.
    pub priority: Option<SchedPriority>,
}

/// What a pair is to measure, at once.
#[derive(Clone, Copy, Debug)]
pub struct Chunk {
    /// How the two lie to each other; `None` for wherever the kernel puts them.
    pub placement: Option<Placement>,
    /// Bytes there and, of an echo, back.
    pub payload_bytes: usize,
    /// Calls whose times are forgotten.
    pub n_warm_up: u32,
    /// Calls whose times count.
    pub n_calls: u32,
    /// Sleep between two calls, in microseconds.
    pub delay_us: u64,
}

/// What is to be played.
pub(crate) struct Part<'a> {
    /// By whom.
    pub system: System,
    /// Which end.
    pub side: Side,
    /// With whom, and doing what.
    pub place: Place<'a>,
    /// How many clients the server has.
    pub n_clients: usize,
}

impl Pair {
    /// Starts both ends.
    pub fn start(system: System, place: Place<'_>) -> Result<Pair, PairError> {
        let directory = place.directory.join(system.name());
        std::fs::create_dir(&directory).map_err(|error| PairError::System("mkdir", error))?;
        let place = Place { directory: &directory, ..place };
        let start = |side| Endpoint::start(&Part { system, side, place, n_clients: 1 });
        let server = start(Side::Server)?;
        Ok(Pair { server, client: start(Side::Client)? })
    }

    /// Measures: the time of each call, in nanoseconds.
    pub fn measure(&mut self, chunk: &Chunk, at: &Processors) -> Result<Vec<u64>, PairError> {
        self.find(chunk, at).map(|mut points| points.pop().unwrap_or_default())
    }

    /// Measures: the time of each call at each point, in nanoseconds; the last is the end.
    pub fn find(&mut self, chunk: &Chunk, at: &Processors) -> Result<Vec<Vec<u64>>, PairError> {
        let server = |placement| at.server(placement).expect("only what exists is measured");
        let (client, server) = (chunk.placement.map(|_| at.client), chunk.placement.map(server));
        self.find_at(chunk, client, server)
    }

    /// Measures with the client on its processor, and the server wherever the kernel puts it: the
    /// time of each call, in nanoseconds.
    pub fn measure_free_server(
        &mut self,
        chunk: &Chunk,
        at: &Processors,
    ) -> Result<Vec<u64>, PairError> {
        let points = self.find_at(chunk, Some(at.client), None);
        points.map(|mut points| points.pop().unwrap_or_default())
    }

    fn find_at(
        &mut self,
        chunk: &Chunk,
        client: Option<usize>,
        server: Option<usize>,
    ) -> Result<Vec<Vec<u64>>, PairError> {
        let Chunk { payload_bytes, n_warm_up, n_calls, delay_us, .. } = *chunk;
        let order = |cpu| Order {
            cpu,
            payload_bytes,
            n_warm_up,
            n_calls,
            delay_us,
            n_clients: 1,
            gate: None,
        };
        self.server.order(&order(server))?;
        self.server.is_ready()?;
        self.client.order(&order(client))?;
        let found = self.client.hear_found()?;
        self.server.is_ready()?;
        Ok(found.points)
    }
}

/// One end.
pub(crate) struct Endpoint {
    side: Side,
    actor: Actor,
}

impl Endpoint {
    pub fn start(part: &Part<'_>) -> Result<Endpoint, PairError> {
        let Part { system, side, place, n_clients } = *part;
        let mut command = command(system, place.broker)?;
        command.args(["bench", "endpoint", system.name(), side.name()]).arg(place.directory);
        command.arg("--broker").arg(place.broker);
        command.arg("--starter").arg(std::process::id().to_string());
        // Programs of peers know the words that a pair needs, and no more.
        if place.service != Service::Echo {
            command.args(["--service", place.service.name()]);
        }
        if let Some(priority) = place.priority {
            command.arg("--priority").arg(priority.to_string());
        }
        if n_clients != 1 {
            command.arg("--clients").arg(n_clients.to_string());
        }
        command.envs(place.environment.iter().copied());
        let actor = Actor::start(&mut command)
            .map_err(|error| PairError::Start(command.get_program().into(), error))?;
        let mut party = Endpoint { side, actor };
        party.is_ready()?;
        Ok(party)
    }

    pub fn order(&mut self, order: &Order) -> Result<(), PairError> {
        let line = serde_json::to_string(order).expect("numbers only");
        self.actor.say(&line).map_err(|_| PairError::Ended(self.side))
    }

    pub fn is_ready(&mut self) -> Result<(), PairError> {
        if self.hear()? == "ready\n" { Ok(()) } else { Err(PairError::Garbled(self.side)) }
    }

    pub fn hear_found(&mut self) -> Result<Measured, PairError> {
        serde_json::from_str(&self.hear()?).map_err(|_| PairError::Garbled(self.side))
    }

    fn hear(&mut self) -> Result<String, PairError> {
        self.actor.hear(PATIENCE).map_err(|silence| match silence {
            Silence::Ended => PairError::Ended(self.side),
            Silence::Stuck => PairError::Stuck(self.side),
            Silence::System(error) => PairError::System("poll", error),
        })
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.actor.dismiss(FAREWELL);
    }
}

/// The program that plays a system, with the environment that it needs.
pub(crate) fn command(system: System, broker: &Path) -> Result<Command, PairError> {
    let own = std::env::current_exe().map_err(|error| PairError::System("find itself", error))?;
    match system {
        _ if system.is_apart() => {
            let program = peers(&own)?;
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
pub(crate) fn has_kernel_binder() -> Result<(), PairError> {
    match std::fs::metadata("/dev/binder") {
        Ok(device) if device.file_type().is_char_device() => Ok(()),
        _ => Err(PairError::NotHere {
            what: "/dev/binder",
            why: "this kernel has no Binder driver, or has made no device",
        }),
    }
}

/// The program of peers that have dependencies of their own.
fn peers(own: &Path) -> Result<PathBuf, PairError> {
    beside(own, "baton-bench-peers", "`bench/peers/build` builds it")
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
