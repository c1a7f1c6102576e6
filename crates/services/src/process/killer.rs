//! The low-memory killer's choice: pure.
//!
//! A process may be killed if its adjustment is at or above the limit that the free memory sets
//! ([`MinFree`]). Of those the one with the worst adjustment is chosen, among equals the one with
//! the most memory, and then the oldest.
//!
//! **Invariant**: no process is chosen while one with a worse adjustment is among the candidates. A
//! protected one (-1 and below) never is: the best limit is the foreground's, 0. Once every
//! ordinary process is gone, the rest is the kernel's to decide.
//!
//! Where all tasks stall for memory, though much of it counts as free, that memory is not really to
//! be had: then processes in the background may be killed (hidden and worse). If all thresholds are
//! 0, nobody is.

use super::class::{Adjustment, Class, MinFree};
use super::table::ProcessId;
use std::fmt;

/// A process that may be chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The process.
    pub id: ProcessId,
    /// Its name, for the log.
    pub name: String,
    /// Its pid, for the log.
    pub pid: u32,
    /// Its adjustment.
    pub adjustment: Adjustment,
    /// The memory that its end sets free: its resident set.
    pub rss_bytes: u64,
}

/// How long tasks have waited for memory lately, by PSI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stall {
    /// Not so long that it matters.
    #[default]
    None,
    /// Some of them.
    Some,
    /// All at once.
    Full,
}

/// The state of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// What is free, or can be made so at once.
    pub free_bytes: u64,
    /// Stalls since the last look.
    pub stall: Stall,
}

/// A choice, with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The process to kill.
    pub victim: Candidate,
    /// The best adjustment that might have been killed.
    pub limit: Adjustment,
    /// The amount of free memory that is missed. `None` if tasks stall in spite of it.
    pub threshold_bytes: Option<u64>,
    /// The memory as it was.
    pub memory: Memory,
}

/// The best adjustment that may be killed, and the threshold of free memory that is missed.
pub fn limit(memory: Memory, minfree: &MinFree) -> Option<(Adjustment, Option<u64>)> {
    let by_free = minfree.limit(memory.free_bytes).map(|(limit, bytes)| (limit, Some(bytes)));
    let counts_stalls = memory.stall == Stall::Full && minfree.most_bytes() > 0;
    let by_stall = counts_stalls.then_some((Class::Hidden.adjustment(), None));
    match (by_free, by_stall) {
        (Some(free), Some(stall)) if stall.0 < free.0 => Some(stall),
        (free, stall) => free.or(stall),
    }
}

/// The process to kill. `None` if there is memory enough, or nobody whose end is allowed for it.
pub fn choose(candidates: Vec<Candidate>, memory: Memory, minfree: &MinFree) -> Option<Choice> {
    let (limit, threshold_bytes) = limit(memory, minfree)?;
    let victim = candidates
        .into_iter()
        .filter(|it| it.adjustment >= limit)
        .max_by_key(|it| (it.adjustment, it.rss_bytes, std::cmp::Reverse(it.id)))?;
    Some(Choice { victim, limit, threshold_bytes, memory })
}

impl fmt::Display for Choice {
    /// The line of the log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kib = |bytes: u64| bytes >> 10;
        let Candidate { name, pid, adjustment, rss_bytes, .. } = &self.victim;
        write!(
            f,
            "killing {pid} ({name}), {}, adj {adjustment}, to free {} KiB: ",
            adjustment.class(),
            kib(*rss_bytes)
        )?;
        let free = kib(self.memory.free_bytes);
        match self.threshold_bytes {
            Some(bytes) => write!(f, "{free} KiB free, below {} KiB", kib(bytes))?,
            None => write!(f, "all tasks stall, with {free} KiB free")?,
        }
        write!(f, ", which is for adj {} and above", self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn candidate(id: u64, adjustment: i32, rss_mib: u64) -> Candidate {
        Candidate {
            id: ProcessId(id),
            name: format!("p{id}"),
            pid: 100 + id as u32,
            adjustment: Adjustment::new(adjustment).unwrap(),
            rss_bytes: rss_mib * MIB,
        }
    }

    /// (id, adjustment, MiB) of each process; free MiB; who is killed.
    #[test]
    fn the_worst_then_the_largest_then_the_oldest() {
        let check = |all: &[(u64, i32, u64)], free_mib: u64, stall, expected: Option<u64>| {
            let candidates = all.iter().map(|it| candidate(it.0, it.1, it.2)).collect();
            let memory = Memory { free_bytes: free_mib * MIB, stall };
            let choice = choose(candidates, memory, &MinFree::default());
            let chosen = choice.map(|choice| choice.victim.id.0);
            assert_eq!(chosen, expected, "{all:?} with {free_mib} MiB free");
        };
        let all = &[(1, -1, 90), (2, 0, 50), (3, 1, 9), (4, 7, 1), (5, 7, 2), (6, 15, 1)][..];
        check(all, 24, Stall::None, None);
        check(all, 23, Stall::None, Some(6));
        check(&all[..5], 23, Stall::None, None);
        check(&all[..5], 19, Stall::None, Some(5));
        check(&all[..4], 19, Stall::None, Some(4));
        check(&all[..3], 8, Stall::None, None);
        check(&all[..3], 7, Stall::None, Some(3));
        check(&all[..2], 7, Stall::None, None);
        check(&all[..2], 5, Stall::None, Some(2));
        check(&all[..1], 0, Stall::Full, None);
        check(&[(8, 7, 3), (7, 7, 3)], 0, Stall::None, Some(7));
        // Stalls: of some tasks they are no reason, of all they are one to kill in the background.
        check(all, 100, Stall::Some, None);
        check(all, 100, Stall::Full, Some(6));
        check(&all[..5], 100, Stall::Full, Some(5));
        check(&all[..3], 100, Stall::Full, None);
        check(&all[..3], 7, Stall::Full, Some(3));
        let memory = Memory { free_bytes: 0, stall: Stall::Full };
        let never = MinFree::new([0; 6]).unwrap();
        assert_eq!(choose(vec![candidate(6, 15, 1)], memory, &never), None);
    }

    #[test]
    fn the_log_has_the_reason_and_the_figures() {
        let memory = Memory { free_bytes: 19 * MIB, stall: Stall::None };
        let choice = choose(vec![candidate(5, 9, 2)], memory, &MinFree::default()).unwrap();
        assert_eq!(
            choice.to_string(),
            "killing 105 (p5), hidden, adj 9, to free 2048 KiB: 19456 KiB free, below 20480 KiB, \
             which is for adj 7 and above"
        );
        let memory = Memory { free_bytes: 99 * MIB, stall: Stall::Full };
        let choice = choose(vec![candidate(5, 9, 2)], memory, &MinFree::default()).unwrap();
        assert!(choice.to_string().contains("all tasks stall, with 101376 KiB free"), "{choice}");
    }
}
