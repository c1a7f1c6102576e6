#![no_main]

#[path = "../bodies/input.rs"]
#[allow(dead_code, reason = "not every choice is made")]
mod input;
#[path = "../bodies/log_rings.rs"]
mod log_rings;

libfuzzer_sys::fuzz_target!(|data: &[u8]| log_rings::run(data));
