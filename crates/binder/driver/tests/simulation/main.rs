//! Many engines and one broker, without a machine: their pure states, driven by one seed.
//!
//! A history is a random run of programs that keep Binder's rules: calls, nested calls, replies,
//! one-way transactions, objects that travel and come home, counts, acknowledgements, death and
//! freeze notifications, threads that leave, processes killed between any two critical sections,
//! managers that come and go. When it comes to rest, a naive model says what must be left.
//!
//! `SEED=n` replays one history (with `SIM_TRACE=1`, step by step); `SIM_HISTORIES=n` runs more.

mod acts;
mod check;
mod glue;
mod party;
mod program;
mod restart;
mod rng;
mod threads;
mod wire;
mod world;

use world::{Phase, World};

const HISTORIES: u64 = 8000;

/// Prints the seed of a history that fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "replay: SEED={} SIM_TRACE=1 cargo test -p baton-driver --test simulation",
                self.0
            );
        }
    }
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

fn run(seed: u64) {
    let seed = Seed(seed);
    let mut world = World::new(seed.0, setting("SIM_TRACE").is_some());
    for _ in 0..2 + world.rng.below(3) {
        world.spawn();
    }
    let steps = 50 + world.rng.below(600);
    let kills = world.rng.below(6);
    let broker_dies = world.rng.below(3) * 5;
    for _ in 0..steps {
        if world.rng.below(400) < broker_dies {
            world.kill_broker();
        }
        if world.rng.below(200) < kills {
            let ids: Vec<_> = world.parties.keys().copied().collect();
            if let Some(id) = world.rng.pick(&ids) {
                world.kill(id);
            }
        }
        if world.parties.len() < 2 || world.parties.len() < 6 && world.rng.below(200) < kills {
            world.spawn();
        }
        let agents = world.agents();
        if let Some(agent) = world.rng.pick(&agents) {
            world.step(agent);
        }
    }
    world.enter(Phase::Finish);
    world.come_to_rest();
    world.check_at_rest();
    world.enter(Phase::GiveBack);
    world.come_to_rest();
    world.check_at_rest();
    world.check_given_back();
    while let Some(&id) = world.parties.keys().next() {
        world.kill(id);
    }
    world.come_to_rest();
    assert!(world.broker.is_empty(), "the broker is left with {:?}", world.broker);
}

#[test]
fn histories() {
    if let Some(seed) = setting("SEED") {
        return run(seed);
    }
    let histories = setting("SIM_HISTORIES").unwrap_or(HISTORIES);
    for seed in 1..=histories {
        run(seed);
    }
}
