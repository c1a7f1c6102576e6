//! The inputs of a fuzz target's body when it runs as a test: its corpus, and bytes from a seeded
//! generator. What libFuzzer does without end, a test does for a few seconds.
//!
//! `FUZZ_RUNS=n` for another number of seeded inputs, `SEED=n` for one.

#[path = "../crates/binder/driver/tests/support/rng.rs"]
#[allow(dead_code, reason = "not every die is thrown")]
mod rng;

use rng::Rng;
use std::path::Path;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

/// Fewer than `longest` bytes, of which many are small: they are the numbers with a meaning.
fn bytes(seed: u64, longest: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let length = rng.below(longest);
    let small = rng.below(90);
    (0..length)
        .map(|_| if rng.percent(small) { rng.below(8) as u8 } else { rng.next() as u8 })
        .collect()
}

/// All inputs of a target, each with the setting that repeats it, or its file.
pub fn inputs(target: &str, runs: u64, longest: usize) -> impl Iterator<Item = (String, Vec<u8>)> {
    let fuzz = |directory: &&Path| directory.join("fuzz/corpus").is_dir();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().find(fuzz).expect("the workspace");
    let one = setting("SEED");
    let corpus = std::fs::read_dir(root.join("fuzz/corpus").join(target)).into_iter().flatten();
    let files = corpus.filter(move |_| one.is_none()).map(|entry| {
        let path = entry.expect("a file").path();
        (path.display().to_string(), std::fs::read(&path).expect("a file"))
    });
    let seeds = match one {
        Some(seed) => seed..seed + 1,
        None => 0..setting("FUZZ_RUNS").unwrap_or(runs),
    };
    files.chain(seeds.map(move |seed| (format!("SEED={seed}"), bytes(seed, longest))))
}

/// Runs a body on all inputs, and names the one that ends it.
#[allow(dead_code, reason = "a body whose threads may panic is run otherwise")]
pub fn check(target: &str, runs: u64, longest: usize, body: fn(&[u8])) {
    for (name, input) in inputs(target, runs, longest) {
        let run = std::panic::catch_unwind(|| body(&input));
        let package = env!("CARGO_PKG_NAME");
        assert!(run.is_ok(), "replay: {name} cargo test -p {package} --test fuzz");
    }
}
