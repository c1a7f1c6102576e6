//! Collectors of Java machines: how late a real-time thread is beside a thread that makes garbage
//! (bench/vm/Periodic.java), and what collectors cost the program (bench/vm/Mutations.java).
//!
//! The real-time thread has SCHED_FIFO 80, and is bound to one processor. Each period it allocates
//! 8 objects of 16 bytes. The heap has 64 MB, and 3 GB for the machine that never collects. The
//! kinds of garbage are those of table 5.2 of the RTAndroid thesis, the mutations those of its
//! tables 5.3 and 5.4.
//!
//! A [`Sentinel`] measures the machine's own lateness at the same instants on the same processor.
//! Bars are of the difference, which the Java machine and its collector add. All systems are alike:
//! the sentinel beside them, processors that do not sleep, and memory that is there before the
//! periods begin.

use crate::form::or_without;
use crate::java_programs::{Machine, numbers, run};
use crate::pooled::{self, Pooled};
use crate::report::{Bar, Keys, Ratio, RowKey};
use crate::results::{Found, P50, Results, Rounds, median, ratio};
use crate::sentinel::{Beat, Sentinel, added_ns};
use crate::turns::{by_name, each_round};
use baton_rt::{Paths, idle};
use std::io;

/// Megabytes of garbage in a second.
const GARBAGE_MB: &str = "50";
/// Kinds of garbage. Without any, a row shows what the machine itself does to the thread.
const SHAPES: [&str; 4] = [NONE, "acyclic", "cyclic", "mixed"];
const NONE: &str = "none";
/// The size of a heap that is collected, and of one that is not a quarter full at the end: that is
/// when the first collection would be.
const HEAP_MB: u32 = 64;
const WHOLE_HEAP_MB: u32 = 3 << 10;
/// The machines, each with one of its collectors; those of the JDK.
const MACHINES: [Machine; 5] = [
    Machine::BatonCounting,
    Machine::BatonMarkSweep,
    Machine::BatonNone,
    Machine::JavaZgc,
    Machine::JavaShenandoah,
];
const PEERS: [Machine; 2] = [Machine::JavaZgc, Machine::JavaShenandoah];
const MUTATIONS: [&str; 2] = ["allocations", "stores"];
/// Times that a process repeats its mutations.
const N_MUTATIONS: &str = "200";
/// Rounds of the mutations, whose medians differ little.
const MUTATION_ROUNDS: u32 = 5;
/// Cases: when the work was done, when the machine ran the sentinel, and the difference.
const LATE: &str = "late";
const MACHINE: &str = "machine";
const ADDED: &str = "added";
/// Values of a round: the longest time that the Java machine has kept its threads; minor faults and
/// preemptions of the real-time thread; the share of periods that [`added_ns`] leaves out.
const PAUSE_US: &str = "pause_us";
const FAULTS: &str = "faults";
const PREEMPTIONS: &str = "preemptions";
const LEFT_OUT: &str = "left_out_percent";
/// Periods of a sentinel: a Java machine that takes longer to start than this has got stuck.
const PATIENCE_S: u32 = 30;

/// The work of the real-time thread.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Periods in a round
    pub n_periods: u32,
    /// The length of one
    pub period_us: u32,
    /// Objects of 16 bytes that it allocates in each
    pub n_objects: u32,
    /// Where it runs
    pub cpu: usize,
}

/// The measurements of one process.
struct Lateness {
    late_ns: Vec<u64>,
    machine_ns: Vec<[u64; 2]>,
    pause_us: f64,
    n_faults: u64,
    n_preemptions: u64,
}

impl Work {
    fn seconds(self) -> u32 {
        (u64::from(self.n_periods) * u64::from(self.period_us)).div_ceil(1_000_000) as u32
    }
}

/// The row of one of [`LATE`], [`MACHINE`] and [`ADDED`].
fn late_key(machine: Machine, case: &'static str, shape: &'static str) -> RowKey {
    let what = match case {
        LATE => "of a real-time thread",
        MACHINE => "of the machine beside it",
        _ => "of that thread less the machine's own",
    };
    let title = format!("lateness {what}, garbage: {shape}");
    RowKey::new(machine.into(), case).with("garbage", shape).heading(title)
}

