//! Random histories of typed processes on a simulated machine: calls, calls back, calls with a
//! time-out, one-way transactions, handles that travel, objects that end before their process,
//! death recipients, real-time callers with loopers of their own, lent priorities, and kills of
//! processes and of the broker at any access to shared memory.
//!
//! The test is built with `--cfg simulated` (`make test-simulation`). `SEED=n` replays one history;
//! `SIM_HISTORIES=n` runs more.

#[cfg(simulated)]
mod member;
#[cfg(simulated)]
#[path = "../../../driver/tests/support/simulated.rs"]
mod simulated;
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
