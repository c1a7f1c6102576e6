//! The processes of one system, as the run sees them: a server, and a client or many.
//!
//! All are started once, and sleep while others are measured. Many clients warm up, wait at a
//! barrier, and go together.

use crate::case::Case;
use crate::child::{ChildError, ChildProcess};
use crate::distribution::Spread;
use crate::order::{self, EndpointRole, Measured, Order, Side};
use crate::processors::{Placement, Processors};
use crate::report::RowKey;
use crate::results::Results;
use crate::service::Service;
use crate::start_barrier::StartBarrier;
use crate::system::System;
use baton_rt::SchedPriority;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// For an end in good order, in which some peers take away what they have put into the system.
const FAREWELL: Duration = Duration::from_secs(2);

/// Most threads of a pool, as libbinder has it: 15 that the driver asks for, and the first.
const MOST_LOOPERS: usize = 16;

/// Why a system could not be measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PairError {
    #[error("{0} is not there: {1}")]
    NotInstalled(&'static str, &'static str),
    /// This machine or this program cannot have it.
    #[error("{0} is not there: {1}")]
    NotHere(&'static str, &'static str),
    #[error("{0}: {1}")]
    System(&'static str, io::Error),
    #[error(transparent)]
    Child(#[from] ChildError),
    /// An end says that its calls do not do what they should.
    #[error("{0}")]
    Wrong(String),
}

impl From<PairError> for io::Error {
    fn from(error: PairError) -> io::Error {
        io::Error::other(error)
    }
}

/// What every process needs to be started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub broker: &'a Path,
    /// Where the processes may have a directory of their own.
    pub directory: &'a Path,
    pub service: Service,
    /// Of all processes, beside this program's environment.
    pub environment: &'a [(&'a str, &'a str)],
    /// `None` for the priority of this process.
    pub priority: Option<SchedPriority>,
}

/// What is measured at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk {
    /// `None` for wherever the kernel likes.
    pub placement: Option<Placement>,
    /// What each call carries beside bytes.
    pub case: Case,
    /// Bytes there and, of an echo, back.
    pub payload_bytes: usize,
    pub n_warm_up: u32,
    pub n_calls: u32,
    /// Sleep between two calls, in microseconds.
    pub delay_us: u64,
}

impl Chunk {
    pub fn new(
        placement: impl Into<Option<Placement>>,
        payload_bytes: usize,
        n_warm_up: u32,
        n_calls: u32,
    ) -> Chunk {
        let (placement, case) = (placement.into(), Case::Plain);
        Chunk { placement, case, payload_bytes, n_warm_up, n_calls, delay_us: 0 }
    }

    fn order(&self, cpu: Option<usize>) -> Order {
        let &Chunk { case, payload_bytes, n_warm_up, n_calls, delay_us, .. } = self;
        Order { cpu, case, payload_bytes, n_warm_up, n_calls, delay_us, barrier: None }
    }
}

pub(crate) struct Pair {
    client: Endpoint,
    server: Endpoint,
    /// The file system outlives both ends.
    mount: Option<Endpoint>,
}

impl Pair {
    pub fn start(system: System, place: Place<'_>) -> Result<Pair, PairError> {
        let directory = place.directory.join(system.name());
        std::fs::create_dir(&directory).map_err(made("mkdir"))?;
        let place = Place { directory: &directory, ..place };
        let mount = Endpoint::mount(system, place)?;
        let server = Endpoint::start(system, Side::Server, place, 1)?;
        Ok(Pair { mount, server, client: Endpoint::start(system, Side::Client, place, 1)? })
    }

    /// The time of each call, in nanoseconds.
    pub fn measure(&mut self, chunk: &Chunk, at: &Processors) -> Result<Vec<u64>, PairError> {
        self.find(chunk, at).map(|mut points| points.pop().unwrap_or_default())
    }

    /// The time of each call at each point, in nanoseconds; the last is the end.
    pub fn find(&mut self, chunk: &Chunk, at: &Processors) -> Result<Vec<Vec<u64>>, PairError> {
        let server = |placement| at.server(placement).expect("only what exists is measured");
        self.find_at(chunk, chunk.placement.map(|_| at.client), chunk.placement.map(server))
    }

    /// With the client on its processor, and the server wherever the kernel puts it: the time of
    /// each call, in nanoseconds.
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
        if let Some(mount) = &mut self.mount {
            // Where both sides are, or wherever the kernel likes.
            mount.go_to(client.filter(|_| client == server))?;
        }
        self.server.order(&chunk.order(server))?;
        self.server.0.is_ready()?;
        self.client.order(&chunk.order(client))?;
        let found = self.client.found()?;
        self.server.0.is_ready()?;
        Ok(found.points)
    }
}

