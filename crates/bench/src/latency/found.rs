//! All that was measured.

use crate::distribution::Distribution;
use crate::latency::call::Delays;
use crate::processors::Placement;
use baton_rt::SchedPriority;
use std::collections::BTreeMap;

/// Delays of a round, by threads, in nanoseconds.
pub type Wakings = Vec<Vec<u64>>;

/// Whose wake-ups, and beside what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Waking {
    /// How many threads ran beside.
    pub load: usize,
    /// Where the thread was bound.
    pub place: Option<usize>,
    /// Who measured.
    pub system: &'static str,
}

/// Which calls, and beside what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Calls {
    /// How many threads ran beside.
    pub load: usize,
    /// How client and server lay; `None`: as the kernel liked.
    pub placement: Option<Placement>,
}

/// Distributions, and why others are missing.
#[derive(Debug, Default)]
pub struct Measured {
    /// The priority of all threads that were measured; `None` for ordinary ones.
    pub priority: Option<SchedPriority>,
    /// Wake-ups.
    pub wakings: BTreeMap<Waking, Distribution>,
    /// Calls' ways there and back.
    pub calls: BTreeMap<Calls, [Distribution; 2]>,
    /// What failed, and why at first.
    pub missing: BTreeMap<&'static str, String>,
}

impl Measured {
    /// Adds a round of wake-ups.
    pub fn add(
        &mut self,
        system: &'static str,
        load: usize,
        places: &[Option<usize>],
        measured: Result<Wakings, String>,
    ) {
        match measured {
            Ok(delays_ns) => {
                for (&place, delays_ns) in places.iter().zip(&delays_ns) {
                    let waking = Waking { load, place, system };
                    self.wakings.entry(waking).or_default().add_round(delays_ns);
                }
            }
            Err(why) => drop(self.missing.entry(system).or_insert(why)),
        }
    }

    /// Adds a round of calls.
    pub fn add_calls(
        &mut self,
        placement: Option<Placement>,
        load: usize,
        measured: Result<Delays, String>,
    ) {
        match measured {
            Ok(delays) => {
                let legs = self.calls.entry(Calls { load, placement }).or_default();
                for (leg, delays_ns) in legs.iter_mut().zip(&delays) {
                    leg.add_round(delays_ns);
                }
            }
            Err(why) => drop(self.missing.entry("baton-typed").or_insert(why)),
        }
    }

    /// The wake-ups of a system, one place after the other.
    pub fn of(&self, system: &str, load: usize) -> impl Iterator<Item = (&Waking, &Distribution)> {
        self.wakings
            .iter()
            .filter(move |(waking, _)| waking.system == system && waking.load == load)
    }
}
