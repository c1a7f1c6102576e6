//! The broadcasts that a receiver has got, by their ids: pure.
//!
//! A killed service may have called a receiver without a note of it, at most once for each level,
//! and for each ordered broadcast that the receiver has not finished or has just finished. The next
//! service calls it again, maybe after thousands of calls of higher levels. A receiver remembers of
//! each level the last 1,024 ids of broadcasts that wait for no answer, and of ordered ones the
//! last 4,096 and all that it has not finished. A service has at most 2,000 of a user's broadcasts
//! under way, whose answers it may not have got.

use super::ids;
use super::level::Outcome;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Ids that are remembered of a level's broadcasts that wait for no answer.
pub const N_PARALLEL: usize = 1024;
/// Ids that are remembered of a level's ordered broadcasts.
pub const N_ORDERED: usize = 4096;

/// What a receiver of an ordered broadcast finishes with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// Its result.
    pub outcome: Outcome,
    /// Whether no other receiver gets the broadcast.
    pub aborts: bool,
}

/// Whether a receiver gets a broadcast for the first time.
#[derive(Clone, Debug, PartialEq)]
pub enum First {
    /// The receiver gets it for the first time.
    Yes,
    /// The receiver has it already. If it is to answer, it has not finished, and will by the newer
    /// token.
    Running,
    /// The receiver has finished.
    Finished(Answer),
}

/// The broadcasts that a receiver has got.
#[derive(Debug, Default)]
pub struct Seen {
    /// Those that wait for no answer, by level.
    parallel: BTreeMap<Option<usize>, Recent>,
    /// Ordered ones.
    stages: HashMap<u64, Stage>,
    /// Their ids by level, the oldest ones first.
    ordered: BTreeMap<Option<usize>, VecDeque<u64>>,
}

/// The last [`N_PARALLEL`] ids of a level.
#[derive(Debug, Default)]
struct Recent {
    oldest_first: VecDeque<u64>,
    greatest: u64,
}

impl Recent {
    /// Adds an id. False if it is there.
    fn add(&mut self, id: u64) -> bool {
        // A level's ids grow, but for those of another service and of the other queue.
        if id <= self.greatest && self.oldest_first.contains(&id) {
            return false;
        }
        self.greatest = self.greatest.max(id);
        if self.oldest_first.len() == N_PARALLEL {
            self.oldest_first.pop_front();
        }
        self.oldest_first.push_back(id);
        true
    }
}

#[derive(Debug)]
enum Stage {
    /// The token of the last call.
    Running(u64),
    Finished(Answer),
}

impl Seen {
    /// A call with a broadcast's id and a step's token, which is 0 if nobody waits for an answer.
    /// An id of 0 names no broadcast.
    pub fn begin(&mut self, id: u64, token: u64) -> First {
        if id == 0 {
            return First::Yes;
        }
        let level = ids::level_of(id);
        if token == 0 {
            let is_first = self.parallel.entry(level).or_default().add(id);
            return if is_first { First::Yes } else { First::Running };
        }
        match self.stages.get_mut(&id) {
            Some(Stage::Running(last)) => {
                *last = token;
                First::Running
            }
            Some(Stage::Finished(answer)) => First::Finished(answer.clone()),
            None => {
                self.stages.insert(id, Stage::Running(token));
                self.ordered.entry(level).or_default().push_back(id);
                First::Yes
            }
        }
    }

    /// The receiver has finished. Returns the token to finish by.
    pub fn finish(&mut self, id: u64, token: u64, answer: &Answer) -> u64 {
        let Some(stage) = self.stages.get_mut(&id) else { return token };
        let Stage::Running(last) = *stage else { return token };
        *stage = Stage::Finished(answer.clone());
        let queue = self.ordered.entry(ids::level_of(id)).or_default();
        // One that has not finished comes in again as the newest one.
        for _ in N_ORDERED..queue.len() {
            let Some(oldest) = queue.pop_front() else { break };
            match self.stages.get(&oldest) {
                Some(Stage::Running(_)) => queue.push_back(oldest),
                _ => _ = self.stages.remove(&oldest),
            }
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::super::ids::Ids;
    use super::*;

    fn answer(code: i32) -> Answer {
        Answer { outcome: Outcome { code, ..Outcome::default() }, aborts: false }
    }

    #[test]
    fn a_broadcast_is_received_once_and_the_newest_service_is_answered() {
        let mut seen = Seen::default();
        assert_eq!(seen.begin(7, 1), First::Yes);
        assert_eq!(seen.begin(7, 2), First::Running);
        assert_eq!(seen.finish(7, 1, &answer(5)), 2, "the newer token");
        assert_eq!(seen.begin(7, 3), First::Finished(answer(5)));
        for _ in 0..2 {
            assert_eq!(seen.begin(0, 4), First::Yes, "an older service's have no id");
            assert_eq!(seen.finish(0, 4, &answer(6)), 4);
        }
        assert_eq!((seen.begin(8, 0), seen.finish(8, 0, &answer(1))), (First::Yes, 0));
        assert_eq!(seen.begin(8, 0), First::Running);
    }

    /// Those of other levels may be many until a lower level's turn comes.
    #[test]
    fn each_level_is_remembered_apart() {
        let (mut seen, [low, high]) =
            (Seen::default(), [0, 80].map(|level| Ids::new(1).next(level)));
        for token in [0, 7] {
            let of = |id: u64| id + 100 * token;
            seen.begin(of(low), token);
            seen.finish(of(low), token, &answer(1));
            for id in (of(high)..).take(2 * N_ORDERED) {
                seen.begin(id, token);
                seen.finish(id, token, &answer(1));
            }
            assert_ne!(seen.begin(of(low), token), First::Yes, "{token}");
        }
    }

    #[test]
    fn the_last_ids_are_remembered_and_no_more() {
        let mut seen = Seen::default();
        let n = N_PARALLEL as u64;
        for id in 1..=n + 2 {
            seen.begin(id, 0);
        }
        assert_eq!(seen.parallel[&Some(0)].oldest_first.len(), N_PARALLEL);
        for (id, is_first) in [(3, false), (1, true), (1, false), (3, true), (n + 2, false)] {
            assert_eq!(seen.begin(id, 0) == First::Yes, is_first, "{id}");
        }
        let (running, ordered) = (1 << 30, 1 << 31);
        seen.begin(running, 7);
        seen.begin(ordered, 7);
        seen.finish(ordered, 7, &answer(9));
        assert_eq!(seen.begin(ordered, 8), First::Finished(answer(9)), "it waits for an answer");
        for id in ordered + 1..=ordered + N_ORDERED as u64 {
            seen.begin(id, 7);
            seen.finish(id, 7, &answer(1));
        }
        assert_eq!(seen.begin(running, 9), First::Running, "it has not finished");
        assert_eq!(seen.begin(ordered, 9), First::Yes);
    }
}
