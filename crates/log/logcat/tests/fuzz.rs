//! The fuzz target's body as a test: see `fuzz/seeded.rs`.

#[path = "../../../../fuzz/bodies/input.rs"]
#[allow(dead_code, reason = "not every choice is made")]
mod input;
#[path = "../../../../fuzz/bodies/log_entries.rs"]
mod log_entries;
#[path = "../../../../fuzz/seeded.rs"]
mod seeded;

#[test]
fn logcat_survives_any_bytes() {
    seeded::check("log_entries", 20_000, 600, log_entries::run);
}
