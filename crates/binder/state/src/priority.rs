//! Priorities of transactions: the priority of the serving thread, and the order of waiting calls.
//!
//! A transaction is served at the more urgent of its caller's nice value and of the minimum that
//! its node asks for, as the kernel's driver has it. Where the node asks for nothing, the serving
//! thread's own priority takes the minimum's place.

use baton_abi::sched_priority::SchedPriority;

/// The priority that the caller and the node of a transaction want for its service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestedPriority {
    /// The caller's nice value; `None` of a one-way transaction, which has no waiting caller.
    pub nice: Option<i32>,
    /// The minimum that its node asks for.
    pub minimum: Option<SchedPriority>,
}

impl RequestedPriority {
    /// The priority at which a thread with this priority of its own serves.
    #[inline]
    pub fn priority(self, own: SchedPriority) -> SchedPriority {
        match self.nice {
            Some(nice) => SchedPriority::nice(nice).max(self.minimum.unwrap_or(own)),
            None => self.minimum.map_or(own, |minimum| minimum.max(own)),
        }
    }
}

/// The place of a call among others that wait: the best nice value first, and of equal ones the
/// oldest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueuePriority {
    nice: i8,
    /// How many younger calls have come before it.
    overtaken: u8,
}

impl QueuePriority {
    /// A call that has been overtaken so often lets no other call by: nobody checks the nice value
    /// that a caller states.
    pub const MAX_OVERTAKEN: u8 = 8;

    /// The place of a call at this nice value; a value out of range counts as the nearest one.
    pub fn of(nice: i32) -> QueuePriority {
        QueuePriority { nice: nice.clamp(-20, 19) as i8, overtaken: 0 }
    }

    /// The nice value.
    pub fn nice(self) -> i32 {
        self.nice.into()
    }

    /// Whether a younger call comes before this one, which then counts it.
    pub(crate) fn lets_by(&mut self, younger: QueuePriority) -> bool {
        let lets = younger.nice < self.nice && self.overtaken < QueuePriority::MAX_OVERTAKEN;
        self.overtaken += u8::from(lets);
        lets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_abi::uapi::*;

    #[test]
    fn the_more_urgent_of_caller_and_node_decides() {
        const FIFO_POLICY: u32 = 1 << FLAT_BINDER_FLAG_SCHED_POLICY_SHIFT;
        const RR_POLICY: u32 = 2 << FLAT_BINDER_FLAG_SCHED_POLICY_SHIFT;
        const BATCH_POLICY: u32 = 3 << FLAT_BINDER_FLAG_SCHED_POLICY_SHIFT;
        const OWN: i32 = 5;
        let nice = SchedPriority::nice;
        for (flags, caller, served) in [
            // The node asks for nothing.
            (0, Some(0), nice(0)),
            (0, Some(10), nice(OWN)),
            (0, Some(-10), nice(-10)),
            (0, None, nice(OWN)),
            (FLAT_BINDER_FLAG_ACCEPTS_FDS, Some(10), nice(OWN)),
            (FIFO_POLICY, Some(10), nice(OWN)),
            // Libraries ask for the caller's.
            (0x7f, Some(10), nice(10)),
            (0x7f, None, nice(OWN)),
            (19, Some(10), nice(10)),
            (19, Some(-10), nice(-10)),
            (0xfb, Some(10), nice(-5)),
            (0xfb, None, nice(-5)),
            (0x80, Some(0), nice(-20)),
            // Nice values that no caller has.
            (19, Some(i32::MAX), nice(19)),
            (19, Some(i32::MIN), nice(-20)),
            (FIFO_POLICY | 30, Some(-20), SchedPriority::fifo(30)),
            (FIFO_POLICY | 200, Some(0), SchedPriority::fifo(99)),
            (RR_POLICY | 1, Some(0), SchedPriority::round_robin(1)),
            (BATCH_POLICY | 3, Some(5), nice(3)),
        ] {
            let requested =
                RequestedPriority { nice: caller, minimum: SchedPriority::of_node_flags(flags) };
            assert_eq!(requested.priority(nice(OWN)), served, "{flags:#x} {caller:?}");
        }
    }
}