/// Starts what can be started of each system. `found` has the reasons for which others cannot, and
/// excuses those that this machine or this program cannot have.
pub(crate) fn start_each<T>(
    systems: impl IntoIterator<Item = System>,
    found: &mut Results,
    key: impl Fn(System) -> RowKey,
    start: impl Fn(System) -> Result<T, PairError>,
) -> BTreeMap<System, T> {
    let mut all = BTreeMap::new();
    for system in systems {
        let started = start(system);
        if matches!(started, Err(PairError::NotHere { .. })) {
            found.excuse(system.name());
        }
        all.extend(found.ok(key(system), started).map(|started| (system, started)));
    }
    all
}

/// A server and all its clients.
pub(crate) struct ClientGroup {
    clients: Vec<Endpoint>,
    server: Endpoint,
    /// The file system outlives all ends.
    _mount: Option<Endpoint>,
    barrier: StartBarrier,
}

/// What clients have found that called together.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Together {
    /// Of every client, its calls' times in nanoseconds.
    pub times_ns: Vec<Vec<u64>>,
    /// From the first call's beginning to the last one's end.
    pub duration_ns: u64,
}

fn made(what: &'static str) -> impl Fn(io::Error) -> PairError {
    move |error| PairError::System(what, error)
}

impl ClientGroup {
    pub fn start(
        system: System,
        n_clients: usize,
        place: Place<'_>,
    ) -> Result<ClientGroup, PairError> {
        let directory = place.directory.join(system.name());
        for client in 0..n_clients {
            let directory = order::place(&directory, client);
            std::fs::create_dir_all(directory).map_err(made("mkdir"))?;
        }
        let place = Place { directory: &directory, ..place };
        // What is Binder has a pool of threads, any of which answers any client.
        let (side, n_threads) = match system.is_binder() {
            true => (Side::Pool, n_clients.min(MOST_LOOPERS)),
            false => (Side::Threads, n_clients),
        };
        let mount = Endpoint::mount(system, place)?;
        let server = Endpoint::start(system, side, place, n_threads)?;
        let client = |client| {
            let place = Place { directory: &order::place(&directory, client), ..place };
            Endpoint::start(system, Side::Client, place, 1)
        };
        let clients = (0..n_clients).map(client).collect::<Result<_, _>>()?;
        Ok(ClientGroup {
            clients,
            server,
            _mount: mount,
            barrier: StartBarrier::new().map_err(made("make a barrier"))?,
        })
    }

    /// Lets the first `n_clients` call, each as often as the chunk says, wherever the kernel puts
    /// them.
    pub fn measure(&mut self, n_clients: usize, chunk: &Chunk) -> Result<Together, PairError> {
        let barrier = Some((self.barrier.place(), self.barrier.next()));
        let order = Order { barrier, ..chunk.order(None) };
        let clients = &mut self.clients[..n_clients];
        self.server.order(&order)?;
        self.server.0.is_ready()?;
        clients.iter_mut().try_for_each(|client| client.order(&order))?;
        clients.iter_mut().try_for_each(|client| client.0.is_ready())?;
        self.barrier.open();
        let found = clients.iter_mut().map(Endpoint::found).collect::<Result<Vec<_>, _>>()?;
        self.server.0.is_ready()?;
        Ok(Together::of(found))
    }
}

impl Together {
    fn of(found: Vec<Measured>) -> Together {
        let begin_ns = found.iter().map(|found| found.span_ns[0]).min().unwrap_or(0);
        let end_ns = found.iter().map(|found| found.span_ns[1]).max().unwrap_or(0);
        let times_ns = found.into_iter().filter_map(|mut found| found.points.pop());
        Together { times_ns: times_ns.collect(), duration_ns: end_ns.saturating_sub(begin_ns) }
    }

    /// Calls a second, of all clients together.
    pub fn calls_per_second(&self) -> f64 {
        let n_calls: usize = self.times_ns.iter().map(Vec::len).sum();
        n_calls as f64 * 1e9 / self.duration_ns.max(1) as f64
    }

    /// The clients' own medians, in nanoseconds.
    pub fn medians_ns(&self) -> Option<Spread> {
        let median = |times_ns: &Vec<u64>| Spread::of(times_ns.iter().map(|&time| time as f64));
        Spread::of(self.times_ns.iter().filter_map(median).map(|times| times.median))
    }
}

pub(crate) struct Endpoint(ChildProcess);

