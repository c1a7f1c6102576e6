//! Fuzz targets' bodies on their corpus, and on bytes from a seeded generator: what libFuzzer does
//! without end, a few seconds of it in every test run. A test has one such run per process.
//!
//! `FUZZ_RUNS=n` for another number of inputs a target, `FUZZ_TARGET=name` for one target,
//! `SEED=n` for one input.

#[path = "../crates/binder/driver/tests/support/rng.rs"]
#[allow(dead_code, reason = "not every die is thrown")]
mod rng;

use rng::Rng;
use std::io::Write;
use std::path::Path;

/// A panic on any thread ends the test, and names the input: nobody joins the threads of engines.
fn end_on_panic(input: String) {
    std::panic::set_hook(Box::new(move |panic| {
        // Past the harness, which would keep it.
        let _ = writeln!(std::io::stderr(), "{panic}\ninput: {input}");
        std::process::abort();
    }));
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

/// Bytes of which many are small and some repeat: numbers that mean something.
fn bytes(seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let length = rng.below(600);
    let small = rng.below(80);
    (0..length)
        .map(|_| if rng.percent(small) { rng.below(8) as u8 } else { rng.next() as u8 })
        .collect()
}

/// Runs a target's body on the files of its corpus, if it has one, and on `runs` inputs.
pub fn check(target: &'static str, runs: u64, body: fn(&[u8])) {
    if std::env::var("FUZZ_TARGET").is_ok_and(|wanted| wanted != target) {
        return;
    }
    let has_corpora = |directory: &&Path| directory.join("fuzz/corpus").is_dir();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().find(has_corpora);
    let corpus = root.expect("the workspace").join("fuzz/corpus").join(target);
    for entry in std::fs::read_dir(&corpus).into_iter().flatten().flatten() {
        end_on_panic(entry.path().display().to_string());
        body(&std::fs::read(entry.path()).expect("a corpus file"));
    }
    let seeds = match setting("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..setting("FUZZ_RUNS").unwrap_or(runs),
    };
    for seed in seeds {
        end_on_panic(format!("FUZZ_TARGET={target} SEED={seed}"));
        body(&bytes(seed));
    }
}
