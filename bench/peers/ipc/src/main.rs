//! `baton-bench-ipc SYSTEM BATCHES`: a message to and fro between two tasks, so many batches of
//! 1000. Prints what
//! a message one way took of each, in picoseconds.

use corosensei::{Coroutine, CoroutineResult};
use std::process::ExitCode;
use std::time::Instant;
use tokio::sync::mpsc;

const BATCH: u64 = 1000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [system, n_batches] = &arguments[..] else { return ExitCode::FAILURE };
    let Ok(n_batches) = n_batches.parse() else { return ExitCode::FAILURE };
    let times = match system.as_str() {
        "tokio" => tokio_channel(n_batches),
        "corosensei" => switches(n_batches),
        _ => return ExitCode::FAILURE,
    };
    for time_ps in times {
        println!("{time_ps}");
    }
    ExitCode::SUCCESS
}

fn picoseconds(start: Instant) -> u64 {
    start.elapsed().as_nanos() as u64 * 1000 / (2 * BATCH)
}

/// Two tasks and two channels, on a runtime of one thread.
fn tokio_channel(n_batches: u64) -> Vec<u64> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let (to_server, mut requests) = mpsc::channel::<[u64; 8]>(1);
        let (to_client, mut answers) = mpsc::channel::<[u64; 8]>(1);
        let client = tokio::spawn(async move {
            let mut times = Vec::new();
            for _ in 0..n_batches {
                let start = Instant::now();
                for number in 0..BATCH {
                    to_server.send([number; 8]).await.expect("a server");
                    assert_eq!(answers.recv().await.expect("an answer")[7], number);
                }
                times.push(picoseconds(start));
            }
            times
        });
        tokio::spawn(async move {
            while let Some(message) = requests.recv().await {
                if to_client.send(message).await.is_err() {
                    return;
                }
            }
        });
        client.await.expect("it does not panic")
    })
}

/// Eight words to a coroutine, and back: a switch each way, and no scheduler.
fn switches(n_batches: u64) -> Vec<u64> {
    let mut server = Coroutine::new(|yielder, mut message: [u64; 8]| {
        while message[7] != u64::MAX {
            message = yielder.suspend(message);
        }
    });
    let mut times = Vec::new();
    for _ in 0..n_batches {
        let start = Instant::now();
        for number in 0..BATCH {
            let CoroutineResult::Yield(answer) = server.resume([number; 8]) else { break };
            assert_eq!(answer[7], number);
        }
        times.push(picoseconds(start));
    }
    let _ = server.resume([u64::MAX; 8]);
    times
}
