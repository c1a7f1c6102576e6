//! All that was measured, and what follows from it.

use crate::distribution::{Distribution, Spread};
use crate::log::messages::bytes_of;
use crate::log::paper::Gets;
use crate::log::realtime::{self, N_ORDINARY, Pace, Times, priority};
use crate::log::storm::{self, Tally};
use crate::log::system::System;
use crate::report::{Bar, Detail, Figures, Outcome, Ratio, Row};
use baton_log::moment::Source;
use serde::Serialize;
use std::collections::BTreeMap;

/// Who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Crowd {
    /// One writer.
    One,
    /// One on each processor.
    All,
}

impl Crowd {
    /// As a row has it.
    pub fn case(self) -> &'static str {
        match self {
            Crowd::One => "one-writer",
            Crowd::All => "all-processors",
        }
    }
}

/// The rounds of one system.
#[derive(Debug, Default)]
pub struct Rounds {
    ns_per_record: Vec<f64>,
    n_writers: usize,
    bytes_per_second: Vec<f64>,
    records_per_second: Vec<f64>,
    /// Of single records.
    pub times: Distribution,
}

/// Records in a row, each the median of the rounds, with the least and the greatest.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rate {
    /// Bytes of messages, of all writers.
    pub bytes_per_second: f64,
    /// The same of the rounds.
    pub bytes_per_second_spread: [f64; 2],
    /// Records of all writers.
    pub records_per_second: f64,
    /// What a record takes its writer.
    pub ns_per_record: f64,
    /// The same of the rounds.
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
        let tenths = |value: f64| (value * 10.0).round() / 10.0;
        Some(Rate {
            bytes_per_second: bytes.median.round(),
            bytes_per_second_spread: [bytes.least.round(), bytes.greatest.round()],
            records_per_second: of(&self.records_per_second)?.median.round(),
            ns_per_record: tenths(time.median),
            ns_per_record_spread: [tenths(time.least), tenths(time.greatest)],
        })
    }
}

/// What was measured, and why the rest was not.
#[derive(Debug, Default)]
pub struct Measured {
    /// Systems.
    pub rounds: BTreeMap<(Crowd, System), Rounds>,
    /// Those that are not there, or have failed.
    pub missing: BTreeMap<System, String>,
    /// A real-time writer.
    pub real_time: Option<Result<Times, String>>,
    /// Killed writers.
    pub storm: Option<Result<Tally, String>>,
}

type Value = Result<(f64, Option<Spread>), String>;

fn row(system: &'static str, case: &'static str, detail: Option<Detail>, outcome: Outcome) -> Row {
    Row { system, case, payload_bytes: None, placement: None, detail, outcome }
}

impl Measured {
    /// All rows.
    pub fn rows(&self) -> Vec<Row> {
        let mut rows: Vec<Row> = self.rounds.iter().filter_map(Measured::row).collect();
        rows.extend(self.missing.iter().map(|(system, why)| {
            row(system.name(), "all", None, Outcome::Missing { why: why.clone() })
        }));
        let ours = System::Baton(Source::best()).name();
        match &self.real_time {
            Some(Ok(times)) => {
                let floor = System::Floor(Source::best()).name();
                let cases = [
                    (ours, Pace::Full, &times.full),
                    (floor, Pace::Full, &times.floor),
                    (ours, Pace::Periodic, &times.periodic),
                ];
                rows.extend(cases.map(|(system, pace, times)| {
                    let detail =
                        Detail::RealTimeWriter { priority: priority(), writers: N_ORDINARY };
                    let figures = Figures::of(&times.told).expect("it has rounds");
                    row(system, pace.case(), Some(detail), Outcome::Measured(figures))
                }));
            }
            Some(Err(why)) => {
                rows.push(row(ours, Pace::Full.case(), None, Outcome::Missing { why: why.clone() }))
            }
            None => {}
        }
        rows.extend(self.storm.as_ref().map(|storm| {
            row(
                ours,
                storm::CASE,
                None,
                match storm {
                    Ok(tally) => Outcome::Counted(*tally),
                    Err(why) => Outcome::Missing { why: why.clone() },
                },
            )
        }));
        rows
    }

    fn row((&(crowd, system), rounds): (&(Crowd, System), &Rounds)) -> Option<Row> {
        let detail = Detail::Writers { writers: rounds.n_writers, rate: rounds.rate()? };
        let figures = Figures::of(&rounds.times)?;
        Some(row(system.name(), crowd.case(), Some(detail), Outcome::Measured(figures)))
    }

