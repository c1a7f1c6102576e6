//! What was found, as tables and charts.

use crate::html;
use crate::log::found::{Crowd, Measured};
use crate::report::{Detail, Outcome, Report, Row};
use std::fmt::Write;

const LEAD: &str = "What a single record takes, two readings of the clock included: how many are \
    not longer. Time is on a \
                    logarithmic axis, as are the nines of the share.";

/// The tables.
pub fn tables(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut last = "";
    for row in rows {
        match (&row.detail, &row.outcome) {
            (Some(Detail::Writers { .. } | Detail::RealTimeWriter { .. }), _) => {
                if last != row.case {
                    text += &heading(row);
                    last = row.case;
                }
                text += &line(row);
            }
            (_, Outcome::Counted(tally)) => {
                let _ = write!(
                    text,
                    "\n{} writers killed: {} records written, {} read, {} told as overwritten, {} \
                     torn, {} uncounted\n",
                    tally.kills,
                    tally.written,
                    tally.seen,
                    tally.overwritten,
                    tally.torn,
                    tally.uncounted
                );
            }
            _ => {}
        }
    }
    text
}

fn heading(row: &Row) -> String {
    let what = match &row.detail {
        Some(Detail::Writers { writers: 1, .. }) => "1 writer".to_owned(),
        Some(Detail::Writers { writers, .. }) => {
            format!("{writers} writers, one on each processor")
        }
        Some(Detail::RealTimeWriter { priority, writers }) => {
            format!("{}, {priority}, beside {writers} ordinary writers and a reader", row.case)
        }
        _ => String::new(),
    };
    format!(
        "\n{what}\n{:<19}{:>9}  {:<19}{:>9}{:>9}  {:>8}{:>8}{:>9}{:>11}\n",
        "", "ns/record", "", "MB/s", "M rec/s", "one: p50", "p99", "p99.9", "max"
    )
}

fn line(row: &Row) -> String {
    let Some(figures) = row.figures() else { return String::new() };
    let rate = match &row.detail {
        Some(Detail::Writers { rate, .. }) => {
            let [least, greatest] = rate.ns_per_record_spread;
            format!(
                "{:>9.1}  {:<19}{:>9.1}{:>9.2}",
                rate.ns_per_record,
                format!("[{least:.1} .. {greatest:.1}]"),
                rate.bytes_per_second / 1e6,
                rate.records_per_second / 1e6
            )
        }
        _ => format!("{:>9}  {:<19}{:>9}{:>9}", "", "", "", ""),
    };
    format!(
        "{:<19}{rate}  {:>8.0}{:>8.0}{:>9.0}{:>11}\n",
        row.system, figures.p50_ns, figures.p99_ns, figures.p999_ns, figures.max_ns
    )
}

/// The page.
pub fn page(report: &Report, found: &Measured, tables: &str) -> String {
    let mut charts = String::new();
    for crowd in [Crowd::One, Crowd::All] {
        let of_crowd = found.rounds.iter().filter(|(case, _)| case.0 == crowd);
        let named = of_crowd.map(|(case, rounds)| (case.1.name(), &rounds.times));
        charts += &html::chart(crowd.case(), named);
    }
    let mut names: Vec<_> = found.rounds.keys().map(|case| case.1.name()).collect();
    names.dedup();
    names.sort_unstable();
    names.dedup();
    html::frame(report, LEAD, &names, &charts, tables)
}
