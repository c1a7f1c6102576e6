//! What a run of `baton bench rpc` is to measure, as all its parts know it.

use crate::case::Case;
use crate::pair;
use crate::processors::{Placement, Processors};
use crate::results::Results;
use crate::system::System;
use std::collections::BTreeSet;

/// What the clock counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Counting {
    /// Time.
    #[default]
    Time,
    Instructions,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    pub systems: Vec<System>,
    pub rounds: u32,
    /// Calls of a round.
    pub n_calls: u32,
    pub placements: Vec<Placement>,
    pub processors: Processors,
    pub payloads: &'static [usize],
    /// How many clients call at once: ascending.
    pub clients: Vec<usize>,
    /// Calls that carry objects and descriptors, with plain ones, which the others are told over.
    pub cases: BTreeSet<Case>,
    pub counting: Counting,
}

impl Plan {
    pub fn is_timed(&self) -> bool {
        self.counting == Counting::Time
    }

    /// Those of some systems that the run measures.
    pub fn wanted(&self, systems: impl IntoIterator<Item = System>) -> Vec<System> {
        systems.into_iter().filter(|system| self.systems.contains(system)).collect()
    }

    /// Results without rows. There are no bars of systems that cannot be here; and few machines
    /// have the kernel's driver: a run that does not ask for it need not say so.
    pub fn results(&self) -> Results {
        let is_excused = |system: &System| {
            let is_unwanted = *system == System::KernelBinder && !self.systems.contains(system);
            is_unwanted || pair::cannot_be_here(*system).is_some()
        };
        Results::excusing(System::called().filter(is_excused).map(System::name))
    }
}
