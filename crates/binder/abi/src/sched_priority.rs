//! A thread's scheduling policy and priority: a nice value or a real-time priority.
//!
//! One type for all uses: the priority of a thread, the priority that a caller lends, the minimum
//! that an object asks for, and the priority that the broker gives to a looper.
//!
//! The value is one number, which grows with the urgency, so that two are compared by one
//! instruction:
//!
//! ```text
//!   SCHED_OTHER at nice n          19 - n
//!   SCHED_RR at priority p         100 + 2 p
//!   SCHED_FIFO at priority p       101 + 2 p
//!   SCHED_DEADLINE                 300
//! ```

use crate::uapi::*;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

/// The scheduling policies, by their numbers in the kernel's uapi.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum SchedPolicy {
    /// SCHED_OTHER, and the other policies with nice values.
    Other = 0,
    /// SCHED_FIFO: a thread runs until it waits or a more urgent one comes.
    Fifo = 1,
    /// SCHED_RR: threads of one priority take turns.
    RoundRobin = 2,
    /// SCHED_DEADLINE: above every priority.
    Deadline = 6,
}

/// A scheduling policy and priority: a nice value from -20 to 19, or a real-time priority from 1
/// to 99.
///
/// The greater of two values is the more urgent. Of two threads at one real-time priority that of
/// SCHED_FIFO is, which does not take turns.
///
/// ```
/// use baton_abi::sched_priority::SchedPriority;
///
/// assert!(SchedPriority::nice(-5) > SchedPriority::nice(0));
/// assert!(SchedPriority::fifo(1) > SchedPriority::nice(-20));
/// assert_eq!("fifo:80".parse(), Ok(SchedPriority::fifo(80)));
/// assert_eq!(SchedPriority::round_robin(7).real_time(), Some(7));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Form", into = "Form")]
pub struct SchedPriority(u16);

const BEST_NICE: i32 = -20;
const WORST_NICE: i32 = 19;
const HIGHEST: u8 = 99;
/// All real-time priorities are above this value.
const REAL_TIME: u16 = 100;
const DEADLINE: u16 = 300;

impl SchedPriority {
    /// The least urgent priority: nice value 19. An object that asks for it leaves the priority to
    /// its callers.
    pub const LEAST: SchedPriority = SchedPriority::nice(WORST_NICE);
    /// SCHED_DEADLINE. This type has no periods, so no thread can be set to it.
    pub const DEADLINE: SchedPriority = SchedPriority(DEADLINE);

    /// SCHED_OTHER at a nice value of -20 to 19, or the nearest to that.
    #[inline]
    pub const fn nice(value: i32) -> SchedPriority {
        let value = match value {
            ..BEST_NICE => BEST_NICE,
            BEST_NICE..=WORST_NICE => value,
            _ => WORST_NICE,
        };
        SchedPriority((WORST_NICE - value) as u16)
    }

    /// SCHED_FIFO at a priority of 1 to 99, or the nearest to that.
    #[inline]
    pub const fn fifo(priority: u8) -> SchedPriority {
        SchedPriority(REAL_TIME + 1 + 2 * within(priority))
    }

    /// SCHED_RR at a priority of 1 to 99, or the nearest to that.
    #[inline]
    pub const fn round_robin(priority: u8) -> SchedPriority {
        SchedPriority(REAL_TIME + 2 * within(priority))
    }

    /// The priority of a thread by its policy and `sched_priority`, as the kernel reports them.
    /// `None` if the policy is no real-time one.
    #[inline]
    pub const fn of_real_time(policy: i32, priority: i32) -> Option<SchedPriority> {
        let priority = if priority > HIGHEST as i32 { HIGHEST } else { priority as u8 };
        match policy {
            1 => Some(SchedPriority::fifo(priority)),
            2 => Some(SchedPriority::round_robin(priority)),
            6 => Some(SchedPriority::DEADLINE),
            _ => None,
        }
    }

    /// The minimum that a node asks for by its `flat_binder_object.flags`. `None` if the priority
    /// in the flags is 0: the node asks for nothing.
    #[inline]
    pub const fn of_node_flags(flags: u32) -> Option<SchedPriority> {
        let value = flags & FLAT_BINDER_FLAG_PRIORITY_MASK;
        let policy =
            (flags & FLAT_BINDER_FLAG_SCHED_POLICY_MASK) >> FLAT_BINDER_FLAG_SCHED_POLICY_SHIFT;
        match (policy, value) {
            (_, 0) => None,
            (1, _) => Some(SchedPriority::fifo(value as u8)),
            (2, _) => Some(SchedPriority::round_robin(value as u8)),
            // The value has 8 bits and a sign.
            _ => Some(SchedPriority::nice(value as u8 as i8 as i32)),
        }
    }

