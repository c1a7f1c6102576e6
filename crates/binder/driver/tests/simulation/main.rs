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
#[path = "../support/simulated.rs"]
mod simulated;
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
    simulated::run(world::World::run);
}
