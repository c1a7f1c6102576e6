//! The form that all benchmarks report in: rows, and ratios of them.

use crate::distribution::{Distribution, Spread, Summary};
use crate::machine::Machine;
use crate::processors::{Placement, Processors};
use serde::{Serialize, Serializer};
use serde_json::Value;

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

/// Names in JSON with their values.
pub(crate) type Keys = Vec<(&'static str, Value)>;

/// What a row is of: everything that tells it from other rows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct RowKey {
    pub system: &'static str,
    pub case: &'static str,
    /// Bytes there, and the same back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_bytes: Option<usize>,
    #[serde(serialize_with = "placement_or_any")]
    pub placement: Option<Placement>,
    #[serde(flatten, serialize_with = "as_map")]
    pub more: Keys,
    /// Title of its table and chart, if it says more than processors and bytes.
    #[serde(skip)]
    pub heading: Option<String>,
    /// Name of its line and curve, where the system's is not enough.
    #[serde(skip)]
    pub label: &'static str,
    #[serde(skip)]
    pub scale: Scale,
}

/// What times are told in, and how a chart shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Scale {
    #[default]
    Nanoseconds,
    Picoseconds,
    /// In picoseconds, as a histogram.
    Histogram,
    /// In picoseconds, without a chart.
    NoChart,
}

/// One case of one system, and what came of it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    #[serde(flatten)]
    pub key: RowKey,
    #[serde(flatten)]
    pub figures: Option<Figures>,
    /// What else was found, or published, or why nothing was found.
    #[serde(flatten, serialize_with = "as_map")]
    pub more: Keys,
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
    /// Between which bounds the value lies, where these decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
    /// The bound, if it has one.
    pub bar: Option<f64>,
    /// On which side of it the value is to be.
    pub want: Option<&'static str>,
    /// Whether it is; not, if it was not measured. `None` without a bar, and if it is not decided.
    pub holds: Option<bool>,
    /// Why there is no value, or no decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A ratio's value and the rounds' own, or why there is none.
pub(crate) type Quotient = Result<(f64, Option<Spread>), String>;

fn as_map<S: Serializer>(keys: &Keys, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(keys.iter().map(|(name, value)| (name, value)))
}

fn placement_or_any<S: Serializer>(
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

    /// Figures of times that were measured in picoseconds.
    pub(crate) fn of_picoseconds(self) -> Figures {
        let ns = |ps: f64| (ps / 10.0).round() / 100.0;
        Figures {
            n: self.n,
            p50_ns: ns(self.p50_ns),
            p99_ns: ns(self.p99_ns),
            p999_ns: ns(self.p999_ns),
            min_ns: self.min_ns / 1000,
            max_ns: self.max_ns / 1000,
            mean_ns: ns(self.mean_ns),
            p50_spread_ns: self.p50_spread_ns.map(ns),
            p99_spread_ns: self.p99_spread_ns.map(ns),
        }
    }
}

impl RowKey {
    /// A row wherever the kernel likes, of no number of bytes.
    pub fn new(system: &'static str, case: &'static str) -> RowKey {
        let (payload_bytes, placement, more) = (None, None, Keys::new());
        let (heading, label, scale) = (None, system, Scale::default());
        RowKey { system, case, payload_bytes, placement, more, heading, label, scale }
    }

    pub fn bytes(self, payload_bytes: impl Into<Option<usize>>) -> RowKey {
        RowKey { payload_bytes: payload_bytes.into(), ..self }
    }

    pub fn at(self, placement: impl Into<Option<Placement>>) -> RowKey {
        RowKey { placement: placement.into(), ..self }
    }

    /// With something else that tells it from others.
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> RowKey {
        self.more.push((name, value.into()));
        self
    }

    pub fn heading(self, heading: impl Into<String>) -> RowKey {
        RowKey { heading: Some(heading.into()), ..self }
    }

    pub fn label(self, label: &'static str) -> RowKey {
        RowKey { label, ..self }
    }

    /// Title of the table and the chart that the row belongs to.
    pub fn title(&self) -> String {
        let bytes = self.payload_bytes.map_or(String::new(), |bytes| format!(", {bytes} bytes"));
        match &self.heading {
            Some(heading) => heading.clone(),
            None => Placement::title(self.placement).to_owned() + &bytes,
        }
    }
}

impl Row {
    /// Why there is nothing.
    pub fn why(&self) -> Option<&str> {
        self.more.iter().find(|(name, _)| *name == "why").and_then(|(_, why)| why.as_str())
    }
}

impl Ratio {
    /// A ratio with its value, or why there is none.
    pub fn new(name: impl Into<String>, value: Quotient, bar: Option<Bar>) -> Ratio {
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
        let (name, interval) = (name.into(), None);
        Ratio { name, value, spread, interval, bar: bound, want, holds, why }
    }

