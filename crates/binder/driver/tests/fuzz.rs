//! The fuzz targets' bodies as a test: see `fuzz/seeded.rs`. `FUZZ_TARGET=name` for one target.

#[path = "../../../../fuzz/bodies/mod.rs"]
mod bodies;
#[path = "../../../../fuzz/seeded.rs"]
mod seeded;

use std::io::Write;

/// A panic on whichever thread ends the test: those of the engines are nobody's to join.
fn end_on_panic(target: &'static str, input: String) {
    std::panic::set_hook(Box::new(move |panic| {
        // Past the harness, which would keep it.
        let replay = format!("FUZZ_TARGET={target} {input} cargo test -p baton-driver --test fuzz");
        let _ = writeln!(std::io::stderr(), "{panic}\nreplay: {replay}");
        std::process::abort();
    }));
}

fn check(target: &'static str, runs: u64, body: fn(&[u8])) {
    if std::env::var("FUZZ_TARGET").is_ok_and(|wanted| wanted != target) {
        return;
    }
    for (name, input) in seeded::inputs(target, runs, 600) {
        end_on_panic(target, name);
        body(&input);
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
