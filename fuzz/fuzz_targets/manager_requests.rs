#![no_main]

#[path = "../bodies/input.rs"]
#[allow(dead_code, reason = "not every choice is made")]
mod input;
#[path = "../bodies/manager_requests.rs"]
mod manager_requests;

libfuzzer_sys::fuzz_target!(|data: &[u8]| manager_requests::run(data));
