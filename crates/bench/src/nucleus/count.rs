//! Instructions of one IPC, counted by callgrind: this program runs itself under it with two
//! numbers of batches, and divides the difference.

use super::ipc;
use crate::child::RoleArgs;
use baton_nucleus::each_kernel;
use baton_nucleus::variant::Variant;
use std::io;
use std::process::{Command, ExitCode, Stdio};

const BATCHES: [u64; 2] = [3, 23];
/// IPCs of a batch: 1000 calls.
const IPCS: f64 = 2000.0;

/// Of ping-pong with so many words.
pub fn instructions(kernel: &str, n_words: u8) -> Result<f64, String> {
    let [short, long] = BATCHES.map(|n_batches| collected(kernel, n_words, n_batches));
    Ok((long? - short?) as f64 / ((BATCHES[1] - BATCHES[0]) as f64 * IPCS))
}

fn collected(kernel: &str, n_words: u8, n_batches: u64) -> Result<u64, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let role = serde_json::to_string(&(kernel, n_words, n_batches)).expect("strings and numbers");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(["nucleus-role", &role, &std::process::id().to_string()])
        .stdout(Stdio::null())
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let (_, count) = text.split_once("Collected : ").ok_or("callgrind has not counted")?;
    let count: String = count.chars().take_while(char::is_ascii_digit).collect();
    count.parse().map_err(|_| "callgrind has not counted".to_owned())
}

/// What is counted: a kernel's ping-pong of so many words and batches.
pub fn run(args: &RoleArgs) -> ExitCode {
    args.run(|(kernel, n_words, n_batches): (String, u8, u64)| {
        each_kernel!(K => if K::NAME == kernel {
            return ipc::ping_pong::<K>(n_words, n_batches).map(drop);
        });
        Err(io::ErrorKind::InvalidInput.into())
    })
}
