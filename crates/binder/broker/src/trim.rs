//! Returns freed memory to the system once the broker has been idle for a while.
//!
//! The allocator needs up to some milliseconds for that, and no request should wait for them.

#![cfg_attr(target_env = "gnu", expect(unsafe_code, reason = "malloc_trim"))]

use std::time::{Duration, Instant};

/// Least amount of work since the last trim that makes another one worthwhile. The unit is the cost
/// of a request, which leaves some hundred bytes of freed memory.
const MIN_WORK: u64 = 1 << 12;
/// Time without any work before the broker trims.
const IDLE_TIME: Duration = Duration::from_millis(100);

/// Counts the work since the last trim, and decides when the next trim is due.
#[derive(Debug, Default)]
pub(crate) struct TrimTimer {
    cost: u64,
    /// End of the current idle period. `None` while work goes on.
    idle_at: Option<Instant>,
}

impl TrimTimer {
    /// Records `cost` units of work, which ends an idle period.
    pub fn add_work(&mut self, cost: u64) {
        self.cost = self.cost.saturating_add(cost);
        self.idle_at = None;
    }

    /// Time until [`TrimTimer::trim_if_idle`] will trim. `None` if no idle period has begun.
    pub fn due(&self, now: Instant) -> Option<Duration> {
        self.idle_at.map(|idle_at| idle_at.saturating_duration_since(now))
    }

    /// Notes that no request waits at `now`, and trims once an idle period of [`IDLE_TIME`] is
    /// over. The allocator keeps freed blocks between blocks in use until it is told to give them
    /// back.
    pub fn trim_if_idle(&mut self, now: Instant) {
        if self.cost < MIN_WORK || now < *self.idle_at.get_or_insert(now + IDLE_TIME) {
            return;
        }
        *self = TrimTimer::default();
        // SAFETY: `malloc_trim` may be called at any time and moves no block that is in use.
        #[cfg(target_env = "gnu")]
        unsafe {
            libc::malloc_trim(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_trimmed_after_an_idle_period() {
        let (mut timer, begin) = (TrimTimer::default(), Instant::now());
        timer.add_work(MIN_WORK - 1);
        timer.trim_if_idle(begin);
        assert_eq!(timer.due(begin), None, "too little");
        timer.add_work(1);
        timer.trim_if_idle(begin);
        assert_eq!(timer.due(begin), Some(IDLE_TIME));
        timer.add_work(1);
        assert_eq!(timer.due(begin), None, "not idle_at");
        timer.trim_if_idle(begin + IDLE_TIME);
        assert_eq!(timer.due(begin + IDLE_TIME), Some(IDLE_TIME));
        timer.trim_if_idle(begin + IDLE_TIME * 2);
        assert_eq!((timer.cost, timer.due(begin + IDLE_TIME * 2)), (0, None));
    }
}
