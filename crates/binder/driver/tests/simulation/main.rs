//! Random histories of whole processes on a simulated machine.
//!
//! A history is one broker and some processes with the shipped engine behind the raw interface.
//! Their programs keep Binder's rules: calls, nested calls, replies, one-way transactions, objects
//! and descriptors that travel and come home, counts, death notifications, threads that leave,
//! real-time callers and their loopers. Hostile processes among them write whatever they can. The
//! machine switches threads at any access to shared memory, and its real-time threads go first.
//! Processes are killed between any two such accesses, and so is the broker, which another one
//! succeeds. When a history comes to rest, a naive model of the programs says what must be left.
//!
//! The test is built with `--cfg simulated` (`make test-simulation`). `SEED=n` replays one history;
//! `SIM_HISTORIES=n` runs more.

#[cfg(simulated)]
mod check;
#[cfg(simulated)]
mod grants;
#[cfg(simulated)]
mod hostile;
#[cfg(simulated)]
mod model;
#[cfg(simulated)]
mod payload;
#[cfg(simulated)]
#[path = "../support/program.rs"]
mod program;
#[cfg(simulated)]
#[path = "../support/stranger.rs"]
mod stranger;
#[cfg(simulated)]
mod worker;
#[cfg(simulated)]
mod world;

#[cfg(not(simulated))]
fn main() {
    println!("skipped: simulation (needs --cfg simulated: `make test-simulation`)");
}

#[cfg(simulated)]
fn main() {
    histories::run();
}

#[cfg(simulated)]
mod histories {
    use crate::world::World;
    use std::process::{Command, exit};

    /// Histories without `SIM_HISTORIES`.
    const HISTORIES: u64 = 400;
    /// Histories of one operating system's process, which keeps the stacks of what was killed.
    const A_PROCESS: u64 = 20;
    /// Names the first and the last history of a child.
    const CHILD: &str = "SIM_CHILD";

    fn setting(name: &str) -> Option<u64> {
        std::env::var(name).ok().map(|value| value.parse().expect("a number"))
    }

    pub fn run() {
        if let Some(seed) = setting("SEED") {
            return World::run(seed);
        }
        if let Some(first) = setting(CHILD) {
            return (first..first + A_PROCESS).for_each(World::run);
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

    fn finish(mut child: std::process::Child) {
        if !child.wait().expect("a child").success() {
            exit(1);
        }
    }
}
