//! `baton bench tester`: when a message of 272 bytes is where, on its way there and back.
//!
//! This is `binder_tester` of the android-binder-ipc project, without the points inside a driver: a
//! buffer travels in transaction and reply, and both programs write into it when they had it.

use crate::experiment::{
    self, DRIVERS, Experiment, ExperimentArgs, Results, Situation, processors,
};
use crate::form::{self, BenchError, Finding};
use crate::html;
use crate::report::{Detail, Figures, Outcome, Row};
use crate::service::{STAMPED_BYTES, Service};
use crate::stage::Setting;
use crate::table::us;
use std::process::ExitCode;

const NAME: &str = "tester";
/// Points after the first, C_SEND, which is time 0.
const POINTS: [&str; 3] = ["S_RECV", "S_REPLY", "C_RECV"];
/// What the README has at these points, of its old and its new driver, in microseconds.
const README_US: [[f64; 3]; 2] = [[7.0, 10.0, 17.0], [7.0, 9.0, 16.0]];

/// Runs it and prints what it found.
pub fn tester(args: &ExperimentArgs) -> ExitCode {
    form::finish(NAME, &args.form, run(args))
}

fn run(args: &ExperimentArgs) -> Result<Finding, BenchError> {
    let setting = Setting::look()?;
    let delays = vec![(0, args.calls.unwrap_or(10_000))];
    let experiment = Experiment { service: Service::Stamp, payload_bytes: STAMPED_BYTES, delays };
    let results = experiment::measure(&experiment, args, &setting)?;
    let mut report = setting.report(NAME, args.rounds, rows(&results));
    report.ratios = results.ratios(NAME);
    let tables = tables(&results, &report.rows);
    let mut charts = String::new();
    for situation in results.situations() {
        for (at, point) in POINTS.into_iter().enumerate() {
            let title = format!("{point}, {}", processors(situation.placement));
            charts += &results.chart(&title, situation, at);
        }
    }
    let lead = "Time from C_SEND, at which the client sends, to each point: how many messages were \
                there no later, all rounds together.";
    let page = html::frame(&report, lead, &results.names(), &charts, &tables);
    Ok(Finding { report, tables, page })
}

fn row(system: &'static str, situation: Situation, point: usize, outcome: Outcome) -> Row {
    Row {
        system,
        case: NAME,
        payload_bytes: Some(STAMPED_BYTES),
        placement: situation.placement,
        detail: Some(Detail::Point { point: POINTS[point] }),
        outcome,
    }
}

fn rows(results: &Results) -> Vec<Row> {
    let mut rows = Vec::new();
    for ((situation, system), points) in &results.measured {
        let figures = points.iter().enumerate().filter_map(|(at, times)| {
            Some(row(system.name(), *situation, at, Outcome::Measured(Figures::of(times)?)))
        });
        rows.extend(figures);
    }
    let unbound = Situation { placement: None, delay_us: 0 };
    for (driver, points_us) in DRIVERS.into_iter().zip(README_US) {
        let points = points_us.into_iter().enumerate();
        let quoted = |(at, mean_us)| row(driver, unbound, at, experiment::quoted(mean_us, None));
        rows.extend(points.map(quoted));
    }
    rows.extend(results.missing_rows(NAME));
    rows
}

/// A table for each placement: systems and drivers, one a line, as the README has them.
fn tables(results: &Results, rows: &[Row]) -> String {
    let mut text = String::new();
    for situation in results.situations() {
        text += &heading(situation);
        let here = || rows.iter().filter(|row| row.placement == situation.placement);
        let mut names: Vec<&str> =
            here().filter(|row| row.detail.is_some()).map(|r| r.system).collect();
        names.dedup();
        for name in names {
            let times = here().filter(|row| row.system == name).filter_map(mean_ns);
            let columns: String = times.map(|mean_ns| format!("{:>10}", us(mean_ns))).collect();
            let round_trip = here().rfind(|row| row.system == name).and_then(Row::figures);
            text += format!("{name:<18}{:>10}{columns}{}", us(0.0), tail(round_trip)).trim_end();
            text += "\n";
        }
    }
    text
}

fn heading(situation: Situation) -> String {
    let where_to = processors(situation.placement);
    let points: String = POINTS.map(|point| format!("{point:>10}")).concat();
    format!(
        "\nmean time in us, {where_to}, {STAMPED_BYTES} \
         bytes\n{:<18}{:>10}{points}{:>14}{:>10}{:>10}{:>9}\n",
        "", "C_SEND", "C_RECV p50", "p99", "max", "n"
    )
}

fn tail(round_trip: Option<&Figures>) -> String {
    let Some(Figures { n, p50_ns, p99_ns, max_ns, .. }) = round_trip else { return String::new() };
    format!("{:>14}{:>10}{:>10}{n:>9}", us(*p50_ns), us(*p99_ns), us(*max_ns as f64))
}

fn mean_ns(row: &Row) -> Option<f64> {
    match &row.outcome {
        Outcome::Measured(figures) => Some(figures.mean_ns),
        Outcome::Quoted(quoted) => quoted.mean_ns,
        Outcome::Missing { .. } | Outcome::Counted(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distribution::Distribution;
    use crate::system::System;

    #[test]
    fn a_line_for_each_system_and_driver() {
        let mut results = Results::default();
        let mut points = vec![Distribution::default(); 3];
        for (point, time_ns) in points.iter_mut().zip([2_000, 3_000, 5_000]) {
            point.add_round(&[time_ns; 4]);
        }
        let unbound = Situation { placement: None, delay_us: 0 };
        results.measured.insert((unbound, System::BatonUapiLibc), points);
        results.missing.insert(System::KernelBinder, "no device".to_owned());
        let rows = rows(&results);
        assert_eq!(rows.len(), 3 + 2 * 3 + 1);
        let text = tables(&results, &rows);
        let line = |name: &str| -> Vec<String> {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().skip(1).take(4).map(str::to_owned).collect()
        };
        assert_eq!(line("baton-uapi-libc"), ["0.00", "2.00", "3.00", "5.00"]);
        assert_eq!(line("readme-old-driver"), ["0.00", "7.00", "10.00", "17.00"]);
        assert_eq!(line("readme-new-driver"), ["0.00", "7.00", "9.00", "16.00"]);
        assert!(!text.contains("kernel-binder"));
    }
}
