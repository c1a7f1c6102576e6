//! The fuzz target's body as a test: see `fuzz/seeded.rs`.

#[path = "../../../../fuzz/bodies/input.rs"]
#[allow(dead_code, reason = "not every choice is made")]
mod input;
#[path = "../../../../fuzz/bodies/log_rings.rs"]
mod log_rings;
#[path = "../../../../fuzz/seeded.rs"]
mod seeded;

#[test]
fn a_reader_survives_any_bytes() {
    seeded::check("log_rings", 3000, 400, log_rings::run);
}
