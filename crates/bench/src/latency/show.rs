//! What was found, as rows, tables, charts and ratios.

use crate::distribution::Distribution;
use crate::html;
use crate::latency::call::LEGS;
use crate::latency::found::{Calls, Measured, Waking};
use crate::latency::{cyclictest, timer};
use crate::processors::Placement;
use crate::report::{Bar, Detail, Figures, Outcome, Quoted, Ratio, Report, Row};
use crate::service::STAMPED_BYTES;
use crate::table::us;
use baton_rt::SchedPriority;

const WAKE_UP: &str = "wake-up";
const TYPED: &str = "baton-typed";
/// What both ways to measure the same may differ by.
const AGREEMENT: f64 = 1.25;

/// Kalkov 2018, table 4.3: with and without load, shortest, mean and longest in microseconds. A
/// Samsung Exynos 5250 with Linux 3.4.
const THESIS: [(&str, usize, [u64; 3]); 5] = [
    ("thesis-standard", 0, [37, 186, 7407]),
    ("thesis-rt", 0, [27, 77, 118]),
    ("thesis-rt", 1, [23, 108, 219]),
    ("thesis-rt-locked", 0, [17, 31, 58]),
    ("thesis-rt-locked", 1, [16, 34, 63]),
];

/// A row for each distribution, then what is quoted, then what is missing.
pub fn rows(found: &Measured) -> Vec<Row> {
    let mut rows: Vec<Row> = found
        .wakings
        .iter()
        .filter_map(|(waking, times)| waking_row(found, waking, times))
        .collect();
    for (calls, legs) in &found.calls {
        let legs = LEGS.into_iter().zip(legs);
        rows.extend(legs.filter_map(|(leg, times)| call_row(found, calls, leg, times)));
    }
    rows.extend(THESIS.map(|(system, load, [min, mean, max])| Row {
        system,
        case: WAKE_UP,
        payload_bytes: None,
        placement: None,
        detail: Some(detail(Some(SchedPriority::fifo(80)), load, None, None)),
        outcome: Outcome::Quoted(Quoted {
            source: "I. Kalkov, RWTH Aachen 2018, table 4.3",
            mean_ns: Some(mean as f64 * 1e3),
            min_ns: Some(min * 1_000),
            max_ns: Some(max * 1_000),
        }),
    }));
    rows.extend(found.missing.iter().map(|(&system, why)| Row {
        system,
        case: if system == TYPED { LEGS[0] } else { WAKE_UP },
        payload_bytes: None,
        placement: None,
        detail: None,
        outcome: Outcome::Missing { why: why.clone() },
    }));
    rows
}

fn detail(
    priority: Option<SchedPriority>,
    load: usize,
    cpu: Option<usize>,
    times: Option<&Distribution>,
) -> Detail {
    let quartiles = times.map(|times| {
        let quartiles = times.curve(&[0.25, 0.75]);
        [quartiles[0], quartiles[1]]
    });
    let priority = priority.unwrap_or_default().to_string();
    Detail::Latency { priority, load, cpu, quartiles_ns: quartiles }
}

fn waking_row(found: &Measured, waking: &Waking, times: &Distribution) -> Option<Row> {
    Some(Row {
        system: waking.system,
        case: WAKE_UP,
        payload_bytes: None,
        placement: None,
        detail: Some(detail(found.priority, waking.load, waking.place, Some(times))),
        outcome: Outcome::Measured(Figures::of(times)?),
    })
}

fn call_row(
    found: &Measured,
    calls: &Calls,
    leg: &'static str,
    times: &Distribution,
) -> Option<Row> {
    Some(Row {
        system: TYPED,
        case: leg,
        payload_bytes: Some(STAMPED_BYTES),
        placement: calls.placement,
        detail: Some(detail(found.priority, calls.load, None, Some(times))),
        outcome: Outcome::Measured(Figures::of(times)?),
    })
}

/// Two tables, of wake-ups and of calls.
pub fn tables(rows: &[Row]) -> String {
    let lines = |wake_ups: bool| -> String {
        rows.iter().filter(|row| (row.case == WAKE_UP) == wake_ups).filter_map(line).collect()
    };
    let mut text = String::new();
    for (title, lines) in [
        ("how late threads wake up, in us", lines(true)),
        ("T_CALL (call) and T_RET (return), in us", lines(false)),
    ] {
        if !lines.is_empty() {
            text += &format!("\n{title}\n{}{lines}", heading());
        }
    }
    text
}