    /// All ratios.
    pub fn ratios(&self) -> Vec<Ratio> {
        use Crowd::{All, One};
        use System::{Baton, Datagram, Floor, Lttng, Paper, Spdlog, TracingAppender};
        let paper = Paper(Gets::FromThePage);
        let (ours, counter, vdso) = (Source::best(), Source::Counter, Source::Vdso);
        let bytes = |name: &str, over, crowd, bar| {
            // Both write the same messages: what one takes longer it writes less.
            Ratio::new(name.into(), self.over((crowd, paper), (crowd, over)), bar)
        };
        let times = |name: &str, over, under, bar| {
            Ratio::new(name.into(), self.over((One, over), (One, under)), bar)
        };
        let (at_least, at_most) = (|bar| Some(Bar::AtLeast(bar)), |bar| Some(Bar::AtMost(bar)));
        let mut ratios = vec![
            bytes("bytes_over_paper_one_vdso", Baton(vdso), One, at_least(1.2)),
            bytes("bytes_over_paper_one_tsc", Baton(counter), One, at_least(1.5)),
            bytes("bytes_over_paper_all", Baton(ours), All, at_least(10.0)),
            times("lttng_over_ours", Lttng, Baton(ours), at_least(3.0)),
            times("dgram_over_ours", Datagram, Baton(ours), at_least(20.0)),
            times("ours_over_floor", Baton(ours), Floor(ours), at_most(1.5)),
            times("ours_over_floor_vdso", Baton(vdso), Floor(vdso), at_most(1.5)),
            Ratio::new("slow_clock_over_its_price".into(), self.slow_clock(), None),
            times("spdlog_over_ours", Spdlog, Baton(ours), None),
            times("tracing_appender_over_ours", TracingAppender, Baton(ours), None),
        ];
        ratios.extend([
            Ratio::new("rt_p999_over_p50".into(), self.tail(|times| &times.full), at_most(2.0)),
            Ratio::new("rt_floor_p999_over_p50".into(), self.tail(|times| &times.floor), None),
            Ratio::new(
                "rt_periodic_p999_over_p50".into(),
                self.tail(|times| &times.periodic),
                None,
            ),
            Ratio::new("torn_or_uncounted".into(), self.faults(), at_most(0.0)),
        ]);
        ratios
    }

    fn find(&self, case: (Crowd, System)) -> Result<&Rounds, String> {
        self.rounds.get(&case).ok_or_else(|| match self.missing.get(&case.1) {
            Some(why) => format!("{}: {why}", case.1.name()),
            None => format!("{} was not measured", case.1.name()),
        })
    }

    /// What a record takes, over what another one does.
    fn over(&self, over: (Crowd, System), under: (Crowd, System)) -> Value {
        let (over, under) = (&self.find(over)?.ns_per_record, &self.find(under)?.ns_per_record);
        let ratios = over.iter().zip(under).map(|(over, under)| over / under);
        Ok((median(over)? / median(under)?, Spread::of(ratios)))
    }

    /// What a clock that is a system call adds to a record of ours, over what it adds to the floor.
    fn slow_clock(&self) -> Value {
        let median = |system: fn(Source) -> System, source| {
            median(&self.find((Crowd::One, system(source)))?.ns_per_record)
        };
        let added = |system| {
            Ok::<_, String>(median(system, Source::SystemCall)? - median(system, Source::best())?)
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
        let tally = self.storm.as_ref().ok_or("not measured")?;
        Ok((tally.as_ref().map_err(Clone::clone)?.faults() as f64, None))
    }
}

fn median(values: &[f64]) -> Result<f64, String> {
    Spread::of(values.iter().copied()).map(|spread| spread.median).ok_or("not measured".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(times_ns: &[(Crowd, System, u64)]) -> Measured {
        let mut found = Measured::default();
        for &(crowd, system, time_ns) in times_ns {
            let rounds = found.rounds.entry((crowd, system)).or_default();
            for more_ns in [0, 2, 1] {
                rounds.add(2, 16, 16 * (time_ns + more_ns));
            }
        }
        found
    }

    fn find(found: &Measured, name: &str) -> Ratio {
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
            let found = found(&[(Crowd::One, over, times_ns.0), (Crowd::One, under, times_ns.1)]);
            assert_eq!(find(&found, name).holds, Some(holds), "{name} {times_ns:?}");
        }
    }

    #[test]
    fn what_was_not_measured_does_not_hold_and_says_why() {
        let mut found = found(&[(Crowd::One, System::Baton(Source::best()), 50)]);
        found.missing.insert(System::Lttng, "not built".into());
        let ratio = find(&found, "lttng_over_ours");
        assert_eq!((ratio.value, ratio.holds), (None, Some(false)));
        assert_eq!(ratio.why.as_deref(), Some("lttng-ust: not built"));
        assert!(found.ratios().iter().all(|ratio| ratio.value.is_some() || ratio.why.is_some()));
    }

    #[test]
    fn one_fault_is_too_much() {
        for (faults, holds) in [(0, true), (1, false)] {
            let tally = Tally { uncounted: faults, ..Tally::default() };
            let found = Measured { storm: Some(Ok(tally)), ..Measured::default() };
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
