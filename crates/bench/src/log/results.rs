//! All that was measured, and what follows from it: rows, ratios, tables and charts.

use crate::chart::{self, Chart};
use crate::distribution::{Distribution, Spread};
use crate::log::kill_test::{self, Tally};
use crate::log::messages::bytes_of;
use crate::log::paper::Gets;
use crate::log::realtime::{self, N_ORDINARY, Pace, Times, priority};
use crate::log::system::System;
use crate::report::{Bar, Detail, Outcome, Ratio, Report, Row, Value, rounded};
use crate::results::Results;
use baton_log::moment::Source;
use serde::Serialize;

const LEAD: &str = "What a single record takes, two readings of the clock included: how many are \
                    not longer. Time is on a logarithmic axis, as are the nines of the share.";

/// One writer, or one on each processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
pub enum Count {
    #[strum(serialize = "one-writer")]
    One,
    #[strum(serialize = "all-processors")]
    All,
}

impl Count {
    pub fn case(self) -> &'static str {
        self.into()
    }
}

/// The rounds of one system.
#[derive(Debug, Default)]
pub struct Rounds {
    ns_per_record: Vec<f64>,
    n_writers: usize,
    bytes_per_second: Vec<f64>,
    records_per_second: Vec<f64>,
    pub times: Distribution,
}

/// Records in a row, each the median of the rounds, with the least and the greatest.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rate {
    pub bytes_per_second: f64,
    pub bytes_per_second_spread: [f64; 2],
    pub records_per_second: f64,
    pub ns_per_record: f64,
    pub ns_per_record_spread: [f64; 2],
}

impl Rounds {
    /// Adds a round: how long so many writers took for so many records each.
    pub fn add(&mut self, n_writers: usize, n_records: usize, duration_ns: u64) {
        let seconds = duration_ns.max(1) as f64 / 1e9;
        self.n_writers = n_writers;
        self.ns_per_record.push(duration_ns as f64 / n_records as f64);
        self.records_per_second.push((n_records * n_writers) as f64 / seconds);
        self.bytes_per_second.push(bytes_of(n_records) as f64 * n_writers as f64 / seconds);
    }

    fn rate(&self) -> Option<Rate> {
        let of = |values: &Vec<f64>| Spread::of(values.iter().copied());
        let (bytes, time) = (of(&self.bytes_per_second)?, of(&self.ns_per_record)?);
        let tenths = |value: f64| rounded(value, 10.0);
        Some(Rate {
            bytes_per_second: bytes.median.round(),
            bytes_per_second_spread: [bytes.least.round(), bytes.greatest.round()],
            records_per_second: of(&self.records_per_second)?.median.round(),
            ns_per_record: tenths(time.median),
            ns_per_record_spread: [tenths(time.least), tenths(time.greatest)],
        })
    }
}

#[derive(Debug, Default)]
pub struct LogResults {
    pub rates: Results<(Count, System), Rounds>,
    pub real_time: Option<Result<Times, String>>,
    pub killed: Option<Result<Tally, String>>,
}

impl LogResults {
    pub fn rows(&self) -> Vec<Row> {
        let rates = self.rates.measured.iter().filter_map(|(&(count, system), rounds)| {
            let row = Row::new(system.name(), count.case(), Outcome::of(&rounds.times)?);
            let rate = rounds.rate()?;
            Some(row.detail(Detail::Writers { writers: rounds.n_writers, rate }))
        });
        let ours = System::Baton(Source::best()).name();
        let real_time = match &self.real_time {
            Some(Ok(times)) => {
                let floor = System::Floor(Source::best()).name();
                let cases = [
                    (ours, Pace::Full, &times.full),
                    (floor, Pace::Full, &times.floor),
                    (ours, Pace::Periodic, &times.periodic),
                ];
                let row = |(system, pace, rounds): (_, Pace, &realtime::Rounds)| {
                    let (priority, writers) = (priority(), N_ORDINARY);
                    let row = Row::new(system, pace.case(), Outcome::of(&rounds.told)?);
                    Some(row.detail(Detail::RealTimeWriter { priority, writers }))
                };
                cases.into_iter().filter_map(row).collect()
            }
            Some(Err(why)) => vec![Row::new(ours, Pace::Full.case(), Outcome::missing(why))],
            None => Vec::new(),
        };
        let killed = self.killed.as_ref().map(|killed| match killed {
            Ok(tally) => Row::new(ours, kill_test::CASE, Outcome::Counted(*tally)),
            Err(why) => Row::new(ours, kill_test::CASE, Outcome::missing(why)),
        });
        rates.chain(self.rates.missing_rows("all")).chain(real_time).chain(killed).collect()
    }

