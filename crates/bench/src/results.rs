//! What a benchmark has measured, row by row, and why other rows are missing: as the rows and
//! charts of its report.
//!
//! A row is measured in rounds. A row that has failed once stays missing.

use crate::chart::{self, Chart};
use crate::distribution::{Distribution, Spread, divide};
use crate::report::{Bar, Figures, Keys, Quotient, Ratio, Row, RowKey, Scale};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

/// All rounds of one row.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rounds {
    pub times: Distribution,
    /// Other values by their names, one of each round.
    values: BTreeMap<&'static str, Vec<f64>>,
    /// See [`Rounds::keep_round`]
    kept: Vec<Vec<u64>>,
}

/// What was measured of a row, or why there is nothing.
pub(crate) type Found<'a> = Result<&'a Rounds, String>;

/// A value of each round.
pub(crate) type Value = fn(&Rounds) -> Vec<f64>;

pub(crate) const P50: Value = |rounds| rounds.times.of_rounds(|round| round.p50 as f64);
pub(crate) const P99: Value = |rounds| rounds.times.of_rounds(|round| round.p99 as f64);
pub(crate) const P999: Value = |rounds| rounds.times.of_rounds(|round| round.p999 as f64);
pub(crate) const MAX: Value = |rounds| rounds.times.of_rounds(|round| round.max as f64);
pub(crate) const MEAN: Value = |rounds| rounds.times.of_rounds(|round| round.mean);

impl Rounds {
    /// Adds a round, and keeps its times one by one: for what is said of all rounds together.
    pub fn keep_round(&mut self, times: Vec<u64>) {
        self.times.add_round(&times);
        self.kept.push(times);
    }

    pub fn kept(&self) -> &[Vec<u64>] {
        &self.kept
    }

    pub fn add_value(&mut self, name: &'static str, value: f64) {
        self.values.entry(name).or_default().push(value);
    }

    /// Of each round; none under a name that was not measured.
    pub fn values(&self, name: &str) -> Vec<f64> {
        self.values.get(name).cloned().unwrap_or_default()
    }

    /// Over the rounds. `None` before the first.
    pub fn spread(&self, name: &str) -> Option<Spread> {
        Spread::of(self.values(name).into_iter())
    }
}

