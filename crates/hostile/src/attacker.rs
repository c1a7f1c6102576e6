//! An attack's process, as the attack sees it.

use crate::role::say;
use crate::scale::Scale;
use baton_hostile::engine::BareEngine;
use rustix::io::Errno;
use std::io::{self, BufRead};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

/// The context that honest parties use, and attackers.
pub const CONTEXT: &str = "binder";

/// What the run tells this process.
#[derive(Default)]
struct Told {
    leave: AtomicBool,
    /// What it has been served, for a run that compares.
    served: AtomicU64,
}

/// The process, and what it is to do.
pub struct Attacker {
    /// Where the broker listens.
    pub socket: PathBuf,
    /// How large the attack is.
    pub scale: Scale,
    /// Which of the attack's processes this is, from 0.
    pub number: usize,
    told: Arc<Told>,
    go: Mutex<Receiver<String>>,
}

impl Attacker {
    pub fn new(socket: PathBuf, scale: Scale, number: usize) -> Attacker {
        let told = Arc::<Told>::default();
        let (heard, go) = channel();
        let listening = Arc::clone(&told);
        thread::spawn(move || listen(&listening, &heard));
        Attacker { socket, scale, number, told, go: Mutex::new(go) }
    }

    /// Says that it is prepared, and waits until all are. A number that the run tells them.
    pub fn ready(&self) -> Option<usize> {
        say("ready");
        self.next_word().strip_prefix("go ")?.parse().ok()
    }

    /// The next word that the run tells, past those that every attacker knows. Empty at the end.
    pub fn next_word(&self) -> String {
        self.go.lock().expect("no panic").recv().unwrap_or_default()
    }

    /// Says that it holds, or does, all that it wanted.
    pub fn holding(&self, what: &str) {
        say(&format!("holding {what}"));
    }

    /// Whether it is to go on.
    pub fn goes_on(&self) -> bool {
        !self.told.leave.load(Ordering::Relaxed)
    }

    /// Waits until it is to leave.
    pub fn stay(&self) {
        while self.goes_on() && !self.next_word().is_empty() {}
    }

    /// Counts what it has been served.
    pub fn count(&self, more: u64) {
        self.told.served.fetch_add(more, Ordering::Relaxed);
    }

    /// An engine of the context.
    pub fn engine(&self) -> io::Result<BareEngine> {
        Ok(BareEngine::open(&self.socket, CONTEXT)?)
    }

    /// As many engines as the broker admits, at most so many; and why there are no more.
    pub fn engines(&self, at_most: usize) -> (Vec<BareEngine>, Option<Errno>) {
        let mut engines = Vec::new();
        while engines.len() < at_most {
            match BareEngine::open(&self.socket, CONTEXT) {
                Ok(engine) => engines.push(engine),
                Err(errno) => return (engines, Some(errno)),
            }
        }
        (engines, None)
    }
}

/// Until the run's end of the input is closed.
fn listen(told: &Told, heard: &Sender<String>) {
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        match &line[..] {
            "count" => say(&format!("count {}", told.served.load(Ordering::Relaxed))),
            "leave" => break,
            _ => drop(heard.send(line)),
        }
    }
    told.leave.store(true, Ordering::Relaxed);
}
