//! What was measured beside times, and the thesis's figures.

use crate::broadcast::args::Plan;
use crate::broadcast::delay::{self, FEWEST, MOST};
use crate::broadcast::designs::Design;
use crate::broadcast::order;
use crate::chart::{Chart, Unit, point};
use crate::distribution::Spread;
use crate::report::{Figures, Keys, Row};
use crate::results::{MAX, Results, Rounds};
use crate::table::aligned;

/// What a round may have beside times.
pub const SITUATIONS: &str = "situations";
pub const FAILURES: &str = "failures";
pub const DELIVERIES: &str = "deliveries_per_second";

/// Mean, if it is told, and longest delay, in microseconds, on a Samsung Exynos 5250
/// with Linux 3.4.5-rt15.
const THESIS: [(&str, usize, Option<f64>, f64, &str); 4] = [
    ("thesis-standard", MOST, None, 48_300.0, "I. Kalkov, RWTH Aachen 2018, figure 7.8"),
    ("thesis-foreground", MOST, None, 33_800.0, "I. Kalkov, RWTH Aachen 2018, figure 7.8"),
    ("thesis-extended", MOST, None, 9_300.0, "I. Kalkov, RWTH Aachen 2018, figure 7.8"),
    ("thesis-extended", FEWEST, Some(278.5), 2_400.0, "I. Kalkov, RWTH Aachen 2018, 7.3.2"),
];

/// Adds the thesis's figures of senders that were measured.
pub fn quote(found: &mut Results) {
    let is_measured = |senders: usize| {
        found
            .measured()
            .any(|(key, _)| key.more.contains(&("senders", senders.into())) && key.case == "delay")
    };
    let quoted = THESIS.iter().filter(|(_, senders, ..)| is_measured(*senders));
    for &(system, senders, mean_us, max_us, source) in quoted.collect::<Vec<_>>() {
        let key = delay::row(system, "delay", senders);
        found.quote(key, source, [None, mean_us.map(|us| us * 1e3), Some(max_us * 1e3)]);
    }
}

pub fn rows(found: &Results) -> Vec<Row> {
    found.rows(|key, rounds| {
        if *key == order::key() {
            let total = |name| (name, (rounds.values(name).iter().sum::<f64>() as u64).into());
            return [SITUATIONS, FAILURES].map(total).into();
        }
        let rate = rounds.spread(DELIVERIES);
        rate.map_or(Keys::new(), |rate| vec![(DELIVERIES, (rate.median as u64).into())])
    })
}

/// Designs that were measured, each among several numbers of ordinary senders.
fn by_senders<'a>(
    found: &'a Results,
    plan: &Plan,
) -> Vec<(&'static str, Vec<(usize, &'a Rounds)>)> {
    let of = |design: Design| {
        let find =
            |&senders: &usize| Some((senders, found.find(&delay::key(design, senders)).ok()?));
        (design.into(), plan.senders.iter().filter_map(find).collect::<Vec<_>>())
    };
    let designs = Design::SERVICES.into_iter().chain([plan.bus]);
    designs.map(of).filter(|(_, delays)| delays.len() > 1).collect()
}

/// One table of all designs, as in the thesis's figure 7.8. Empty unless several were measured
/// among several numbers of senders.
pub fn by_senders_table(found: &Results, plan: &Plan) -> String {
    let designs = by_senders(found, plan);
    if designs.len() < 2 {
        return String::new();
    }
    let numbers = plan.senders.iter().map(usize::to_string);
    let mut lines = vec![["in us".to_owned()].into_iter().chain(numbers).collect::<Vec<_>>()];
    for (name, delays) in designs {
        let cell = |senders| {
            let (_, rounds) = delays.iter().find(|(it, _)| it == senders)?;
            let Figures { p999_ns, max_ns, .. } = Figures::of(&rounds.times)?;
            Some(format!("{:.0} / {:.0}", p999_ns / 1e3, max_ns as f64 / 1e3))
        };
        let cells = plan.senders.iter().map(|it| cell(it).unwrap_or_else(|| "-".to_owned()));
        lines.push([name.to_owned()].into_iter().chain(cells).collect());
    }
    let title = "p99.9 / longest delay of a real-time intent, by the number of ordinary senders";
    format!("\n{title}\n{}", aligned(&lines))
}

/// The longest delay of a round, of all designs.
pub fn by_senders_chart(found: &Results, plan: &Plan) -> Option<Chart> {
    let line = |(name, delays): (&'static str, Vec<(usize, &Rounds)>)| {
        let points = delays.into_iter().filter_map(|(senders, rounds)| {
            Some(point(senders, Spread::of(MAX(rounds).into_iter())?))
        });
        (name, points.collect())
    };
    let lines: Vec<_> = by_senders(found, plan).into_iter().map(line).collect();
    let title = "the longest delay of a real-time intent, by the number of ordinary senders";
    (lines.len() > 1).then(|| Chart::ByNumber {
        title: title.into(),
        unit: Unit::Nanoseconds,
        lines,
    })
}
