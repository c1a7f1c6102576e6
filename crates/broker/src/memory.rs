//! Memory that is used no more goes back to the system, once the broker has been quiet for a while:
//! that may take some milliseconds, for which nobody should wait.

#![expect(unsafe_code, reason = "malloc_trim")]

use std::time::{Duration, Instant};

/// What has been done since the allocator was asked last, in units of a request's cost, after which
/// it is worth asking: some hundred bytes each.
const WORTH_IT: u64 = 1 << 12;
/// How long nothing has to have been done.
const QUIET: Duration = Duration::from_millis(100);

/// How much memory may have been used and left since the allocator was asked.
#[derive(Debug, Default)]
pub(crate) struct Used {
    cost: u64,
    /// When it has been quiet for long enough, if nothing is done until then.
    quiet: Option<Instant>,
}

impl Used {
    /// So much has been done.
    pub fn add(&mut self, cost: u64) {
        self.cost = self.cost.saturating_add(cost);
        self.quiet = None;
    }

    /// After how long [`Used::give_back`] has something to do. `None` if it has not.
    pub fn due(&self, now: Instant) -> Option<Duration> {
        self.quiet.map(|quiet| quiet.saturating_duration_since(now))
    }

    /// Nobody waits. When that has been so for a while, the allocator, which keeps what was freed
    /// between other things, gives it back.
    pub fn give_back(&mut self, now: Instant) {
        if self.cost < WORTH_IT || now < *self.quiet.get_or_insert(now + QUIET) {
            return;
        }
        *self = Used::default();
        // SAFETY: may be called at any time; it moves nothing that is in use.
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
    fn it_goes_back_when_it_has_been_quiet() {
        let (mut used, begin) = (Used::default(), Instant::now());
        used.add(WORTH_IT - 1);
        used.give_back(begin);
        assert_eq!(used.due(begin), None, "too little");
        used.add(1);
        used.give_back(begin);
        assert_eq!(used.due(begin), Some(QUIET));
        used.add(1);
        assert_eq!(used.due(begin), None, "not quiet");
        used.give_back(begin + QUIET);
        assert_eq!(used.due(begin + QUIET), Some(QUIET));
        used.give_back(begin + QUIET * 2);
        assert_eq!((used.cost, used.due(begin + QUIET * 2)), (0, None));
    }
}
