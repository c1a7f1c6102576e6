//! A report as a person reads it.

use crate::processors::Placement;
use crate::report::{Detail, Figures, Outcome, Ratio, Report, Row};
use std::fmt::Write;

/// The whole report, around the tables of its own.
pub fn text(report: &Report, tables: &str) -> String {
    let mut text = heading(report) + tables;
    let missing = report.rows.iter().filter_map(|row| match &row.outcome {
        Outcome::Missing { why } => {
            Some(format!("{:<18}{}not measured: {why}\n", row.system, what(row)))
        }
        Outcome::Measured(_) | Outcome::Quoted(_) | Outcome::Counted(_) => None,
    });
    let missing: String = missing.collect();
    if !missing.is_empty() {
        text = text + "\n" + &missing;
    }
    if report.ratios.iter().any(|ratio| ratio.value.is_some() || ratio.bar.is_some()) {
        text += &ratios(&report.ratios);
    }
    text
}

/// A table for each case: its systems, one a line.
pub fn of_calls(report: &Report) -> String {
    let mut text = String::new();
    let mut last = None;
    for row in report.rows.iter().filter(|row| row.figures().is_some()) {
        let title = title(row);
        if last.as_ref() != Some(&title) {
            text += &case_heading(&title, row.detail.as_ref());
            last = Some(title);
        }
        text += &line(row);
    }
    text
}

/// Which part of a system was not measured, if not all of it.
fn what(row: &Row) -> String {
    match (row.case, row.payload_bytes) {
        ("call", Some(payload_bytes)) => format!("{payload_bytes} bytes: "),
        ("call", None) => String::new(),
        _ if matches!(row.detail, Some(Detail::RealTime { .. } | Detail::Inversion { .. })) => {
            format!("{}: ", title(row))
        }
        ("throughput" | "idle-lanes" | "follow", _) => format!("{}: ", row.case),
        _ => String::new(),
    }
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

/// What all rows of a table have in common.
pub fn title(row: &Row) -> String {
    let processors = Placement::title(row.placement);
    let bytes = row.payload_bytes.map_or(String::new(), |bytes| format!(", {bytes} bytes"));
    match &row.detail {
        Some(Detail::Clients { clients: 1, .. }) => {
            format!("1 client at once, {processors}{bytes}")
        }
        Some(Detail::Clients { clients, .. }) => {
            format!("{clients} clients at once, {processors}{bytes}")
        }
        Some(Detail::RealTime { real_time_callers, priority, callers, bound, misuse }) => {
            let what = match row.case {
                "t-call" => "T_CALL, until the handler runs",
                "t-return" => "T_RET, from the handler back",
                "wake-up" => "a thread that wakes up, beside",
                _ => "the whole call",
            };
            let bound = if *bound == "nobody" { "" } else { ", on one processor" };
            let among = match misuse {
                Some(misuse) => format!("beside misuse: {misuse}"),
                None => format!("among {callers} ordinary callers"),
            };
            format!("{real_time_callers} at {priority}{bound} {among}: {what}")
        }
        Some(Detail::Inversion { .. }) => {
            "a call on a processor that somebody less urgent keeps".to_owned()
        }
        Some(Detail::Lanes { .. }) => format!("among idle lanes, {processors}{bytes}"),
        Some(Detail::Follow { follows, delay_us }) => {
            let not = if *follows { "" } else { "not " };
            format!("blocking, {not}following, {delay_us} us between calls{bytes}")
        }
        Some(Detail::Delay { delay_us: 0 }) => format!("no delay, {processors}{bytes}"),
        Some(Detail::Delay { delay_us }) => {
            format!("{delay_us} us between calls, {processors}{bytes}")
        }
        None
        | Some(
            Detail::Point { .. }
            | Detail::Latency { .. }
            | Detail::Parties { .. }
            | Detail::Writers { .. }
            | Detail::RealTimeWriter { .. },
        ) => {
            format!("{processors}{bytes}")
        }
    }
}

fn case_heading(title: &str, detail: Option<&Detail>) -> String {
    let together = match detail {
        Some(Detail::Clients { .. }) => {
            format!("{:>12}  {:<21}{:>20}", "calls/s", "", "clients' p50")
        }
        _ => String::new(),
    };
    format!(
        "\n{title:<40}\n{:<18}{:>10}  {:<21}{:>10}{:>10}{:>10}{:>10}{:>9}{together}\n",
        "", "p50 us", "", "p99", "p99.9", "max", "mean", "n"
    )
}

fn line(row: &Row) -> String {
    let Some(figures) = row.figures() else { return String::new() };
    let Figures { n, p50_ns, p99_ns, p999_ns, max_ns, mean_ns, p50_spread_ns, .. } = figures;
    let name = match &row.detail {
        Some(Detail::Lanes { lanes }) => format!("{} {lanes}", row.system),
        Some(Detail::Inversion { served_at }) => format!("{} {served_at}", row.system),
        Some(Detail::RealTime { bound: "both", .. }) => format!("{} there too", row.system),
        None if row.case != "call" => format!("{} {}", row.system, row.case),
        _ => row.system.to_owned(),
    };
    // A long name takes of the room before its figure.
    let width = 28_usize.saturating_sub(name.len());
    format!(
        "{name}{:>width$}  {:<21}{:>10}{:>10}{:>10}{:>10}{n:>9}{}\n",
        us(*p50_ns),
        brackets(p50_spread_ns.map(us)),
        us(*p99_ns),
        us(*p999_ns),
        us(*max_ns as f64),
        us(*mean_ns),
        together(row.detail.as_ref()),
    )
}

fn brackets([least, greatest]: [String; 2]) -> String {
    format!("[{least} .. {greatest}]")
}

fn together(detail: Option<&Detail>) -> String {
    let Some(Detail::Clients { throughput: Some(throughput), .. }) = detail else {
        return String::new();
    };
    let calls = brackets(throughput.calls_per_second_spread.map(|calls| format!("{calls:.0}")));
    let clients = brackets(throughput.client_p50_spread_ns.map(us));
    format!("{:>12.0}  {calls:<21}{clients:>20}", throughput.calls_per_second)
}

pub fn us(time_ns: f64) -> String {
    format!("{:.2}", time_ns / 1000.0)
}

/// A ratio, with two digits that tell something.
fn short(ratio: f64) -> String {
    if ratio < 0.1 { format!("{ratio:.3}") } else { format!("{ratio:.2}") }
}

fn ratios(all: &[Ratio]) -> String {
    let mut text = format!("\n{:<42}{:>8}  {:<18}{}\n", "ratio of medians", "", "rounds", "bar");
    // Of what has no bar, its rows say why there is none.
    for ratio in all.iter().filter(|ratio| ratio.value.is_some() || ratio.bar.is_some()) {
        let value = ratio.value.map_or("-".to_owned(), short);
        let spread = ratio.spread.map_or(String::new(), |spread| brackets(spread.map(short)));
        let bar = match (ratio.bar, ratio.want, ratio.holds) {
            (Some(bar), Some(want), Some(true)) => format!("{want} {bar} holds"),
            (Some(bar), Some(want), _) if ratio.value.is_none() => {
                format!("{want} {bar} not measured")
            }
            (Some(bar), Some(want), _) => format!("{want} {bar} DOES NOT HOLD"),
            _ => String::new(),
        };
        let why = ratio.why.as_deref().unwrap_or_default();
        let line = format!("{:<42}{value:>8}  {spread:<18}{bar}  {why}", ratio.name);
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}
