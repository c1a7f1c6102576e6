#![no_main]

#[path = "../bodies/dex_files.rs"]
mod dex_files;
#[path = "../bodies/input.rs"]
#[allow(dead_code, reason = "not every choice is made")]
mod input;

libfuzzer_sys::fuzz_target!(|data: &[u8]| dex_files::run(data));
