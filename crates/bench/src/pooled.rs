//! Quantiles of the times of all rounds together, and between which bounds they lie.
//!
//! A quantile such as p99.9 rests on few times, and a disturbance makes several of them late at
//! once. So bounds are not those of independent times: rounds are drawn again and again, each with
//! all of its times, and the bounds hold 95 of 100 such draws (Efron's bootstrap, over rounds). A
//! ratio draws the same rounds for both sides, which were measured in turn.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// Draws of rounds.
const N_DRAWS: usize = 2000;
/// With fewer rounds, draws differ too little from each other.
pub(crate) const LEAST_ROUNDS: usize = 8;
/// Times beyond a quantile, below which nothing is said of it.
pub(crate) const LEAST_BEYOND: u64 = 10;

/// The times of all rounds.
#[derive(Debug)]
pub(crate) struct Pooled {
    /// Each with the number of its round, the longest first
    longest_first: Vec<(u64, usize)>,
    /// Times of each round
    sizes: Vec<u64>,
}

/// The least and the greatest value that a quantile, or a ratio of two, may have.
pub(crate) type Interval = [f64; 2];

impl Pooled {
    pub fn new(rounds: &[Vec<u64>]) -> Pooled {
        let times = rounds.iter().enumerate();
        let times = times.flat_map(|(round, times)| times.iter().map(move |&time| (time, round)));
        let mut longest_first: Vec<_> = times.collect();
        longest_first.sort_unstable_by(|one, other| other.cmp(one));
        Pooled { longest_first, sizes: rounds.iter().map(|times| times.len() as u64).collect() }
    }

    /// Times that may be longer than a quantile, of so many rounds of each number.
    fn n_beyond(&self, quantile: f64, counts: &[u64]) -> u64 {
        let n: u64 = self.sizes.iter().zip(counts).map(|(size, count)| size * count).sum();
        // A thousandth of 1000 is 1, and not a little less.
        ((1.0 - quantile) * n as f64 + 1e-6) as u64
    }

    fn drawn(&self, quantile: f64, counts: &[u64]) -> u64 {
        let mut left = self.n_beyond(quantile, counts);
        for &(time, round) in &self.longest_first {
            if left < counts[round] {
                return time;
            }
            left -= counts[round];
        }
        self.longest_first.last().map_or(0, |(time, _)| *time)
    }

    fn once(&self) -> Vec<u64> {
        vec![1; self.sizes.len()]
    }

    /// The time that so large a share of all times does not exceed; 0 of none.
    pub fn quantile(&self, quantile: f64) -> u64 {
        self.drawn(quantile, &self.once())
    }

    /// Why nothing can be said of a quantile's bounds.
    fn lacks(&self, quantile: f64) -> Option<String> {
        let (n_rounds, n_beyond) = (self.sizes.len(), self.n_beyond(quantile, &self.once()));
        if n_rounds < LEAST_ROUNDS {
            return Some(format!("not decided: {n_rounds} rounds, and {LEAST_ROUNDS} are needed"));
        }
        (n_beyond < LEAST_BEYOND)
            .then(|| format!("not decided: {n_beyond} later times, and {LEAST_BEYOND} are needed"))
    }
}

/// A ratio of a quantile, and its bounds or why there are none.
///
/// # Panics
/// If both have not the same number of rounds.
pub(crate) fn ratio(
    over: &Pooled,
    under: &Pooled,
    quantile: f64,
) -> (f64, Result<Interval, String>) {
    assert_eq!(over.sizes.len(), under.sizes.len());
    // A time of zero is shorter than any clock tells.
    let divide = |counts: &[u64]| {
        let [over, under] = [over, under].map(|it| it.drawn(quantile, counts).max(1) as f64);
        over / under
    };
    let interval = match over.lacks(quantile).or_else(|| under.lacks(quantile)) {
        Some(why) => Err(why),
        None => Ok(bounds(over.sizes.len(), divide)),
    };
    (divide(&over.once()), interval)
}

/// The bounds of a quantile, or why there are none.
pub(crate) fn interval(of: &Pooled, quantile: f64) -> Result<Interval, String> {
    match of.lacks(quantile) {
        Some(why) => Err(why),
        None => Ok(bounds(of.sizes.len(), |counts| of.drawn(quantile, counts) as f64)),
    }
}

