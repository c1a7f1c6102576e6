//! Collectors of Java machines: how late a real-time thread is beside a thread that makes garbage
//! (bench/vm/Periodic.java), and what collectors cost the program (bench/vm/Mutations.java).
//!
//! The real-time thread has SCHED_FIFO 80. Each 10 ms it allocates 8 objects of 16 bytes. The heap
//! has 64 MB, and 3 GB for the machine that never collects. The kinds of garbage are those of table
//! 5.2 of the RTAndroid thesis, the mutations those of its tables 5.3 and 5.4.

use crate::distribution::divide;
use crate::form::progress;
use crate::java_programs::{baton, program};
use crate::report::{Bar, Keys, Ratio, RowKey};
use crate::results::{Found, P50, P999, Results, Rounds, median, ratio};
use std::io;
use std::process::{Command, Stdio};
use strum::VariantArray;

/// Megabytes of garbage in a second.
const GARBAGE_MB: &str = "50";
/// Kinds of garbage. Without any, a row shows what the machine itself does to the thread.
const SHAPES: [&str; 4] = [NONE, "acyclic", "cyclic", "mixed"];
const NONE: &str = "none";
const MUTATIONS: [&str; 2] = ["allocations", "stores"];
/// Times that a process repeats its mutations.
const N_MUTATIONS: &str = "200";
const LATE: &str = "late";
/// The value of a round: the longest time that the machine has kept the real-time thread.
const PAUSE_US: &str = "pause_us";

/// A machine with one of its collectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
enum Collector {
    BatonCounting,
    BatonMarkSweep,
    /// `baton dalvikvm` with a heap that is not full before the end
    BatonNone,
    JavaZgc,
    JavaShenandoah,
}

/// The work of the real-time thread.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Periods in a round, of 10 ms
    pub n_periods: u32,
    /// Objects of 16 bytes that it allocates in each
    pub n_objects: u32,
}

impl Collector {
    fn command(self) -> io::Result<Command> {
        let options = match self {
            Collector::BatonCounting => ["-Xgc:counting", "-Xmx64m"],
            Collector::BatonMarkSweep => ["-Xgc:mark-sweep", "-Xmx64m"],
            Collector::BatonNone => ["-Xgc:mark-sweep", "-Xmx3g"],
            Collector::JavaZgc => ["-XX:+UseZGC", "-Xmx64m"],
            Collector::JavaShenandoah => ["-XX:+UseShenandoahGC", "-Xmx64m"],
        };
        let mut command;
        if self.is_ours() {
            command = Command::new(baton()?);
            command.args(["dalvikvm", "-verbose:gc"]).args(options);
            command.arg("-cp").arg(program("vm-kernels.dex")?);
        } else {
            command = Command::new("java");
            command.args(options).arg("-cp").arg(program("vm-kernels.jar")?);
        }
        command.stdin(Stdio::null());
        Ok(command)
    }

    fn is_ours(self) -> bool {
        !matches!(self, Collector::JavaZgc | Collector::JavaShenandoah)
    }

    fn late(self, shape: &'static str) -> RowKey {
        let title = format!("lateness of a real-time thread, garbage: {shape}");
        RowKey::new(self.into(), LATE).with("garbage", shape).heading(title)
    }

    fn mutation(self, kind: &'static str) -> RowKey {
        RowKey::new(self.into(), kind).heading(kind.to_owned())
    }
}

/// The numbers that a program prints, and what it says on standard error.
fn run(collector: Collector, arguments: &[&str]) -> io::Result<(Vec<u64>, String)> {
    let output = collector.command()?.args(arguments).output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        return Err(io::Error::other(format!("it ends with {}, saying {said}", output.status)));
    }
    if collector == Collector::BatonNone && said.contains("gc: ") {
        return Err(io::Error::other("it has collected: make --periods smaller"));
    }
    let numbers = String::from_utf8_lossy(&output.stdout);
    let numbers: Result<Vec<u64>, _> = numbers.lines().map(str::parse).collect();
    Ok((numbers.map_err(io::Error::other)?, said))
}

/// The longest pause of a thread, by the last report of a collection; 0 if there was none.
fn longest_pause_us(said: &str, thread: &str) -> Option<f64> {
    let Some(report) = said.lines().rfind(|line| line.starts_with("gc: ")) else {
        return Some(0.0);
    };
    let Some((_, rest)) = report.split_once(&format!("; thread {thread}: ")) else {
        return Some(0.0);
    };
    rest.split_once("longest ")?.1.split(' ').next()?.parse().ok()
}

/// Measures all, in turn.
pub fn measure(found: &mut Results, rounds: u32, work: Work) {
    let n_cases = Collector::VARIANTS.len() * SHAPES.len() + 2 * MUTATIONS.len();
    let progress = progress(rounds as usize * n_cases);
    for _ in 0..rounds {
        for shape in SHAPES {
            for collector in Collector::VARIANTS {
                progress.set_message(format!("{}, {shape}", Into::<&str>::into(*collector)));
                late(found, *collector, shape, work);
                progress.inc(1);
            }
        }
        for kind in MUTATIONS {
            for collector in [Collector::BatonCounting, Collector::BatonMarkSweep] {
                progress.set_message(kind);
                let arguments = ["Mutations", kind, N_MUTATIONS];
                let times_ns = run(collector, &arguments).map(|(times_ns, _)| times_ns);
                found.add_times(collector.mutation(kind), times_ns);
                progress.inc(1);
            }
        }
    }
    progress.finish_and_clear();
}

