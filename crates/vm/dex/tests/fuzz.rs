//! The fuzz target of dex files, in every test run: see `fuzz/seeded.rs`.

#[path = "../../../../fuzz/bodies/dex_files.rs"]
mod dex_files;
#[path = "../../../../fuzz/bodies/input.rs"]
#[allow(dead_code, reason = "not every choice is made")]
mod input;
#[path = "../../../../fuzz/seeded.rs"]
mod seeded;

#[test]
fn edited_files_are_refused_or_read_to_the_end() {
    seeded::check("dex_files", 30_000, dex_files::run);
}
