//! All that was measured, and why the rest was not.

use crate::distribution::Distribution;
use crate::rt::caller::Times;
use crate::rt::misuse::Harm;
use crate::rt::steady::Resource;
use crate::rt::way::Way;
use baton_rt::SchedPriority;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;

/// Which real-time calls, and among how many others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Case {
    /// Real-time callers.
    pub real_time_callers: usize,
    /// Their priority; the more urgent first.
    pub level: Reverse<u8>,
    /// Ordinary callers.
    pub callers: usize,
    /// Who has to stay on a processor.
    pub bound: Bound,
    /// What somebody else does to hurt them.
    pub misuse: Option<Harm>,
    /// How they call.
    pub way: Way,
}

/// Who is bound to a processor, the same for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Bound {
    /// Neither side.
    Nobody,
    /// Real-time callers, by themselves; the server knows nothing of it.
    Caller,
    /// Real-time callers, and the server's process by its own doing.
    Both,
}

impl Bound {
    /// All.
    pub const ALL: [Bound; 3] = [Bound::Nobody, Bound::Caller, Bound::Both];

    /// As rows have it, and the command line.
    pub fn name(self) -> &'static str {
        match self {
            Bound::Nobody => "nobody",
            Bound::Caller => "caller",
            Bound::Both => "both",
        }
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.name())
    }
}

impl Case {
    /// One real-time caller, with nobody bound.
    pub fn one(way: Way, level: u8, callers: usize) -> Case {
        let (level, bound) = (Reverse(level), Bound::Nobody);
        Case { real_time_callers: 1, level, callers, bound, misuse: None, way }
    }

    /// The same, bound.
    pub fn bound(self, bound: Bound) -> Case {
        Case { bound, ..self }
    }

    /// As charts have it.
    pub fn name(&self) -> &'static str {
        match (self.way, self.bound) {
            (Way::Mqueue, Bound::Both) => MQUEUE_BOUND,
            (way, _) => way.name(),
        }
    }
}

/// Message queues whose server is bound, too.
pub const MQUEUE_BOUND: &str = "mqueue-bound";

/// A part of a call's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leg {
    /// T_CALL.
    Call,
    /// T_RET.
    Return,
    /// The whole call.
    Whole,
}

impl Leg {
    /// All.
    pub const ALL: [Leg; 3] = [Leg::Call, Leg::Return, Leg::Whole];

    /// The case that rows have.
    pub fn name(self) -> &'static str {
        match self {
            Leg::Call => "t-call",
            Leg::Return => "t-return",
            Leg::Whole => "call",
        }
    }
}

/// A call while somebody in between keeps the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Inversion {
    /// How it is made.
    pub way: Way,
    /// Whether the caller's priority may come with it.
    pub allowed: bool,
}

impl Inversion {
    /// The priority of the thread that serves a caller of this one.
    pub fn served_at(self, level: u8) -> SchedPriority {
        match self.way {
            Way::BatonTyped | Way::BatonUapi if self.allowed => SchedPriority::fifo(level),
            Way::Mqueue => SchedPriority::fifo(level),
            Way::BatonTyped | Way::BatonUapi => SchedPriority::default(),
            Way::KernelBinder | Way::Unix | Way::RsbinderRpc => SchedPriority::default(),
        }
    }
}

/// What came of each case, or why there is nothing.
pub type Measured<K, V> = BTreeMap<K, Result<V, String>>;

/// Everything.
#[derive(Debug, Default)]
pub struct Results {
    /// The first of the callers' priorities: that of all but some calls.
    pub level: u8,
    /// Whether there is one to be measured.
    pub has_kernel_binder: bool,
    /// Calls, by [`Leg`].
    pub calls: Measured<Case, [Distribution; 3]>,
    /// cyclictest's wake-ups, by the number of ordinary callers beside it.
    pub wake_ups: Measured<usize, Distribution>,
    /// Calls while somebody keeps the processor.
    pub inversions: Measured<Inversion, Distribution>,
    /// What a steady call takes, round by round.
    pub steady: Measured<Resource, Vec<f64>>,
}

/// Adds a round, which `measure` plays, unless one has failed before.
pub fn add<K: Ord, V: Default, R>(
    to: &mut Measured<K, V>,
    case: K,
    measure: impl FnOnce() -> io::Result<R>,
    add: impl FnOnce(&mut V, R),
) {
    let known = to.entry(case).or_insert_with(|| Ok(V::default()));
    let Ok(value) = known else { return };
    match measure() {
        Ok(round) => add(value, round),
        Err(error) => *known = Err(error.to_string()),
    }
}

/// Adds what all callers of a round have found.
pub fn add_calls(legs: &mut [Distribution; 3], callers: &[Times]) {
    let of = |leg: fn(&Times) -> &Vec<u64>| -> Vec<u64> {
        callers.iter().flat_map(leg).copied().collect()
    };
    let (there, back) = (of(|times| &times.call_ns), of(|times| &times.return_ns));
    let whole: Vec<u64> = there.iter().zip(&back).map(|(there, back)| there + back).collect();
    for (leg, times_ns) in legs.iter_mut().zip([there, back, whole]) {
        leg.add_round(&times_ns);
    }
}

impl Results {
    /// A leg of a case, or why it is not there.
    pub fn leg(&self, case: &Case, leg: Leg) -> Result<&Distribution, String> {
        let Case { real_time_callers, level: Reverse(level), callers, bound, misuse, way } = case;
        match self.calls.get(case) {
            Some(Ok(legs)) => Ok(&legs[leg as usize]),
            Some(Err(why)) => Err(format!("{}: {why}", way.name())),
            None => Err(format!(
                "{}: {real_time_callers} at fifo:{level} among {callers} ordinary callers, bound \
                 {bound}{}, were not \
                 measured",
                way.name(),
                misuse.map_or(String::new(), |misuse| format!(", misuse {}", misuse.name())),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn a_whole_call_is_both_its_halves() {
        let times = |call_ns: &[u64], return_ns: &[u64]| Times {
            call_ns: call_ns.to_vec(),
            return_ns: return_ns.to_vec(),
        };
        let mut legs = <[Distribution; 3]>::default();
        add_calls(&mut legs, &[times(&[10, 20], &[1, 1]), times(&[30], &[70])]);
        let ends = legs.each_ref().map(|leg| (leg.n(), leg.min_ns(), leg.max_ns()));
        assert_eq!(ends, [(3, 10, 30), (3, 1, 70), (3, 11, 100)]);
    }

    #[test]
    fn names_are_those_of_the_command_line() {
        for bound in Bound::ALL {
            assert_eq!(bound.to_possible_value().unwrap().get_name(), bound.name());
        }
    }

    #[test]
    fn what_has_failed_once_is_not_tried_again() {
        let mut measured = Measured::<u8, Vec<u8>>::new();
        for round in [Ok(1), Err(io::Error::other("lost")), Ok(2)] {
            add(&mut measured, 0, || round, Vec::push);
        }
        assert_eq!(measured[&0], Err("lost".to_owned()));
        add(&mut measured, 0, || -> io::Result<u8> { panic!("not asked") }, Vec::push);
    }
}
