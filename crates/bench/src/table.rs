//! A report as a person reads it.

use crate::processors::Placement;
use crate::report::{Figures, Outcome, Ratio, Report, Row};
use crate::rpc::word;
use std::fmt::Write;

/// The whole report.
pub fn text(report: &Report) -> String {
    let mut text = heading(report);
    let mut case = None;
    for row in &report.rows {
        let (Some(payload_bytes), Some(placement)) = (row.payload_bytes, row.placement) else {
            continue;
        };
        if case.replace((placement, payload_bytes)) != Some((placement, payload_bytes)) {
            text += &case_heading(placement, payload_bytes);
        }
        text += &line(row);
    }
    let missing = report.rows.iter().filter_map(|row| match &row.outcome {
        Outcome::Missing { why } => Some(format!("{:<18}not measured: {why}\n", row.system)),
        Outcome::Measured(_) => None,
    });
    let missing: String = missing.collect();
    if !missing.is_empty() {
        text = text + "\n" + &missing;
    }
    text += &ratios(&report.ratios);
    text
}

/// Machine, kernel and pinning, in lines.
pub fn heading(report: &Report) -> String {
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

fn case_heading(placement: Placement, payload_bytes: usize) -> String {
    let processors = match placement {
        Placement::Same => "processor",
        Placement::Different => "processors",
    };
    let case = format!("{} {processors}, {payload_bytes} bytes", word(placement));
    format!(
        "\n{case:<40}\n{:<18}{:>10}  {:<21}{:>10}{:>10}{:>10}{:>10}{:>9}\n",
        "", "p50 us", "", "p99", "p99.9", "max", "mean", "n"
    )
}

fn line(row: &Row) -> String {
    let Some(figures) = row.figures() else { return String::new() };
    let Figures { n, p50_ns, p99_ns, p999_ns, max_ns, mean_ns, p50_spread_ns, .. } = figures;
    let [least, greatest] = p50_spread_ns.map(us);
    let spread = format!("[{least} .. {greatest}]");
    format!(
        "{:<18}{:>10}  {spread:<21}{:>10}{:>10}{:>10}{:>10}{n:>9}\n",
        row.system,
        us(*p50_ns),
        us(*p99_ns),
        us(*p999_ns),
        us(*max_ns as f64),
        us(*mean_ns),
    )
}

/// Microseconds, to the hundredth.
pub fn us(time_ns: f64) -> String {
    format!("{:.2}", time_ns / 1000.0)
}

/// A ratio, with two digits that tell something.
fn short(ratio: f64) -> String {
    if ratio < 0.1 { format!("{ratio:.3}") } else { format!("{ratio:.2}") }
}

fn ratios(all: &[Ratio]) -> String {
    let mut text = format!("\n{:<32}{:>8}  {:<18}{}\n", "ratio of medians", "", "rounds", "bar");
    for ratio in all {
        let value = ratio.value.map_or("-".to_owned(), short);
        let spread = ratio.spread.map_or(String::new(), |spread| {
            let [least, greatest] = spread.map(short);
            format!("[{least} .. {greatest}]")
        });
        let bar = match (ratio.bar, ratio.want, ratio.holds) {
            (Some(bar), Some(want), Some(true)) => format!("{want} {bar} holds"),
            (Some(bar), Some(want), _) if ratio.value.is_none() => {
                format!("{want} {bar} not measured")
            }
            (Some(bar), Some(want), _) => format!("{want} {bar} DOES NOT HOLD"),
            _ => String::new(),
        };
        let why = ratio.why.as_deref().unwrap_or_default();
        let line = format!("{:<32}{value:>8}  {spread:<18}{bar}  {why}", ratio.name);
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}