    pub fn ratios(&self) -> Vec<Ratio> {
        use Count::{All, One};
        use System::{Baton, Datagram, Floor, Lttng, Paper, Spdlog, TracingAppender};
        let paper = Paper(Gets::FromThePage);
        let (ours, counter, vdso) = (Source::best(), Source::Counter, Source::Vdso);
        // All write the same messages: a system writes as much less as a record takes it longer.
        let over = |name: &str, count, over, under, bar| {
            Ratio::new(name, self.over((count, over), (count, under)), bar)
        };
        let (at_least, at_most) = (|bar| Some(Bar::AtLeast(bar)), |bar| Some(Bar::AtMost(bar)));
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
            Ratio::new("rt_p999_over_p50", self.tail(|times| &times.full), at_most(2.0)),
            Ratio::new("rt_floor_p999_over_p50", self.tail(|times| &times.floor), None),
            Ratio::new("rt_periodic_p999_over_p50", self.tail(|times| &times.periodic), None),
            Ratio::new("torn_or_uncounted", self.faults(), at_most(0.0)),
        ]
    }

    fn find(&self, case: (Count, System)) -> Result<&Vec<f64>, String> {
        Ok(&self.rates.find(&case, case.1.name())?.ns_per_record)
    }

    /// What a record takes, over what another one does.
    fn over(&self, over: (Count, System), under: (Count, System)) -> Value {
        let (over, under) = (self.find(over)?, self.find(under)?);
        let ratios = over.iter().zip(under).map(|(over, under)| over / under);
        Ok((median(over)? / median(under)?, Spread::of(ratios)))
    }

    /// What a clock that is a system call adds to a record of ours, over what it adds to the floor.
    fn slow_clock(&self) -> Value {
        let added = |system: fn(Source) -> System| {
            let of = |source| median(self.find((Count::One, system(source)))?);
            Ok::<_, String>(of(Source::SystemCall)? - of(Source::best())?)
        };
        Ok((added(System::Baton)? / added(System::Floor)?, None))
    }

    fn tail(&self, times: fn(&Times) -> &realtime::Rounds) -> Value {
        let measured = self.real_time.as_ref().ok_or("not measured")?;
        let rounds = &times(measured.as_ref().map_err(Clone::clone)?).quantiles;
        let of = |value: fn(&(f64, f64)) -> f64| Spread::of(rounds.iter().map(value));
        let (p50, p999) = of(|round| round.0).zip(of(|round| round.1)).ok_or("not measured")?;
        Ok((p999.median / p50.median, of(|round| round.1 / round.0)))
    }

    fn faults(&self) -> Value {
        let tally = self.killed.as_ref().ok_or("not measured")?;
        Ok((tally.as_ref().map_err(Clone::clone)?.faults() as f64, None))
    }

    pub fn page(&self, report: &Report, tables: &str) -> String {
        let measured = &self.rates.measured;
        let chart = |count: Count| {
            let of_count = measured.iter().filter(|(case, _)| case.0 == count);
            let named = of_count.map(|(case, rounds)| (case.1.name(), &rounds.times));
            chart::percentiles(count.case(), named)
        };
        let charts: Vec<Chart> = [Count::One, Count::All].into_iter().filter_map(chart).collect();
        let mut names: Vec<_> = measured.keys().map(|case| case.1.name()).collect();
        names.sort_unstable();
        names.dedup();
        chart::page(report, LEAD, &names, &charts, tables)
    }
}

fn median(values: &[f64]) -> Result<f64, String> {
    Spread::of(values.iter().copied()).map(|spread| spread.median).ok_or("not measured".into())
}

