//! The seeds to play, and their portions.

use std::ops::Range;
use std::str::FromStr;

/// A range of seeds for each family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seeds {
    /// The first.
    pub first: u64,
    /// The one after the last.
    pub end: u64,
}

impl FromStr for Seeds {
    type Err = String;

    /// Parses a range: `20` is the first twenty seeds, `100..200` these hundred.
    fn from_str(text: &str) -> Result<Seeds, String> {
        let number = |text: &str| {
            let number = text.trim().parse();
            number.map_err(|_| format!("'{text}' is neither a number of seeds nor FIRST..END"))
        };
        let (first, end) = match text.split_once("..") {
            Some((first, end)) => (number(first)?, number(end)?),
            None => (0, number(text)?),
        };
        if first >= end {
            return Err(format!("no seed in '{text}'"));
        }
        Ok(Seeds { first, end })
    }
}

/// Most steps that a driver plays in one run. Transcripts of a run are kept in memory, and a guest
/// that fails loses at most one run.
const STEPS_AT_ONCE: u64 = 60_000;

impl Seeds {
    /// Divides the seeds into equal portions of bounded size. `steps` is the number of steps for
    /// one seed.
    pub fn portions(self, steps: u64) -> impl Iterator<Item = Range<u64>> {
        let n_seeds = self.end - self.first;
        let n_portions = (n_seeds.saturating_mul(steps)).div_ceil(STEPS_AT_ONCE).clamp(1, n_seeds);
        let at = move |portion: u64| {
            let seeds = u128::from(n_seeds) * u128::from(portion) / u128::from(n_portions);
            self.first + seeds as u64
        };
        (0..n_portions).map(move |portion| at(portion)..at(portion + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_a_number_or_a_range() {
        let check = |text: &str, expect| {
            let seeds = text.parse::<Seeds>().ok().map(|seeds| (seeds.first, seeds.end));
            assert_eq!(seeds, expect, "{text}");
        };
        check("20", Some((0, 20)));
        check("100..200", Some((100, 200)));
        for wrong in ["0", "", "a", "5..5", "7..3", "-3", "1..", "1...3", "..4"] {
            check(wrong, None);
        }
    }

    #[test]
    fn portions_hold_every_seed_once_and_are_bounded() {
        for (first, end, steps) in [(0, 1, 100), (3, 700, 1500), (0, 10, 1_000_000), (5, 46, 1500)]
        {
            let portions: Vec<_> = Seeds { first, end }.portions(steps).collect();
            let all: Vec<u64> = portions.iter().cloned().flatten().collect();
            assert_eq!(all, (first..end).collect::<Vec<_>>());
            for portion in portions {
                let seeds = portion.end - portion.start;
                assert!(seeds == 1 || seeds * steps <= STEPS_AT_ONCE + steps, "{portion:?}");
            }
        }
    }
}
