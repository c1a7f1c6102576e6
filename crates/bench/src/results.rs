//! What a benchmark has measured, case by case, and why systems are missing.

use crate::distribution::Distribution;
use crate::report::{Outcome, Row};
use std::collections::BTreeMap;
use std::fmt::Display;

/// By case, and by the system's name.
#[derive(Debug)]
pub(crate) struct Results<K, V = Distribution> {
    pub measured: BTreeMap<K, V>,
    pub missing: BTreeMap<&'static str, String>,
}

impl<K, V> Default for Results<K, V> {
    fn default() -> Results<K, V> {
        Results { measured: BTreeMap::new(), missing: BTreeMap::new() }
    }
}

impl<K: Ord, V: Default> Results<K, V> {
    /// Keeps the reason of a failure: `None` then.
    pub fn ok<T, E: Display>(&mut self, system: &'static str, done: Result<T, E>) -> Option<T> {
        done.map_err(|why| self.missing.insert(system, why.to_string())).ok()
    }

    /// Adds a round by `add`, if there is one. False if it has failed.
    pub fn add<R, E: Display>(
        &mut self,
        case: K,
        system: &'static str,
        round: Result<R, E>,
        add: impl FnOnce(&mut V, R),
    ) -> bool {
        let round = self.ok(system, round);
        round.map(|round| add(self.measured.entry(case).or_default(), round)).is_some()
    }

    /// What was measured of a case, or why there is nothing.
    pub fn find(&self, case: &K, system: &str) -> Result<&V, String> {
        self.measured.get(case).ok_or_else(|| match self.missing.get(system) {
            Some(why) => format!("{system}: {why}"),
            None => format!("{system} was not measured"),
        })
    }

    pub fn missing_rows(&self, case: &'static str) -> impl Iterator<Item = Row> {
        self.missing.iter().map(move |(system, why)| Row::new(system, case, Outcome::missing(why)))
    }
}

impl<K: Ord> Results<K> {
    /// Adds times in nanoseconds. False if there are none, but a reason.
    pub fn add_times<E: Display>(
        &mut self,
        case: K,
        system: &'static str,
        round: Result<Vec<u64>, E>,
    ) -> bool {
        self.add(case, system, round, |times, round| times.add_round(&round))
    }
}