#[derive(Clone, Debug)]
enum Outcome {
    Measured(Rounds),
    Missing(String),
    /// Published, or of another form.
    Told(Keys),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Results {
    /// In the order in which they came.
    rows: Vec<(RowKey, Outcome)>,
    /// Labels of systems whose absence is nobody's fault: bars are not of them.
    excused: BTreeSet<&'static str>,
}

impl Results {
    fn entry(&mut self, key: RowKey) -> &mut Outcome {
        let at = self.rows.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
            self.rows.push((key, Outcome::Measured(Rounds::default())));
            self.rows.len() - 1
        });
        &mut self.rows[at].1
    }

    /// Adds a round by `add`, if there is one. False if the row is missing.
    pub fn add<R, E: Display>(
        &mut self,
        key: RowKey,
        round: Result<R, E>,
        add: impl FnOnce(&mut Rounds, R),
    ) -> bool {
        let entry = self.entry(key);
        let Outcome::Measured(rounds) = entry else { return false };
        match round {
            Ok(round) => add(rounds, round),
            Err(why) => *entry = Outcome::Missing(why.to_string()),
        }
        matches!(entry, Outcome::Measured(_))
    }

    /// Measures a round, unless the row is missing: times in the key's unit.
    pub fn measure<E: Display>(
        &mut self,
        key: RowKey,
        measure: impl FnOnce() -> Result<Vec<u64>, E>,
    ) {
        if !self.is_missing(&key) {
            self.add_times(key, measure());
        }
    }

    /// Adds a value of a round, if there is one.
    pub fn add_value<E: Display>(
        &mut self,
        key: RowKey,
        name: &'static str,
        value: Result<f64, E>,
    ) {
        self.add(key, value, |rounds, value| rounds.add_value(name, value));
    }

    /// Adds times in the key's unit. False if the row is missing.
    pub fn add_times<E: Display>(&mut self, key: RowKey, round: Result<Vec<u64>, E>) -> bool {
        self.add(key, round, |rounds, times| rounds.times.add_round(&times))
    }

    /// Keeps the reason of a failure: `None` then.
    pub fn ok<T, E: Display>(&mut self, key: RowKey, done: Result<T, E>) -> Option<T> {
        done.map_err(|why| *self.entry(key) = Outcome::Missing(why.to_string())).ok()
    }

    /// Excuses the absence of the system with this label.
    pub fn excuse(&mut self, label: &'static str) {
        self.excused.insert(label);
    }

    /// A row of another form.
    pub fn tell(&mut self, key: RowKey, keys: Keys) {
        self.rows.push((key, Outcome::Told(keys)));
    }

    /// A row of published figures: the least, the mean and the greatest, in nanoseconds.
    pub fn quote(&mut self, key: RowKey, source: &'static str, figures: [Option<f64>; 3]) {
        let [min_ns, mean_ns, max_ns] = figures;
        let ends = [("min_ns", min_ns), ("max_ns", max_ns)];
        let mut keys = vec![("source", source.into())];
        keys.extend(mean_ns.map(|mean_ns| ("mean_ns", mean_ns.into())));
        keys.extend(ends.iter().filter_map(|(name, ns)| Some((*name, ((*ns)? as u64).into()))));
        self.tell(key, keys);
    }

    pub fn is_missing(&self, key: &RowKey) -> bool {
        self.rows.iter().any(|(known, it)| known == key && matches!(it, Outcome::Missing(_)))
    }

    /// Measured rows, with all rounds.
    pub fn measured(&self) -> impl Iterator<Item = (&RowKey, &Rounds)> {
        self.rows.iter().filter_map(|(key, outcome)| match outcome {
            Outcome::Measured(rounds) => Some((key, rounds)),
            _ => None,
        })
    }

    /// Whether something was measured under a label, or is missing.
    pub fn has_label(&self, label: &str) -> bool {
        self.rows.iter().any(|(key, _)| key.label == label)
    }

    pub fn find(&self, key: &RowKey) -> Found<'_> {
        if let Some((_, rounds)) = self.measured().find(|(known, _)| *known == key) {
            return Ok(rounds);
        }
        let why = |is_it: &dyn Fn(&RowKey) -> bool| {
            self.rows.iter().find_map(|(known, outcome)| match outcome {
                Outcome::Missing(why) if is_it(known) => Some(format!("{}: {why}", known.label)),
                _ => None,
            })
        };
        let why = why(&|known| known == key)
            .or_else(|| why(&|known| known.label == key.label))
            .or_else(|| why(&|known| (known.system, known.case) == (key.system, key.case)));
        Err(why.unwrap_or_else(|| format!("{} was not measured", key.label)))
    }

    /// A ratio of two rows. Its bar is of no system that is excused. Without a bar there is one
    /// only if both systems were to be measured.
    pub fn ratio(
        &self,
        name: String,
        keys: [&RowKey; 2],
        value: Value,
        bar: Option<Bar>,
    ) -> Option<Ratio> {
        let bar = bar.filter(|_| keys.iter().all(|key| !self.excused.contains(key.label)));
        let told = bar.is_some() || keys.iter().all(|key| self.has_label(key.label));
        let [over, under] = keys.map(|key| self.find(key));
        told.then(|| ratio(name, over, under, value, bar))
    }

    /// Rows, those that were measured with `more` keys.
    pub fn rows(&self, more: impl Fn(&RowKey, &Rounds) -> Keys) -> Vec<Row> {
        let row = |(key, outcome): &(RowKey, Outcome)| {
            let (figures, more) = match outcome {
                Outcome::Measured(rounds) => {
                    let figures = Figures::of(&rounds.times)?;
                    let is_exact = key.scale == Scale::Nanoseconds;
                    let figures = if is_exact { figures } else { figures.of_picoseconds() };
                    (Some(figures), more(key, rounds))
                }
                Outcome::Missing(why) => (None, vec![("why", why.as_str().into())]),
                Outcome::Told(keys) => (None, keys.clone()),
            };
            Some(Row { key: key.clone(), figures, more })
        };
        self.rows.iter().filter_map(row).collect()
    }

    /// A chart of each title, with a level at each published longest time.
    pub fn charts(&self) -> Vec<Chart> {
        let mut titles: Vec<String> = Vec::new();
        let has_curve = |key: &RowKey, rounds: &Rounds| {
            key.scale != Scale::NoChart && !rounds.times.rounds().is_empty()
        };
        for (key, _) in self.measured().filter(|(key, rounds)| has_curve(key, rounds)) {
            if !titles.contains(&key.title()) {
                titles.push(key.title());
            }
        }
        let chart = |title: String| {
            let times = || {
                let here = self.measured().filter(|(key, _)| key.title() == title);
                here.map(|(key, rounds)| (key.label, &rounds.times))
            };
            let is_histogram = |(key, _): (&RowKey, &Rounds)| {
                key.scale == Scale::Histogram && key.title() == title
            };
            if self.measured().any(is_histogram) {
                return chart::histograms(title.clone(), times());
            }
            let levels = self.rows.iter().filter(|(key, _)| key.title() == title);
            let levels = levels.filter_map(|(key, outcome)| match outcome {
                Outcome::Told(keys) => {
                    let max_ns = keys.iter().find(|(name, _)| *name == "max_ns")?.1.as_u64();
                    Some((key.label, max_ns?))
                }
                _ => None,
            });
            chart::percentiles(title.clone(), times(), levels.collect())
        };
        titles.into_iter().map(chart).collect()
    }
}

