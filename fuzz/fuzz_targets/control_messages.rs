#![no_main]

#[path = "../bodies/mod.rs"]
#[allow(dead_code, reason = "each target runs one of the bodies")]
mod bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::control_messages::run(data));
