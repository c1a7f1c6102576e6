//! Shows the progress of a long run on standard error.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

const BETWEEN_LINES: Duration = Duration::from_secs(10);

/// Counts the scenarios that each side has played.
#[derive(Debug)]
pub struct Progress {
    what: String,
    /// Number of scenarios that each side plays.
    all: u64,
    played: Mutex<(Instant, BTreeMap<String, u64>)>,
}

impl Progress {
    /// Progress before the first scenario.
    pub fn new(what: String, all: u64) -> Progress {
        Progress { what, all, played: Mutex::new((Instant::now(), BTreeMap::new())) }
    }

    /// Counts one scenario that a side has played.
    pub fn played(&self, side: &str) {
        let mut played = self.played.lock().expect("nobody panics with it");
        let (told, counts) = &mut *played;
        *counts.entry(side.to_owned()).or_default() += 1;
        if told.elapsed() < BETWEEN_LINES {
            return;
        }
        *told = Instant::now();
        let sides: Vec<_> = counts.iter().map(|(side, n)| format!("{side} {n}")).collect();
        eprintln!("conformance: {}: {} of {} scenarios", self.what, sides.join(", "), self.all);
    }
}
