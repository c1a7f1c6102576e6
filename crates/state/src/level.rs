//! At which level of urgency a transaction is served: the better one of its caller's nice value and
//! of the least that its node asks for, as the kernel's driver has it, or that the thread has where
//! the node asks for nothing.
//!
//! ```text
//!   real-time priority p   -100 - p (SCHED_FIFO), -200 - p (SCHED_RR)
//!   nice value n           n
//! ```
//!
//! A level is a number, so that a thread that has the one that is wanted finds out by one
//! comparison.

use baton_abi::uapi::*;

/// A level: the smaller, the more urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(i16);

const FIFO: i16 = -100;
const ROUND_ROBIN: i16 = -200;
/// The most urgent nice value.
pub const BEST_NICE: i32 = -20;
const WORST_NICE: i32 = 19;
/// The highest real-time priority.
const HIGHEST: u32 = 99;
impl Level {
    /// A nice value; what is out of range is the nearest one.
    #[inline]
    pub fn nice(value: i32) -> Level {
        Level(value.clamp(BEST_NICE, WORST_NICE) as i16)
    }

    /// Of a node that asks for nothing: no worse than the thread's own.
    pub const UNASKED: Level = Level(i16::MAX);

    /// What a node asks for, by its `flat_binder_object.flags`. Where they are 0 it has been asked
    /// for nothing.
    #[inline]
    pub fn of_node(flags: u32) -> Level {
        let value = flags & FLAT_BINDER_FLAG_PRIORITY_MASK;
        let policy =
            (flags & FLAT_BINDER_FLAG_SCHED_POLICY_MASK) >> FLAT_BINDER_FLAG_SCHED_POLICY_SHIFT;
        let priority = value.min(HIGHEST) as i16;
        match (policy as i32, priority) {
            (_, 0) => Level::UNASKED,
            (libc::SCHED_FIFO, _) => Level(FIFO - priority),
            (libc::SCHED_RR, _) => Level(ROUND_ROBIN - priority),
            // Of 8 bits with a sign. One below all is what the node leaves to its callers.
            _ => Level(i16::from(value as u8 as i8).max(BEST_NICE as i16)),
        }
    }

    /// At which a call of a caller at this nice value is served, by a thread at a level of its own.
    #[inline]
    pub fn of_call(nice: i32, node: Level, own: Level) -> Level {
        Level::nice(nice).min(if node == Level::UNASKED { own } else { node })
    }

    /// Of a thread of this policy and priority, if it is a real-time one, or at this nice value.
    #[inline]
    pub fn of_thread(rank: Option<(i32, i32)>, nice: impl FnOnce() -> i32) -> Level {
        match rank {
            Some((libc::SCHED_FIFO, priority)) => Level(FIFO - priority as i16),
            // One of SCHED_DEADLINE stands above whatever is asked for.
            Some((libc::SCHED_DEADLINE, _)) => Level(ROUND_ROBIN - HIGHEST as i16),
            Some((_, priority)) => Level(ROUND_ROBIN - priority as i16),
            None => Level(nice() as i16),
        }
    }

    /// The nice value, of one that is none of a real-time priority; of these less than any.
    #[inline]
    pub fn number(self) -> i16 {
        self.0
    }

    /// Policy and priority, if it is a real-time one.
    #[inline]
    pub fn rank(self) -> Option<(i32, i32)> {
        match self.0 {
            level if level <= ROUND_ROBIN => Some((libc::SCHED_RR, (ROUND_ROBIN - level).into())),
            level if level <= FIFO => Some((libc::SCHED_FIFO, (FIFO - level).into())),
            _ => None,
        }
    }

    /// As a program has it: a real-time priority, or else a nice value.
    #[inline]
    pub fn parts(self) -> Result<u8, i8> {
        match self.rank() {
            Some((_, priority)) => Ok(priority as u8),
            None => Err(self.0.clamp(BEST_NICE as i16, WORST_NICE as i16) as i8),
        }
    }

    /// How it compares with a real-time thread's.
    #[inline]
    pub fn priority(self) -> i32 {
        self.rank().map_or(0, |(_, priority)| priority)
    }
}

/// What a transaction is to be served by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The caller's nice value; nobody waits for a one-way transaction.
    pub nice: Option<i32>,
    /// The least that its node asks for.
    pub node: Level,
}

impl Wanted {
    /// By a thread at a level of its own.
    #[inline]
    pub fn level(self, own: Level) -> Level {
        match self.nice {
            Some(nice) => Level::of_call(nice, self.node, own),
            None => self.node.min(own),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nodes_flags_say_the_least_that_it_asks_for() {
        const FIFO_POLICY: u32 = 1 << FLAT_BINDER_FLAG_SCHED_POLICY_SHIFT;
        const RR_POLICY: u32 = 2 << FLAT_BINDER_FLAG_SCHED_POLICY_SHIFT;
        const BATCH_POLICY: u32 = 3 << FLAT_BINDER_FLAG_SCHED_POLICY_SHIFT;
        const OWN: i16 = 5;
        for (flags, caller, served) in [
            // Nothing asked for: the better one of the two.
            (0, 0, Level(0)),
            (0, 10, Level(OWN)),
            (0, -10, Level(-10)),
            (FLAT_BINDER_FLAG_ACCEPTS_FDS, 10, Level(OWN)),
            (FIFO_POLICY, 10, Level(OWN)),
            // What libraries ask for: the caller's.
            (0x7f, 10, Level(10)),
            (19, 10, Level(10)),
            (19, -10, Level(-10)),
            (0xfb, 10, Level(-5)),
            (0x80, 0, Level(-20)),
            // A caller that says what no caller has.
            (19, i32::MAX, Level(19)),
            (19, i32::MIN, Level(-20)),
            (FIFO_POLICY | 30, -20, Level(-130)),
            (FIFO_POLICY | 200, 0, Level(-199)),
            (RR_POLICY | 1, 0, Level(-201)),
            (BATCH_POLICY | 3, 5, Level(3)),
        ] {
            let level = Level::of_call(caller, Level::of_node(flags), Level(OWN));
            assert_eq!(level, served, "{flags:#x} {caller}");
        }
    }

    #[test]
    fn a_level_is_a_rank_or_none() {
        for (level, rank) in [
            (Level(-20), None),
            (Level(19), None),
            (Level(-130), Some((libc::SCHED_FIFO, 30))),
            (Level(-299), Some((libc::SCHED_RR, 99))),
        ] {
            assert_eq!(level.rank(), rank);
        }
    }
}
