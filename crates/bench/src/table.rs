//! A report as a person reads it: a table for each title, and the ratios.

use crate::report::{Ratio, Report, Row};
use serde_json::{Map, Value};

/// What times are told in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    #[default]
    Microseconds,
    Nanoseconds,
    /// Nanoseconds of a clock that an instruction moves on by one.
    Instructions,
}

/// Columns in their order, with their heads; others follow under their names in JSON.
const COLUMNS: [(&str, &str); 15] = [
    ("p50_ns", "p50"),
    ("p50_spread_ns", ""),
    ("quartiles_ns", "quartiles"),
    ("p99_ns", "p99"),
    ("p999_ns", "p99.9"),
    ("all_p50_ns", "all p50"),
    ("all_p99_ns", "all p99"),
    ("all_p999_ns", "all p99.9"),
    ("all_p999_interval_ns", ""),
    ("min_ns", "min"),
    ("max_ns", "max"),
    ("mean_ns", "mean"),
    ("n", "n"),
    ("calls_per_second", "calls/s"),
    ("client_p50_spread_ns", "clients' p50"),
];
/// Left to those who read JSON.
const LEFT_OUT: [&str; 2] = ["p99_spread_ns", "bytes_per_second_spread"];

impl Unit {
    /// A time, or a pair of them.
    fn time(self, ns: f64) -> String {
        match self {
            Unit::Microseconds => format!("{:.2}", ns / 1000.0),
            Unit::Nanoseconds => format!("{ns:.1}"),
            Unit::Instructions => format!("{ns:.0}"),
        }
    }

