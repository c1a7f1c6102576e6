//! What was measured beside times, and the thesis's figures.

use crate::broadcast::delay::{self, FEWEST, MOST};
use crate::broadcast::order;
use crate::report::{Keys, Row};
use crate::results::Results;

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
