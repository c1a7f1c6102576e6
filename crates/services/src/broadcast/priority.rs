//! The priority of a broadcast, as a level of the service's queues.
//!
//! | level | broadcasts of |
//! |---|---|
//! | 0 | ordinary senders |
//! | 1 to 99 | senders at this real-time priority, or above it |

use crate::intent::{Intent, Value};
use baton::SchedPriority;

/// The number of levels.
pub const N_LEVELS: usize = 100;
/// The level of ordinary senders.
pub const ORDINARY: usize = 0;
/// The extra by which a sender gives an intent a priority: an integer from 0, for an ordinary one,
/// to 99. The sender's own priority is its upper bound.
pub const EXTRA_PRIORITY: &str = "baton.intent.extra.PRIORITY";

/// An extra that is no priority.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PriorityError {
    /// The extra is no integer.
    #[error("the extra {EXTRA_PRIORITY} is no integer")]
    NoInteger,
    /// The integer is not within its bounds.
    #[error("the priority {0} of the extra {EXTRA_PRIORITY} is not within 0 to 99")]
    OutOfBounds(i32),
}

/// The level of a thread. SCHED_DEADLINE is above every priority and counts as the highest.
pub fn level_of(priority: SchedPriority) -> usize {
    match priority.real_time() {
        Some(level) => level.into(),
        None if priority.is_real_time() => N_LEVELS - 1,
        None => ORDINARY,
    }
}

/// The level that an intent asks for, at most its sender's. Without the extra it is the sender's.
///
/// # Errors
/// The extra is no priority: the sender's fault.
pub fn level_of_intent(intent: &Intent, sender: usize) -> Result<usize, PriorityError> {
    match intent.extras.get(EXTRA_PRIORITY) {
        None => Ok(sender),
        Some(Value::Integer(level)) => match usize::try_from(*level) {
            Ok(level) if level < N_LEVELS => Ok(level.min(sender)),
            _ => Err(PriorityError::OutOfBounds(*level)),
        },
        Some(_) => Err(PriorityError::NoInteger),
    }
}

/// The priority of a level's delivery thread.
pub fn priority_of(level: usize) -> SchedPriority {
    match u8::try_from(level) {
        Ok(level @ 1..) => SchedPriority::fifo(level),
        _ => SchedPriority::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_intent_has_its_senders_level_or_one_below() {
        let mut intent = Intent::new("a");
        let plain = intent.clone();
        assert_eq!(level_of_intent(&plain, 80), Ok(80));
        for (extra, sender, level) in [
            (Value::Integer(5), 80, Ok(5)),
            (Value::Integer(99), 80, Ok(80)),
            (Value::Integer(0), 80, Ok(0)),
            (Value::Integer(99), 0, Ok(0)),
            (Value::Integer(100), 80, Err(PriorityError::OutOfBounds(100))),
            (Value::Integer(-1), 80, Err(PriorityError::OutOfBounds(-1))),
            (Value::String("5".to_owned()), 80, Err(PriorityError::NoInteger)),
        ] {
            intent.extras.put(EXTRA_PRIORITY, extra.clone());
            assert_eq!(level_of_intent(&intent, sender), level, "{extra:?}");
        }
    }

    #[test]
    fn each_level_is_that_of_its_thread() {
        for level in 0..N_LEVELS {
            assert_eq!(level_of(priority_of(level)), level);
        }
        assert_eq!(level_of(SchedPriority::nice(-20)), ORDINARY);
        assert_eq!(level_of(SchedPriority::round_robin(7)), 7);
        assert_eq!(level_of(SchedPriority::DEADLINE), 99);
    }
}
