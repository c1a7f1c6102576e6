//! Times: what is said of many of them, and of several rounds.

use hdrhistogram::Histogram;

/// Longest time that is told apart: a minute.
const LONGEST_NS: u64 = 60_000_000_000;

/// What is said of one round, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The median.
    pub p50: u64,
    /// 99 of 100 are not longer.
    pub p99: u64,
    /// 999 of 1000 are not longer.
    pub p999: u64,
    /// The shortest.
    pub min: u64,
    /// The longest.
    pub max: u64,
    /// The arithmetic mean.
    pub mean: f64,
}

/// The times of all rounds of one case.
#[derive(Clone, Debug)]
pub struct Distribution {
    all: Histogram<u64>,
    rounds: Vec<Summary>,
}

/// A value as several rounds have it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The median of the rounds.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The greatest.
    pub greatest: f64,
}

impl Spread {
    /// Of the values of the rounds, in any order. `None` of none.
    pub fn of(values: impl Iterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let (&least, &greatest) = (values.first()?, values.last()?);
        let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Spread { median: (low + high) / 2.0, least, greatest })
    }
}

/// The median of rounds over that of others, and the ratios of the rounds.
pub(crate) fn divide(over: &[f64], under: &[f64]) -> (f64, Option<Spread>) {
    let of = |values: &[f64]| Spread::of(values.iter().copied());
    let median = |values| of(values).map_or(f64::NAN, |spread| spread.median);
    let rounds = over.iter().zip(under).map(|(over, under)| over / under);
    (median(over) / median(under), Spread::of(rounds))
}

fn empty() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("bounds that a histogram can have")
}

impl Default for Distribution {
    fn default() -> Distribution {
        Distribution { all: empty(), rounds: Vec::new() }
    }
}

impl Distribution {
    /// Adds a round: the time of each call, in nanoseconds.
    pub fn add_round(&mut self, times_ns: &[u64]) {
        let mut round = empty();
        for &time_ns in times_ns {
            round.saturating_record(time_ns);
        }
        let max = times_ns.iter().copied().max().unwrap_or(0);
        let min = times_ns.iter().copied().min().unwrap_or(0);
        // A histogram's answer is the upper end of a step, which may lie beyond the last value.
        let at = |quantile| round.value_at_quantile(quantile).min(max);
        let (p50, p99, p999) = (at(0.5), at(0.99), at(0.999));
        self.rounds.push(Summary { p50, p99, p999, min, max, mean: round.mean() });
        self.all.add(round).expect("bounds are the same");
    }

    /// What is said of each round, in their order.
    pub fn rounds(&self) -> &[Summary] {
        &self.rounds
    }

    /// How many times there are.
    pub fn n(&self) -> u64 {
        self.all.len()
    }

    /// A value of the summaries, over the rounds. `None` before the first.
    pub fn over_rounds(&self, value: impl Fn(&Summary) -> f64) -> Option<Spread> {
        Spread::of(self.rounds.iter().map(value))
    }

    /// The shortest time of all, in nanoseconds.
    pub fn min_ns(&self) -> u64 {
        self.rounds.iter().map(|round| round.min).min().unwrap_or(0)
    }

    /// The longest time of all, in nanoseconds.
    pub fn max_ns(&self) -> u64 {
        self.rounds.iter().map(|round| round.max).max().unwrap_or(0)
    }

    /// A value of each round.
    pub fn of_rounds(&self, value: fn(&Summary) -> f64) -> Vec<f64> {
        self.rounds.iter().map(value).collect()
    }

    /// One's median over the other's, of a value of the rounds, and as the rounds have it.
    pub fn ratio_of(
        over: &Distribution,
        under: &Distribution,
        value: fn(&Summary) -> f64,
    ) -> (f64, Option<Spread>) {
        divide(&over.of_rounds(value), &under.of_rounds(value))
    }

    /// The share of times from one to the other, both included, of all rounds together.
    pub fn share_between(&self, low_ns: u64, high_ns: u64) -> f64 {
        self.all.count_between(low_ns, high_ns) as f64 / self.all.len().max(1) as f64
    }

    /// Time at each of the quantiles, of all rounds together, in nanoseconds.
    pub fn curve(&self, quantiles: &[f64]) -> Vec<u64> {
        quantiles.iter().map(|&quantile| self.all.value_at_quantile(quantile)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_summed_up() {
        let mut distribution = Distribution::default();
        distribution.add_round(&(1..=1000).collect::<Vec<u64>>());
        let Summary { p50, p99, p999, min, max, mean } = distribution.rounds()[0];
        assert_eq!((p50, p99, p999, min, max), (500, 990, 999, 1, 1000));
        assert!((mean - 500.5).abs() < 0.01);
        assert_eq!(distribution.curve(&[0.1, 1.0]), [100, 1000]);
        assert!((distribution.share_between(1, 250) - 0.25).abs() < 0.01);
    }

    #[test]
    fn of_rounds_the_median_is_said_and_the_worst_time_of_all() {
        let mut distribution = Distribution::default();
        for (time_ns, worst_ns) in [(30, 31), (10, 900), (20, 21)] {
            distribution.add_round(&[time_ns, time_ns, worst_ns]);
        }
        let p50 = distribution.over_rounds(|round| round.p50 as f64).unwrap();
        assert_eq!(p50, Spread { median: 20.0, least: 10.0, greatest: 30.0 });
        assert_eq!((distribution.max_ns(), distribution.n()), (900, 9));
    }

    #[test]
    fn spreads() {
        for (values, expected) in [
            (&[][..], None),
            (&[2.0], Some((2.0, 2.0, 2.0))),
            (&[4.0, 1.0], Some((2.5, 1.0, 4.0))),
            (&[9.0, 1.0, 2.0], Some((2.0, 1.0, 9.0))),
        ] {
            let expected =
                expected.map(|(median, least, greatest)| Spread { median, least, greatest });
            assert_eq!(Spread::of(values.iter().copied()), expected);
        }
    }
}
