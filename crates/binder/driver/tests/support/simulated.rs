//! What simulated histories have in common: how a test runs them, the seed that a failure names,
//! and the broker.

use baton_broker::Config;
use baton_shm::blocking::pause;
use baton_shm::simulation::{Machine, relinquish};
use std::path::PathBuf;
use std::process::{Child, Command, exit};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Switches after which a history counts as endless.
pub const MOST_SWITCHES: u64 = 500_000;
/// The first process; the harness is process 0.
pub const FIRST_PROCESS: u32 = 1;
/// The name of threads that act, and end.
pub const WORKER: &str = "worker";
/// Histories without `SIM_HISTORIES`.
const HISTORIES: u64 = 400;
/// Histories of one operating system's process, which keeps the stacks of what was killed.
const A_PROCESS: u64 = 20;
/// Names the first history of a child.
const CHILD: &str = "SIM_CHILD";

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

/// Runs the history of each seed from 1 on, or that of `SEED`.
pub fn run(history: fn(u64)) {
    if let Some(seed) = setting("SEED") {
        return history(seed);
    }
    if let Some(first) = setting(CHILD) {
        return (first..first + A_PROCESS).for_each(history);
    }
    let last = setting("SIM_HISTORIES").unwrap_or(HISTORIES);
    let mut running = Vec::new();
    for first in (1..=last).step_by(A_PROCESS as usize) {
        let program = std::env::current_exe().expect("our own program");
        running.push(Command::new(program).env(CHILD, first.to_string()).spawn().unwrap());
        if running.len() == 2 {
            finish(running.remove(0));
        }
    }
    running.into_iter().for_each(finish);
    println!("simulation: {last} histories");
}

fn finish(mut child: Child) {
    if !child.wait().expect("a child").success() {
        exit(1);
    }
}

/// Says which history has failed.
pub struct Seed(pub u64);

impl Seed {
    /// The command that repeats the history.
    pub fn replay(&self) -> String {
        format!("replay: SEED={} make test-simulation", self.0)
    }
}

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.replay());
        }
    }
}

/// The broker of a machine.
pub struct SimulatedBroker {
    machine: Arc<Machine>,
    pub socket: PathBuf,
    process: AtomicU32,
}

impl SimulatedBroker {
    /// A broker that is to listen at this socket.
    pub fn new(machine: &Arc<Machine>, socket: PathBuf) -> SimulatedBroker {
        SimulatedBroker { machine: Arc::clone(machine), socket, process: AtomicU32::new(0) }
    }

    /// Starts the broker as a process of this number.
    pub fn start(&self, process: u32) {
        self.process.store(process, Ordering::Relaxed);
        let config = Config::at(&self.socket);
        let serve = || baton_broker::run(config, || {}).expect("a broker that serves");
        self.machine.spawn(process, "broker", serve).expect("a thread");
        while !self.socket.exists() {
            relinquish();
        }
    }

    /// The broker dies amid whatever it does, and after a while there is another one.
    pub fn restart(&self, process: u32) {
        let dying = self.process.load(Ordering::Relaxed);
        self.machine.doom(dying);
        while !self.machine.has_ended(dying) {
            relinquish();
        }
        self.machine.drop_connections();
        pause(Duration::from_micros(self.machine.below(5_000)));
        self.start(process);
    }
}
