//! The fuzz target's body on the corpus, and on bytes from a seeded generator: `FUZZ_RUNS=n`
//! inputs, `SEED=n` for one.

#[path = "../../../../fuzz/bodies/input.rs"]
#[allow(dead_code, reason = "not every choice is made")]
mod input;
#[path = "../../../../fuzz/bodies/log_entries.rs"]
mod log_entries;
#[path = "../../../binder/driver/tests/support/rng.rs"]
#[allow(dead_code, reason = "not every die is thrown")]
mod rng;

use rng::Rng;
use std::path::Path;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

/// Random bytes, many of them small: they are the numbers with a meaning.
fn bytes(seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let length = rng.below(600);
    let small = rng.below(80);
    (0..length)
        .map(|_| if rng.percent(small) { rng.below(8) as u8 } else { rng.next() as u8 })
        .collect()
}

#[test]
fn logcat_survives_any_bytes() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus/log_entries");
    for entry in std::fs::read_dir(corpus).expect("the corpus") {
        let path = entry.expect("a file").path();
        let input = std::fs::read(&path).expect("a file");
        let run = std::panic::catch_unwind(|| log_entries::run(&input));
        assert!(run.is_ok(), "{}", path.display());
    }
    let seeds = match setting("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..setting("FUZZ_RUNS").unwrap_or(20_000),
    };
    for seed in seeds {
        let run = std::panic::catch_unwind(|| log_entries::run(&bytes(seed)));
        assert!(run.is_ok(), "replay: SEED={seed} cargo test -p baton-logcat --test fuzz");
    }
}