    fn cell(self, name: &str, value: &Value) -> String {
        match value {
            Value::Array(ends) => {
                let ends: Vec<String> = ends.iter().map(|end| self.cell(name, end)).collect();
                format!("[{}]", ends.join(" .. "))
            }
            Value::Number(it) if name.ends_with("_ns") => self.time(it.as_f64().unwrap_or(0.0)),
            Value::Number(it) if it.is_f64() => format!("{:.1}", it.as_f64().unwrap_or(0.0)),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }
}

/// Lines of cells below each other, heads first: columns of words to the left, of numbers to the
/// right.
pub fn aligned(lines: &[Vec<String>]) -> String {
    let n_columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let column = |at: usize| {
        let cells = || lines.iter().filter_map(move |line| line.get(at));
        let width = cells().map(String::len).max().unwrap_or(0);
        let has_words = cells().skip(1).any(|cell| cell.contains(char::is_alphabetic));
        (if at == 0 { width.max(18) } else { width }, has_words)
    };
    let columns: Vec<(usize, bool)> = (0..n_columns).map(column).collect();
    let cell = |(cell, &(width, has_words)): (&String, &(usize, bool))| match has_words {
        true => format!("{cell:<width$}"),
        false => format!("{cell:>width$}"),
    };
    let line = |cells: &Vec<String>| {
        let cells: Vec<String> = cells.iter().zip(&columns).map(cell).collect();
        cells.join("  ").trim_end().to_owned() + "\n"
    };
    lines.iter().map(line).collect()
}

/// The whole report, with `notes` of its own.
pub fn text(report: &Report, unit: Unit, notes: &str) -> String {
    let mut titles: Vec<String> = Vec::new();
    for row in report.rows.iter().filter(|row| row.why().is_none()) {
        if !titles.contains(&row.key.title()) {
            titles.push(row.key.title());
        }
    }
    let of_title = |title: &String| {
        let is_here = |row: &&Row| row.why().is_none() && row.key.title() == *title;
        let rows: Vec<&Row> = report.rows.iter().filter(is_here).collect();
        format!("\n{title}\n{}", of_rows(&rows, unit))
    };
    let tables: String = titles.iter().map(of_title).collect();
    let missing = report.rows.iter().filter_map(|row| {
        Some(format!("{:<22}{}: not measured: {}\n", row.key.label, row.key.case, row.why()?))
    });
    let missing: String = missing.collect();
    let gap = if missing.is_empty() { "" } else { "\n" };
    let ratios = ratios(&report.ratios);
    format!("{}{tables}{notes}{gap}{missing}{ratios}", heading(report))
}

fn of_rows(rows: &[&Row], unit: Unit) -> String {
    let told = |row: &&Row| {
        let figures = serde_json::to_value(&row.figures).expect("numbers");
        let mut keys = figures.as_object().cloned().unwrap_or_default();
        keys.extend(row.more.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        keys
    };
    let told: Vec<Map<String, Value>> = rows.iter().map(told).collect();
    let is_known = |name: &str| COLUMNS.iter().any(|column| column.0 == name);
    let mut columns = COLUMNS.to_vec();
    let mut others: Vec<&str> = told.iter().flat_map(Map::keys).map(String::as_str).collect();
    others.sort_unstable();
    others.dedup();
    others.retain(|name| !is_known(name) && !LEFT_OUT.contains(name));
    columns.extend(others.into_iter().map(|name| (name, name)));
    columns.retain(|(name, _)| told.iter().any(|keys| keys.contains_key(*name)));
    let in_unit = match unit {
        Unit::Microseconds => "in us",
        Unit::Nanoseconds => "in ns",
        Unit::Instructions => "instructions",
    };
    let heads = columns.iter().map(|(_, head)| (*head).to_owned());
    let mut lines = vec![[in_unit.to_owned()].into_iter().chain(heads).collect::<Vec<_>>()];
    for (row, keys) in rows.iter().zip(&told) {
        let cell = |(name, _): &(&str, &str)| {
            keys.get(*name).map_or("-".to_owned(), |value| unit.cell(name, value))
        };
        let cells = columns.iter().map(cell);
        lines.push([row.key.label.to_owned()].into_iter().chain(cells).collect());
    }
    aligned(&lines)
}

/// Machine, kernel and pinning, in lines.
fn heading(report: &Report) -> String {
    let machine = &report.machine;
    let client = report.pinning.client;
    let apart = match report.pinning.other {
        Some(server) => format!("client on {client}, server on {server}"),
        None => "not possible, there is one processor".to_owned(),
    };
    format!(
        "baton bench {} {}\n\
         {}, {} processors, Linux {}, clock {}, load before {}\n\
         same: client and server on processor {client}; different: {apart}\n\
         median of {} rounds, systems in turn, with the least and greatest round in brackets\n",
        report.bench,
        report.version,
        machine.cpu,
        machine.cpus,
        machine.kernel,
        machine.clock,
        machine.load,
        report.rounds,
    )
}

/// A ratio, with two digits that tell something.
fn short(ratio: f64) -> String {
    if ratio < 0.1 { format!("{ratio:.3}") } else { format!("{ratio:.2}") }
}

fn ratios(all: &[Ratio]) -> String {
    // An interval stands in place of the rounds' own ratios.
    let has_interval = all.iter().any(|ratio| ratio.interval.is_some());
    let head = if has_interval { "rounds, or interval" } else { "rounds" };
    // Of what has no bar, its rows say why there is none.
    let told = || all.iter().filter(|ratio| ratio.value.is_some() || ratio.bar.is_some());
    if told().next().is_none() {
        return String::new();
    }
    let mut lines = vec![["ratio of medians", "", head, "bar"].map(str::to_owned).to_vec()];
    for ratio in told() {
        let value = ratio.value.map_or("-".to_owned(), short);
        let spread = ratio.interval.or(ratio.spread).map(|spread| spread.map(short).join(" .. "));
        let spread = spread.map_or(String::new(), |spread| format!("[{spread}]"));
        let bar = ratio.bar.zip(ratio.want).map_or(String::new(), |(bar, want)| {
            let how = match ratio.holds {
                Some(true) => "holds",
                None => "NOT DECIDED",
                _ if ratio.value.is_none() => "not measured",
                _ => "DOES NOT HOLD",
            };
            format!("{want} {bar} {how}")
        });
        let why = ratio.why.clone().unwrap_or_default();
        lines.push(vec![ratio.name.clone(), value, spread, bar, why]);
    }
    format!("\n{}{}", aligned(&lines), conclusion(all).unwrap_or_default())
}

/// One sentence: how long a call of each peer takes, in typed calls. `None` without peers.
fn conclusion(all: &[Ratio]) -> Option<String> {
    let peers = |end: &str| {
        let times =
            all.iter().filter_map(|ratio| Some((ratio.name.strip_suffix(end)?, ratio.value?)));
        let times: Vec<_> = times.map(|(peer, times)| format!("{peer} {times:.1}")).collect();
        (!times.is_empty()).then(|| times.join(", "))
    };
    let [same, different] = ["_same_over_typed", "_diff_over_typed"].map(peers);
    let part = |peers: Option<String>, place| peers.map(|peers| format!("{place} {peers}"));
    let parts = [part(same, "on one processor"), part(different, "on two")];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    let text = "\nConclusion: the calls of other systems, in times of Baton's typed call:";
    (!parts.is_empty()).then(|| format!("{text} {}.\n", parts.join("; ")))
}
