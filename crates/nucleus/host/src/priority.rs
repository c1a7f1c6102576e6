//! The priorities of calls among the kernel's 256 priorities.
//!
//! ```text
//!   255        dispatcher, which only hands calls on
//!   101 - 199  SCHED_FIFO and SCHED_RR, 1 to 99
//!    31 -  70  nice values, 19 to -20
//!     1        services, while nobody calls them
//! ```

use baton::SchedPriority;

/// The dispatcher's priority.
pub(crate) const DISPATCHER: u8 = 255;
/// The base priority of services: they run at their callers' priorities.
pub(crate) const SERVICE: u8 = 1;

const REAL_TIME: u8 = 100;
const NICE: i32 = 50;

/// The kernel's priority of a call. SCHED_DEADLINE is as good as the highest real-time priority.
pub(crate) fn of(priority: SchedPriority) -> u8 {
    match priority.nice_value() {
        Some(nice) => (NICE - nice) as u8,
        None => REAL_TIME + priority.real_time().unwrap_or(99),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_more_urgent_is_higher() {
        let nice = (-20..=19).rev().map(SchedPriority::nice);
        let real_time = (1..=99).map(SchedPriority::fifo);
        let all: Vec<u8> = nice.chain(real_time).map(of).collect();
        assert!(all.is_sorted_by(|lower, higher| lower < higher), "{all:?}");
        assert!(all.iter().all(|&priority| (SERVICE..DISPATCHER).contains(&priority)));
    }
}