    /// The flags of a node that asks for it as its minimum. A nice value of 0 is what nodes have
    /// that ask for nothing; so is SCHED_DEADLINE.
    #[inline]
    pub const fn node_flags(self) -> u32 {
        let (policy, priority) = self.parts();
        let priority = (priority as i8 as u8) as u32;
        match policy {
            SchedPolicy::Deadline => 0,
            policy => (policy as u32) << FLAT_BINDER_FLAG_SCHED_POLICY_SHIFT | priority,
        }
    }

    /// The policy.
    #[inline]
    pub const fn policy(self) -> SchedPolicy {
        self.parts().0
    }

    /// The nice value, if it is none of a real-time policy.
    #[inline]
    pub const fn nice_value(self) -> Option<i32> {
        if self.is_real_time() { None } else { Some(WORST_NICE - self.0 as i32) }
    }

    /// Whether its policy is a real-time one.
    #[inline]
    pub const fn is_real_time(self) -> bool {
        self.0 >= REAL_TIME
    }

    /// The real-time priority from 1 to 99. SCHED_DEADLINE is above all of them and has none.
    #[inline]
    pub const fn real_time(self) -> Option<u8> {
        match self.0 {
            REAL_TIME..DEADLINE => Some(((self.0 - REAL_TIME) / 2) as u8),
            _ => None,
        }
    }

    /// `sched_priority` as the kernel has it: 0 but for SCHED_FIFO and SCHED_RR.
    #[inline]
    pub const fn sched_priority(self) -> i32 {
        match self.real_time() {
            Some(priority) => priority as i32,
            None => 0,
        }
    }

    /// Whether a thread at this priority would never make way for one at the other: of real-time
    /// policies the priority alone counts, and two that are equal are not above each other.
    #[inline]
    pub const fn is_above(self, other: SchedPriority) -> bool {
        match (self.is_real_time(), other.is_real_time()) {
            (true, true) => self.0 / 2 > other.0 / 2,
            _ => self.0 > other.0,
        }
    }

    /// This priority, bounded by a real-time priority; the policy stays. A priority that is no
    /// real-time one is unchanged.
    #[inline]
    pub fn at_most(self, priority: u8) -> SchedPriority {
        match self.parts() {
            (SchedPolicy::Fifo, own) => SchedPriority::fifo(priority.min(own as u8)),
            (SchedPolicy::RoundRobin, own) => SchedPriority::round_robin(priority.min(own as u8)),
            _ => self,
        }
    }

    /// The policy, and its nice value or priority.
    #[inline]
    const fn parts(self) -> (SchedPolicy, i32) {
        let priority = ((self.0.saturating_sub(REAL_TIME)) / 2) as i32;
        match self.0 {
            ..REAL_TIME => (SchedPolicy::Other, WORST_NICE - self.0 as i32),
            DEADLINE.. => (SchedPolicy::Deadline, 0),
            number if number % 2 == 1 => (SchedPolicy::Fifo, priority),
            _ => (SchedPolicy::RoundRobin, priority),
        }
    }
}

const fn within(priority: u8) -> u16 {
    match priority {
        0 => 1,
        1..=HIGHEST => priority as u16,
        _ => HIGHEST as u16,
    }
}

impl Default for SchedPriority {
    /// SCHED_OTHER at nice value 0.
    fn default() -> SchedPriority {
        SchedPriority::nice(0)
    }
}

impl fmt::Debug for SchedPriority {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "SchedPriority({self})")
    }
}

impl Display for SchedPriority {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self.parts() {
            (SchedPolicy::Other, 0) => write!(out, "other"),
            (SchedPolicy::Other, nice) => write!(out, "nice:{nice}"),
            (SchedPolicy::Fifo, priority) => write!(out, "fifo:{priority}"),
            (SchedPolicy::RoundRobin, priority) => write!(out, "rr:{priority}"),
            (SchedPolicy::Deadline, _) => write!(out, "deadline"),
        }
    }
}

/// A text that is no scheduling priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAPriority;

impl Display for NotAPriority {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "not one of `other`, `nice:N` with N from -20 to 19, `fifo:N`, `rr:N` with N "
        )?;
        write!(out, "from 1 to 99")
    }
}

impl std::error::Error for NotAPriority {}

impl FromStr for SchedPriority {
    type Err = NotAPriority;

