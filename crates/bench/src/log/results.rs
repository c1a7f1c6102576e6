//! All that was measured, and what follows from it: rows and ratios.

use crate::distribution::divide;
use crate::log::messages::bytes_of;
use crate::log::step::quantile;
use crate::log::system::{Gets, System};
use crate::report::{Bar, Quotient, Ratio, Row, RowKey, rounded};
use crate::results::{Results, Rounds, Value, median, ratio};
use baton_log::moment::Source;
use baton_rt::SchedPriority;

/// The real-time writer's priority, and the number of ordinary writers beside it.
pub const PRIORITY: SchedPriority = SchedPriority::fifo(50);
pub const N_ORDINARY: usize = 4;
/// Values of a round: what a record takes in a row; single ones, within the clock's steps.
const NS_PER_RECORD: &str = "ns_per_record";
const STEPPED_P50: &str = "stepped_p50";
const STEPPED_P999: &str = "stepped_p999";
const FAULTS: &str = "faults";

/// One writer, or one on each processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
pub enum Count {
    #[strum(serialize = "one-writer")]
    One,
    #[strum(serialize = "all-processors")]
    All,
}

/// How a real-time writer's records follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
pub enum WriteRate {
    /// One after the other.
    #[strum(serialize = "real-time")]
    Full,
    /// One in a millisecond.
    #[strum(serialize = "real-time-periodic")]
    Periodic,
}

#[derive(Debug, Default)]
pub struct LogResults {
    pub found: Results,
    /// Writers of [`Count::All`].
    pub n_processors: usize,
}

/// Which system has failed to be set up.
pub fn missing(system: System) -> RowKey {
    RowKey::new(system.name(), "all")
}

/// A real-time writer among ordinary ones.
pub fn real_time(system: System, rate: WriteRate) -> RowKey {
    let (case, priority): (&str, String) = (rate.into(), PRIORITY.to_string());
    let title = format!("{case}, {priority}, beside {N_ORDINARY} ordinary writers and a reader");
    let key = RowKey::new(system.name(), case).with("priority", priority);
    key.with("writers", N_ORDINARY).heading(title)
}

/// Adds single records, and what half of them and 999 of 1000 do not exceed.
pub fn add_singles(rounds: &mut Rounds, mut times_ns: Vec<u64>) {
    rounds.times.add_round(&times_ns);
    times_ns.sort_unstable();
    let quantiles = [(STEPPED_P50, 0.5), (STEPPED_P999, 0.999)];
    for (name, quantile) in quantiles.map(|(name, share)| (name, quantile(&times_ns, share))) {
        quantile.into_iter().for_each(|value| rounds.add_value(name, value));
    }
}

/// Adds a round: how long so many records of each writer took, and single ones.
pub fn add_round(rounds: &mut Rounds, (n_records, duration_ns): (usize, u64), singles: &[u64]) {
    rounds.add_value(NS_PER_RECORD, duration_ns as f64 / n_records as f64);
    rounds.times.add_round(singles);
}

impl LogResults {
    pub fn key(&self, count: Count, system: System) -> RowKey {
        let (n_writers, title) = match count {
            Count::One => (1, "1 writer".to_owned()),
            Count::All => {
                let n = self.n_processors;
                (n, format!("{n} writers, one on each processor"))
            }
        };
        RowKey::new(system.name(), count.into()).with("writers", n_writers).heading(title)
    }

    /// Ours, whose writers were killed.
    pub fn killed() -> RowKey {
        RowKey::new(System::Baton(Source::best()).name(), "killed-writers")
            .heading("writers killed")
    }

    /// How many records were torn or not counted.
    pub fn add_faults(&mut self, faults: u64) {
        self.found.add_value(Self::killed(), FAULTS, Ok::<_, String>(faults as f64));
    }

    /// All rows; those of records in a row with their rates.
    pub fn rows(&self) -> Vec<Row> {
        // All write the messages in turn.
        let bytes_of_one = bytes_of(16) as f64 / 16.0;
        self.found.rows(|key, rounds| {
            let Some(time) = rounds.spread(NS_PER_RECORD) else { return Vec::new() };
            let n_writers = key.more[0].1.as_f64().unwrap_or(1.0);
            let records = |ns: f64| n_writers * 1e9 / ns;
            let bytes = |ns: f64| (records(ns) * bytes_of_one).round();
            let tenths = |value: f64| rounded(value, 10.0);
            let (bytes_spread, time_spread) = (
                vec![bytes(time.greatest), bytes(time.least)],
                vec![tenths(time.least), tenths(time.greatest)],
            );
            vec![
                ("bytes_per_second", bytes(time.median).into()),
                ("bytes_per_second_spread", bytes_spread.into()),
                ("records_per_second", records(time.median).round().into()),
                (NS_PER_RECORD, tenths(time.median).into()),
                ("ns_per_record_spread", time_spread.into()),
            ]
        })
    }