/// A ratio of the medians of a value of the rounds.
pub(crate) fn ratio(
    name: impl Into<String>,
    over: Found<'_>,
    under: Found<'_>,
    value: Value,
    bar: impl Into<Option<Bar>>,
) -> Ratio {
    let divided = over.and_then(|over| Ok(divide(&value(over), &value(under?))));
    Ratio::new(name, divided, bar.into())
}

/// A median of the rounds, as a ratio's value.
pub(crate) fn median(rounds: Found<'_>, name: &str) -> Quotient {
    let spread = rounds?.spread(name).ok_or("no round")?;
    Ok((spread.median, Some(spread)))
}

/// The median of a time of the rounds, in units of so many nanoseconds, as a ratio's value.
pub(crate) fn median_in(unit_ns: f64, rounds: Found<'_>, time: Value) -> Quotient {
    let times = time(rounds?).into_iter().map(|ns| ns / unit_ns);
    let spread = Spread::of(times).ok_or("no round")?;
    Ok((spread.median, Some(spread)))
}

/// Rounds in which all times are these, for tests.
#[cfg(test)]
pub(crate) fn rounds_of(times_ns: &[u64]) -> Rounds {
    let mut rounds = Rounds::default();
    times_ns.iter().for_each(|&time_ns| rounds.times.add_round(&[time_ns]));
    rounds
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(system: &'static str, bytes: usize) -> RowKey {
        RowKey::new(system, "call").bytes(bytes)
    }

    #[test]
    fn a_row_that_has_failed_once_stays_missing() {
        let mut found = Results::default();
        assert!(found.add_times(key("pipe", 4), Ok::<_, String>(vec![10, 12])));
        assert!(!found.add_times(key("pipe", 8), Err("lost")));
        assert!(!found.add_times(key("pipe", 8), Ok::<_, String>(vec![1])));
        assert!(found.is_missing(&key("pipe", 8)) && !found.is_missing(&key("pipe", 4)));
        let rows = found.rows(|_, _| Keys::new());
        assert_eq!((rows[0].figures.as_ref().unwrap().n, rows[1].why()), (2, Some("lost")));
    }

    #[test]
    fn what_is_missing_is_said() {
        let mut found = Results::default();
        let pair: Option<()> = found.ok(RowKey::new("futex", "call"), Err("asleep"));
        assert!(pair.is_none());
        assert_eq!(found.find(&key("futex", 4)).unwrap_err(), "futex: asleep");
        assert_eq!(found.find(&key("pipe", 4)).unwrap_err(), "pipe was not measured");
        let missing = ratio("a", found.find(&key("futex", 4)), Ok(&rounds_of(&[1])), P50, None);
        assert_eq!((missing.value, missing.why.as_deref()), (None, Some("futex: asleep")));
    }

    #[test]
    fn rows_of_one_title_share_a_chart() {
        let mut found = Results::default();
        for (system, bytes) in [("pipe", 4), ("pipe", 8), ("unix", 4)] {
            found.add_times(key(system, bytes), Ok::<_, String>(vec![10]));
        }
        found.quote(key("thesis", 4), "a book", [None, Some(7.0), Some(9.0)]);
        let charts = found.charts();
        let [Chart::Percentiles { curves, levels, .. }, _] = &charts[..] else {
            panic!("{charts:?}")
        };
        assert_eq!(curves.iter().map(|curve| curve.0).collect::<Vec<_>>(), ["pipe", "unix"]);
        assert_eq!(levels, &[("thesis", 9)]);
    }
}