    /// An interval decides this ratio: its bar holds only if it does at both ends, and fails only
    /// if it does at neither. Without an interval, for the reason given, nothing is decided.
    pub(crate) fn decided_by(mut self, interval: Result<[f64; 2], String>) -> Ratio {
        if self.value.is_none() {
            return self;
        }
        let interval = interval.map_err(|why| self.why = Some(why)).ok();
        if let Some((bound, want)) = self.bar.zip(self.want) {
            let ends = interval
                .map(|ends| ends.map(|end| if want == "<=" { end <= bound } else { end >= bound }));
            self.holds = ends.and_then(|[least, greatest]| (least == greatest).then_some(least));
            if self.holds.is_none() {
                let why = "not decided: the bar is within the interval";
                self.why.get_or_insert_with(|| why.to_owned());
            }
        }
        self.interval = interval.map(|ends| ends.map(|end| rounded(end, 1000.0)));
        self
    }
}

impl Report {
    /// Whether every ratio that has a bar holds it. One that is not decided does not.
    pub fn holds(&self) -> bool {
        all_hold(&self.ratios)
    }
}

fn all_hold(ratios: &[Ratio]) -> bool {
    ratios.iter().all(|ratio| ratio.bar.is_none() || ratio.holds == Some(true))
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
    fn an_interval_decides_or_does_not() {
        let lacks = || Err("too few".to_owned());
        for (bar, interval, holds, why) in [
            (Some(Bar::AtMost(1.1)), Ok([0.8, 1.1]), Some(true), None),
            (Some(Bar::AtMost(1.1)), Ok([1.2, 1.3]), Some(false), None),
            (Some(Bar::AtMost(1.1)), Ok([0.8, 1.2]), None, Some("within the interval")),
            (Some(Bar::AtMost(1.1)), lacks(), None, Some("too few")),
            (Some(Bar::AtLeast(1.0)), Ok([1.0, 3.0]), Some(true), None),
            (Some(Bar::AtLeast(1.0)), Ok([0.9, 3.0]), None, Some("within the interval")),
            (Some(Bar::AtLeast(1.0)), Ok([0.2, 0.9]), Some(false), None),
            (None, Ok([0.2, 0.9]), None, None),
            (None, lacks(), None, Some("too few")),
        ] {
            let ratio = Ratio::new("a", Ok((1.0, None)), bar).decided_by(interval.clone());
            assert_eq!((ratio.holds, ratio.interval), (holds, interval.ok()), "{bar:?}");
            assert_eq!(ratio.why.is_some(), why.is_some(), "{bar:?}");
            assert!(ratio.why.unwrap_or_default().ends_with(why.unwrap_or_default()));
        }
        let missing = Ratio::new("a", Err("lost".into()), Some(Bar::AtMost(1.0)));
        let missing = missing.decided_by(lacks());
        assert_eq!((missing.holds, missing.why.as_deref()), (Some(false), Some("lost")));
    }

    #[test]
    fn what_is_not_decided_does_not_hold() {
        let ratio = |bar, holds| {
            let interval = Ok(if holds { [0.5, 0.6] } else { [0.5, 2.0] });
            Ratio::new("a", Ok((0.5, None)), bar).decided_by(interval)
        };
        let bar = Some(Bar::AtMost(1.0));
        for (ratios, expected) in [
            (vec![ratio(None, false), ratio(bar, true)], true),
            (vec![ratio(bar, true), ratio(bar, false)], false),
        ] {
            assert_eq!(all_hold(&ratios), expected);
        }
    }

    #[test]
    fn rows_in_json() {
        let mut distribution = Distribution::default();
        distribution.add_round(&[1000, 1000, 1001]);
        distribution.add_round(&[1200, 1200, 1500]);
        let figures = Figures::of(&distribution).unwrap();
        let key = RowKey::new("pipe", "call");
        for (row, expected) in [
            (
                Row {
                    key: key.clone().bytes(4).at(Placement::Same).with("clients", 2),
                    figures: Some(figures),
                    more: vec![("calls_per_second", 5.into())],
                },
                json!({"system": "pipe", "case": "call", "payload_bytes": 4, "placement": "same",
                       "clients": 2, "n": 6, "p50_ns": 1100.0, "p99_ns": 1250.5,
                       "p999_ns": 1250.5, "min_ns": 1000, "max_ns": 1500, "mean_ns": 1150.2,
                       "p50_spread_ns": [1000.0, 1200.0], "p99_spread_ns": [1001.0, 1500.0],
                       "calls_per_second": 5}),
            ),
            (
                Row { key, figures: None, more: vec![("why", "not installed".into())] },
                json!({"system": "pipe", "case": "call", "placement": "any",
                       "why": "not installed"}),
            ),
        ] {
            assert_eq!(to_value(&row).unwrap(), expected);
        }
    }
}
