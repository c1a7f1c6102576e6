//! Other ways to hand a message to another thread of control and to wait for its answer, on the
//! same processor: in the same run as the kernels, in turn with them.

use super::batch::batches;
use crate::child::beside;
use crate::processors::stay_on;
use rustix::thread::futex;
use std::io;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const BATCH: u64 = 1000;
/// Two switches by the system take as long as hundreds of the others' messages.
const FUTEX_SHARE: u64 = 20;

/// A peer: its name, and whether all that it does is to switch stacks.
pub struct Peer {
    pub name: &'static str,
    pub is_bare: bool,
    /// What a message one way took of each batch, in picoseconds.
    pub measure: fn(u64) -> io::Result<Vec<u64>>,
}

pub const PEERS: [Peer; 4] = [
    Peer { name: "futex-threads", is_bare: false, measure: |n| futex(n, None) },
    Peer {
        name: "tokio-channel",
        is_bare: false,
        measure: |n| program("baton-bench-ipc", &["tokio"], n),
    },
    Peer { name: "go-channel", is_bare: false, measure: |n| program("baton-bench-ipc-go", &[], n) },
    Peer {
        name: "corosensei",
        is_bare: true,
        measure: |n| program("baton-bench-ipc", &["corosensei"], n),
    },
];

/// A program that says what a message one way took of each batch.
fn program(name: &str, arguments: &[&str], n_batches: u64) -> io::Result<Vec<u64>> {
    let path = beside(name, "`bench/peers/ipc/build` builds it")?;
    let n_batches = (n_batches + 1).to_string();
    let output = Command::new(path).args(arguments).arg(n_batches).output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!("{name}: {}", output.status)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    // The first finds nothing in the caches.
    Ok(text.lines().filter_map(|line| line.parse().ok()).skip(1).collect())
}

/// Whose turn it is: who is not, sleeps.
struct Turn(AtomicU32);

impl Turn {
    /// What was written before is there for whoever finds its turn.
    fn give(&self, to: u32) {
        self.0.store(to, Ordering::Release);
        let _ = futex::wake(&self.0, futex::Flags::PRIVATE, 1);
    }

    /// Sleeps while it is somebody's turn, and says whose it is then.
    fn wait_while(&self, other: u32) -> u32 {
        loop {
            let turn = self.0.load(Ordering::Acquire);
            if turn != other {
                return turn;
            }
            let _ = futex::wait(&self.0, futex::Flags::PRIVATE, other, None);
        }
    }
}

const CLIENT: u32 = 0;
const SERVER: u32 = 1;
const OVER: u32 = 2;

/// Two threads of the system, which wake each other. `server`: another processor for one of them.
pub fn futex(n_batches: u64, server: Option<usize>) -> io::Result<Vec<u64>> {
    let turn = Arc::new(Turn(AtomicU32::new(CLIENT)));
    let theirs = Arc::clone(&turn);
    let server = std::thread::spawn(move || {
        // The client waits for its turn whether that succeeds or not.
        let stays = server.map_or(Ok(()), stay_on);
        while theirs.wait_while(CLIENT) != OVER {
            theirs.give(CLIENT);
        }
        stays
    });
    let n_calls = BATCH / FUTEX_SHARE;
    let times = batches(n_batches, 2 * n_calls, |_| {
        for _ in 0..n_calls {
            turn.give(SERVER);
            turn.wait_while(SERVER);
        }
        Ok(())
    });
    turn.give(OVER);
    server.join().map_err(|_| io::Error::other("the server has panicked"))??;
    times
}
