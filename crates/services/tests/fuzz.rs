//! The fuzz target's body as a test: see `fuzz/seeded.rs`.

#[path = "../../../fuzz/bodies/input.rs"]
#[allow(dead_code, reason = "not every choice is made")]
mod input;
#[path = "../../../fuzz/bodies/intents.rs"]
mod intents;
#[path = "../../../fuzz/seeded.rs"]
mod seeded;

#[test]
fn decoders_of_intents_survive_any_bytes() {
    seeded::check("intents", 20_000, 400, intents::run);
}