/// The numbers that a program prints, and what it says on standard error.
fn compute(machine: Machine, arguments: &[&str]) -> io::Result<(Vec<u64>, String)> {
    let heap_mb = if machine == Machine::BatonNone { WHOLE_HEAP_MB } else { HEAP_MB };
    let heap = format!("-Xmx{heap_mb}m");
    // The JDK touches its heap, as the program does on the other machine, by a class that this one
    // has not.
    let options: &[&str] = match machine.is_ours() {
        true => &["-verbose:gc", &heap],
        false => &["-XX:+AlwaysPreTouch", "-Xlog:safepoint:stderr:none", &heap],
    };
    let mut command = machine.command(options)?;
    command.args(arguments);
    let [printed, said] = run(command)?;
    if machine == Machine::BatonNone && said.contains("gc: ") {
        return Err(io::Error::other("it has collected: make --periods smaller"));
    }
    Ok((numbers(&printed)?, said))
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

/// The longest stop of all threads by a collector of the JDK, by the log of safepoints.
fn longest_stop_us(said: &str) -> Option<f64> {
    let is_collectors = |line: &&str| {
        ["Safepoint \"Z", "Safepoint \"Shenandoah"].iter().any(|it| line.starts_with(it))
    };
    let stops = said.lines().filter(is_collectors);
    let total = |line: &str| line.split_once(", Total: ")?.1.strip_suffix(" ns")?.parse().ok();
    let totals: Vec<f64> = stops.map(total).collect::<Option<_>>()?;
    Some(totals.into_iter().fold(0.0, f64::max) / 1000.0)
}

/// Measures all, in turn.
pub fn measure(found: &mut Results, rounds: u32, work: Work) {
    let awake = or_without("vm", idle::Bound::new(&Paths::default(), 0));
    let of_round = |round: u32| {
        // Nobody always comes after the same neighbour.
        let mut machines = MACHINES;
        machines.rotate_left(round as usize % MACHINES.len());
        let of_shape = move |shape| machines.map(|machine| (round, shape, machine));
        SHAPES.into_iter().flat_map(of_shape)
    };
    let steps: Vec<(u32, &'static str, Machine)> = (0..rounds).flat_map(of_round).collect();
    let title = |(_, shape, machine): &(u32, &str, Machine)| format!("{}, {shape}", machine.word());
    each_round(1, &steps, title, |&(round, shape, machine)| {
        add(found, machine, shape, late(machine, shape, round, work));
    });
    drop(awake);
    each_round(rounds.min(MUTATION_ROUNDS), &MUTATIONS, by_name, |&kind| {
        for machine in [Machine::BatonCounting, Machine::BatonMarkSweep] {
            let times_ns = compute(machine, &["Mutations", kind, N_MUTATIONS]).map(|it| it.0);
            found.add_times(machine.key(kind), times_ns);
        }
    });
}

fn late(machine: Machine, shape: &'static str, round: u32, work: Work) -> io::Result<Lateness> {
    // Each round is somewhere else between two ticks of the kernel.
    let phase_us = (f64::from(round) * 0.618).fract() * f64::from(work.period_us);
    let beat = Beat { period_us: work.period_us, phase_us: phase_us as u32 };
    let seconds = u64::from(work.seconds() + PATIENCE_S);
    let most_periods = seconds * 1_000_000 / u64::from(work.period_us);
    let garbage_mb = if shape == NONE { "0" } else { GARBAGE_MB };
    let [n_periods, period_us, phase_us, n_objects] =
        [work.n_periods, beat.period_us, beat.phase_us, work.n_objects].map(|it| it.to_string());
    let cpu = work.cpu.to_string();
    let arguments =
        ["Periodic", &n_periods, &period_us, &phase_us, &cpu, &n_objects, garbage_mb, shape];
    let sentinel = Sentinel::start(work.cpu, beat, most_periods as usize);
    let done = compute(machine, &arguments);
    let wakes = sentinel.finish().map_err(io::Error::other)?;
    let (numbers, said) = done?;
    let pause_us = match machine.is_ours() {
        true => longest_pause_us(&said, "periodic"),
        false => longest_stop_us(&said),
    };
    let [first, n_faults, n_preemptions, late_ns @ ..] = &numbers[..] else {
        return Err(io::Error::other("it prints too few numbers"));
    };
    let machine_ns = wakes.of(*first, late_ns.len());
    Ok(Lateness {
        late_ns: late_ns.to_vec(),
        machine_ns: machine_ns.ok_or_else(|| io::Error::other("the sentinel slept"))?.to_vec(),
        pause_us: pause_us.ok_or_else(|| io::Error::other(said))?,
        n_faults: *n_faults,
        n_preemptions: *n_preemptions,
    })
}

fn add(found: &mut Results, machine: Machine, shape: &'static str, done: io::Result<Lateness>) {
    let done = done.map_err(|error| error.to_string());
    let missing = || done.as_ref().map_err(String::clone);
    found.add(late_key(machine, LATE, shape), missing(), |rounds, it| {
        rounds.keep_round(it.late_ns.clone());
        rounds.add_value(PAUSE_US, it.pause_us);
        rounds.add_value(FAULTS, it.n_faults as f64);
        rounds.add_value(PREEMPTIONS, it.n_preemptions as f64);
    });
    found.add(late_key(machine, MACHINE, shape), missing(), |rounds, it| {
        rounds.keep_round(it.machine_ns.iter().map(|late_ns| late_ns[0]).collect());
    });
    found.add(late_key(machine, ADDED, shape), missing(), |rounds, it| {
        let added_ns = added_ns(&it.late_ns, &it.machine_ns);
        let n_left_out = it.late_ns.len() - added_ns.len();
        rounds.add_value(LEFT_OUT, 100.0 * n_left_out as f64 / it.late_ns.len() as f64);
        rounds.keep_round(added_ns);
    });
}

/// The values of a row of the real-time thread beside the medians of its rounds: those of all
/// rounds together, with the interval in which p99.9 lies.
pub fn keys(key: &RowKey, rounds: &Rounds) -> Keys {
    if ![LATE, MACHINE, ADDED].contains(&key.case) {
        return Keys::new();
    }
    let pooled = Pooled::new(rounds.kept());
    let mut keys: Keys = [("all_p50_ns", 0.5), ("all_p99_ns", 0.99), ("all_p999_ns", 0.999)]
        .map(|(name, quantile)| (name, pooled.quantile(quantile).into()))
        .into();
    if let Ok(interval) = pooled::interval(&pooled, 0.999) {
        keys.push(("all_p999_interval_ns", interval.to_vec().into()));
    }
    for name in [PAUSE_US, FAULTS, PREEMPTIONS, LEFT_OUT] {
        keys.extend(rounds.spread(name).map(|spread| (name, spread.median.into())));
    }
    keys
}

/// A ratio of a quantile of all rounds, of one kind of garbage or of several together, with the
/// interval that decides its bar.
fn late_ratio(
    name: String,
    over: &[Found<'_>],
    under: &[Found<'_>],
    quantile: f64,
    bar: Option<Bar>,
) -> Ratio {
    let pooled = |all: &[Found<'_>]| {
        let all: Vec<&Rounds> = all.iter().cloned().collect::<Result<_, _>>()?;
        let n_rounds = all.iter().map(|rounds| rounds.kept().len()).min().unwrap_or(0);
        let round = |at: usize| all.iter().flat_map(|rounds| rounds.kept()[at].clone()).collect();
        Ok::<_, String>(Pooled::new(&(0..n_rounds).map(round).collect::<Vec<_>>()))
    };
    match pooled(over).and_then(|over| Ok(pooled::ratio(&over, &pooled(under)?, quantile))) {
        Ok((value, interval)) => Ratio::new(name, Ok((value, None)), bar).decided_by(interval),
        Err(why) => Ratio::new(name, Err(why), bar),
    }
}

/// A quantile of lateness beside some kinds of garbage together.
#[derive(Clone, Copy)]
struct Comparison<'a> {
    case: &'static str,
    shapes: &'a [&'static str],
    /// Its name, and the share of periods that are not later
    quantile: (&'static str, f64),
    has_bar: bool,
}

impl Comparison<'_> {
    /// Counting over no collector, and each of the JDK's over counting.
    fn ratios(self, found: &Results) -> Vec<Ratio> {
        let Comparison { case, shapes, quantile: (word, quantile), has_bar } = self;
        let of = |machine: Machine| {
            let all = shapes.iter().map(|shape| found.find(&late_key(machine, case, shape)));
            all.collect::<Vec<_>>()
        };
        let end = if let [shape] = shapes { format!("_{shape}") } else { String::new() };
        let counting = of(Machine::BatonCounting);
        let bar = |bar| has_bar.then_some(bar);
        let name = format!("{case}_{word}_counting_over_none{end}");
        let (none, at_most) = (of(Machine::BatonNone), bar(Bar::AtMost(1.1)));
        let mut ratios = vec![late_ratio(name, &counting, &none, quantile, at_most)];
        for peer in PEERS {
            let name = format!("{case}_{word}_{}_over_counting{end}", peer.word());
            let at_least = bar(Bar::AtLeast(1.0));
            ratios.push(late_ratio(name, &of(peer), &counting, quantile, at_least));
        }
        ratios
    }
}

/// The bars of the counting collector.
pub fn ratios(found: &Results) -> Vec<Ratio> {
    let mut ratios = Vec::new();
    for (kind, bar) in MUTATIONS.into_iter().zip([1.3, 1.5]) {
        let [over, under] = [Machine::BatonCounting, Machine::BatonMarkSweep]
            .map(|machine| found.find(&machine.key(kind)));
        let name = format!("{kind}_counting_over_mark_sweep");
        ratios.push(ratio(name, over, under, P50, Bar::AtMost(bar)));
    }
    let shapes = SHAPES.map(|shape| [shape]);
    let shapes = || shapes.iter().filter(|shape| **shape != [NONE]);
    for shapes @ [shape] in shapes() {
        let pause =
            |machine: Machine| median(found.find(&late_key(machine, LATE, shape)), PAUSE_US);
        let own = pause(Machine::BatonCounting);
        let own_us = own.as_ref().map_or(f64::NAN, |own| own.0);
        ratios.push(Ratio::new(format!("pause_us_{shape}"), own, Some(Bar::AtMost(50.0))));
        for peer in PEERS {
            let name = format!("pause_us_{}_{shape}", peer.word());
            ratios.push(Ratio::new(name, pause(peer), Some(Bar::AtLeast(own_us))));
        }
        for case in [ADDED, LATE] {
            let quantile = ("p999", 0.999);
            let comparison = Comparison { case, shapes, quantile, has_bar: false };
            ratios.extend(comparison.ratios(found));
        }
    }
    let shapes: Vec<_> = shapes().map(|[shape]| *shape).collect();
    for (quantile, has_bar) in
        [(("p50", 0.5), false), (("p99", 0.99), false), (("p999", 0.999), true)]
    {
        let comparison = Comparison { case: ADDED, shapes: &shapes, quantile, has_bar };
        ratios.extend(comparison.ratios(found));
    }
    ratios
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of 1,000 periods, of which four of one round are late.
    fn rounds(n_rounds: usize, late_ns: u64) -> Rounds {
        let mut rounds = Rounds::default();
        for round in 0..n_rounds {
            let n_late = if round == 1 { 4 } else { 0 };
            let mut times_ns = vec![100; 1000 - n_late];
            times_ns.resize(1000, late_ns);
            rounds.keep_round(times_ns);
        }
        rounds
    }

    #[test]
    fn late_periods_of_all_rounds_count_together() {
        let (over, under, many) = (rounds(3, 1200), rounds(3, 400), rounds(10, 400));
        let bar = Some(Bar::AtMost(1.1));
        for (over, under, value, interval, holds, why) in [
            (vec![&over], vec![&under], Some(3.0), None, None, Some("not decided: 3 rounds")),
            // Eight of 6,000 are late.
            (vec![&over, &over], vec![&under, &under], Some(3.0), None, None, Some("not decided")),
            (vec![&many], vec![&many], Some(1.0), Some([1.0, 1.0]), Some(true), None),
            (vec![], vec![&many], None, None, Some(false), Some("lost")),
        ] {
            let over: Vec<Found<'_>> = match over.is_empty() {
                true => vec![Err("lost".into())],
                false => over.into_iter().map(Ok).collect(),
            };
            let under: Vec<Found<'_>> = under.into_iter().map(Ok).collect();
            let ratio = late_ratio("a".into(), &over, &under, 0.999, bar);
            assert_eq!((ratio.value, ratio.interval, ratio.holds), (value, interval, holds));
            let said = ratio.why.unwrap_or_default();
            assert!(said.starts_with(why.unwrap_or_default()), "{said}");
        }
    }

    #[test]
    fn a_row_has_the_quantiles_of_all_rounds() {
        let mut rounds = rounds(10, 400);
        rounds.add_value(FAULTS, 3.0);
        for (case, expected) in [
            (
                LATE,
                serde_json::json!([
                    ["all_p50_ns", 100],
                    ["all_p99_ns", 100],
                    ["all_p999_ns", 100],
                    ["all_p999_interval_ns", [100.0, 400.0]],
                    ["faults", 3.0]
                ]),
            ),
            ("stores", serde_json::json!([])),
        ] {
            let key = RowKey::new("baton-none", case);
            assert_eq!(serde_json::to_value(keys(&key, &rounds)).unwrap(), expected, "{case}");
        }
    }

    #[test]
    fn stops_of_a_collector_are_found_among_others() {
        let stop =
            |name, total| format!("Safepoint \"{name}\", At safepoint: 1 ns, Total: {total}\n");
        for (said, expected) in [
            (String::new(), Some(0.0)),
            (stop("Cleanup", "900000 ns"), Some(0.0)),
            (stop("ZMarkEnd", "9000 ns") + &stop("ZMarkStart", "19000 ns") + "load: 5", Some(19.0)),
            (stop("ShenandoahInitMark", "1500 ns") + &stop("Cleanup", "9000 ns"), Some(1.5)),
            (stop("ZMarkEnd", "soon"), None),
        ] {
            assert_eq!(longest_stop_us(&said), expected, "{said}");
        }
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
