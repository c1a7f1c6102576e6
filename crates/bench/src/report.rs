//! The form that all benchmarks report in: rows, and ratios of them.

use crate::distribution::{Distribution, Spread, Summary};
use crate::log::kill_test::Tally;
use crate::log::results::Rate;
use crate::machine::Machine;
use crate::processors::{Placement, Processors};
use serde::Serialize;

/// What a benchmark has found. In JSON, the one object that it prints.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub bench: &'static str,
    pub version: &'static str,
    pub machine: Machine,
    pub pinning: Processors,
    /// Rounds of each row, whose median it quotes.
    pub rounds: usize,
    pub rows: Vec<Row>,
    pub ratios: Vec<Ratio>,
}

/// One case of one system.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub system: &'static str,
    pub case: &'static str,
    /// Bytes there, and the same back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_bytes: Option<usize>,
    #[serde(serialize_with = "placement_or_any")]
    pub placement: Option<Placement>,
    #[serde(flatten)]
    pub detail: Option<Detail>,
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What else tells a row from others, and what else came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Detail {
    /// Clients that call at once; times are those of all their calls.
    Clients {
        clients: usize,
        #[serde(flatten)]
        throughput: Option<Throughput>,
    },
    /// Real-time callers at one priority, among ordinary callers, and what a process does to them.
    RealTime {
        real_time_callers: usize,
        priority: String,
        callers: usize,
        bound: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        misuse: Option<&'static str>,
    },
    /// A call while somebody in between keeps the processor, and the priority of who serves it.
    Inversion { served_at: String },
    /// Threads of a kernel: potatoes in a ring, or senders in a queue.
    Parties { parties: usize },
    /// All lanes of a server, of which all but one are idle.
    Lanes { lanes: usize },
    /// Writers of a log, one on each of their processors; times are those of single records.
    Writers {
        writers: usize,
        #[serde(flatten)]
        rate: Rate,
    },
    /// A real-time writer of a log among ordinary ones.
    RealTimeWriter { priority: String, writers: usize },
    /// Ends that sleep, and whether the looper goes to its caller's processor.
    Follow { follows: bool, delay_us: u64 },
    /// A point on a call's way.
    Point { point: &'static str },
    /// Delays of threads, beside `load` ordinary threads. Quartiles are of all rounds together.
    Latency {
        priority: String,
        load: usize,
        #[serde(skip_serializing_if = "Option::is_none")]
        cpu: Option<usize>,
        #[serde(skip_serializing_if = "Option::is_none")]
        quartiles_ns: Option<[u64; 2]>,
    },
    /// A sleep between two calls.
    Delay { delay_us: u64 },
}

/// What clients did together, each the median of the rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Throughput {
    /// Calls of all of them, from the first one's beginning to the last one's end.
    pub calls_per_second: f64,
    pub calls_per_second_spread: [f64; 2],
    /// Least and greatest of the clients' own medians.
    pub client_p50_spread_ns: [f64; 2],
}

/// What came of a row.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Outcome {
    Measured(Figures),
    /// What became of records whose writers were killed.
    Counted(Tally),
    Missing {
        why: String,
    },
    Quoted(Quoted),
}

/// Figures that were published, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Quoted {
    pub source: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_ns: Option<u64>,
}

/// Times in nanoseconds, each the median of the rounds, but for the shortest and longest of all.
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

/// A ratio's value and the rounds' own, or why there is none.
pub(crate) type Value = Result<(f64, Option<Spread>), String>;

/// Times that a ratio is of, or why there are none.
pub(crate) type Times<'a> = Result<&'a Distribution, String>;

fn placement_or_any<S: serde::Serializer>(
    placement: &Option<Placement>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match placement {
        Some(placement) => placement.serialize(serializer),
        None => serializer.serialize_str("any"),
    }
}

/// To so many parts of one: a clock tells no more than tenths of a nanosecond.
pub(crate) fn rounded(value: f64, parts: f64) -> f64 {
    (value * parts).round() / parts
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
            mean_ns: rounded(over(|round| round.mean)?.median, 10.0),
            p50_spread_ns: [p50.least, p50.greatest],
            p99_spread_ns: [p99.least, p99.greatest],
        })
    }
}

