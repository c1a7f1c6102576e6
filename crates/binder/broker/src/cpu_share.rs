//! Limits each user to half of the broker thread's time.
//!
//! Users take turns ([`crate::fair_queue`]), but a broker that never sleeps competes for a
//! processor like any busy process, and all its clients wait with it. So the broker pauses a user's
//! requests and connections when their processor time exceeds half of the elapsed time by more than
//! [`BURST`]. Each user has a leaky bucket. Root, the broker's own user and users with a right to
//! the reserve have none.
//!
//! **Invariant**: a paused connection is served once its user's bucket has leaked, whatever other
//! users do.

use crate::poll::ConnectionId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Processor time that a user may use without a pause.
const BURST: Duration = Duration::from_millis(20);
/// The bucket leaks one nanosecond in this many nanoseconds.
const SHARE: u32 = 2;

/// The buckets of users that have used processor time lately.
#[derive(Debug, Default)]
pub(crate) struct CpuShare {
    buckets: BTreeMap<u32, Bucket>,
}

#[derive(Debug)]
struct Bucket {
    used: Duration,
    /// The time at which the bucket contained `used`.
    at: Instant,
    paused: BTreeSet<ConnectionId>,
}

impl Bucket {
    fn leak(&mut self, now: Instant) {
        self.used = self.used.saturating_sub(now.saturating_duration_since(self.at) / SHARE);
        self.at = now;
    }

    /// Time for which the user's requests are paused from `now` on. `None` if they are not paused.
    fn pause_left(&self, now: Instant) -> Option<Duration> {
        let over = self.used.checked_sub(BURST).filter(|over| !over.is_zero())?;
        Some((over * SHARE).saturating_sub(now.saturating_duration_since(self.at)))
            .filter(|pause_left| !pause_left.is_zero())
    }
}

impl CpuShare {
    /// Pauses a connection of `user` if the user's bucket is over its limit, and says so.
    /// [`CpuShare::take_resumed`] returns the connection later.
    pub fn pause_if_over(&mut self, user: u32, connection: ConnectionId, now: Instant) -> bool {
        let Some(bucket) = self.buckets.get_mut(&user) else { return false };
        let pause_if_over = bucket.pause_left(now).is_some();
        if pause_if_over {
            bucket.paused.insert(connection);
        }
        pause_if_over
    }

    /// Time for which the requests and connections of `user` rest from `now` on. `None` if they do
    /// not.
    pub fn pause_left(&self, user: u32, now: Instant) -> Option<Duration> {
        self.buckets.get(&user)?.pause_left(now)
    }

    /// Charges `user` the processor time that a request took.
    pub fn charge(&mut self, user: u32, took: Duration, now: Instant) {
        let empty = || Bucket { used: Duration::ZERO, at: now, paused: BTreeSet::new() };
        let bucket = self.buckets.entry(user).or_insert_with(empty);
        bucket.leak(now);
        bucket.used += took;
    }

    /// Time until the next paused connection may go on. `None` if no connection is paused.
    pub fn next_resume(&self, now: Instant) -> Option<Duration> {
        let paused = self.buckets.values().filter(|bucket| !bucket.paused.is_empty());
        paused.map(|bucket| bucket.pause_left(now).unwrap_or_default()).min()
    }

    /// Takes the connections whose pause is over, and drops empty buckets.
    pub fn take_resumed(&mut self, now: Instant) -> Vec<ConnectionId> {
        let mut take_resumed = Vec::new();
        self.buckets.retain(|_, bucket| {
            if bucket.pause_left(now).is_none() {
                take_resumed.extend(std::mem::take(&mut bucket.paused));
            }
            bucket.leak(now);
            !bucket.used.is_zero() || !bucket.paused.is_empty()
        });
        take_resumed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: Duration = Duration::from_micros(100);

    /// Requests of each user that are served in one simulated second.
    fn serve(users: &[u32]) -> Vec<u32> {
        let (mut cpu_share, begin) = (CpuShare::default(), Instant::now());
        let (mut served, mut passed) = (vec![0; users.len()], Duration::ZERO);
        let mut waiting: BTreeSet<usize> = (0..users.len()).collect();
        while passed < Duration::from_secs(1) {
            let now = begin + passed;
            waiting.extend(cpu_share.take_resumed(now).iter().map(|id| id.0 as usize));
            waiting.retain(|&place| {
                !cpu_share.pause_if_over(users[place], ConnectionId(place as u64), now)
            });
            match waiting.iter().copied().min_by_key(|&place| served[place]) {
                Some(place) => {
                    passed += REQUEST;
                    served[place] += 1;
                    cpu_share.charge(users[place], REQUEST, begin + passed);
                }
                None => {
                    passed += cpu_share
                        .next_resume(now)
                        .expect("somebody pause_if_over")
                        .max(REQUEST / 10)
                }
            }
        }
        served
    }

    #[test]
    fn one_user_gets_half_of_the_time_and_two_get_all() {
        let one = serve(&[1000])[0];
        assert!((5_000..5_300).contains(&one), "{one}");
        let several: u32 = serve(&[1000, 1000, 1000]).iter().sum();
        assert!((5_000..5_300).contains(&several), "{several}");
        let two = serve(&[1000, 1001]);
        assert!(two.iter().all(|one| (4_700..5_300).contains(one)), "{two:?}");
    }

    #[test]
    fn a_paused_connection_resumes_and_its_bucket_is_dropped() {
        let (mut cpu_share, begin) = (CpuShare::default(), Instant::now());
        let connection = ConnectionId(7);
        assert!(!cpu_share.pause_if_over(1000, connection, begin));
        cpu_share.charge(1000, BURST, begin);
        assert!(!cpu_share.pause_if_over(1000, connection, begin), "a burst is free");
        cpu_share.charge(1000, REQUEST, begin);
        assert!(cpu_share.pause_if_over(1000, connection, begin));
        assert!(!cpu_share.pause_if_over(1001, connection, begin), "another user");
        assert_eq!(cpu_share.pause_left(1000, begin), Some(REQUEST * SHARE));
        assert_eq!(cpu_share.pause_left(1001, begin), None);
        assert_eq!(cpu_share.next_resume(begin), Some(REQUEST * SHARE));
        assert!(cpu_share.take_resumed(begin).is_empty());
        let later = begin + REQUEST * SHARE;
        assert_eq!(cpu_share.next_resume(later), Some(Duration::ZERO));
        assert_eq!(cpu_share.take_resumed(later), [connection]);
        assert_eq!(cpu_share.next_resume(later), None);
        assert!(cpu_share.take_resumed(begin + BURST * SHARE * 2).is_empty());
        assert!(cpu_share.buckets.is_empty());
    }
}
