//! The thesis's own figures: I. Kalkov, RWTH Aachen 2018, chapter 6.3. A Samsung Exynos 5250 with
//! Linux 3.4.5-rt15, one caller at priority 80 among 100 ordinary ones in another application,
//! 2,500 calls.

use crate::report::{Detail, Outcome, Quoted, Row};
use crate::rt::found::Leg;

/// As rows name the unmodified Binder.
pub const STANDARD: &str = "thesis-standard";
/// As rows name its Binder with priority inheritance.
pub const MODIFIED: &str = "thesis-inheriting";
/// Whose priority this was.
pub const LEVEL: u8 = 80;
/// Among so many ordinary callers.
pub const CALLERS: usize = 100;

/// A figure of one leg, in microseconds.
struct Figure {
    system: &'static str,
    leg: Leg,
    min_us: Option<u64>,
    max_us: u64,
    source: &'static str,
}

const STANDARD_SOURCE: &str = "I. Kalkov, RWTH Aachen 2018, figure 6.5(a)";
const MODIFIED_SOURCE: &str = "I. Kalkov, RWTH Aachen 2018, figure 6.5(b)";

const FIGURES: [Figure; 4] = [
    Figure {
        system: STANDARD,
        leg: Leg::Call,
        min_us: None,
        max_us: 42_300,
        source: STANDARD_SOURCE,
    },
    Figure {
        system: STANDARD,
        leg: Leg::Return,
        min_us: None,
        max_us: 44_500,
        source: STANDARD_SOURCE,
    },
    Figure {
        system: MODIFIED,
        leg: Leg::Call,
        min_us: Some(51),
        max_us: 75,
        source: MODIFIED_SOURCE,
    },
    Figure {
        system: MODIFIED,
        leg: Leg::Return,
        min_us: Some(41),
        max_us: 70,
        source: MODIFIED_SOURCE,
    },
];

/// Mean T_CALL of one real-time caller and of seven, in microseconds (figure 6.6).
pub const MEANS_US: [(usize, f64); 2] = [(1, 55.0), (7, 319.0)];

/// Whose longest time of a leg was which, in nanoseconds.
pub fn longest(leg: Leg) -> impl Iterator<Item = (&'static str, u64)> {
    let of_leg = FIGURES.iter().filter(move |figure| figure.leg == leg);
    of_leg.map(|figure| (figure.system, figure.max_us * 1000))
}

fn detail(real_time_callers: usize) -> Option<Detail> {
    let priority = format!("fifo:{LEVEL}");
    Some(Detail::RealTime {
        real_time_callers,
        priority,
        callers: CALLERS,
        bound: "nobody",
        misuse: None,
    })
}

fn row(system: &'static str, leg: Leg, real_time_callers: usize, quoted: Quoted) -> Row {
    Row {
        system,
        case: leg.name(),
        payload_bytes: None,
        placement: None,
        detail: detail(real_time_callers),
        outcome: Outcome::Quoted(quoted),
    }
}

/// All of them.
pub fn rows() -> Vec<Row> {
    let mut rows: Vec<Row> = FIGURES
        .iter()
        .map(|&Figure { system, leg, min_us, max_us, source }| {
            let min_ns = min_us.map(|time_us| time_us * 1000);
            row(
                system,
                leg,
                1,
                Quoted { source, mean_ns: None, min_ns, max_ns: Some(max_us * 1000) },
            )
        })
        .collect();
    rows.extend(MEANS_US.iter().map(|&(real_time_callers, mean_us)| {
        let source = "I. Kalkov, RWTH Aachen 2018, figure 6.6";
        let quoted = Quoted { source, mean_ns: Some(mean_us * 1e3), min_ns: None, max_ns: None };
        row(MODIFIED, Leg::Call, real_time_callers, quoted)
    }));
    rows
}
