//! The fuzz targets' bodies on bytes from a seeded generator, and on the corpus: what libFuzzer
//! does without end, a few seconds of it in every test run.
//!
//! `FUZZ_RUNS=n` for another number of inputs a target, `FUZZ_TARGET=name` for one target,
//! `SEED=n` for one input.

#[path = "../../../../fuzz/bodies/mod.rs"]
mod bodies;
#[path = "support/rng.rs"]
#[allow(dead_code, reason = "not every die is thrown")]
mod rng;

use rng::Rng;
use std::io::Write;
use std::path::Path;

/// A panic on whichever thread ends the test: those of the engines are nobody's to join.
fn end_on_panic(target: &'static str, seed: u64) {
    std::panic::set_hook(Box::new(move |panic| {
        // Past the harness, which would keep it.
        let replay =
            format!("FUZZ_TARGET={target} SEED={seed} cargo test -p baton-driver --test fuzz");
        let _ = writeln!(std::io::stderr(), "{panic}\nreplay: {replay}");
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

fn check(target: &'static str, runs: u64, body: fn(&[u8])) {
    if std::env::var("FUZZ_TARGET").is_ok_and(|wanted| wanted != target) {
        return;
    }
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus").join(target);
    for entry in std::fs::read_dir(&corpus).into_iter().flatten().flatten() {
        body(&std::fs::read(entry.path()).expect("a corpus file"));
    }
    let seeds = match setting("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..setting("FUZZ_RUNS").unwrap_or(runs),
    };
    for seed in seeds {
        end_on_panic(target, seed);
        body(&bytes(seed));
    }
}

/// One test, so that a hook names the input that it was set for.
#[test]
fn bodies_hold_for_any_bytes() {
    check("parcel_objects", 20_000, bodies::parcel_objects::run);
    check("control_messages", 10_000, bodies::control_messages::run);
    check("uapi_commands", 500, bodies::uapi_commands::run);
    check("lane_messages", 500, bodies::lane_messages::run);
}
