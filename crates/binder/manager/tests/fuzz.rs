//! The fuzz target's body on bytes from a seeded generator: `FUZZ_RUNS=n` inputs, `SEED=n` for one.

#[path = "../../../../fuzz/bodies/input.rs"]
#[allow(dead_code, reason = "not every choice is made")]
mod input;
#[path = "../../../../fuzz/bodies/manager_requests.rs"]
mod manager_requests;
#[path = "../../driver/tests/support/rng.rs"]
#[allow(dead_code, reason = "not every die is thrown")]
mod rng;

use rng::Rng;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

/// Random bytes, many of them small: they are lengths of strings.
fn bytes(seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let length = rng.below(200);
    let small = rng.below(100);
    (0..length)
        .map(|_| if rng.percent(small) { rng.below(8) as u8 } else { rng.next() as u8 })
        .collect()
}

#[test]
fn the_decoder_survives_any_bytes() {
    let seeds = match setting("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..setting("FUZZ_RUNS").unwrap_or(20_000),
    };
    for seed in seeds {
        let run = std::panic::catch_unwind(|| manager_requests::run(&bytes(seed)));
        assert!(run.is_ok(), "replay: SEED={seed} cargo test -p baton-manager --test fuzz");
    }
}
