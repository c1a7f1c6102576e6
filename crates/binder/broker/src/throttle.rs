//! A limit on the rate of actions that peers can cause, such as log messages.

use std::time::{Duration, Instant};

/// Length of the period to which a throttle's limit applies.
const PERIOD: Duration = Duration::from_secs(1);
/// Log messages that the broker writes per period.
const MESSAGES: u32 = 20;

/// Admits `most` actions per [`PERIOD`] and counts the actions that it refuses.
pub(crate) struct Throttle {
    most: u32,
    since: Option<Instant>,
    admitted: u32,
    refused: u64,
}

impl Default for Throttle {
    fn default() -> Throttle {
        Throttle::of(MESSAGES)
    }
}

impl Throttle {
    /// A throttle that admits at most `most` actions per second.
    pub fn of(most: u32) -> Throttle {
        Throttle { most, since: None, admitted: 0, refused: 0 }
    }

    /// Admits one more action at `now`, or returns `None`. The value counts the actions that were
    /// refused since the last admitted one.
    pub fn admit(&mut self, now: Instant) -> Option<u64> {
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= PERIOD) {
            self.since = Some(now);
            self.admitted = 0;
        }
        if self.admitted == self.most {
            self.refused += 1;
            return None;
        }
        self.admitted += 1;
        Some(std::mem::take(&mut self.refused))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_and_ends_with_its_period() {
        let mut throttle = Throttle::default();
        let start = Instant::now();
        let admitted = (0..MESSAGES + 5).filter(|_| throttle.admit(start).is_some()).count();
        assert_eq!(admitted, MESSAGES as usize);
        assert_eq!(throttle.admit(start + PERIOD), Some(5));
        assert_eq!(throttle.admit(start + PERIOD), Some(0));
    }
}