fn heading() -> String {
    let columns = ["min", "p25", "p50", "p75", "mean", "p99", "p99.9", "max", "n"];
    let columns: String = columns.iter().map(|column| format!("{column:>10}")).collect();
    format!("{:<18}{:<20}{:>5}{:>9}{columns}\n", "", "", "load", "priority")
}

fn line(row: &Row) -> Option<String> {
    let Some(Detail::Latency { priority, load, cpu, quartiles_ns }) = &row.detail else {
        return None;
    };
    let place = match (row.case, row.placement) {
        (WAKE_UP, _) => cpu.map_or("unbound".to_owned(), |cpu| format!("processor {cpu}")),
        (leg, Some(Placement::Same)) => format!("{leg}, same"),
        (leg, Some(Placement::Different)) => format!("{leg}, different"),
        (leg, None) => format!("{leg}, unbound"),
    };
    let none = || "-".to_owned();
    let times: [String; 9] = match &row.outcome {
        Outcome::Measured(figures) => {
            let quartile = |at: usize| quartiles_ns.map_or_else(none, |ns| us(ns[at] as f64));
            [
                us(figures.min_ns as f64),
                quartile(0),
                us(figures.p50_ns),
                quartile(1),
                us(figures.mean_ns),
                us(figures.p99_ns),
                us(figures.p999_ns),
                us(figures.max_ns as f64),
                figures.n.to_string(),
            ]
        }
        Outcome::Quoted(quoted) => {
            let end = |ns: Option<u64>| ns.map_or_else(none, |ns| us(ns as f64));
            let [min, max] = [quoted.min_ns, quoted.max_ns].map(end);
            [
                min,
                none(),
                none(),
                none(),
                quoted.mean_ns.map_or_else(none, us),
                none(),
                none(),
                max,
                none(),
            ]
        }
        Outcome::Missing { .. } | Outcome::Counted(_) => return None,
    };
    let place = if matches!(row.outcome, Outcome::Quoted(_)) { String::new() } else { place };
    let times: String = times.iter().map(|time| format!("{time:>10}")).collect();
    Some(format!("{:<18}{place:<20}{load:>5}{priority:>9}{times}\n", row.system))
}

/// Charts and tables.
pub fn page(report: &Report, found: &Measured, tables: &str) -> String {
    let mut charts = String::new();
    let mut cases: Vec<(usize, Option<usize>)> =
        found.wakings.keys().map(|waking| (waking.load, waking.place)).collect();
    cases.dedup();
    for (load, place) in cases {
        let place_name = place.map_or("unbound".to_owned(), |cpu| format!("processor {cpu}"));
        let systems =
            found.wakings.iter().filter(|(waking, _)| (waking.load, waking.place) == (load, place));
        let title = format!("wake-up, {place_name}, load {load}");
        charts += &html::chart(&title, systems.map(|(waking, times)| (waking.system, times)));
    }
    for (calls, legs) in &found.calls {
        let processors = calls.placement.map_or("any processors", html::processors);
        let title = format!("T_CALL and T_RET, {processors}, load {}", calls.load);
        charts += &html::chart(&title, LEGS.into_iter().zip(legs));
    }
    let lead = "How late a thread wakes up at the time that it has asked for, and how long a call \
        takes to its handler \
                (call) and back (return): how many are not longer, all rounds together. Time is on \
                a logarithmic axis, as \
                are the nines of the share.";
    html::frame(report, lead, &[timer::NAME, cyclictest::NAME, LEGS[0], LEGS[1]], &charts, tables)
}

