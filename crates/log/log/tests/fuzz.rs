//! The fuzz target's body on bytes from a seeded generator: `FUZZ_RUNS=n` inputs, `SEED=n` for one.

#[path = "../../../../fuzz/bodies/input.rs"]
#[allow(dead_code, reason = "not every choice is made")]
mod input;
#[path = "../../../../fuzz/bodies/log_rings.rs"]
mod log_rings;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

/// Random bytes, many of them small: they are the numbers with a meaning.
fn bytes(seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 27)
    };
    let (length, small) = (next() % 400, next() % 80);
    (0..length)
        .map(|_| if next() % 100 < small { (next() % 8) as u8 } else { next() as u8 })
        .collect()
}

#[test]
fn a_reader_survives_any_bytes() {
    let seeds = match setting("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..setting("FUZZ_RUNS").unwrap_or(3000),
    };
    for seed in seeds {
        let run = std::panic::catch_unwind(|| log_rings::run(&bytes(seed)));
        assert!(run.is_ok(), "replay: SEED={seed} cargo test -p baton-log --test fuzz");
    }
}
