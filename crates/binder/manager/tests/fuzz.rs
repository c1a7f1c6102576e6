//! The fuzz target's body as a test: see `fuzz/seeded.rs`.

#[path = "../../../../fuzz/bodies/input.rs"]
#[allow(dead_code, reason = "not every choice is made")]
mod input;
#[path = "../../../../fuzz/bodies/manager_requests.rs"]
mod manager_requests;
#[path = "../../../../fuzz/seeded.rs"]
mod seeded;

#[test]
fn the_decoder_survives_any_bytes() {
    seeded::check("manager_requests", 20_000, 200, manager_requests::run);
}
