//! How much of the broker's time one user may have: half of a processor's.
//!
//! Users take turns ([`crate::turns`]), but a broker that is busy without a pause waits for a
//! processor like any other busy process, and whoever asks it waits as well. So a user's requests
//! rest when they have taken [`BURST`] more than half of the time that has passed: a leaky bucket,
//! one for each user. Root, the broker's own user and those who take from the reserve have none.
//!
//! **Invariant**: a connection that rests is served when its user's bucket has leaked, whatever
//! others do.

use crate::poll::ConnectionId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// What a user may use at once.
const BURST: Duration = Duration::from_millis(20);
/// The bucket leaks by one in so much time.
const SHARE: u32 = 2;

/// The buckets of those users who have used anything lately.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    buckets: BTreeMap<u32, Bucket>,
}

#[derive(Debug)]
struct Bucket {
    used: Duration,
    /// When it held that.
    at: Instant,
    resting: BTreeSet<ConnectionId>,
}

impl Bucket {
    fn leak(&mut self, now: Instant) {
        self.used = self.used.saturating_sub(now.saturating_duration_since(self.at) / SHARE);
        self.at = now;
    }

    /// How long its user's requests rest from now on. `None` if they do not.
    fn rest(&self, now: Instant) -> Option<Duration> {
        let over = self.used.checked_sub(BURST).filter(|over| !over.is_zero())?;
        Some((over * SHARE).saturating_sub(now.saturating_duration_since(self.at)))
            .filter(|rest| !rest.is_zero())
    }
}

impl Pace {
    /// Whether a connection of the user's has to rest now. If so, [`Pace::rested`] returns it.
    pub fn rests(&mut self, user: u32, connection: ConnectionId, now: Instant) -> bool {
        let Some(bucket) = self.buckets.get_mut(&user) else { return false };
        let rests = bucket.rest(now).is_some();
        if rests {
            bucket.resting.insert(connection);
        }
        rests
    }

    /// A request of the user's has taken so much of a processor's time.
    pub fn charge(&mut self, user: u32, took: Duration, now: Instant) {
        let empty = || Bucket { used: Duration::ZERO, at: now, resting: BTreeSet::new() };
        let bucket = self.buckets.entry(user).or_insert_with(empty);
        bucket.leak(now);
        bucket.used += took;
    }

    /// After how long somebody has rested. `None` if nobody rests.
    pub fn next(&self, now: Instant) -> Option<Duration> {
        let resting = self.buckets.values().filter(|bucket| !bucket.resting.is_empty());
        resting.map(|bucket| bucket.rest(now).unwrap_or_default()).min()
    }

    /// The connections that have rested, and their users. Buckets that are empty are forgotten.
    pub fn rested(&mut self, now: Instant) -> Vec<ConnectionId> {
        let mut rested = Vec::new();
        self.buckets.retain(|_, bucket| {
            if bucket.rest(now).is_none() {
                rested.extend(std::mem::take(&mut bucket.resting));
            }
            bucket.leak(now);
            !bucket.used.is_zero() || !bucket.resting.is_empty()
        });
        rested
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: Duration = Duration::from_micros(100);

    /// How many requests each user gets served in a second of which nothing else takes any.
    fn serve(users: &[u32]) -> Vec<u32> {
        let (mut pace, begin) = (Pace::default(), Instant::now());
        let (mut served, mut passed) = (vec![0; users.len()], Duration::ZERO);
        let mut waiting: BTreeSet<usize> = (0..users.len()).collect();
        while passed < Duration::from_secs(1) {
            let now = begin + passed;
            waiting.extend(pace.rested(now).iter().map(|id| id.0 as usize));
            waiting.retain(|&place| !pace.rests(users[place], ConnectionId(place as u64), now));
            match waiting.iter().copied().min_by_key(|&place| served[place]) {
                Some(place) => {
                    passed += REQUEST;
                    served[place] += 1;
                    pace.charge(users[place], REQUEST, begin + passed);
                }
                None => passed += pace.next(now).expect("somebody rests").max(REQUEST / 10),
            }
        }
        served
    }

    #[test]
    fn a_user_has_half_of_the_time_and_two_have_all() {
        let one = serve(&[1000])[0];
        assert!((5_000..5_300).contains(&one), "{one}");
        let several: u32 = serve(&[1000, 1000, 1000]).iter().sum();
        assert!((5_000..5_300).contains(&several), "{several}");
        let two = serve(&[1000, 1001]);
        assert!(two.iter().all(|one| (4_700..5_300).contains(one)), "{two:?}");
    }

    #[test]
    fn who_rests_comes_back_and_is_forgotten() {
        let (mut pace, begin) = (Pace::default(), Instant::now());
        let connection = ConnectionId(7);
        assert!(!pace.rests(1000, connection, begin));
        pace.charge(1000, BURST, begin);
        assert!(!pace.rests(1000, connection, begin), "it may use so much at once");
        pace.charge(1000, REQUEST, begin);
        assert!(pace.rests(1000, connection, begin));
        assert!(!pace.rests(1001, connection, begin), "another user");
        assert_eq!(pace.next(begin), Some(REQUEST * SHARE));
        assert!(pace.rested(begin).is_empty());
        let later = begin + REQUEST * SHARE;
        assert_eq!(pace.next(later), Some(Duration::ZERO));
        assert_eq!(pace.rested(later), [connection]);
        assert_eq!(pace.next(later), None);
        assert!(pace.rested(begin + BURST * SHARE * 2).is_empty());
        assert!(pace.buckets.is_empty());
    }
}
