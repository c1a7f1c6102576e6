//! The broadcasts that a receiver has got, by their ids: pure.
//!
//! A killed service may have called a receiver without a note of it, at most once for each level,
//! and for each ordered broadcast that the receiver has not finished or has just finished. The next
//! service calls it again, maybe after thousands of calls of higher levels. A receiver remembers of
//! each level the last 1,024 ids of broadcasts that wait for no answer, the last 4,096 of ordered
//! ones, and all that it has not finished. A service has at most 2,000 of a user's broadcasts under
//! way, whose answers it may not have got.

use super::ids;
use super::level::Outcome;
use std::collections::{HashMap, VecDeque};

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
    /// It does.
    Yes,
    /// It has it, and has not finished: it will, by the newer token.
    Running,
    /// It has finished.
    Finished(Answer),
}

/// The broadcasts that a receiver has got.
#[derive(Debug, Default)]
pub struct Seen {
    stages: HashMap<u64, Stage>,
    /// Ids by level, and whether they are of ordered broadcasts; the oldest ones first.
    queues: HashMap<(Option<usize>, bool), VecDeque<u64>>,
}

#[derive(Debug)]
enum Stage {
    /// The token of the last call.
    Running(u64),
    /// `None` for one that waits for no answer.
    Finished(Option<Answer>),
}

impl Seen {
    /// A call with a broadcast's id and a step's token. An id of 0 names no broadcast.
    pub fn begin(&mut self, id: u64, token: u64) -> First {
        match self.stages.get_mut(&id) {
            Some(Stage::Running(last)) => {
                *last = token;
                First::Running
            }
            Some(Stage::Finished(answer)) => First::Finished(answer.clone().unwrap_or_default()),
            None => {
                if id != 0 {
                    self.stages.insert(id, Stage::Running(token));
                    self.queue(id, token).0.push_back(id);
                }
                First::Yes
            }
        }
    }

    /// The receiver has finished. Returns the token to finish by.
    pub fn finish(&mut self, id: u64, token: u64, answer: &Answer) -> u64 {
        let Some(stage) = self.stages.get_mut(&id) else { return token };
        let Stage::Running(last) = *stage else { return token };
        *stage = Stage::Finished((last != 0).then(|| answer.clone()));
        let (queue, most) = self.queue(id, last);
        let mut forgotten = Vec::new();
        while queue.len() > most {
            forgotten.extend(queue.pop_front());
        }
        for id in forgotten {
            match self.stages.get(&id) {
                // It comes in again as the newest one.
                Some(Stage::Running(token)) => {
                    let token = *token;
                    self.queue(id, token).0.push_back(id);
                }
                _ => _ = self.stages.remove(&id),
            }
        }
        last
    }

    /// Where ids are kept that are like this one and came with a token like this one, and how many.
    fn queue(&mut self, id: u64, token: u64) -> (&mut VecDeque<u64>, usize) {
        let is_ordered = token != 0;
        let most = if is_ordered { N_ORDERED } else { N_PARALLEL };
        (self.queues.entry((ids::level_of(id), is_ordered)).or_default(), most)
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
        assert_eq!(seen.begin(8, 0), First::Finished(Answer::default()));
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
        let ordered = 1 << 40;
        seen.begin(ordered, 7);
        seen.finish(ordered, 7, &answer(9));
        let n = N_PARALLEL as u64;
        seen.begin(n + 3, 0);
        for id in 1..=n + 2 {
            seen.begin(id, 0);
            seen.finish(id, 0, &Answer::default());
        }
        assert_eq!(seen.stages.len(), N_PARALLEL + 1);
        for (id, is_first) in [(1, true), (n, false), (n + 2, false)] {
            assert_eq!(seen.begin(id, 0) == First::Yes, is_first, "{id}");
        }
        assert_eq!(seen.begin(n + 3, 0), First::Running, "it has not finished");
        assert_eq!(seen.begin(ordered, 8), First::Finished(answer(9)), "it waits for an answer");
        for id in ordered + 1..=ordered + N_ORDERED as u64 {
            seen.begin(id, 7);
            seen.finish(id, 7, &answer(1));
        }
        assert_eq!(seen.begin(ordered, 9), First::Yes);
    }
}