    pub fn ratios(&self) -> Vec<Ratio> {
        use Count::{All, One};
        use System::{Baton, Datagram, Floor, Lttng, Paper, Spdlog, TracingAppender};
        let paper = Paper(Gets::FromThePage);
        let (ours, counter, vdso) = (Source::best(), Source::Counter, Source::Vdso);
        // All write the same messages: a system writes as much less as a record takes it longer.
        let ns_per_record: Value = |rounds| rounds.values(NS_PER_RECORD);
        let over = |name: &str, count, over, under, bar: Option<Bar>| {
            let [over, under] = [over, under].map(|it| self.found.find(&self.key(count, it)));
            ratio(name, over, under, ns_per_record, bar)
        };
        let (at_least, at_most) = (|bar| Some(Bar::AtLeast(bar)), |bar| Some(Bar::AtMost(bar)));
        let tail = |name: &str, system: System, rate: WriteRate, bar| {
            let over = |it: &Rounds| divide(&it.values(STEPPED_P999), &it.values(STEPPED_P50));
            Ratio::new(name, self.found.find(&real_time(system, rate)).map(over), bar)
        };
        let faults = median(self.found.find(&Self::killed()), FAULTS).map(|it| (it.0, None));
        vec![
            over("bytes_over_paper_one_vdso", One, paper, Baton(vdso), at_least(1.2)),
            over("bytes_over_paper_one_tsc", One, paper, Baton(counter), at_least(1.5)),
            over("bytes_over_paper_all", All, paper, Baton(ours), at_least(10.0)),
            over("lttng_over_ours", One, Lttng, Baton(ours), at_least(3.0)),
            over("dgram_over_ours", One, Datagram, Baton(ours), at_least(20.0)),
            over("ours_over_floor", One, Baton(ours), Floor(ours), at_most(1.5)),
            over("ours_over_floor_vdso", One, Baton(vdso), Floor(vdso), at_most(1.5)),
            Ratio::new("slow_clock_over_its_price", self.slow_clock(), None),
            over("spdlog_over_ours", One, Spdlog, Baton(ours), None),
            over("tracing_appender_over_ours", One, TracingAppender, Baton(ours), None),
            tail("rt_p999_over_p50", Baton(ours), WriteRate::Full, at_most(2.0)),
            tail("rt_floor_p999_over_p50", Floor(ours), WriteRate::Full, None),
            tail("rt_periodic_p999_over_p50", Baton(ours), WriteRate::Periodic, None),
            Ratio::new("torn_or_uncounted", faults, at_most(0.0)),
        ]
    }

    /// What a clock that is a system call adds to a record of ours, over what it adds to the floor.
    fn slow_clock(&self) -> Quotient {
        let added = |system: fn(Source) -> System| {
            let of = |source| {
                Ok::<_, String>(
                    median(self.found.find(&self.key(Count::One, system(source))), NS_PER_RECORD)?
                        .0,
                )
            };
            Ok::<_, String>(of(Source::SystemCall)? - of(Source::best())?)
        };
        Ok((added(System::Baton)? / added(System::Floor)?, None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(times_ns: &[(Count, System, u64)]) -> LogResults {
        let mut results = LogResults { n_processors: 2, ..LogResults::default() };
        for &(count, system, time_ns) in times_ns {
            for more_ns in [0, 2, 1] {
                let all_ns = 16 * (time_ns + more_ns);
                let add = |rounds: &mut Rounds, duration_ns| {
                    add_round(rounds, (16, duration_ns), &[time_ns]);
                };
                results.found.add(results.key(count, system), Ok::<_, String>(all_ns), add);
            }
        }
        results
    }

    fn find(results: &LogResults, name: &str) -> Ratio {
        results.ratios().into_iter().find(|ratio| ratio.name == name).unwrap()
    }

    #[test]
    fn bars() {
        use System::*;
        let (paper, ours) = (Paper(Gets::FromThePage), Baton(Source::Vdso));
        for (over, under, name, times_ns, holds) in [
            (paper, ours, "bytes_over_paper_one_vdso", (119, 99), true),
            (paper, ours, "bytes_over_paper_one_vdso", (118, 99), false),
            (Lttng, Baton(Source::best()), "lttng_over_ours", (299, 99), true),
            (Datagram, Baton(Source::best()), "dgram_over_ours", (1998, 99), false),
            (Baton(Source::best()), Floor(Source::best()), "ours_over_floor", (149, 99), true),
            (Baton(Source::best()), Floor(Source::best()), "ours_over_floor", (150, 99), false),
        ] {
            let results =
                results(&[(Count::One, over, times_ns.0), (Count::One, under, times_ns.1)]);
            assert_eq!(find(&results, name).holds, Some(holds), "{name} {times_ns:?}");
        }
    }

    #[test]
    fn what_was_not_measured_does_not_hold_and_says_why() {
        let mut results = results(&[(Count::One, System::Baton(Source::best()), 50)]);
        results.found.ok(missing(System::Lttng), Err::<(), _>("not built"));
        let ratio = find(&results, "lttng_over_ours");
        assert_eq!((ratio.value, ratio.holds), (None, Some(false)));
        assert_eq!(ratio.why.as_deref(), Some("lttng-ust: not built"));
        assert!(results.ratios().iter().all(|ratio| ratio.value.is_some() || ratio.why.is_some()));
    }

    #[test]
    fn one_fault_is_too_much() {
        for (faults, holds) in [(0, true), (1, false)] {
            let mut results = LogResults::default();
            results.add_faults(faults);
            assert_eq!(find(&results, "torn_or_uncounted").holds, Some(holds));
        }
    }

    #[test]
    fn a_rate_is_of_all_writers_and_a_time_of_one() {
        let results = results(&[(Count::All, System::Pipe, 100)]);
        let row = serde_json::to_value(&results.rows()[0]).unwrap();
        assert_eq!(row["ns_per_record"], 101.0);
        assert_eq!(row["ns_per_record_spread"], serde_json::json!([100.0, 102.0]));
        assert_eq!(row["records_per_second"], (2e9_f64 / 101.0).round());
        let bytes = bytes_of(16) as f64 * 2.0 / (16.0 * 101e-9);
        assert_eq!(row["bytes_per_second"], bytes.round());
    }
}