impl Outcome {
    /// `None` before the first round.
    pub fn of(times: &Distribution) -> Option<Outcome> {
        Figures::of(times).map(Outcome::Measured)
    }

    pub fn missing(why: &str) -> Outcome {
        Outcome::Missing { why: why.to_owned() }
    }

    /// A mean that was published.
    pub fn mean(source: &'static str, mean_ns: f64) -> Outcome {
        let (mean_ns, min_ns, max_ns) = (Some(mean_ns), None, None);
        Outcome::Quoted(Quoted { source, mean_ns, min_ns, max_ns })
    }
}

impl Row {
    /// A row wherever the kernel likes, of no number of bytes.
    pub fn new(system: &'static str, case: &'static str, outcome: Outcome) -> Row {
        Row { system, case, payload_bytes: None, placement: None, detail: None, outcome }
    }

    pub fn bytes(self, payload_bytes: impl Into<Option<usize>>) -> Row {
        Row { payload_bytes: payload_bytes.into(), ..self }
    }

    pub fn at(self, placement: impl Into<Option<Placement>>) -> Row {
        Row { placement: placement.into(), ..self }
    }

    pub fn detail(self, detail: impl Into<Option<Detail>>) -> Row {
        Row { detail: detail.into(), ..self }
    }

    /// Its figures, if it was measured.
    pub fn figures(&self) -> Option<&Figures> {
        match &self.outcome {
            Outcome::Measured(figures) => Some(figures),
            Outcome::Missing { .. } | Outcome::Quoted(_) | Outcome::Counted(_) => None,
        }
    }
}

impl Ratio {
    /// A ratio with its value, or why there is none.
    pub fn new(
        name: impl Into<String>,
        value: Result<(f64, Option<Spread>), String>,
        bar: Option<Bar>,
    ) -> Ratio {
        let (bound, want, holds) = match (bar, &value) {
            (None, _) => (None, None, None),
            (Some(Bar::AtMost(bound)), value) => {
                (Some(bound), Some("<="), Some(value.as_ref().is_ok_and(|it| it.0 <= bound)))
            }
            (Some(Bar::AtLeast(bound)), value) => {
                (Some(bound), Some(">="), Some(value.as_ref().is_ok_and(|it| it.0 >= bound)))
            }
        };
        let why = value.as_ref().err().cloned();
        let (value, spread) = value.ok().unzip();
        let thousandths = |value| rounded(value, 1000.0);
        let spread = spread.flatten().map(|it| [it.least, it.greatest].map(thousandths));
        let value = value.map(thousandths);
        Ratio { name: name.into(), value, spread, bar: bound, want, holds, why }
    }

    /// Of the medians of the rounds' values.
    pub(crate) fn divide(
        name: impl Into<String>,
        over: Times<'_>,
        under: Times<'_>,
        value: fn(&Summary) -> f64,
        bar: Option<Bar>,
    ) -> Ratio {
        let divided = over.and_then(|over| Ok(Distribution::ratio_of(over, under?, value)));
        Ratio::new(name, divided, bar)
    }

    /// Of medians.
    pub(crate) fn of(
        name: impl Into<String>,
        over: Times<'_>,
        under: Times<'_>,
        bar: Option<Bar>,
    ) -> Ratio {
        Ratio::divide(name, over, under, |round| round.p50 as f64, bar)
    }
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
                Ratio::new("a", value.clone(), Some(Bar::AtMost(1.6))),
                json!({"name": "a", "value": 1.6, "spread": [1.25, 2.0], "bar": 1.6, "want": "<=",
                       "holds": false}),
            ),
            (
                Ratio::new("b", value.clone(), Some(Bar::AtLeast(1.0))),
                json!({"name": "b", "value": 1.6, "spread": [1.25, 2.0], "bar": 1.0, "want": ">=",
                       "holds": true}),
            ),
            (
                Ratio::new("c", value, None),
                json!({"name": "c", "value": 1.6, "spread": [1.25, 2.0], "bar": null,
                       "want": null, "holds": null}),
            ),
            (
                Ratio::new("d", Err("no futex".into()), Some(Bar::AtMost(1.6))),
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