fn late(
    found: &mut Results,
    collector: Collector,
    shape: &'static str,
    Work { n_periods, n_objects }: Work,
) {
    let garbage_mb = if shape == NONE { "0" } else { GARBAGE_MB };
    let numbers = [n_periods, n_objects].map(|number| number.to_string());
    let arguments = ["Periodic", &numbers[0], &numbers[1], garbage_mb, shape];
    let done = run(collector, &arguments).and_then(|(times_ns, said)| {
        let pause_us = longest_pause_us(&said, "periodic");
        Ok((times_ns, pause_us.ok_or_else(|| io::Error::other(said))?))
    });
    found.add(collector.late(shape), done, |rounds, (times_ns, pause_us)| {
        rounds.times.add_round(&times_ns);
        if collector.is_ours() {
            rounds.add_value(PAUSE_US, pause_us);
        }
    });
}

/// The lateness that 999 of 1,000 periods do not exceed, of all rounds together: a round alone has
/// one period that does.
fn pooled_p999_ns(rounds: &Rounds) -> u64 {
    rounds.times.curve(&[0.999])[0].min(rounds.times.max_ns())
}

/// The values of a row of the real-time thread beside the medians of its rounds.
pub fn keys(key: &RowKey, rounds: &Rounds) -> Keys {
    let spread = rounds.times.over_rounds(|round| round.p999 as f64);
    let Some(spread) = spread.filter(|_| key.case == LATE) else { return Keys::new() };
    vec![
        ("pooled_p999_ns", pooled_p999_ns(rounds).into()),
        ("p999_spread_ns", vec![spread.least, spread.greatest].into()),
    ]
}

/// A ratio of the latenesses of all rounds together, and the ratios of the rounds.
fn late_ratio(name: String, over: Found<'_>, under: Found<'_>, bar: Bar) -> Ratio {
    let divided = over.and_then(|over| {
        let under = under?;
        let pooled = pooled_p999_ns(over) as f64 / pooled_p999_ns(under) as f64;
        Ok((pooled, divide(&P999(over), &P999(under)).1))
    });
    Ratio::new(name, divided, Some(bar))
}

/// The bars of the counting collector.
pub fn ratios(found: &Results) -> Vec<Ratio> {
    let mut ratios = Vec::new();
    for (kind, bar) in MUTATIONS.into_iter().zip([1.3, 1.5]) {
        let [over, under] = [Collector::BatonCounting, Collector::BatonMarkSweep]
            .map(|collector| found.find(&collector.mutation(kind)));
        let name = format!("{kind}_counting_over_mark_sweep");
        ratios.push(ratio(name, over, under, P50, Bar::AtMost(bar)));
    }
    for shape in SHAPES.into_iter().filter(|shape| *shape != NONE) {
        let of = |collector: Collector| found.find(&collector.late(shape));
        let counting = || of(Collector::BatonCounting);
        let pause = median(counting(), PAUSE_US);
        ratios.push(Ratio::new(format!("pause_us_{shape}"), pause, Some(Bar::AtMost(50.0))));
        let name = format!("late_p999_counting_over_none_{shape}");
        let none = of(Collector::BatonNone);
        ratios.push(late_ratio(name, counting(), none, Bar::AtMost(1.1)));
        for peer in [Collector::JavaZgc, Collector::JavaShenandoah] {
            let name: &str = peer.into();
            let name = format!("late_p999_{}_over_counting_{shape}", name.replace('-', "_"));
            ratios.push(late_ratio(name, of(peer), counting(), Bar::AtLeast(1.0)));
        }
    }
    ratios
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_periods_of_all_rounds_count_together() {
        // Of 3,000 periods four are late, all in one round.
        let rounds = |late_ns: u64| {
            let mut rounds = Rounds::default();
            for n_late in [0, 4, 0] {
                let mut times_ns = vec![100; 1000 - n_late];
                times_ns.resize(1000, late_ns);
                rounds.times.add_round(&times_ns);
            }
            rounds
        };
        let (over, under) = (rounds(1200), rounds(400));
        let ratio = late_ratio("a".into(), Ok(&over), Ok(&under), Bar::AtMost(1.1));
        assert_eq!(
            (ratio.value, ratio.spread, ratio.holds),
            (Some(3.0), Some([1.0, 3.0]), Some(false))
        );
        let key = Collector::BatonNone.late("mixed");
        let expected =
            serde_json::json!([["pooled_p999_ns", 400], ["p999_spread_ns", [100.0, 400.0]]]);
        assert_eq!(serde_json::to_value(keys(&key, &under)).unwrap(), expected);
        assert!(keys(&Collector::BatonNone.mutation("stores"), &under).is_empty());
        let missing = late_ratio("b".into(), Err("no java".into()), Ok(&under), Bar::AtMost(1.1));
        assert_eq!(missing.why.as_deref(), Some("no java"));
    }

    #[test]
    fn the_last_report_tells_the_longest_pause() {
        let said = "gc: counting, 9 us; thread periodic: 1 pauses, longest 7 us\n\
                    gc: counting, 9 us; thread load: 2 pauses, longest 900 us; \
                    thread periodic: 3 pauses, longest 12 us\nload: 50 MB/s\n";
        assert_eq!(longest_pause_us(said, "periodic"), Some(12.0));
        assert_eq!(longest_pause_us(said, "load"), Some(900.0));
        assert_eq!(longest_pause_us(said, "main"), Some(0.0));
        assert_eq!(longest_pause_us("load: 50 MB/s\n", "load"), Some(0.0));
        assert_eq!(longest_pause_us("gc: x; thread load: ?", "load"), None);
    }
}
