//! A bound on messages that peers can cause.

use std::time::{Duration, Instant};

const PERIOD: Duration = Duration::from_secs(1);
/// What a log takes.
const MESSAGES: u32 = 20;

/// So many messages a period; the rest are counted.
pub(crate) struct Throttle {
    most: u32,
    since: Option<Instant>,
    said: u32,
    unsaid: u64,
}

impl Default for Throttle {
    fn default() -> Throttle {
        Throttle::of(MESSAGES)
    }
}

impl Throttle {
    /// At most so many a second.
    pub fn of(most: u32) -> Throttle {
        Throttle { most, since: None, said: 0, unsaid: 0 }
    }

    /// Whether one more may be said, and how many were not said before it.
    pub fn admit(&mut self, now: Instant) -> Option<u64> {
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= PERIOD) {
            self.since = Some(now);
            self.said = 0;
        }
        if self.said == self.most {
            self.unsaid += 1;
            return None;
        }
        self.said += 1;
        Some(std::mem::take(&mut self.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_and_ends_with_its_period() {
        let mut throttle = Throttle::default();
        let start = Instant::now();
        let said = (0..MESSAGES + 5).filter(|_| throttle.admit(start).is_some()).count();
        assert_eq!(said, MESSAGES as usize);
        assert_eq!(throttle.admit(start + PERIOD), Some(5));
        assert_eq!(throttle.admit(start + PERIOD), Some(0));
    }
}
