//! Instructions of one record with its copy, counted by valgrind's callgrind, which other load does
//! not change.
//!
//! The test starts itself under valgrind with two numbers of records, and divides the difference.

use baton_log::{Buffer, Options, Priority};
use std::hint::black_box;
use std::process::{Command, ExitCode};

/// The most instructions of a record: with a tag that is a constant, and with one that is not known
/// at compile time.
const BOUNDS: [(&str, u64); 2] = [("constant", 93), ("unknown", 136)];
const RECORDS: [u64; 2] = [10_000, 110_000];
const MESSAGE: &[u8] = b"Partition (blkdev 179:1), 7946240 secs (3880 MB) type 0xb\n";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, name, directory, n_records] = &arguments[..] {
        write(name, directory, n_records.parse().expect("a number"));
    }
    if cfg!(debug_assertions) {
        println!("skipped: instructions (not an optimised build)");
        return ExitCode::SUCCESS;
    }
    let mut is_over = false;
    for (name, most) in BOUNDS {
        let [Some(short), Some(long)] = RECORDS.map(|n_records| count(name, n_records)) else {
            println!("skipped: instructions (valgrind is not installed)");
            return ExitCode::SUCCESS;
        };
        let each = (long - short).div_ceil(RECORDS[1] - RECORDS[0]);
        println!("{name}: {each} instructions a record, of {most}");
        is_over |= each > most;
    }
    if is_over { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Ends without dropping anything, since valgrind does not know all system calls of that.
fn write(name: &str, directory: &str, n_records: u64) -> ! {
    let writer = Options::new().directory(directory).open().writer();
    for _ in 0..n_records {
        let message = black_box(MESSAGE);
        match name {
            "constant" => writer.write(Buffer::Main, Priority::Info, b"vold", message),
            _ => black_box(baton_log::Writer::write)(
                &writer,
                black_box(Buffer::Main),
                black_box(Priority::Info),
                black_box(b"vold"),
                message,
            ),
        }
    }
    std::process::exit(0)
}

fn count(name: &str, n_records: u64) -> Option<u64> {
    let directory = tempfile::tempdir().expect("a directory");
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    command.arg(std::env::current_exe().expect("our own program")).arg(name);
    let output = command.arg(directory.path()).arg(n_records.to_string()).output().ok()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let (_, count) = said.split_once("Collected : ").expect("callgrind counts");
    let count: String = count.chars().take_while(char::is_ascii_digit).collect();
    Some(count.parse().expect("a number"))
}
