//! Instructions of one IPC, counted by callgrind: this program runs itself under it with two
//! numbers of batches, and divides the difference.

use std::process::{Command, Stdio};

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
    let play = format!("{kernel}:{n_words}:{n_batches}");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(["nucleus", "--play", &play])
        .stdout(Stdio::null())
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let (_, count) = text.split_once("Collected : ").ok_or("callgrind has not counted")?;
    let count: String = count.chars().take_while(char::is_ascii_digit).collect();
    count.parse().map_err(|_| "callgrind has not counted".to_owned())
}
