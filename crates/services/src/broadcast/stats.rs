//! What the service has done, by level, and the receivers that it has skipped.

use super::level::Skip;
use super::priority::N_LEVELS;
use baton_shm::lock::Lock;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

/// Skipped receivers that are remembered.
const N_SKIPPED: usize = 64;

/// Counts of one level.
#[derive(Debug, Default)]
struct Counts {
    accepted: AtomicU64,
    ended: AtomicU64,
    delivered: AtomicU64,
    skipped: AtomicU64,
}

/// Counts of all levels.
#[derive(Debug)]
pub struct Stats {
    levels: [Counts; N_LEVELS],
    skipped: Lock<VecDeque<Skipped>>,
}

/// A receiver that has not got a broadcast, or has not finished in time.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Skipped {
    /// The receiver's name.
    pub receiver: String,
    /// The broadcast's action.
    pub action: Option<String>,
    /// Its level.
    pub priority: usize,
    /// Why.
    pub why: Skip,
}

/// The counts of one level, as they are described.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LevelStats {
    /// The level.
    pub priority: usize,
    /// Broadcasts that were accepted, and have not reached all their receivers.
    pub pending: u64,
    /// Broadcasts that have reached all their receivers.
    pub ended: u64,
    /// Calls of receivers.
    pub delivered: u64,
    /// Receivers that were skipped.
    pub skipped: u64,
}

impl Default for Stats {
    fn default() -> Stats {
        Stats { levels: std::array::from_fn(|_| Counts::default()), skipped: Lock::default() }
    }
}

impl Stats {
    /// A broadcast is accepted.
    pub fn accepted(&self, level: usize) {
        self.levels[level].accepted.fetch_add(1, Ordering::Relaxed);
    }

    /// A broadcast has reached all its receivers.
    pub fn ended(&self, level: usize) {
        self.levels[level].ended.fetch_add(1, Ordering::Relaxed);
    }

    /// A receiver is called.
    pub fn delivered(&self, level: usize) {
        self.levels[level].delivered.fetch_add(1, Ordering::Relaxed);
    }

    /// A receiver is skipped.
    pub fn skipped(&self, skipped: Skipped) {
        self.levels[skipped.priority].skipped.fetch_add(1, Ordering::Relaxed);
        let mut remembered = self.skipped.lock();
        if remembered.len() == N_SKIPPED {
            remembered.pop_front();
        }
        remembered.push_back(skipped);
    }

    /// The levels that were used, the most urgent first, and the receivers skipped last.
    pub fn describe(&self) -> (Vec<LevelStats>, Vec<Skipped>) {
        let describe = |(priority, counts): (usize, &Counts)| {
            let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
            let ended = load(&counts.ended);
            let pending = load(&counts.accepted).saturating_sub(ended);
            let (delivered, skipped) = (load(&counts.delivered), load(&counts.skipped));
            LevelStats { priority, pending, ended, delivered, skipped }
        };
        let levels = self.levels.iter().enumerate().rev().map(describe);
        let used = levels.filter(|stats| {
            *stats != LevelStats { priority: stats.priority, ..LevelStats::default() }
        });
        (used.collect(), self.skipped.lock().iter().cloned().collect())
    }
}
