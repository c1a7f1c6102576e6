//! `baton bench rt`: how late a real-time caller is served among ordinary ones.
//!
//! One thread of SCHED_FIFO calls a server once a period. Beside it none, or many, ordinary threads of another process call
//! the same method as fast as they can. What is told is the time from before the call to the first instruction
//! of its handler. The peer is a server on a local socket with an ordinary thread for each connection.

use crate::distribution::Distribution;
use crate::form::{self, BenchError, Finding, FormArgs};
use crate::html;
use crate::report::{Detail, Figures, Outcome, Row};
use crate::rt_end::{self, Ends, Way};
use crate::service::now_ns;
use crate::stage::{Setting, Stage};
use crate::table;
use baton_rt::Priority;
use rustix::thread::ClockId;
use std::collections::BTreeMap;
use std::io;
use std::process::ExitCode;

const NAME: &str = "rt";
/// What is told of a call, as rows name it.
const CASE: &str = "rt-call";
/// Calls until the looper is there, and everything is warm.
const N_WARM_UP: u32 = 300;

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct RtArgs {
    /// Calls of each round
    #[arg(long, default_value_t = 1000)]
    calls: u32,
    /// Rounds
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Time from one call to the next, in microseconds
    #[arg(long, default_value_t = 2000)]
    period_us: u64,
    /// The caller's priority: fifo:N or rr:N
    #[arg(long, default_value_t = Priority::Fifo(80))]
    priority: Priority,
    /// Ordinary callers, one number for each case
    #[arg(long, value_delimiter = ',', default_values_t = [0, 100])]
    callers: Vec<usize>,
    #[command(flatten)]
    form: FormArgs,
}

type Measured = BTreeMap<(usize, Way), Result<Distribution, String>>;

/// Runs it and prints what it found.
pub fn rt(args: &RtArgs) -> ExitCode {
    form::finish(NAME, &args.form, run(args))
}

fn run(args: &RtArgs) -> Result<Finding, BenchError> {
    let setting = Setting::look()?;
    let (rounds, calls) =
        if args.form.quick { (1, args.calls.min(500)) } else { (args.rounds, args.calls) };
    let mut measured = Measured::new();
    for &callers in &args.callers {
        for round in 0..rounds {
            for way in Way::ALL {
                let found = measure(way, callers, calls, args);
                add(&mut measured, (callers, way), round, found);
            }
        }
    }
    let report = setting.report(NAME, rounds, rows(&measured));
    let tables = table::of_calls(&report);
    let names = Way::ALL.map(Way::name);
    let lead = "Time from before a call to its handler's first instruction: how many calls were there no later.";
    let page = html::frame(&report, lead, &names, &charts(&measured), &tables);
    Ok(Finding { report, tables, page })
}

fn add(measured: &mut Measured, case: (usize, Way), round: u32, found: io::Result<Vec<u64>>) {
    match (found, measured.entry(case).or_insert_with(|| Ok(Distribution::default()))) {
        (Ok(times_ns), Ok(distribution)) => distribution.add_round(&times_ns),
        (Ok(_), Err(_)) => {}
        (Err(error), known) => *known = Err(format!("round {}: {error}", round + 1)),
    }
}

/// A round, on a stage of its own.
fn measure(way: Way, callers: usize, calls: u32, args: &RtArgs) -> io::Result<Vec<u64>> {
    let stage = Stage::set().map_err(io::Error::other)?;
    let ends = Ends::start(&stage, way, callers)?;
    let (period_ns, priority) = (args.period_us * 1000, args.priority);
    let caller = ends.caller()?;
    let body = move || {
        priority.set(None).map_err(io::Error::other)?;
        call_periodically(caller, calls, period_ns)
    };
    std::thread::spawn(body).join().expect("a caller does not panic")
}

fn call_periodically(mut call: rt_end::Call, calls: u32, period_ns: u64) -> io::Result<Vec<u64>> {
    let mut times_ns = vec![u64::MAX; calls as usize];
    times_ns.clear();
    let mut next_ns = now_ns();
    for number in 0..N_WARM_UP + calls {
        next_ns += period_ns;
        let time = rustix::thread::Timespec {
            tv_sec: (next_ns / 1_000_000_000) as i64,
            tv_nsec: (next_ns % 1_000_000_000) as i64,
        };
        rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &time)?;
        let start_ns = now_ns();
        let served_ns = call()?;
        if number >= N_WARM_UP {
            times_ns.push(served_ns.saturating_sub(start_ns));
        }
    }
    Ok(times_ns)
}

fn rows(measured: &Measured) -> Vec<Row> {
    let row = |(&(callers, way), found): (&(usize, Way), &Result<Distribution, String>)| {
        let outcome = match found {
            Ok(distribution) => Outcome::Measured(Figures::of(distribution)?),
            Err(why) => Outcome::Missing { why: why.clone() },
        };
        Some(Row {
            system: way.name(),
            case: CASE,
            payload_bytes: None,
            placement: None,
            detail: Some(Detail::Callers { callers }),
            outcome,
        })
    };
    measured.iter().filter_map(row).collect()
}

fn charts(measured: &Measured) -> String {
    let mut callers: Vec<usize> = measured.keys().map(|(callers, _)| *callers).collect();
    callers.dedup();
    let chart = |callers| {
        let cases = measured.iter().filter(|((these, _), _)| *these == callers);
        let named = cases.filter_map(|((_, way), found)| Some((way.name(), found.as_ref().ok()?)));
        html::chart(&format!("a real-time call among {callers} ordinary callers"), named)
    };
    callers.into_iter().map(chart).collect()
}
