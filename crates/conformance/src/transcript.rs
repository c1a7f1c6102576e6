//! What a run prints: for each scenario its steps, what came of each, and a digest of it all.
//!
//! ```text
//! scenario calls 17
//! > {"process":0,"thread":0,"act":{"Start":{"threads":2}}}
//!   p0.t1 ok wrote 0/0 read 4: NOOP
//! = calls 17 steps 120 digest 8a1f... places 30c2...
//! ```
//!
//! Where in the receive buffer something lies has a digest of its own, as there are rules by which
//! only that differs.

use crate::crew::{Crew, Judged};
use crate::decode::hash;
use crate::generate::Generator;
use crate::play::Stage;
use crate::profile::{PROFILES, Profile};
use crate::step::Step;
use crate::stillness::{Probe, threads_of};
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// What to play.
#[derive(Debug, clap::Args)]
pub struct PlayArgs {
    /// Families; all if none is named
    #[arg(long = "family")]
    families: Vec<String>,
    /// The first seed of each
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// How many seeds of each
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Steps of a random scenario
    #[arg(long, default_value_t = 100)]
    steps: u32,
    /// Scenarios to play again: for each a line "scenario ..." and lines with a step each
    #[arg(long)]
    script: Option<PathBuf>,
    /// Print digests only
    #[arg(long)]
    digest: bool,
    /// The driver is in user space, with this process beside those that use it; may be given again
    #[arg(long = "beside", value_name = "PID")]
    beside: Vec<u32>,
}

/// Plays what is asked for.
pub fn play(arguments: &PlayArgs) -> ExitCode {
    let judged = if arguments.beside.is_empty() {
        Judged::Kernel
    } else {
        let threads =
            |pid: &u32| threads_of(*pid).into_iter().map(|tid| (*pid, tid)).collect::<Vec<_>>();
        let all = arguments.beside.iter().flat_map(threads);
        Judged::UserSpace(all.filter_map(|(pid, tid)| Probe::thread(pid, tid)).collect())
    };
    let mut crew = Crew::new(judged);
    let mut out = Writer { out: BufWriter::new(io::stdout()), brief: arguments.digest };
    let done = match &arguments.script {
        Some(path) => scripts(path, &mut crew, &mut out),
        None => seeds(arguments, &mut crew, &mut out),
    };
    match done.and_then(|()| out.out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("conformance: {error}");
            ExitCode::FAILURE
        }
    }
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

/// Scenarios from the text of a transcript or a script.
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
    brief: bool,
}

impl Writer {
    fn scenario(
        &mut self,
        name: &str,
        crew: &mut Crew,
        mut next: impl FnMut(&Stage) -> Option<Step>,
    ) -> io::Result<()> {
        let mut stage = Stage::new(crew);
        let (mut n_steps, mut digest, mut places) = (0, 0, 0);
        if !self.brief {
            writeln!(self.out, "scenario {name}")?;
        }
        while let Some(step) = next(&stage) {
            let mut text = format!("> {}\n", serde_json::to_string(&step)?);
            let record = stage.play(&step);
            let stuck = record.is_err();
            for line in record.unwrap_or_else(|_| vec!["stuck".to_owned()]) {
                text.push_str("  ");
                text.push_str(&line);
                text.push('\n');
            }
            n_steps += 1;
            let (rest, of_places) = apart(&text);
            digest = hash(rest.as_bytes()) ^ u64::rotate_left(digest, 5);
            places = hash(of_places.as_bytes()) ^ u64::rotate_left(places, 5);
            if !self.brief {
                self.out.write_all(text.as_bytes())?;
            }
            if stuck {
                break;
            }
        }
        writeln!(self.out, "= {name} steps {n_steps} digest {digest:x} places {places:x}")
    }
}

/// A text without the places in receive buffers (`+1f0`), and these.
pub fn apart(text: &str) -> (String, String) {
    let (mut rest, mut places) = (String::with_capacity(text.len()), String::new());
    for word in text.split_inclusive([' ', '\n']) {
        let is_place = |digits: &str| digits.trim_end().bytes().all(|b| b.is_ascii_hexdigit());
        if word.strip_prefix('+').is_some_and(is_place) {
            places.push_str(word);
            rest.push_str("+ ");
        } else {
            rest.push_str(word);
        }
    }
    (rest, places)
}
