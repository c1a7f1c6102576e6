//! The output of a run: the driver, and the steps of each scenario with their results.
//!
//! ```text
//! driver linux 6.1.0-56-amd64
//! scenario calls 17
//! > {"process":0,"thread":0,"act":{"Start":{"threads":2}}}
//!   p0.t1 ok wrote 0/0 read 4: NOOP
//! = calls 17
//! ```

use crate::crew::{Beside, Crew, Judged};
use crate::generate::Generator;
use crate::play::Stage;
use crate::profile::{PROFILES, Profile};
use crate::step::Step;
use std::ffi::CString;
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

/// Options of a run.
#[derive(Debug, clap::Args)]
pub struct PlayArgs {
    /// Families; all if none is named
    #[arg(long = "family")]
    families: Vec<String>,
    /// The first seed of each
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Number of seeds of each
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Steps of a random scenario
    #[arg(long, default_value_t = 100)]
    steps: u32,
    /// Scenarios to play again: for each a line "scenario ..." and lines with a step each
    #[arg(long)]
    script: Option<PathBuf>,
    /// The driver is in user space, with this process beside those that use it; may be given again
    #[arg(long = "beside", value_name = "PID")]
    beside: Vec<u32>,
    /// The device to open
    #[arg(long, value_name = "FILE", default_value = "/dev/binder")]
    device: PathBuf,
}

/// Prefix of the line with the driver's name.
pub const DRIVER: &str = "driver ";
/// Prefix of the line that ends a scenario.
pub const CLOSING: &str = "= ";
/// Result of a step that does not end.
pub const STUCK: &str = "stuck";

/// Plays scenarios.
pub fn play(arguments: &PlayArgs) -> ExitCode {
    let judged = if arguments.beside.is_empty() {
        Judged::Kernel
    } else {
        Judged::UserSpace(arguments.beside.iter().map(|pid| Beside::new(*pid)).collect())
    };
    let driver = match judged {
        Judged::Kernel => format!("linux {}", release()),
        Judged::UserSpace(_) => "baton".to_owned(),
    };
    // The forked actors have it, too.
    let device = CString::new(arguments.device.as_os_str().as_bytes());
    let device = Box::leak(device.expect("no zero byte in an argument").into_boxed_c_str());
    let mut crew = Crew::new(judged, device);
    let mut out = Writer { out: BufWriter::new(io::stdout()) };
    let head = writeln!(out.out, "{DRIVER}{driver}");
    let done = head.and_then(|()| match &arguments.script {
        Some(path) => scripts(path, &mut crew, &mut out),
        None => seeds(arguments, &mut crew, &mut out),
    });
    match done.and_then(|()| out.out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("conformance: {error}");
            ExitCode::FAILURE
        }
    }
}

fn release() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    text.trim().to_owned()
}

fn seeds(arguments: &PlayArgs, crew: &mut Crew, out: &mut Writer) -> io::Result<()> {
    let wanted = |profile: &&Profile| {
        arguments.families.is_empty() || arguments.families.iter().any(|name| name == profile.name)
    };
    for profile in PROFILES.iter().filter(wanted) {
        for seed in arguments.first..arguments.first + arguments.seeds {
            let mut generator = Generator::new(profile, seed);
            let mut left = arguments.steps;
            let name = format!("{} {seed}", profile.name);
            out.scenario(&name, crew, |stage| {
                left = left.checked_sub(1)?;
                Some(generator.step(&stage.world))
            })?;
        }
    }
    Ok(())
}

fn scripts(path: &PathBuf, crew: &mut Crew, out: &mut Writer) -> io::Result<()> {
    for (name, steps) in parse(&std::fs::read_to_string(path)?)? {
        let mut steps = steps.into_iter();
        out.scenario(&name, crew, |_| steps.next())?;
    }
    Ok(())
}

/// Parses the scenarios of a transcript or a script.
pub fn parse(text: &str) -> io::Result<Vec<(String, Vec<Step>)>> {
    let mut all: Vec<(String, Vec<Step>)> = Vec::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("scenario ") {
            all.push((name.to_owned(), Vec::new()));
        } else if let (Some(step), Some((_, steps))) = (line.strip_prefix("> "), all.last_mut()) {
            steps.push(serde_json::from_str(step)?);
        }
    }
    Ok(all)
}

struct Writer {
    out: BufWriter<io::Stdout>,
}

impl Writer {
    fn scenario(
        &mut self,
        name: &str,
        crew: &mut Crew,
        mut next: impl FnMut(&Stage) -> Option<Step>,
    ) -> io::Result<()> {
        let mut stage = Stage::new(crew);
        writeln!(self.out, "scenario {name}")?;
        while let Some(step) = next(&stage) {
            writeln!(self.out, "> {}", serde_json::to_string(&step)?)?;
            let Ok(record) = stage.play(&step) else {
                writeln!(self.out, "  {STUCK}")?;
                break;
            };
            for line in record {
                writeln!(self.out, "  {line}")?;
            }
        }
        writeln!(self.out, "{CLOSING}{name}")?;
        // Flushed so that a reader sees the progress.
        self.out.flush()
    }
}