    fn from_str(text: &str) -> Result<SchedPriority, NotAPriority> {
        if text == "other" {
            return Ok(SchedPriority::default());
        }
        let (policy, number) = text.split_once(':').ok_or(NotAPriority)?;
        let number: i8 = number.parse().map_err(|_| NotAPriority)?;
        let form = match (policy, u8::try_from(number)) {
            ("nice", _) => Form::Nice(number),
            ("fifo", Ok(priority)) => Form::Fifo(priority),
            ("rr", Ok(priority)) => Form::RoundRobin(priority),
            _ => return Err(NotAPriority),
        };
        form.try_into()
    }
}

/// A priority as it is written down and sent.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Form {
    Nice(i8),
    Fifo(u8),
    #[serde(rename = "rr")]
    RoundRobin(u8),
    Deadline,
}

impl From<SchedPriority> for Form {
    fn from(priority: SchedPriority) -> Form {
        match priority.parts() {
            (SchedPolicy::Other, nice) => Form::Nice(nice as i8),
            (SchedPolicy::Fifo, priority) => Form::Fifo(priority as u8),
            (SchedPolicy::RoundRobin, priority) => Form::RoundRobin(priority as u8),
            (SchedPolicy::Deadline, _) => Form::Deadline,
        }
    }
}

impl TryFrom<Form> for SchedPriority {
    type Error = NotAPriority;

    fn try_from(form: Form) -> Result<SchedPriority, NotAPriority> {
        match form {
            Form::Nice(nice @ -20..=19) => Ok(SchedPriority::nice(nice.into())),
            Form::Fifo(priority @ 1..=HIGHEST) => Ok(SchedPriority::fifo(priority)),
            Form::RoundRobin(priority @ 1..=HIGHEST) => Ok(SchedPriority::round_robin(priority)),
            Form::Deadline => Ok(SchedPriority::DEADLINE),
            _ => Err(NotAPriority),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every value that there is, the more urgent ones later.
    fn all() -> Vec<SchedPriority> {
        let nice = (-20..=19).rev().map(SchedPriority::nice);
        let real_time = (1..=HIGHEST).flat_map(|priority| {
            [SchedPriority::round_robin(priority), SchedPriority::fifo(priority)]
        });
        nice.chain(real_time).chain([SchedPriority::DEADLINE]).collect()
    }

    #[test]
    fn the_order_is_that_of_urgency() {
        assert!(all().is_sorted_by(|before, after| before < after));
        let [low, high] = [SchedPriority::round_robin(5), SchedPriority::fifo(5)];
        assert!(!high.is_above(low) && !low.is_above(high), "one priority");
        for pair in all().windows(2).filter(|pair| pair[0].real_time() != pair[1].real_time()) {
            assert!(pair[1].is_above(pair[0]) && !pair[0].is_above(pair[1]), "{pair:?}");
        }
    }

    #[test]
    fn each_has_its_policy_number_flags_and_bytes() {
        for priority in all() {
            let policy = priority.policy();
            let again = match policy {
                SchedPolicy::Other => Some(SchedPriority::nice(priority.nice_value().unwrap())),
                policy => SchedPriority::of_real_time(policy as i32, priority.sched_priority()),
            };
            assert_eq!(again, Some(priority));
            assert_eq!(priority.is_real_time(), policy != SchedPolicy::Other);
            let has_flags = policy != SchedPolicy::Deadline && priority != SchedPriority::nice(0);
            let of_flags = SchedPriority::of_node_flags(priority.node_flags());
            assert_eq!(of_flags, has_flags.then_some(priority));
            let bytes = postcard::to_stdvec(&priority).unwrap();
            assert_eq!(postcard::from_bytes(&bytes), Ok(priority));
            if policy != SchedPolicy::Deadline {
                assert_eq!(priority.to_string().parse(), Ok(priority));
            }
        }
    }

    #[test]
    fn bytes_that_are_none_are_refused() {
        for form in [Form::Nice(20), Form::Nice(-21), Form::Fifo(0), Form::RoundRobin(100)] {
            let bytes = postcard::to_stdvec(&form).unwrap();
            assert!(postcard::from_bytes::<SchedPriority>(&bytes).is_err());
        }
        for text in ["fifo:0", "rr:100", "fifo", "idle:1", "nice:20", "", "fifo:-1"] {
            assert_eq!(text.parse::<SchedPriority>(), Err(NotAPriority), "{text}");
        }
    }

    #[test]
    fn a_limit_lowers_a_real_time_priority_only() {
        let [fifo, nice] = [SchedPriority::fifo(50), SchedPriority::nice(-3)];
        assert_eq!(fifo.at_most(20), SchedPriority::fifo(20));
        assert_eq!(fifo.at_most(60), fifo);
        assert_eq!(nice.at_most(1), nice);
    }
}