/// Whether cyclictest says the same, and what the load does.
pub fn ratios(found: &Measured) -> Vec<Ratio> {
    let mut ratios = Vec::new();
    let mut loads: Vec<usize> = found.wakings.keys().map(|waking| waking.load).collect();
    loads.dedup();
    let beside = found.of(cyclictest::NAME, 0).next().is_some()
        || found.missing.contains_key(cyclictest::NAME);
    for load in loads.iter().copied().filter(|_| beside) {
        // Under load both differ from round to round by more than from each other.
        let bar = (load == 0).then_some(Bar::AtMost(AGREEMENT));
        let loaded = if load == 0 { "" } else { "_loaded" };
        let ours = || first(found, timer::NAME, load);
        let theirs = || first(found, cyclictest::NAME, load);
        ratios.push(of_medians(format!("wake_up_over_cyclictest{loaded}"), ours(), theirs(), bar));
        ratios.push(of_medians(format!("cyclictest_over_wake_up{loaded}"), theirs(), ours(), bar));
    }
    if let [_, load] = loads[..] {
        let (idle, loaded) = (first(found, timer::NAME, 0), first(found, timer::NAME, load));
        ratios.push(of_tails("wake_up_loaded_p99_over_idle", loaded, idle));
        for (at, leg) in LEGS.into_iter().enumerate() {
            let of = |load| {
                let calls = Calls { load, placement: Some(Placement::Different) };
                found
                    .calls
                    .get(&calls)
                    .map(|legs| &legs[at])
                    .ok_or_else(|| format!("no {leg} was measured"))
            };
            ratios.push(of_tails(&format!("{leg}_loaded_p99_over_idle"), of(load), of(0)));
        }
    }
    ratios
}

/// At the first place.
fn first<'a>(
    found: &'a Measured,
    system: &'static str,
    load: usize,
) -> Result<&'a Distribution, String> {
    let missing =
        || found.missing.get(system).cloned().unwrap_or(format!("{system} was not measured"));
    found.of(system, load).next().map(|(_, times)| times).ok_or_else(missing)
}

type Times<'a> = Result<&'a Distribution, String>;

fn of_medians(name: String, over: Times<'_>, under: Times<'_>, bar: Option<Bar>) -> Ratio {
    let value = over.and_then(|over| Ok(Distribution::ratio(over, under?)));
    Ratio::new(name, value, bar)
}

/// Of the medians of the rounds' 99th percentiles.
fn of_tails(name: &str, over: Times<'_>, under: Times<'_>) -> Ratio {
    let p99 = |times: &Distribution| {
        times.over_rounds(|round| round.p99 as f64).map_or(f64::NAN, |spread| spread.median)
    };
    let value = over.and_then(|over| Ok((p99(over) / p99(under?), None)));
    Ratio::new(name.to_owned(), value, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found() -> Measured {
        let mut found = Measured { priority: Some(SchedPriority::fifo(80)), ..Measured::default() };
        let places = [None];
        for (system, load, delay_ns) in
            [(timer::NAME, 0, 1_000), (timer::NAME, 4, 3_000), (cyclictest::NAME, 0, 2_000)]
        {
            found.add(system, load, &places, Ok(vec![vec![delay_ns; 10]]));
        }
        found.add(cyclictest::NAME, 4, &places, Err("has ended".to_owned()));
        let calls = [vec![5_000; 10], vec![4_000; 10]];
        found.add_calls(Some(Placement::Different), 0, Ok(calls));
        found
    }

    #[test]
    fn a_line_for_each_distribution_and_figure_of_the_thesis() {
        let rows = rows(&found());
        let text = tables(&rows);
        let line = |name: &str, word: &str| -> Vec<String> {
            let line =
                text.lines().find(|line| line.starts_with(name) && line.contains(word)).unwrap();
            line.split_whitespace().map(str::to_owned).collect()
        };
        assert_eq!(line("baton-latency", "unbound")[2..6], ["0", "fifo:80", "1.00", "1.00"]);
        assert_eq!(line("baton-typed", "call, different")[3..6], ["0", "fifo:80", "5.00"]);
        assert_eq!(line("thesis-rt-locked", "63.00")[1..4], ["1", "fifo:80", "16.00"]);
        assert!(rows.iter().any(|row| matches!(row.outcome, Outcome::Missing { .. })));
    }

    #[test]
    fn agreement_has_a_bar_where_nothing_else_runs() {
        let ratios = ratios(&found());
        let ratio = |name: &str| ratios.iter().find(|ratio| ratio.name == name).unwrap();
        assert_eq!(ratio("wake_up_over_cyclictest").value, Some(0.5));
        assert_eq!(ratio("wake_up_over_cyclictest").holds, Some(true));
        assert_eq!(ratio("cyclictest_over_wake_up").holds, Some(false));
        assert_eq!(ratio("wake_up_over_cyclictest_loaded").holds, None);
        assert_eq!(ratio("wake_up_over_cyclictest_loaded").why.as_deref(), Some("has ended"));
        assert_eq!(ratio("wake_up_loaded_p99_over_idle").value, Some(3.0));
        assert!(ratio("call_loaded_p99_over_idle").why.is_some());
    }
}
