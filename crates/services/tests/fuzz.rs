//! The fuzz targets' bodies as tests: see `fuzz/seeded.rs`.

#[path = "../../../fuzz/bodies/input.rs"]
#[allow(dead_code, reason = "not every choice is made")]
mod input;
#[path = "../../../fuzz/bodies/intents.rs"]
mod intents;
#[path = "../../../fuzz/bodies/journal.rs"]
mod journal;
#[path = "../../../fuzz/seeded.rs"]
mod seeded;

#[test]
fn decoders_of_intents_survive_any_bytes() {
    seeded::check("intents", 20_000, intents::run);
}

#[test]
fn a_journal_of_any_bytes_is_refused_or_taken_over() {
    seeded::check("journal", 5_000, journal::run);
}