impl Endpoint {
    pub fn start(
        system: System,
        side: Side,
        place: Place<'_>,
        n_clients: usize,
    ) -> Result<Endpoint, PairError> {
        let mut program = command(system, place.broker)?;
        program.envs(place.environment.iter().copied());
        let role = EndpointRole {
            system,
            side,
            directory: place.directory.to_owned(),
            broker: place.broker.to_owned(),
            service: place.service,
            priority: place.priority.map(|priority| priority.to_string()),
            n_clients,
        };
        let child = ChildProcess::start_role(side.into(), &mut program, "endpoint", &role)?;
        Ok(Endpoint(child.with_farewell(FAREWELL)))
    }

    /// The file system that a system's ends need, if they need one.
    fn mount(system: System, place: Place<'_>) -> Result<Option<Endpoint>, PairError> {
        system.is_mounted().then(|| Endpoint::start(system, Side::Mount, place, 1)).transpose()
    }

    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Binds a pool or a file system to a processor, or to none.
    pub fn go_to(&mut self, cpu: Option<usize>) -> Result<(), ChildError> {
        self.order(&Order { cpu, ..Order::default() })?;
        self.0.is_ready()?;
        self.0.is_ready()
    }

    fn order(&mut self, order: &Order) -> Result<(), ChildError> {
        self.0.tell(&serde_json::to_string(order).expect("numbers only"))
    }

    fn found(&mut self) -> Result<Measured, PairError> {
        let found: Measured = self.0.found(Duration::ZERO)?;
        match found.wrong {
            Some(wrong) => Err(PairError::Wrong(wrong)),
            None => Ok(found),
        }
    }
}

/// The program that has a system's ends, with the environment that it needs.
pub(crate) fn command(system: System, broker: &Path) -> Result<Command, PairError> {
    let own = std::env::current_exe().map_err(made("find itself"))?;
    if system.is_apart() {
        let program = beside(&own, "baton-bench-peers", "`bench/peers/build` builds it")?;
        if matches!(system, System::DbusDaemon | System::DbusBroker) {
            on_path(system.name())?;
        }
        return Ok(Command::new(program));
    }
    let mut command = Command::new(&own);
    match system {
        System::BatonUapiLibc | System::BatonUapiTrap => {
            let what = "libbaton_preload.so";
            if cfg!(target_feature = "crt-static") {
                return Err(PairError::NotHere(what, "a static program loads no library"));
            }
            // As `baton run` finds it.
            let library = match std::env::var_os("BATON_PRELOAD_LIB") {
                Some(path) => path.into(),
                None => beside(&own, what, "`cargo build` builds it")?,
            };
            command.env("LD_PRELOAD", library).env("BATON_SOCKET", broker);
            command.env("BATON_CONTEXT", system.name());
        }
        System::BatonMounted | System::BatonMountedStored => {
            if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
                return Err(PairError::NotHere("a mount", "it needs root, and /dev/fuse"));
            }
            command.env_remove("LD_PRELOAD");
        }
        System::KernelBinder => {
            has_kernel_binder()?;
            command.env_remove("LD_PRELOAD");
        }
        _ => {}
    }
    Ok(command)
}

/// Whether the kernel has a Binder driver, and has made its device.
pub(crate) fn has_kernel_binder() -> Result<(), PairError> {
    match std::fs::metadata("/dev/binder") {
        Ok(device) if device.file_type().is_char_device() => Ok(()),
        _ => Err(PairError::NotHere(
            "/dev/binder",
            "this kernel has no Binder driver, or has made no device",
        )),
    }
}

fn beside(program: &Path, what: &'static str, advice: &'static str) -> Result<PathBuf, PairError> {
    let path = program.with_file_name(what);
    if path.exists() { Ok(path) } else { Err(PairError::NotInstalled(what, advice)) }
}

/// Whether a program is installed.
pub(crate) fn on_path(what: &'static str) -> Result<(), PairError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    match std::env::split_paths(&path).any(|directory| directory.join(what).exists()) {
        true => Ok(()),
        false => Err(PairError::NotInstalled(what, "the package of that name has it")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(times_ns: &[u64], span_ns: [u64; 2]) -> Measured {
        Measured { points: vec![times_ns.to_vec()], span_ns, wrong: None }
    }

    #[test]
    fn clients_are_counted_from_the_first_call_to_the_last() {
        let found = vec![found(&[10, 20, 90], [1000, 1300]), found(&[40, 50], [1100, 1500])];
        let together = Together::of(found);
        assert_eq!(together.duration_ns, 500);
        assert_eq!(together.calls_per_second(), 5.0 * 1e9 / 500.0);
        let medians = together.medians_ns().unwrap();
        assert_eq!((medians.least, medians.greatest), (20.0, 45.0));
    }
}
