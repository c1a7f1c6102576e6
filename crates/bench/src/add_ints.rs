//! `baton bench add-ints`: a server adds two ints, with and without a sleep between calls.
//!
//! This is `binderAddInts`, with which the android-binder-ipc project compared its two drivers.

use crate::experiment::{
    self, DRIVERS, Experiment, ExperimentArgs, Results, Situation, processors,
};
use crate::form::{self, BenchError, Finding};
use crate::html;
use crate::report::{Detail, Figures, Outcome, Row};
use crate::service::{INTS_BYTES, Service};
use crate::stage::Setting;
use crate::table::us;
use std::process::ExitCode;

const NAME: &str = "add-ints";
/// The original's, a millisecond.
const DELAY_US: u64 = 1000;
/// What the README has of each driver, by the delay: shortest, mean and longest iteration, in
/// microseconds.
const README_US: [[(u64, [f64; 3]); 2]; 2] = [
    [(DELAY_US, [151.486, 181.443, 4976.61]), (0, [139.962, 258.004, 4903.84])],
    [(DELAY_US, [142.057, 203.101, 3298.81]), (0, [139.124, 242.037, 2432.85])],
];

/// Runs it and prints what it found.
pub fn add_ints(args: &ExperimentArgs) -> ExitCode {
    form::finish(NAME, &args.form, run(args))
}

fn run(args: &ExperimentArgs) -> Result<Finding, BenchError> {
    let setting = Setting::look()?;
    let n_delayed = if args.form.quick { 1_000 } else { 10_000 };
    let delays = vec![
        (0, args.calls.unwrap_or(10_000)),
        (DELAY_US, args.calls.map_or(n_delayed, |calls| calls.min(n_delayed))),
    ];
    let experiment = Experiment { service: Service::AddInts, payload_bytes: INTS_BYTES, delays };
    let results = experiment::measure(&experiment, args, &setting)?;
    let mut report = setting.report(NAME, args.rounds, rows(&results));
    report.ratios = results.ratios("add_ints");
    let tables = tables(&report.rows);
    let charts: String =
        results.situations().into_iter().map(|at| results.chart(&title(at), at, 0)).collect();
    let lead = "Time of a call that adds two ints: how many of them are not longer, all rounds \
                together.";
    let page = html::frame(&report, lead, &results.names(), &charts, &tables);
    Ok(Finding { report, tables, page })
}

fn title(Situation { placement, delay_us }: Situation) -> String {
    let delay =
        if delay_us == 0 { "no delay".to_owned() } else { format!("{delay_us} us between") };
    format!("{delay}, {}", processors(placement))
}

fn row(system: &'static str, situation: Situation, outcome: Outcome) -> Row {
    Row {
        system,
        case: NAME,
        payload_bytes: Some(INTS_BYTES),
        placement: situation.placement,
        detail: Some(Detail::Delay { delay_us: situation.delay_us }),
        outcome,
    }
}

fn rows(results: &Results) -> Vec<Row> {
    let measured = results.measured.iter().filter_map(|((situation, system), points)| {
        let outcome = Outcome::Measured(Figures::of(points.last()?)?);
        Some((*situation, row(system.name(), *situation, outcome)))
    });
    let quoted = DRIVERS.into_iter().zip(README_US).flat_map(|(driver, delays)| {
        delays.map(|(delay_us, [min_us, mean_us, max_us])| {
            let situation = Situation { placement: None, delay_us };
            let outcome = experiment::quoted(mean_us, Some([min_us, max_us]));
            (situation, row(driver, situation, outcome))
        })
    });
    let mut rows: Vec<(Situation, Row)> = measured.chain(quoted).collect();
    rows.sort_by_key(|(situation, _)| *situation);
    rows.into_iter().map(|(_, row)| row).chain(results.missing_rows(NAME)).collect()
}

/// A table for each situation: systems and drivers, one a line.
fn tables(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut last = None;
    for row in rows {
        let Some(Detail::Delay { delay_us }) = row.detail else { continue };
        let situation = Situation { placement: row.placement, delay_us };
        if last.replace(situation) != Some(situation) {
            text += &format!(
                "\n{}\n{:<18}{:>10}{:>10}{:>10}{:>10}{:>10}{:>9}\n",
                title(situation),
                "us",
                "min",
                "avg",
                "max",
                "p50",
                "p99",
                "n"
            );
        }
        let line = match &row.outcome {
            Outcome::Measured(figures) => of_measured(figures),
            Outcome::Quoted(quoted) => {
                let ends = [quoted.min_ns, quoted.max_ns].map(|end| us(end.unwrap_or(0) as f64));
                format!(
                    "{:>10}{:>10}{:>10}",
                    ends[0],
                    us(quoted.mean_ns.unwrap_or(f64::NAN)),
                    ends[1]
                )
            }
            Outcome::Missing { .. } | Outcome::Counted(_) => continue,
        };
        text += &format!("{:<18}{line}\n", row.system);
    }
    text
}

fn of_measured(figures: &Figures) -> String {
    let Figures { n, p50_ns, p99_ns, min_ns, max_ns, mean_ns, .. } = figures;
    let times = [*min_ns as f64, *mean_ns, *max_ns as f64, *p50_ns, *p99_ns];
    let columns: String = times.map(|time_ns| format!("{:>10}", us(time_ns))).concat();
    format!("{columns}{n:>9}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distribution::Distribution;
    use crate::system::System;

    #[test]
    fn quotes_stand_below_what_was_measured_in_the_same_situation() {
        let mut results = Results::default();
        for delay_us in [0, DELAY_US] {
            let mut times = Distribution::default();
            times.add_round(&[1_000, 3_000]);
            let situation = Situation { placement: None, delay_us };
            results.measured.insert((situation, System::BatonTyped), vec![times]);
        }
        let rows = rows(&results);
        let names: Vec<&str> = rows.iter().map(|row| row.system).collect();
        assert_eq!(names[..3], ["baton-typed", "readme-old-driver", "readme-new-driver"]);
        assert_eq!(names[3..], names[..3]);
        let text = tables(&rows);
        assert!(text.contains("no delay, any processors") && text.contains("1000 us between"));
        assert!(text.contains("139.96    258.00   4903.84"), "{text}");
        assert!(text.contains("1.00      2.00      3.00"), "{text}");
    }
}
