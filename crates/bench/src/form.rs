//! What every benchmark takes, and how each hands over what it has found.

use crate::chart::{self, Chart};
use crate::report::Report;
use crate::table::{self, Unit};
use baton_broker::RunError;
use clap::builder::RangedI64ValueParser;
use rustix::io::Errno;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// How a benchmark reports.
#[derive(Debug, clap::Args)]
pub struct FormArgs {
    /// Fewer calls: a minute or two
    #[arg(long)]
    pub quick: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Write charts to a file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Fail if a ratio does not hold what it must
    #[arg(long)]
    pub check: bool,
}

/// Why there is no result at all.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// No broker could be started.
    #[error("cannot start: {0}")]
    Broker(#[from] RunError),
    /// The system does not say where this process may run.
    #[error("cannot tell the processors: {0}")]
    Processors(Errno),
    /// There is no place for the run's files.
    #[error("cannot make a directory: {0}")]
    Directory(io::Error),
    /// What was found could not be written.
    #[error("cannot write {path}: {error}")]
    Output { path: PathBuf, error: io::Error },
}

impl From<BenchError> for io::Error {
    fn from(error: BenchError) -> io::Error {
        io::Error::other(error)
    }
}

/// The report of a benchmark, and how it is to be drawn.
pub struct Finding {
    pub(crate) report: Report,
    pub(crate) charts: Vec<Chart>,
    /// The quantity that the charts show.
    pub lead: &'static str,
    pub unit: Unit,
    /// Lines below the tables.
    pub notes: String,
}

impl Finding {
    pub(crate) fn new(report: Report, charts: Vec<Chart>, lead: &'static str) -> Finding {
        Finding { report, charts, lead, unit: Unit::Microseconds, notes: String::new() }
    }
}

/// Hands over what was found: 0 if all went well, 1 if a ratio does not hold (with `--check`) or
/// nothing could be measured.
pub fn finish(bench: &str, form: &FormArgs, found: Result<Finding, BenchError>) -> ExitCode {
    match found.and_then(|finding| show(form, &finding)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("baton bench {bench}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn show(form: &FormArgs, finding: &Finding) -> Result<bool, BenchError> {
    let Finding { report, charts, lead, unit, notes } = finding;
    let table = table::text(report, *unit, notes);
    let text = match form.json {
        true => &(serde_json::to_string_pretty(report).expect("strings and numbers") + "\n"),
        false => &table,
    };
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            return Err(BenchError::Output { path: "standard output".into(), error });
        }
        _ => {}
    }
    if let Some(path) = &form.html {
        std::fs::write(path, chart::page(report.bench, lead, charts, &table))
            .map_err(|error| BenchError::Output { path: path.clone(), error })?;
    }
    let measured = report.rows.iter().any(|row| row.figures.is_some());
    Ok(measured && (!form.check || report.holds()))
}

/// Goes on without what this machine or user may not have, and says so.
pub fn or_without<T>(bench: &str, had: Result<T, baton_rt::Error>) -> Option<T> {
    had.inspect_err(|error| {
        eprintln!("baton {bench}: goes on without: {error}");
        if let Some(advice) = error.advice() {
            eprintln!("  {advice}");
        }
    })
    .ok()
}

/// Numbers on the command line, from one on.
pub fn positive() -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..)
}

/// Peers by their names, or all or none.
pub fn parse_peers<T: Copy>(
    text: &str,
    all: impl Iterator<Item = T>,
    name: fn(T) -> &'static str,
) -> Result<Vec<T>, String> {
    let all: Vec<T> = all.collect();
    let find = |wanted| all.iter().copied().find(|&peer| name(peer) == wanted);
    match text {
        "all" => Ok(all),
        "none" => Ok(Vec::new()),
        _ => text.split(',').map(find).collect::<Option<_>>().ok_or_else(|| {
            let names: Vec<&str> = all.iter().copied().map(name).collect();
            format!("neither all nor none nor of {}", names.join(","))
        }),
    }
}
