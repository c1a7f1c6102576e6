//! A process of an attack, as the attack's code uses it.

use crate::scale::Scale;
use crate::starter::say;
use baton_hostile::engine::BareEngine;
use rustix::io::Errno;
use std::io::{self, BufRead};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

/// The context that honest processes and attackers use.
pub const CONTEXT: &str = "binder";

/// State that the run's messages change.
#[derive(Default)]
struct RunMessages {
    leave: AtomicBool,
    /// Number of requests that were served, for a run that compares them.
    served: AtomicU64,
}

/// This process, and its task.
pub struct Attacker {
    /// Path of the broker's socket.
    pub socket: PathBuf,
    /// The size of the attack.
    pub scale: Scale,
    /// Number of this process within the attack, from 0.
    pub number: usize,
    run_messages: Arc<RunMessages>,
    go: Mutex<Receiver<String>>,
}

impl Attacker {
    pub fn new(socket: PathBuf, scale: Scale, number: usize) -> Attacker {
        let run_messages = Arc::<RunMessages>::default();
        let (messages, go) = channel();
        let listening = Arc::clone(&run_messages);
        thread::spawn(move || listen(&listening, &messages));
        Attacker { socket, scale, number, run_messages, go: Mutex::new(go) }
    }

    /// Reports that this process is prepared, and waits until all are. Returns the number that the
    /// run sends, if any.
    pub fn ready(&self) -> Option<usize> {
        say("ready");
        self.next_word().strip_prefix("go ")?.parse().ok()
    }

    /// The next message of the run that only this attack knows. Empty at the end.
    pub fn next_word(&self) -> String {
        self.go.lock().expect("no panic").recv().unwrap_or_default()
    }

    /// Reports that this process has, or does, all that it tried to.
    pub fn holding(&self, what: &str) {
        say(&format!("holding {what}"));
    }

    /// Reports that somebody is harmed, or that this process got what it must not get.
    pub fn harms(&self, what: &str) {
        say(&format!("harm {what}"));
    }

    /// Whether the run wants this process to continue.
    pub fn must_continue(&self) -> bool {
        !self.run_messages.leave.load(Ordering::Relaxed)
    }

    /// Waits until the run tells this process to leave.
    pub fn wait_until_dismissed(&self) {
        while self.must_continue() && !self.next_word().is_empty() {}
    }

    /// Counts served requests.
    pub fn count(&self, more: u64) {
        self.run_messages.served.fetch_add(more, Ordering::Relaxed);
    }

    /// Opens an engine in the context.
    pub fn engine(&self) -> io::Result<BareEngine> {
        Ok(BareEngine::open(&self.socket, CONTEXT)?)
    }

    /// Opens as many engines as the broker admits, at most `at_most`. Also returns the error of the
    /// first refusal.
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

/// Reads the run's messages until it closes the input.
fn listen(run_messages: &RunMessages, messages: &Sender<String>) {
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        match &line[..] {
            "count" => say(&format!("count {}", run_messages.served.load(Ordering::Relaxed))),
            "leave" => break,
            _ => drop(messages.send(line)),
        }
    }
    run_messages.leave.store(true, Ordering::Relaxed);
}
