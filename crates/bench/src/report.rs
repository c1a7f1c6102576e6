//! The form that all benchmarks report in: rows, and ratios of them.

use crate::distribution::{Distribution, Spread, Summary};
use crate::log::found::Rate;
use crate::log::storm::Tally;
use crate::machine::Machine;
use crate::processors::{Placement, Processors};
use serde::Serialize;

/// What a benchmark has found. In JSON, the one object that it prints.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The benchmark's name.
    pub bench: &'static str,
    /// Baton's version.
    pub version: &'static str,
    /// Where it was true.
    pub machine: Machine,
    /// Which processors the two sides were bound to.
    pub pinning: Processors,
    /// Rounds of each row, whose median it quotes.
    pub rounds: usize,
    /// What was measured.
    pub rows: Vec<Row>,
    /// What follows.
    pub ratios: Vec<Ratio>,
}

/// One case of one system.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The system.
    pub system: &'static str,
    /// What was done.
    pub case: &'static str,
    /// Bytes there, and the same back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_bytes: Option<usize>,
    /// How the two sides lie; `None` for all.
    #[serde(serialize_with = "placement_or_any")]
    pub placement: Option<Placement>,
    /// What else tells it from other rows, and what else came of it.
    #[serde(flatten)]
    pub detail: Option<Detail>,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What a row of some cases has beside.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Detail {
    /// Clients that call at once; times are those of all their calls.
    Clients {
        /// How many.
        clients: usize,
        /// What they did together.
        #[serde(flatten)]
        throughput: Option<Throughput>,
    },
    /// Real-time callers among others.
    RealTime {
        /// How many there are, at one priority.
        real_time_callers: usize,
        /// Their priority.
        priority: String,
        /// Ordinary callers.
        callers: usize,
        /// Who is bound to a processor: nobody, caller, both.
        bound: &'static str,
        /// What a process beside does to hurt them.
        #[serde(skip_serializing_if = "Option::is_none")]
        misuse: Option<&'static str>,
    },
    /// A call while somebody in between keeps the processor.
    Inversion {
        /// The priority of the server's thread.
        served_at: String,
    },
    /// Threads of a kernel: potatoes in a ring, or senders in a queue.
    Parties {
        /// How many.
        parties: usize,
    },
    /// A server whose other lanes are idle.
    Lanes {
        /// How many there are in all.
        lanes: usize,
    },
    /// Writers of a log, one on each of their processors; times are those of single records.
    Writers {
        /// How many.
        writers: usize,
        /// Records in a row.
        #[serde(flatten)]
        rate: Rate,
    },
    /// A real-time writer of a log among others.
    RealTimeWriter {
        /// Its priority.
        priority: String,
        /// Ordinary writers.
        writers: usize,
    },
    /// Ends that sleep.
    Follow {
        /// Whether the looper goes to its caller's processor.
        follows: bool,
        /// Sleep between two calls, in microseconds.
        delay_us: u64,
    },
    /// A point on a call's way.
    Point {
        /// Its name.
        point: &'static str,
    },
    /// Of delays among which the worst counts.
    Latency {
        /// The threads'.
        priority: String,
        /// Ordinary threads that ran beside.
        load: usize,
        /// Where the thread was bound, if it was.
        #[serde(skip_serializing_if = "Option::is_none")]
        cpu: Option<usize>,
        /// A quarter and three quarters are not longer, of all rounds together.
        #[serde(skip_serializing_if = "Option::is_none")]
        quartiles_ns: Option<[u64; 2]>,
    },
    /// A sleep between two calls.
    Delay {
        /// In microseconds.
        delay_us: u64,
    },
}

/// What clients did together, each the median of the rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Throughput {
    /// Calls of all of them, from the first one's beginning to the last one's end.
    pub calls_per_second: f64,
    /// Least and greatest of a round.
    pub calls_per_second_spread: [f64; 2],
    /// Least and greatest of the clients' own medians.
    pub client_p50_spread_ns: [f64; 2],
}

/// What came of a row.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Outcome {
    /// Figures.
    Measured(Figures),
    /// What became of records whose writers were killed.
    Counted(Tally),
    /// None, and the reason.
    Missing {
        /// The reason.
        why: String,
    },
    /// Somebody else's figures.
    Quoted(Quoted),
}

/// Figures that were published, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quoted {
    /// Where.
    pub source: &'static str,
    /// The arithmetic mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_ns: Option<f64>,
    /// The shortest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_ns: Option<u64>,
    /// The longest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_ns: Option<u64>,
}

/// Times in nanoseconds, each the median of the rounds, but for the longest of all.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// How many calls, of all rounds.
    pub n: u64,
    /// The median.
    pub p50_ns: f64,
    /// 99 of 100 are not longer.
    pub p99_ns: f64,
    /// 999 of 1000 are not longer.
    pub p999_ns: f64,
    /// The shortest.
    pub min_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// The arithmetic mean.
    pub mean_ns: f64,
    /// Least and greatest median of a round.
    pub p50_spread_ns: [f64; 2],
    /// Least and greatest 99th percentile of a round.
    pub p99_spread_ns: [f64; 2],
}

/// What a ratio must hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bar {
    /// The value is this or less.
    AtMost(f64),
    /// The value is this or more.
    AtLeast(f64),
}