/// The bounds of 95 of 100 values, each of another draw of rounds.
fn bounds(n_rounds: usize, value: impl Fn(&[u64]) -> f64) -> Interval {
    // From a seed, so that one report's numbers have the same bounds again.
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut draw = || {
        let mut counts = vec![0; n_rounds];
        (0..n_rounds).for_each(|_| counts[random.next_u64() as usize % n_rounds] += 1);
        value(&counts)
    };
    let mut values: Vec<f64> = (0..N_DRAWS).map(|_| draw()).collect();
    values.sort_by(f64::total_cmp);
    let beyond = N_DRAWS / 40;
    [values[beyond], values[N_DRAWS - 1 - beyond]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_all_rounds() {
        let rounds = |times: &[&[u64]]| {
            Pooled::new(&times.iter().map(|times| times.to_vec()).collect::<Vec<_>>())
        };
        let thousand: Vec<u64> = (1..=1000).collect();
        for (times, quantile, expected) in [
            (&[][..], 0.5, 0),
            (&[&[7][..]], 0.999, 7),
            (&[&thousand[..]], 0.5, 500),
            (&[&thousand], 0.99, 990),
            (&[&thousand], 0.999, 999),
            (&[&thousand], 1.0, 1000),
            (&[&thousand[..100], &thousand[100..]], 0.99, 990),
            (&[&[1, 9], &[], &[5, 5]], 0.5, 5),
        ] {
            assert_eq!(rounds(times).quantile(quantile), expected, "{quantile}");
        }
    }

    #[test]
    fn a_round_that_is_drawn_twice_counts_twice() {
        let pooled = Pooled::new(&[vec![1, 2], vec![10, 20]]);
        for (counts, expected) in [([1, 1], 2), ([2, 0], 1), ([0, 2], 10), ([1, 3], 10)] {
            assert_eq!(pooled.drawn(0.5, &counts), expected, "{counts:?}");
        }
    }

    #[test]
    fn without_enough_rounds_or_times_there_are_no_bounds() {
        let rounds = |n: usize, of: usize| Pooled::new(&vec![vec![5; of]; n]);
        for (pooled, expected) in [
            (rounds(7, 10_000), Err("not decided: 7 rounds, and 8 are needed".to_owned())),
            (rounds(8, 1_249), Err("not decided: 9 later times, and 10 are needed".to_owned())),
            (rounds(8, 1_250), Ok([5.0, 5.0])),
        ] {
            assert_eq!(interval(&pooled, 0.999), expected);
            let expected = expected.map(|_| [1.0, 1.0]);
            assert_eq!(ratio(&pooled, &rounds(pooled.sizes.len(), 10_000), 0.999).1, expected);
        }
    }

    /// Rounds of a machine whose times have a long tail, and which disturbs some of the rounds as a
    /// whole.
    fn rounds(random: &mut ChaCha8Rng, n_rounds: usize, scale: f64) -> Pooled {
        let mut share = || (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let mut round = || {
            let factor = if share() < 0.2 { 2.0 } else { 1.0 };
            let time = |share: f64| (scale * factor * 1000.0 / (1.0 - share).powf(0.4)) as u64;
            (0..300).map(|_| time(share())).collect::<Vec<u64>>()
        };
        Pooled::new(&(0..n_rounds).map(|_| round()).collect::<Vec<_>>())
    }

    #[test]
    fn bounds_have_the_true_ratio_between_them_in_most_runs() {
        for (scale, seed) in [(1.0, 1), (1.4, 2)] {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let mut n_right = 0;
            for _ in 0..60 {
                let over = rounds(&mut random, 20, scale);
                let under = rounds(&mut random, 20, 1.0);
                let (value, interval) = ratio(&over, &under, 0.99);
                let [least, greatest] = interval.unwrap();
                assert!(least <= value && value <= greatest);
                n_right += usize::from(least <= scale && scale <= greatest);
            }
            assert!((54..=60).contains(&n_right), "{scale}: {n_right} of 60");
        }
    }
}
