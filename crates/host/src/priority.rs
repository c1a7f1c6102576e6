//! At which of the kernel's 256 priorities a call enters.
//!
//! ```text
//!   255        reception, which only hands calls on
//!   101 - 199  SCHED_FIFO and SCHED_RR, 1 to 99
//!    31 -  70  nice values, 19 to -20
//!     1        services, while nobody calls them
//! ```

use baton_driver::process::Urgency;

/// Who takes calls in.
pub(crate) const RECEPTION: u8 = 255;
/// A service's own: it runs at its callers'.
pub(crate) const SERVICE: u8 = 1;

const REAL_TIME: u8 = 100;
const NICE: i8 = 50;

/// Of a call as urgent as this.
pub(crate) fn of(urgency: Urgency) -> u8 {
    match urgency {
        Urgency::RealTime(priority) => REAL_TIME + priority.min(99),
        Urgency::Nice(nice) => (NICE - nice.clamp(-20, 19)) as u8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_more_urgent_is_higher() {
        let nice = (-20..=19).rev().map(Urgency::Nice);
        let real_time = (1..=99).map(Urgency::RealTime);
        let all: Vec<u8> = nice.chain(real_time).map(of).collect();
        assert!(all.is_sorted_by(|lower, higher| lower < higher), "{all:?}");
        assert!(all.iter().all(|&priority| (SERVICE..RECEPTION).contains(&priority)));
    }
}
