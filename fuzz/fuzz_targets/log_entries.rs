#![no_main]

#[path = "../bodies/input.rs"]
#[allow(dead_code, reason = "not every choice is made")]
mod input;
#[path = "../bodies/log_entries.rs"]
mod log_entries;

libfuzzer_sys::fuzz_target!(|data: &[u8]| log_entries::run(data));