/// A ratio by a stable name.
#[derive(Clone, Debug, Serialize)]
pub struct Ratio {
    /// The name.
    pub name: String,
    /// Of the quoted figures; `None` if one is missing.
    pub value: Option<f64>,
    /// Least and greatest of the rounds' own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<[f64; 2]>,
    /// The bound, if it has one.
    pub bar: Option<f64>,
    /// On which side of it the value is to be.
    pub want: Option<&'static str>,
    /// Whether it is; not, if it was not measured.
    pub holds: Option<bool>,
    /// Why there is no value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

fn placement_or_any<S: serde::Serializer>(
    placement: &Option<Placement>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match placement {
        Some(placement) => placement.serialize(serializer),
        None => serializer.serialize_str("any"),
    }
}

/// A tenth of a nanosecond is more than any clock here tells.
fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

impl Figures {
    /// Of a distribution. `None` before its first round.
    pub fn of(distribution: &Distribution) -> Option<Figures> {
        let over = |value: fn(&Summary) -> f64| distribution.over_rounds(value);
        let (p50, p99) = (over(|round| round.p50 as f64)?, over(|round| round.p99 as f64)?);
        Some(Figures {
            n: distribution.n(),
            p50_ns: p50.median,
            p99_ns: p99.median,
            p999_ns: over(|round| round.p999 as f64)?.median,
            min_ns: distribution.min_ns(),
            max_ns: distribution.max_ns(),
            mean_ns: tenths(over(|round| round.mean)?.median),
            p50_spread_ns: [p50.least, p50.greatest],
            p99_spread_ns: [p99.least, p99.greatest],
        })
    }
}

impl Row {
    /// Its figures, if it was measured.
    pub fn figures(&self) -> Option<&Figures> {
        match &self.outcome {
            Outcome::Measured(figures) => Some(figures),
            Outcome::Missing { .. } | Outcome::Quoted(_) | Outcome::Counted(_) => None,
        }
    }
}

impl Bar {
    fn holds(self, value: f64) -> bool {
        match self {
            Bar::AtMost(bound) => value <= bound,
            Bar::AtLeast(bound) => value >= bound,
        }
    }

    fn parts(self) -> (f64, &'static str) {
        match self {
            Bar::AtMost(bound) => (bound, "<="),
            Bar::AtLeast(bound) => (bound, ">="),
        }
    }
}

impl Ratio {
    /// A ratio with its value, or why there is none.
    pub fn new(
        name: String,
        value: Result<(f64, Option<Spread>), String>,
        bar: Option<Bar>,
    ) -> Ratio {
        let (bound, want) = bar.map(Bar::parts).unzip();
        let holds = bar.map(|bar| value.as_ref().is_ok_and(|(value, _)| bar.holds(*value)));
        let (value, spread, why) = match value {
            Ok((value, spread)) => (Some(thousandths(value)), spread, None),
            Err(why) => (None, None, Some(why)),
        };
        let spread = spread.map(|spread| [thousandths(spread.least), thousandths(spread.greatest)]);
        Ratio { name, value, spread, bar: bound, want, holds, why }
    }
}

fn thousandths(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

impl Report {
    /// Whether every ratio that has a bar holds it.
    pub fn holds(&self) -> bool {
        self.ratios.iter().all(|ratio| ratio.holds != Some(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{json, to_value};

    #[test]
    fn ratios_in_json() {
        let spread = Spread { median: 1.5, least: 1.25, greatest: 2.0 };
        let value = Ok((1.60049, Some(spread)));
        for (ratio, expected) in [
            (
                Ratio::new("a".into(), value.clone(), Some(Bar::AtMost(1.6))),
                json!({"name": "a", "value": 1.6, "spread": [1.25, 2.0], "bar": 1.6, "want": "<=",
                       "holds": false}),
            ),
            (
                Ratio::new("b".into(), value.clone(), Some(Bar::AtLeast(1.0))),
                json!({"name": "b", "value": 1.6, "spread": [1.25, 2.0], "bar": 1.0, "want": ">=",
                       "holds": true}),
            ),
            (
                Ratio::new("c".into(), value, None),
                json!({"name": "c", "value": 1.6, "spread": [1.25, 2.0], "bar": null,
                       "want": null, "holds": null}),
            ),
            (
                Ratio::new("d".into(), Err("no futex".into()), Some(Bar::AtMost(1.6))),
                json!({"name": "d", "value": null, "bar": 1.6, "want": "<=", "holds": false,
                       "why": "no futex"}),
            ),
        ] {
            assert_eq!(to_value(&ratio).unwrap(), expected);
        }
    }

    #[test]
    fn rows_in_json() {
        let mut distribution = Distribution::default();
        distribution.add_round(&[1000, 1000, 1001]);
        distribution.add_round(&[1200, 1200, 1500]);
        let figures = Figures::of(&distribution).unwrap();
        let row = |payload_bytes, placement, outcome| Row {
            system: "pipe",
            case: "call",
            payload_bytes,
            placement,
            detail: None,
            outcome,
        };
        for (row, expected) in [
            (
                row(Some(4), Some(Placement::Same), Outcome::Measured(figures)),
                json!({"system": "pipe", "case": "call", "payload_bytes": 4, "placement": "same",
                       "n": 6, "p50_ns": 1100.0, "p99_ns": 1250.5, "p999_ns": 1250.5,
                       "min_ns": 1000, "max_ns": 1500, "mean_ns": 1150.2,
                        "p50_spread_ns": [1000.0, 1200.0],
                       "p99_spread_ns": [1001.0, 1500.0]}),
            ),
            (
                row(None, None, Outcome::Missing { why: "not installed".into() }),
                json!({"system": "pipe", "case": "call", "placement": "any",
                       "why": "not installed"}),
            ),
        ] {
            assert_eq!(to_value(&row).unwrap(), expected);
        }
    }
}