pub fn tables(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut last = "";
    for row in rows {
        if let Outcome::Counted(tally) = &row.outcome {
            let Tally { kills, written, seen, overwritten, torn, uncounted } = tally;
            text += &format!(
                "\n{kills} writers killed: {written} records written, {seen} read, {overwritten} \
                 told as overwritten, {torn} torn, {uncounted} uncounted\n"
            );
        }
        let (title, rate) = match &row.detail {
            Some(Detail::Writers { writers, rate }) => {
                let Rate { ns_per_record, ns_per_record_spread: [least, greatest], .. } = rate;
                let spread = format!("[{least:.1} .. {greatest:.1}]");
                let [bytes, records] =
                    [rate.bytes_per_second, rate.records_per_second].map(|it| it / 1e6);
                let title = match writers {
                    1 => "1 writer".to_owned(),
                    _ => format!("{writers} writers, one on each processor"),
                };
                (title, format!("{ns_per_record:>9.1}  {spread:<19}{bytes:>9.1}{records:>9.2}"))
            }
            Some(Detail::RealTimeWriter { priority, writers }) => {
                let beside = format!("beside {writers} ordinary writers and a reader");
                (format!("{}, {priority}, {beside}", row.case), format!("{:>48}", ""))
            }
            _ => continue,
        };
        if last != row.case {
            last = row.case;
            text += &format!(
                "\n{title}\n{:<19}{:>9}  {:<19}{:>9}{:>9}  {:>8}{:>8}{:>9}{:>11}\n",
                "", "ns/record", "", "MB/s", "M rec/s", "one: p50", "p99", "p99.9", "max"
            );
        }
        let Some(it) = row.figures() else { continue };
        let (p50, p99, p999, max) = (it.p50_ns, it.p99_ns, it.p999_ns, it.max_ns);
        text += &format!("{:<19}{rate}  {p50:>8.0}{p99:>8.0}{p999:>9.0}{max:>11}\n", row.system);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(times_ns: &[(Count, System, u64)]) -> LogResults {
        let mut found = LogResults::default();
        for &(count, system, time_ns) in times_ns {
            let rounds = found.rates.measured.entry((count, system)).or_default();
            for more_ns in [0, 2, 1] {
                rounds.add(2, 16, 16 * (time_ns + more_ns));
            }
        }
        found
    }

    fn find(found: &LogResults, name: &str) -> Ratio {
        found.ratios().into_iter().find(|ratio| ratio.name == name).unwrap()
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
            let found = found(&[(Count::One, over, times_ns.0), (Count::One, under, times_ns.1)]);
            assert_eq!(find(&found, name).holds, Some(holds), "{name} {times_ns:?}");
        }
    }

    #[test]
    fn what_was_not_measured_does_not_hold_and_says_why() {
        let mut found = found(&[(Count::One, System::Baton(Source::best()), 50)]);
        found.rates.missing.insert("lttng-ust", "not built".into());
        let ratio = find(&found, "lttng_over_ours");
        assert_eq!((ratio.value, ratio.holds), (None, Some(false)));
        assert_eq!(ratio.why.as_deref(), Some("lttng-ust: not built"));
        assert!(found.ratios().iter().all(|ratio| ratio.value.is_some() || ratio.why.is_some()));
    }

    #[test]
    fn one_fault_is_too_much() {
        for (faults, holds) in [(0, true), (1, false)] {
            let tally = Tally { uncounted: faults, ..Tally::default() };
            let found = LogResults { killed: Some(Ok(tally)), ..LogResults::default() };
            assert_eq!(find(&found, "torn_or_uncounted").holds, Some(holds));
        }
    }

    #[test]
    fn a_rate_is_of_all_writers_and_a_time_of_one() {
        let mut rounds = Rounds::default();
        for duration_ns in [1600, 3200, 800] {
            rounds.add(2, 16, duration_ns);
        }
        let rate = rounds.rate().unwrap();
        assert_eq!((rate.ns_per_record, rate.ns_per_record_spread), (100.0, [50.0, 200.0]));
        assert_eq!(rate.records_per_second, 2e7);
        assert_eq!(rate.bytes_per_second, (bytes_of(16) as f64 * 2.0 / 1600e-9).round());
    }
}
